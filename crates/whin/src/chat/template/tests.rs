//! Small templates against Jinja as transformers sets it up: the table is made by `tools/goldens/jinja.py`.

use serde_json::{Map, Value};

use super::clock::Clock;
use super::{Conversation, Template, find};

const SNIPPETS: &str = include_str!("../../../tests/fixtures/chat-snippets.json");

/// The moment that the table was made for: 2024-02-29 13:04:05 UTC.
const NOW: i64 = 1_709_211_845;

fn render(text: &str, variables: Map<String, Value>) -> crate::Result<String> {
    let found = find::Found::from([("default".to_owned(), (text.to_owned(), "test.jinja".to_owned()))]);
    let template = Template::compile(found, Map::new(), Clock::Fixed(NOW))?;
    let conversation = Conversation { template_kwargs: variables, ..Conversation::default() };
    template.render(&[], &conversation)
}

/// Templates that the engine refuses although Jinja renders them, or takes for something else, which nothing outside of it
/// can change. No chat template is known that needs one of them.
const KNOWN: [&str; 16] = [
    // Formatting by the operator, a sign in front of a number, a conversion in a format, and a statement: all refused.
    "{{ '%s is %d and %.2f%%' % ('x', 3, 1.5) }}",
    "{{ '%s' % 'a' }}",
    "{{ +i }}",
    "{{ '{!r}'.format('a') }}",
    "{% print s %}",
    // Macros that take what they do not name, and namespaces of two kinds of arguments: refused.
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}",
    // What Python refuses, and the engine does not.
    "{{ 'a' < 1 }}",
    "{{ none < 1 }}",
    "{{ 1 in 'abc' }}",
    "{{ [1, 'a'] | sort }}",
    // Methods that are not called.
    "{{ d.items is callable }}",
    "{{ s.upper is callable }}",
    "{{ d | attr('b') }}",
    "{{ s | attr('upper') is callable }}",
    "{{ self }}{{ loop }}|",
];

#[test]
fn snippets_render_as_jinja_renders_them() {
    let table: Value = serde_json::from_str(SNIPPETS).unwrap();
    let variables = table["variables"].as_object().unwrap();
    let mut wrong = Vec::new();
    let snippets = table["snippets"].as_array().unwrap();
    let mut known = 0;
    for snippet in snippets {
        let text = snippet["template"].as_str().unwrap();
        let found = render(text, variables.clone()).map_err(|error| error.to_string());
        let same = match (&snippet["text"], &snippet["raised"], &found) {
            (Value::String(expected), _, Ok(found)) => expected == found,
            (_, Value::String(expected), Err(error)) => error.contains(expected),
            (expected, raised, found) => expected.is_null() && raised.is_null() && found.is_err(),
        };
        let is_known = KNOWN.contains(&text);
        known += usize::from(is_known);
        if same == is_known {
            wrong.push(format!(
                "{snippet}\n    found {found:?}{}",
                if same { ", which is right by now" } else { "" }
            ));
        }
    }
    assert_eq!(known, KNOWN.len());
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), snippets.len(), wrong.join("\n"));
}
