//! Rewrites the source of a template, guided by the engine's syntax tree and tokens: `+`, `~`, and what is compared, used as
//! a key or put into a namespace, go through functions that pay for their work. Knows nothing of how they do.

use std::collections::HashSet;

use minijinja::machinery::ast::{BinOp, BinOpKind, Call, CallArg, Expr, GetItem, Map, Set, Spanned, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

/// The functions that stand for the operators.
pub(super) const ADD: &str = "whin_add";
pub(super) const CONCAT: &str = "whin_concat";

/// The function around what is compared.
pub(super) const COUNTED: &str = "whin_counted";

/// What the call of [`COUNTED`] begins with.
const OPEN: &str = "whin_counted(";

/// The function around what is put into a namespace, and what its call begins with: with two brackets, for a tuple that has
/// none of its own.
pub(super) const STORED: &str = "whin_stored";
const OPEN_STORED: &str = "whin_stored((";

/// The method that gives back its object, called where a text is about to be walked over: calls pay for their texts.
pub(super) const MEASURE: &str = "whin_measured";
const MEASURED: &str = ".whin_measured()";

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
        if matches!(&token, Token::Ident(name) if name.starts_with("whin_") && *name != "whin_each") {
            return Err(Error::new(ErrorKind::SyntaxError, "names that begin with whin_ are not free"));
        }
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        tokens.push(Place {
            start,
            end,
            opens: matches!(token, Token::ParenOpen),
            closes: matches!(token, Token::ParenClose),
            negates: matches!(token, Token::Ident("not")),
        });
    }
    let mut edits = Edits { tokens, ..Edits::default() };
    edits.holders.extend(["namespace", "caller", "loop"]);
    edits.statement(&tree)?;
    edits.check_what_is_stored();
    // At the same place, brackets close before the operator behind them goes, and what was found first stands outside;
    // that is the order they are in.
    edits.made.sort_by_key(|edit| (edit.at, edit.replaces));
    let mut out = String::with_capacity(source.len() + 16 * edits.made.len());
    let mut done = 0;
    for edit in edits.made {
        out.push_str(source.get(done..edit.at).ok_or_else(not_understood)?);
        // A call is no part of the word before it.
        if edit.text.starts_with(is_of_word) && out.ends_with(is_of_word) {
            out.push(' ');
        }
        out.push_str(edit.text);
        done = edit.at + edit.replaces;
    }
    out.push_str(source.get(done..).ok_or_else(not_understood)?);
    Ok(out)
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
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

#[derive(Default)]
struct Edits<'a> {
    tokens: Vec<Place>,
    made: Vec<Edit>,
    /// Variables whose values hold others that can change: namespaces, and macros with what they enclose.
    holders: HashSet<&'a str>,
    /// Variables that are used as a whole: neither called, nor for one of their parts.
    whole: HashSet<&'a str>,
    /// What is put into namespaces: from the token to the place.
    stored: Vec<(usize, usize)>,
}

impl<'a> Edits<'a> {
    fn statements(&mut self, statements: &'a [Stmt<'a>]) -> Result<(), Error> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn expressions(&mut self, expressions: &'a [Expr<'a>]) -> Result<(), Error> {
        expressions.iter().try_for_each(|expression| self.expression(expression))
    }

    fn statement(&mut self, statement: &'a Stmt<'a>) -> Result<(), Error> {
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
            Stmt::Set(node) => self.set(node),
            Stmt::SetBlock(node) => {
                node.filter.iter().try_for_each(|filter| self.expression(filter))?;
                self.statements(&node.body)
            }
            Stmt::AutoEscape(node) if matches!(&node.enabled, Expr::Const(on) if !on.value.is_true()) => {
                self.statements(&node.body)
            }
            Stmt::AutoEscape(_) => {
                Err(Error::new(ErrorKind::SyntaxError, "autoescape is not supported; use the filter escape"))
            }
            Stmt::FilterBlock(node) => {
                self.expression(&node.filter)?;
                self.statements(&node.body)
            }
            Stmt::Macro(node) => {
                self.holders.insert(node.name);
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

    fn arguments(&mut self, arguments: &'a [CallArg<'a>]) -> Result<(), Error> {
        arguments.iter().try_for_each(|argument| match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => self.expression(value),
        })
    }

    fn expression(&mut self, expression: &'a Expr<'a>) -> Result<(), Error> {
        match expression {
            Expr::Const(_) => Ok(()),
            Expr::Var(variable) => {
                self.whole.insert(variable.id);
                Ok(())
            }
            Expr::Slice(node) => {
                self.measure(&node.expr);
                let bounds = [&node.start, &node.stop, &node.step];
                bounds.into_iter().flatten().try_for_each(|bound| self.expression(bound))?;
                self.base(&node.expr)
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
            Expr::GetAttr(node) => self.base(&node.expr),
            Expr::GetItem(node) => self.item(node),
            Expr::Call(node) => self.call(node),
            Expr::List(node) => self.expressions(&node.items),
            Expr::Tuple(node) => self.expressions(&node.items),
            Expr::Map(node) => self.map(node),
        }
    }

    fn item(&mut self, node: &'a Spanned<GetItem<'a>>) -> Result<(), Error> {
        if !matches!(node.subscript_expr, Expr::Const(_)) {
            let bracket = self.token_behind(end_of(&node.expr));
            let closing = node.span().end_offset as usize - 1;
            self.count(bracket + 1, closing);
        }
        if !matches!(&node.subscript_expr, Expr::Const(key) if key.value.as_str().is_some()) {
            self.measure(&node.expr);
        }
        self.base(&node.expr)?;
        self.expression(&node.subscript_expr)
    }

    /// What is walked over to find a part of it, if it is a text, is paid for.
    fn measure(&mut self, whole: &Expr) {
        if let Some(place) = self.tokens.get(self.token_behind(end_of(whole))) {
            self.edit(place.start, 0, MEASURED);
        }
    }

    /// Something that is called, or whose part is taken.
    fn base(&mut self, expression: &'a Expr<'a>) -> Result<(), Error> {
        match expression {
            Expr::Var(_) => Ok(()),
            other => self.expression(other),
        }
    }

    fn set(&mut self, node: &'a Spanned<Set<'a>>) -> Result<(), Error> {
        match (&node.target, &node.expr) {
            (Expr::Var(target), Expr::Call(call)) if is_namespace(&call.expr) => {
                self.holders.insert(target.id);
                return self.arguments(&call.args);
            }
            (Expr::Var(_), _) => {}
            (target, value) => {
                let start = self.token_behind(end_of(target)) + 1;
                self.stored.push((start, self.end_of_last(start, end_of(value))));
            }
        }
        self.expression(&node.expr)
    }

    /// A namespace that held itself would never be freed. That takes one that is used as a whole; where a template does so,
    /// what it puts into namespaces is looked through.
    fn check_what_is_stored(&mut self) {
        if self.whole.is_disjoint(&self.holders) {
            return;
        }
        let mut outer = Vec::new();
        for (start, end) in std::mem::take(&mut self.stored) {
            if let Some(place) = self.tokens.get(start) {
                outer.push(Edit { at: place.start, replaces: 0, text: OPEN_STORED });
                outer.push(Edit { at: end, replaces: 0, text: "))" });
            }
        }
        // They stand outside of what else is put there.
        outer.append(&mut self.made);
        self.made = outer;
    }

    fn call(&mut self, node: &'a Spanned<Call<'a>>) -> Result<(), Error> {
        if matches!(&node.expr, Expr::GetAttr(attribute) if attribute.name == "changed") {
            let [CallArg::Pos(_)] = &*node.args else {
                return Err(Error::new(ErrorKind::SyntaxError, "changed() takes one argument here"));
            };
            let bracket = self.token_behind(end_of(&node.expr));
            let closing = node.span().end_offset as usize - 1;
            self.count(bracket + 1, closing);
            // The loop keeps it, and would never be freed if it kept itself.
            if let Some(place) = self.tokens.get(bracket + 1) {
                let at = place.start;
                self.edit(at, 0, OPEN_STORED);
                self.edit(closing, 0, "))");
            }
        }
        if is_namespace(&node.expr) {
            self.whole.insert("namespace");
        }
        self.base(&node.expr)?;
        self.arguments(&node.args)
    }

    fn map(&mut self, node: &'a Spanned<Map<'a>>) -> Result<(), Error> {
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
    fn operator(&mut self, node: &'a Spanned<BinOp<'a>>) -> Result<(), Error> {
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
    fn compared(&mut self, start: usize, first: &'a Expr<'a>, others: &[&'a Expr<'a>]) -> Result<(), Error> {
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

fn is_namespace(expression: &Expr) -> bool {
    matches!(expression, Expr::Var(variable) if variable.id == "namespace")
}

fn end_of(expression: &Expr) -> usize {
    expression.span().end_offset as usize
}

fn not_understood() -> Error {
    Error::new(ErrorKind::SyntaxError, "the operands of an operator are not understood")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_become_calls() {
        for (source, rewritten) in [
            ("{{ a + b }}", "{{ whin_add(a , b) }}"),
            ("{{a+b+c}}", "{{whin_add(a,b,c)}}"),
            ("{{ '[' ~ m.r+']' }}", "{{ whin_add(whin_concat('[' , m.r),']') }}"),
            ("{{ a ~ b+c~d }}", "{{ whin_add(whin_concat(a , b),whin_concat(c,d)) }}"),
            ("{% if a in['b'] %}{% endif %}", "{% if whin_counted(a) in whin_counted(['b']) %}{% endif %}"),
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
                "{{ whin_add(a.whin_measured()[whin_counted(whin_add('x' , y))].z(whin_concat(b , c)).whin_measured()[whin_add(d , 1):] , -e) }}",
            ),
            (
                "{% if(n)==5 or(n)==5 and not(n)==5 %}{% elif(n)==5 %}{% endif %}",
                "{% if whin_counted((n))==whin_counted(5) or whin_counted((n))==whin_counted(5) and not \
                 whin_counted((n))==whin_counted(5) %}{% elif whin_counted((n))==whin_counted(5) %}{% endif %}",
            ),
            (
                "{{ 'x'in'xyz' }}{{ 2 if 1 else(n)+5 }}{{ 1 not in[1] }}",
                "{{ whin_counted('x')in whin_counted('xyz') }}{{ 2 if 1 else whin_add((n),5) }}{{ whin_counted(1) \
                 not in whin_counted([1]) }}",
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
