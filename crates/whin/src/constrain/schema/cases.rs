//! What a schema comes to where several hold for one value: the compiler merges those parts, and some that it enforces
//! one by one it does not enforce together.
//!
//! The parts that hold for a value at one place are a spot. Its cases are the ways to choose among alternatives, each with
//! the objects of keywords that then hold together.

mod endings;
mod limits;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use llguidance::derivre::{Regex, RegexBuilder};
use llguidance::panic_utils;
use serde_json::{Map, Value};

/// Spots in a schema. References make no more of them, unless their targets meet other parts.
const MAX_SPOTS: usize = 20_000;

/// Ways to choose among alternatives at one spot.
const MAX_CASES: usize = 5000;

/// Keywords' objects in all cases of all spots.
const MAX_PARTS: usize = 1_000_000;

/// References and lists that lead from one to the next at one spot.
const MAX_CHAIN: usize = 300;

/// Patterns of names that are compared with names.
const MAX_MATCHED: usize = 256;

/// Steps that one of them may take to be understood.
const PATTERN_FUEL: u64 = 10_000;

/// Bytes of a name that take about as long to compare as a part takes to be looked at.
const BYTES_PER_PART: usize = 32;

/// What is wrong with how the parts of a schema meet.
pub(super) enum Clash {
    /// It cannot be enforced exactly, but otherwise does no harm.
    Soft(String),
    /// It must not reach the compiler.
    Hard(String),
}

/// All that is wrong with how the parts of `root` meet. `definitions` are what `#/$defs/0`, `#/$defs/1` and so on point at.
pub(super) fn clashes(root: &Value, definitions: &[Value]) -> Vec<Clash> {
    let mut finder = Finder {
        root,
        definitions,
        known: HashMap::new(),
        expanded: HashMap::new(),
        patterns: HashMap::new(),
        spots: Vec::new(),
        parts: 0,
    };
    if let Err(why) = finder.find() {
        return vec![Clash::Hard(why)];
    }
    let spots = finder.spots;
    let mut found: Vec<Clash> = endings::endless(&spots).map(Clash::Hard).into_iter().collect();
    for (index, spot) in spots.iter().enumerate() {
        found.extend(limits::check(&spot.cases, &|| place(&spots, index)));
    }
    found
}

type Part<'a> = &'a Map<String, Value>;

/// Objects of keywords that hold together, each of them once.
type Case<'a> = Vec<Part<'a>>;

/// The parts that hold for a value at one place.
struct Spot<'a> {
    /// The spot that it was first found at, and what leads on from there.
    from: Option<(usize, String)>,
    members: Vec<&'a Value>,
    cases: Vec<Case<'a>>,
    /// What values may look like, of all cases.
    shapes: Vec<Shape>,
}

/// A way in which a value may fit, and the spots within it that it must or may have.
#[derive(Default)]
struct Shape {
    needs: Vec<usize>,
    may_have: Vec<usize>,
}

/// Where a spot is first found, for messages.
fn place(spots: &[Spot<'_>], index: usize) -> String {
    let mut steps = Vec::new();
    let mut next = index;
    while let Some((from, step)) = &spots[next].from {
        steps.push(step.as_str());
        next = *from;
    }
    let mut text = String::from("#");
    steps.iter().rev().for_each(|step| {
        text.push('/');
        text += step;
    });
    crate::error::shortened(text, 200)
}

/// The types of JSON that a case allows.
#[derive(Clone, Copy)]
struct Types {
    object: bool,
    array: bool,
    /// Numbers that need not be whole.
    number: bool,
    any_other: bool,
}

impl Types {
    fn of(case: &[Part<'_>]) -> Self {
        let all = |name: &str| {
            case.iter().filter_map(|part| part.get("type")).all(|kind| super::values::may_be(kind, name))
        };
        let integer = case
            .iter()
            .filter_map(|part| part.get("type"))
            .all(|kind| ["integer", "number"].iter().any(|name| super::values::may_be(kind, name)));
        let any_other = integer || ["null", "boolean", "string"].iter().any(|name| all(name));
        Self { object: all("object"), array: all("array"), number: all("number"), any_other }
    }
}

struct Finder<'a> {
    root: &'a Value,
    definitions: &'a [Value],
    /// Spots by the addresses of their members.
    known: HashMap<Vec<usize>, usize>,
    /// The cases of references; none while they are being found.
    expanded: HashMap<usize, Option<Rc<Vec<Case<'a>>>>>,
    patterns: HashMap<&'a str, Option<Regex>>,
    spots: Vec<Spot<'a>>,
    parts: usize,
}

impl<'a> Finder<'a> {
    fn find(&mut self) -> Result<(), String> {
        let root = self.root;
        self.spot(vec![root], None)?;
        let mut next = 0;
        while next < self.spots.len() {
            let members = std::mem::take(&mut self.spots[next].members);
            let told = |why: String, spots: &[Spot<'_>]| format!("{}: {why}", place(spots, next));
            let mut cases = vec![Vec::new()];
            for member in &members {
                cases = self
                    .expand(member, 0)
                    .and_then(|more| self.product(&cases, &more))
                    .map_err(|why| told(why, &self.spots))?;
            }
            let mut shapes = Vec::new();
            for case in &cases {
                self.shapes(next, case, &mut shapes)?;
            }
            self.spots[next].cases = cases;
            self.spots[next].shapes = shapes;
            next += 1;
        }
        Ok(())
    }

    /// The spot at which `members` hold.
    fn spot(&mut self, members: Vec<&'a Value>, from: Option<(usize, String)>) -> Result<usize, String> {
        let address = |value: &&Value| std::ptr::from_ref::<Value>(value) as usize;
        let mut key: Vec<usize> = members.iter().map(address).collect();
        key.sort_unstable();
        key.dedup();
        if let Some(&index) = self.known.get(&key) {
            return Ok(index);
        }
        let index = self.spots.len();
        if index == MAX_SPOTS {
            return Err(format!("its parts meet at more than {MAX_SPOTS} places"));
        }
        self.known.insert(key, index);
        self.spots.push(Spot { from, members, cases: Vec::new(), shapes: Vec::new() });
        Ok(index)
    }

    /// The cases of one schema.
    fn expand(&mut self, schema: &'a Value, depth: usize) -> Result<Vec<Case<'a>>, String> {
        if depth > MAX_CHAIN {
            return Err("references and alternatives are nested too deep".into());
        }
        let Some(map) = schema.as_object() else {
            return Ok(if schema == &Value::Bool(false) { vec![] } else { vec![vec![]] });
        };
        let mut cases = vec![vec![map]];
        for (keyword, value) in map {
            match (keyword.as_str(), value) {
                ("allOf", Value::Array(all)) => {
                    for one in all {
                        let more = self.expand(one, depth + 1)?;
                        cases = self.product(&cases, &more)?;
                    }
                }
                ("anyOf" | "oneOf", Value::Array(any)) => {
                    let mut more = Vec::new();
                    for one in any {
                        more.extend(self.expand(one, depth + 1)?);
                        self.count(&more)?;
                    }
                    cases = self.product(&cases, &more)?;
                }
                ("$ref", Value::String(pointer)) => {
                    let more = self.target(pointer, depth)?;
                    cases = self.product(&cases, &more)?;
                }
                _ => {}
            }
        }
        Ok(cases)
    }

    fn target(&mut self, pointer: &str, depth: usize) -> Result<Rc<Vec<Case<'a>>>, String> {
        let index = pointer.strip_prefix("#/$defs/").and_then(|index| index.parse::<usize>().ok());
        let (key, schema) = match index.and_then(|index| Some((index, self.definitions.get(index)?))) {
            Some((index, schema)) => (index, schema),
            None => (usize::MAX, self.root),
        };
        match self.expanded.get(&key) {
            Some(Some(cases)) => return Ok(cases.clone()),
            Some(None) => {
                return Err(
                    "no finite value fits it by what it says: a reference leads back to itself".into()
                );
            }
            None => {}
        }
        self.expanded.insert(key, None);
        let cases = Rc::new(self.expand(schema, depth + 1)?);
        self.expanded.insert(key, Some(cases.clone()));
        Ok(cases)
    }

    /// Each case of the one with each of the other.
    fn product(&mut self, one: &[Case<'a>], other: &[Case<'a>]) -> Result<Vec<Case<'a>>, String> {
        if one.len().saturating_mul(other.len()) > MAX_CASES {
            return Err(format!("there are more than {MAX_CASES} ways to combine its alternatives"));
        }
        let mut all = Vec::with_capacity(one.len() * other.len());
        for (left, right) in one.iter().flat_map(|left| other.iter().map(move |right| (left, right))) {
            let mut case = left.clone();
            for part in right {
                if !case.iter().any(|known| std::ptr::eq(*known, *part)) {
                    case.push(part);
                }
            }
            self.parts += case.len();
            all.push(case);
            if self.parts > MAX_PARTS {
                return Err("its parts meet in too many ways".into());
            }
        }
        Ok(all)
    }

    fn count(&mut self, cases: &[Case<'a>]) -> Result<(), String> {
        if cases.len() > MAX_CASES {
            return Err(format!("it has more than {MAX_CASES} alternatives"));
        }
        Ok(())
    }

    /// The shapes that values of a case may have.
    fn shapes(&mut self, spot: usize, case: &[Part<'a>], shapes: &mut Vec<Shape>) -> Result<(), String> {
        if case.iter().any(|part| part.contains_key("const") || part.contains_key("enum")) {
            shapes.push(Shape::default()); // finite by itself
            return Ok(());
        }
        let types = Types::of(case);
        if types.any_other {
            shapes.push(Shape::default());
        }
        if types.object {
            let shape = self.object(spot, case)?;
            shapes.push(shape);
        }
        if types.array {
            let shape = self.array(spot, case)?;
            shapes.push(shape);
        }
        Ok(())
    }

    fn object(&mut self, spot: usize, case: &[Part<'a>]) -> Result<Shape, String> {
        let required: BTreeSet<&str> =
            case.iter().flat_map(|part| list(part, "required")).filter_map(Value::as_str).collect();
        let declared = case.iter().flat_map(|part| map(part, "properties")).map(|(name, _)| name.as_str());
        let names: BTreeSet<&str> = required.iter().copied().chain(declared).collect();
        let mut shape = Shape::default();
        for name in names {
            let mut members = Vec::new();
            for part in case {
                self.property(part, name, &mut members)?;
            }
            let step = || format!("properties/{}", super::escaped(name));
            self.within(spot, members, step, required.contains(name), &mut shape)?;
        }
        let patterns: BTreeSet<&str> = case
            .iter()
            .flat_map(|part| map(part, "patternProperties"))
            .map(|(pattern, _)| pattern.as_str())
            .collect();
        for pattern in patterns {
            let of = |part: &Part<'a>| {
                let own = part.get("patternProperties").and_then(|all| all.get(pattern));
                own.or_else(|| part.get("additionalProperties"))
            };
            let members = case.iter().filter_map(of).collect();
            let step = || format!("patternProperties/{}", super::escaped(pattern));
            self.within(spot, members, step, false, &mut shape)?;
        }
        let others = case.iter().filter_map(|part| part.get("additionalProperties")).collect();
        self.within(spot, others, || "additionalProperties".into(), false, &mut shape)?;
        Ok(shape)
    }

    /// Adds what a part says about the property `name` to `members`.
    fn property(&mut self, part: Part<'a>, name: &str, members: &mut Vec<&'a Value>) -> Result<(), String> {
        if let Some(own) = part.get("properties").and_then(|all| all.get(name)) {
            members.push(own);
            return Ok(());
        }
        let before = members.len();
        for (pattern, schema) in map(part, "patternProperties") {
            self.parts += 1 + name.len() / BYTES_PER_PART;
            if self.matches(pattern, name)? {
                members.push(schema);
            }
        }
        if members.len() == before {
            members.extend(part.get("additionalProperties"));
        }
        Ok(())
    }

    /// Whether a pattern is found in `name`; as good as not where that cannot be told.
    fn matches(&mut self, pattern: &'a str, name: &str) -> Result<bool, String> {
        let count = self.patterns.len();
        let Entry::Vacant(entry) = self.patterns.entry(pattern) else {
            let regex = self.patterns.get_mut(pattern).and_then(Option::as_mut);
            return Ok(regex.is_some_and(|regex| regex.is_match(name)));
        };
        if count == MAX_MATCHED {
            return Err(format!("more than {MAX_MATCHED} patterns stand beside declared names"));
        }
        // As the compiler looks for it, with its bound.
        let build = || {
            let mut builder = RegexBuilder::new();
            let regex = builder.mk_regex_for_serach(pattern)?;
            builder.to_regex_limited(regex, PATTERN_FUEL)
        };
        let regex = entry.insert(panic_utils::catch_unwind(AssertUnwindSafe(build)).ok());
        Ok(regex.as_mut().is_some_and(|regex| regex.is_match(name)))
    }

    fn array(&mut self, spot: usize, case: &[Part<'a>]) -> Result<Shape, String> {
        let count = |keyword: &'static str| case.iter().filter_map(move |part| part.get(keyword)?.as_u64());
        let least = usize::try_from(count("minItems").max().unwrap_or(0)).unwrap_or(usize::MAX);
        let most = count("maxItems").min().unwrap_or(u64::MAX);
        let prefix = case.iter().map(|part| list(part, "prefixItems").len()).max().unwrap_or(0);
        let mut shape = Shape::default();
        for place in 0..prefix {
            let of = |part: &Part<'a>| list(part, "prefixItems").get(place).or_else(|| part.get("items"));
            let members = case.iter().filter_map(of).collect();
            self.within(spot, members, || format!("prefixItems/{place}"), place < least, &mut shape)?;
        }
        if most > prefix as u64 {
            let rest = case.iter().filter_map(|part| part.get("items")).collect();
            self.within(spot, rest, || "items".into(), least > prefix, &mut shape)?;
        }
        Ok(shape)
    }

    /// Adds the spot at which `members` hold to what a shape has.
    fn within(
        &mut self,
        from: usize,
        members: Vec<&'a Value>,
        step: impl Fn() -> String,
        needed: bool,
        shape: &mut Shape,
    ) -> Result<(), String> {
        if members.iter().all(|member| *member == &Value::Bool(true)) {
            return Ok(()); // anything
        }
        self.parts += 1 + members.len();
        if self.parts > MAX_PARTS {
            return Err("its parts meet in too many ways".into());
        }
        let index = self.spot(members, Some((from, step())))?;
        if needed {
            shape.needs.push(index)
        } else {
            shape.may_have.push(index)
        }
        Ok(())
    }
}

fn list<'a>(part: Part<'a>, keyword: &str) -> &'a [Value] {
    part.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn map<'a>(part: Part<'a>, keyword: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    part.get(keyword).and_then(Value::as_object).into_iter().flatten()
}
