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
const KNOWN: [&str; 17] = [
    // A part of markup is no markup.
    "{{ ('<'|e)[:2] + '<' }}",
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

#[test]
fn roles_and_parts_follow_the_template() {
    let shown = |text: &str, message: Value| {
        let found = find::Found::from([("default".to_owned(), (text.to_owned(), "test.jinja".to_owned()))]);
        let template = Template::compile(found, Map::new(), Clock::System).unwrap();
        template.apply(&Conversation { messages: vec![message], ..Conversation::default() }).unwrap()
    };
    let developer = serde_json::json!({"role": "developer", "content": "x"});
    assert_eq!(shown("{{ messages[0].role }}", developer.clone()), "system");
    assert_eq!(shown("{# a developer #}{{ messages[0].role }}", developer.clone()), "system");
    for role in ["'developer'", "\"developer\""] {
        let text = format!("{{% if messages[0].role == {role} %}}{{{{ messages[0].role }}}}{{% endif %}}");
        assert_eq!(shown(&text, developer.clone()), "developer");
    }
    let parts = serde_json::json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
    assert_eq!(shown("{{ messages[0].content }}", parts.clone()), "a\nb");
    assert_eq!(shown("{% for part in messages[0].content %}<{{ part.text }}>{% endfor %}", parts), "<a><b>");
}

#[test]
fn a_message_is_continued_only_where_it_is_shown() {
    let continued = |text: &str, content: &str| {
        let found = find::Found::from([("default".to_owned(), (text.to_owned(), "test.jinja".to_owned()))]);
        let template = Template::compile(found, Map::new(), Clock::System).unwrap();
        let message = serde_json::json!({"role": "assistant", "content": content});
        template.apply(&Conversation {
            messages: vec![message],
            continue_final_message: true,
            ..Conversation::default()
        })
    };
    let template =
        "{% for m in messages %}<{{ m.content }}>{% endfor %}{% if add_generation_prompt %}A:{% endif %}";
    assert_eq!(continued(template, "one ").unwrap(), "<one ");
    assert_eq!(continued("<{{ messages[0].content | trim }}>", " one ").unwrap(), "<one");
    assert!(continued("{{ messages[0].role }} content", "one").is_err());
    assert!(continued("{{ messages[0].content | upper }}", "one").is_err());
}

#[test]
fn a_conversation_has_the_work_that_it_needs() {
    let message = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        serde_json::json!({"role": role, "content": "words and <think>more</think> words ".repeat(20)})
    };
    let conversation =
        Conversation { messages: (0..20_000).map(message).collect(), ..Conversation::default() };
    let template = Template::open(&crate::checkpoint::Source::BuiltIn).unwrap();
    assert!(template.apply(&conversation).unwrap().len() > 14_000_000);
}
