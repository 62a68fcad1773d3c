//! The operators whose work the engine does not count. `+` and `~` become functions that pay for what they make before they
//! make it, and what is compared or used as a key is paid for before. Rewrites the source of a template, guided by the
//! engine's syntax tree and tokens.

use minijinja::machinery::ast::{BinOp, BinOpKind, Call, CallArg, Expr, GetItem, Map, Spanned, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::python::{Text, as_float, charge, from_float, invalid, str_of, type_name};

/// The functions that stand for the operators.
pub(super) const ADD: &str = "whin_add";
pub(super) const CONCAT: &str = "whin_concat";

/// The function around what is compared.
pub(super) const COUNTED: &str = "whin_counted";

/// What the call of [`COUNTED`] begins with.
const OPEN: &str = "whin_counted(";

/// How deep a value may be nested that is compared.
const MAX_DEPTH: usize = 200;

/// The source with `a + b + c` as `whin_add(a, b, c)`, and `~` likewise; with `whin_counted(…)` around both sides of a
/// comparison, and around keys. Lines stay lines.
///
/// # Errors
/// Those of the engine's parser.
pub(super) fn as_functions(source: &str, name: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let tree = parse(source, name, syntax.clone())?;
    let mut tokens = Vec::new();
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        tokens.push(Place {
            start,
            end,
            opens: matches!(token, Token::ParenOpen),
            closes: matches!(token, Token::ParenClose),
            negates: matches!(token, Token::Ident("not")),
        });
    }
    let mut edits = Edits { tokens, made: Vec::new() };
    edits.statement(&tree)?;
    // At the same place, what was found first stands outside; that is the order they are in.
    edits.made.sort_by_key(|edit| edit.at);
    let mut out = String::with_capacity(source.len() + 16 * edits.made.len());
    let mut done = 0;
    for edit in edits.made {
        out.push_str(&source[done..edit.at]);
        out.push_str(edit.text);
        done = edit.at + edit.replaces;
    }
    out.push_str(&source[done..]);
    Ok(out)
}

struct Edit {
    at: usize,
    replaces: usize,
    text: &'static str,
}

/// Where a token stands.
struct Place {
    start: usize,
    end: usize,
    /// Whether it is a round bracket that opens or closes.
    opens: bool,
    closes: bool,
    /// Whether it is the first half of `not in`.
    negates: bool,
}

struct Edits {
    tokens: Vec<Place>,
    made: Vec<Edit>,
}

impl Edits {
    fn statements(&mut self, statements: &[Stmt]) -> Result<(), Error> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn expressions(&mut self, expressions: &[Expr]) -> Result<(), Error> {
        expressions.iter().try_for_each(|expression| self.expression(expression))
    }

    fn statement(&mut self, statement: &Stmt) -> Result<(), Error> {
        match statement {
            Stmt::Template(node) => self.statements(&node.children),
            Stmt::EmitExpr(node) => self.expression(&node.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
            Stmt::ForLoop(node) => {
                self.expression(&node.iter)?;
                node.filter_expr.iter().try_for_each(|filter| self.expression(filter))?;
                self.statements(&node.body)?;
                self.statements(&node.else_body)
            }
            Stmt::IfCond(node) => {
                self.expression(&node.expr)?;
                self.statements(&node.true_body)?;
                self.statements(&node.false_body)
            }
            Stmt::WithBlock(node) => {
                node.assignments.iter().try_for_each(|(_, value)| self.expression(value))?;
                self.statements(&node.body)
            }
            Stmt::Set(node) => self.expression(&node.expr),
            Stmt::SetBlock(node) => {
                node.filter.iter().try_for_each(|filter| self.expression(filter))?;
                self.statements(&node.body)
            }
            Stmt::AutoEscape(node) => {
                self.expression(&node.enabled)?;
                self.statements(&node.body)
            }
            Stmt::FilterBlock(node) => {
                self.expression(&node.filter)?;
                self.statements(&node.body)
            }
            Stmt::Macro(node) => {
                self.expressions(&node.defaults)?;
                self.statements(&node.body)
            }
            Stmt::CallBlock(node) => {
                self.expression(&node.call.expr)?;
                self.arguments(&node.call.args)?;
                self.expressions(&node.macro_decl.defaults)?;
                self.statements(&node.macro_decl.body)
            }
            Stmt::Do(node) => {
                self.expression(&node.call.expr)?;
                self.arguments(&node.call.args)
            }
        }
    }

    fn arguments(&mut self, arguments: &[CallArg]) -> Result<(), Error> {
        arguments.iter().try_for_each(|argument| match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => self.expression(value),
        })
    }

    fn expression(&mut self, expression: &Expr) -> Result<(), Error> {
        match expression {
            Expr::Var(_) | Expr::Const(_) => Ok(()),
            Expr::Slice(node) => {
                let bounds = [&node.start, &node.stop, &node.step];
                bounds.into_iter().flatten().try_for_each(|bound| self.expression(bound))?;
                self.expression(&node.expr)
            }
            Expr::UnaryOp(node) => self.expression(&node.expr),
            Expr::BinOp(node) => self.operator(node),
            Expr::Compare(node) => {
                // The tree has the start of the token before.
                let start = self.token_at(node.span().start_offset as usize + 1);
                let others: Vec<&Expr> = node.ops.iter().map(|operand| &operand.expr).collect();
                self.compared(start, &node.expr, &others)
            }
            Expr::IfExpr(node) => {
                self.expression(&node.test_expr)?;
                self.expression(&node.true_expr)?;
                node.false_expr.iter().try_for_each(|other| self.expression(other))
            }
            Expr::Filter(node) => {
                node.expr.iter().try_for_each(|value| self.expression(value))?;
                self.arguments(&node.args)
            }
            Expr::Test(node) => {
                self.expression(&node.expr)?;
                self.arguments(&node.args)
            }
            Expr::GetAttr(node) => self.expression(&node.expr),
            Expr::GetItem(node) => self.item(node),
            Expr::Call(node) => self.call(node),
            Expr::List(node) => self.expressions(&node.items),
            Expr::Tuple(node) => self.expressions(&node.items),
            Expr::Map(node) => self.map(node),
        }
    }

    fn item(&mut self, node: &Spanned<GetItem>) -> Result<(), Error> {
        if !matches!(node.subscript_expr, Expr::Const(_)) {
            let bracket = self.token_behind(end_of(&node.expr));
            let closing = node.span().end_offset as usize - 1;
            self.count(bracket + 1, closing);
        }
        self.expression(&node.expr)?;
        self.expression(&node.subscript_expr)
    }

    fn call(&mut self, node: &Spanned<Call>) -> Result<(), Error> {
        if matches!(&node.expr, Expr::GetAttr(attribute) if attribute.name == "changed") {
            let [CallArg::Pos(_)] = &*node.args else {
                return Err(Error::new(ErrorKind::SyntaxError, "changed() takes one argument here"));
            };
            let bracket = self.token_behind(end_of(&node.expr));
            self.count(bracket + 1, node.span().end_offset as usize - 1);
        }
        self.expression(&node.expr)?;
        self.arguments(&node.args)
    }

    fn map(&mut self, node: &Spanned<Map>) -> Result<(), Error> {
        let mut before = self.token_at(node.span().start_offset as usize);
        for (key, value) in node.keys.iter().zip(&node.values) {
            let colon = self.token_behind(end_of(key));
            if !matches!(key, Expr::Const(_)) {
                self.count(before + 1, self.end_before(colon));
            }
            before = self.token_behind(end_of(value));
        }
        self.expressions(&node.keys)?;
        self.expressions(&node.values)
    }

    /// Edits a chain of one operator, which the tree holds as the first two operands, with the third, and so on.
    fn operator(&mut self, node: &Spanned<BinOp>) -> Result<(), Error> {
        use BinOpKind::{Add, Concat, Eq, Gt, Gte, In, Lt, Lte, Ne};
        let start = node.span().start_offset;
        let call = match node.op {
            Add => "whin_add(",
            Concat => "whin_concat(",
            Eq | Ne | Lt | Lte | Gt | Gte | In => {
                let start = self.token_at(start as usize + 1);
                return self.compared(start, &node.left, &[&node.right]);
            }
            _ => {
                self.expression(&node.left)?;
                return self.expression(&node.right);
            }
        };
        let kind = std::mem::discriminant(&node.op);
        self.edit(start as usize, 0, call);
        self.edit(node.span().end_offset as usize, 0, ")");
        let mut node = node;
        loop {
            let sign = self.token_behind(end_of(&node.left));
            let Some(place) = self.tokens.get(sign) else { return Err(not_understood()) };
            self.edit(place.start, 1, ",");
            self.expression(&node.right)?;
            match &node.left {
                // Brackets around it would have moved the start.
                Expr::BinOp(left)
                    if std::mem::discriminant(&left.op) == kind && left.span().start_offset == start =>
                {
                    node = left;
                }
                left => return self.expression(left),
            }
        }
    }

    /// Counts what is compared: `first`, which begins at the token `start`, with all of `others` in turn.
    fn compared(&mut self, start: usize, first: &Expr, others: &[&Expr]) -> Result<(), Error> {
        let (mut operand, mut start) = (first, start);
        for next in others.iter().map(Some).chain([None]) {
            let behind = self.token_behind(end_of(operand));
            // The last one ends with the brackets that are opened in it; a bracket around all is not its own.
            let end = match next {
                Some(_) => self.end_before(behind),
                None => self.end_of_last(start, end_of(operand)),
            };
            self.count(start, end);
            self.expression(operand)?;
            if let Some(next) = next {
                let Some(sign) = self.tokens.get(behind) else { return Err(not_understood()) };
                start = behind + 1 + usize::from(sign.negates);
                operand = next;
            }
        }
        Ok(())
    }

    /// The end of an operand that begins at the token `start` and whose tree ends at `end`, with the closing brackets of
    /// those around it.
    fn end_of_last(&self, start: usize, end: usize) -> usize {
        let mut inside = end;
        let opened = self.opened_between(start, end);
        let first = self.tokens.partition_point(|place| place.start < end);
        for place in self.tokens[first..].iter().take_while(|place| place.closes).take(opened) {
            inside = place.end;
        }
        inside
    }

    /// How many round brackets are opened and not closed between the token `start` and the place `end`.
    fn opened_between(&self, start: usize, end: usize) -> usize {
        let places = self.tokens[start.min(self.tokens.len())..].iter().take_while(|place| place.start < end);
        places.fold(0usize, |open, place| match (place.opens, place.closes) {
            (true, _) => open + 1,
            (_, true) => open.saturating_sub(1),
            _ => open,
        })
    }

    /// Puts the call around what is between the token `start` and the place `end`.
    fn count(&mut self, start: usize, end: usize) {
        if let Some(place) = self.tokens.get(start) {
            let at = place.start;
            self.edit(at, 0, OPEN);
            self.edit(end, 0, ")");
        }
    }

    fn edit(&mut self, at: usize, replaces: usize, text: &'static str) {
        self.made.push(Edit { at, replaces, text });
    }

    /// The first token that begins at `place` or behind it.
    fn token_at(&self, place: usize) -> usize {
        self.tokens.partition_point(|token| token.start < place)
    }

    /// The first token behind `place` that is no closing bracket.
    fn token_behind(&self, place: usize) -> usize {
        let first = self.token_at(place);
        let brackets = self.tokens[first..].iter().take_while(|token| token.closes).count();
        first + brackets
    }

    /// Where the token before this one ends.
    fn end_before(&self, token: usize) -> usize {
        token.checked_sub(1).and_then(|before| self.tokens.get(before)).map_or(0, |before| before.end)
    }
}

fn end_of(expression: &Expr) -> usize {
    expression.span().end_offset as usize
}

fn not_understood() -> Error {
    Error::new(ErrorKind::SyntaxError, "the operands of an operator are not understood")
}

/// A value that is about to be compared, or looked up: pays for all that is in it.
pub(super) fn counted(state: &State, value: Value) -> Result<Value, Error> {
    walk(state, &value, 0)?;
    Ok(value)
}

fn walk(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(invalid(format!("a value that is compared is nested more than {MAX_DEPTH} levels deep")));
    }
    for item in value.try_iter()?.checked() {
        let item = item?;
        state.consume_fuel(1)?;
        if value.kind() == ValueKind::Map {
            walk(state, &value.get_item(&item)?, depth + 1)?;
        }
        walk(state, &item, depth + 1)?;
    }
    Ok(())
}

/// `a + b + …`.
pub(super) fn add(state: &State, operands: Rest<Value>) -> Result<Value, Error> {
    let mut operands = operands.0.into_iter();
    let mut sum = operands.next().unwrap_or_default();
    let mut texts: Option<Text> = None;
    for operand in operands {
        match (&mut texts, operand.as_str()) {
            (Some(texts), Some(text)) => texts.push(text)?,
            (None, Some(text)) if sum.as_str().is_some() => {
                let mut joined = Text::new(state);
                joined.push(sum.as_str().unwrap_or_default())?;
                joined.push(text)?;
                texts = Some(joined);
            }
            _ => {
                if let Some(texts) = texts.take() {
                    sum = Value::from(texts.finish()?);
                }
                sum = two(state, &sum, &operand)?;
            }
        }
    }
    texts.map_or(Ok(sum), |texts| texts.finish().map(Value::from))
}

fn two(state: &State, left: &Value, right: &Value) -> Result<Value, Error> {
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if let Some(value) = [left, right].into_iter().find(|value| value.is_undefined()) {
        return Err(super::filters::undefined(value));
    }
    if is_list(left) && is_list(right) && left.is_tuple() == right.is_tuple() {
        let mut items = Vec::new();
        for value in [left, right] {
            charge(state, value.len().unwrap_or(0).saturating_mul(32))?;
            for item in value.try_iter()?.checked() {
                items.push(item?);
            }
        }
        return Ok(if left.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) });
    }
    if let (Some(a), Some(b)) = (whole(left), whole(right)) {
        return a.checked_add(b).map(Value::from).ok_or_else(|| invalid("the sum has more than 128 bits"));
    }
    if let (Some(a), Some(b)) = (number(left), number(right)) {
        return Ok(from_float(a + b));
    }
    let (a, b) = (type_name(left), type_name(right));
    Err(match left.kind() {
        ValueKind::String => invalid(format!("can only concatenate str (not \"{b}\") to str")),
        _ => invalid(format!("unsupported operand type(s) for +: '{a}' and '{b}'")),
    })
}

fn whole(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    as_float(value).or_else(|| whole(value).map(|whole| whole as f64))
}

/// `a ~ b ~ …`.
pub(super) fn concat(state: &State, operands: Rest<Value>) -> Result<String, Error> {
    let mut out = Text::new(state);
    for operand in operands.0 {
        match operand.as_str() {
            Some(text) => out.push(text)?,
            None => out.push(&str_of(state, &operand)?)?,
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_become_calls() {
        for (source, rewritten) in [
            ("{{ a + b }}", "{{ whin_add(a , b) }}"),
            ("{{a+b+c}}", "{{whin_add(a,b,c)}}"),
            ("{{ (a + b) + (c) }}", "{{ whin_add((whin_add(a , b)) , (c)) }}"),
            (
                "{{ a + (b + c) ~ d ~ 'x + y' }}",
                "{{ whin_add(a , whin_concat((whin_add(b , c)) , d , 'x + y')) }}",
            ),
            (
                "{{ a + b - c + d * e | f(g + 1) }}",
                "{{ whin_add(whin_add(a , b) - c , d * e | f(whin_add(g , 1))) }}",
            ),
            (
                "{{ a['x' + y].z(b ~ c)[d + 1:] + -e }}",
                "{{ whin_add(a[whin_counted(whin_add('x' , y))].z(whin_concat(b , c))[whin_add(d , 1):] , -e) }}",
            ),
            (
                "{% set a = b +\n c if (d + e) is eq 1 else [f + g, {'h': i + j}] %}",
                "{% set a = whin_add(b ,\n c) if (whin_add(d , e)) is eq 1 else [whin_add(f , g), {'h': whin_add(i , j)}] %}",
            ),
            (
                "é + {% for x in y + z if x + 1 %}{{ 'é' + \"é\" 'a' + x }}{% endfor %}",
                "é + {% for x in whin_add(y , z) if whin_add(x , 1) %}{{ whin_add('é' , \"é\" 'a' , x) }}{% endfor %}",
            ),
            (
                "{% macro m(a, b=c + d) %}{{ a + b }}{% endmacro %}{% call m(e + f) %}{% endcall %}",
                "{% macro m(a, b=whin_add(c , d)) %}{{ whin_add(a , b) }}{% endmacro %}{% call m(whin_add(e , f)) %}{% endcall %}",
            ),
        ] {
            assert_eq!(as_functions(source, "x", SyntaxConfig::default()).unwrap(), rewritten);
        }
    }
}
