//! Calls in every syntax, as models write them.

use serde_json::{Value, json};
use whin::chat::{Conventions, Phase, ReasoningTags, Router, Syntax, split_tool_calls};

use super::{expect, parts};

const fn only(syntax: Syntax) -> Conventions {
    Conventions { reasoning: None, syntax: Some(syntax) }
}

/// Answers in a syntax: the text, its content and its calls.
fn table(syntax: Syntax, rows: &[(&str, &str, &[&str])]) {
    for &(text, content, calls) in rows {
        expect(&only(syntax), Phase::Undecided, text, ("", content, calls));
    }
}

#[test]
fn qwen3_coder() {
    table(
        Syntax::Qwen3Coder,
        &[
            (
                "I look.\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\ny\n\n</parameter>\n</function>\n</tool_call>",
                "I look.",
                &[r#"f {"a": "1", "b": "x\ny\n"}"#],
            ),
            ("<function=f>\n</function>", "", &["f {}"]),
            ("<function=f></function>\n</tool_call>\nSo.", "So.", &["f {}"]),
            ("<tool_call><function=f></function>", "", &["f {}"]),
            ("<tool_call><function=f></function><function=g></function></tool_call>", "", &["f {}", "g {}"]),
            (
                "<tool_call><function=f></function>\n<tool_call><function=g></function></tool_call>",
                "",
                &["f {}", "g {}"],
            ),
            (
                "<tool_call><function=f><parameter=a></parameter></p</parameter> </parameter></parameter></function></tool_call>",
                "",
                &[r#"f {"a": "</parameter></p</parameter> </parameter>"}"#],
            ),
            (
                "<tool_call><function=f><parameter=a>\n</function>\n</tool_call>\n</parameter></function></tool_call>",
                "",
                &[r#"f {"a": "</function>\n</tool_call>"}"#],
            ),
            (
                "<tool_call><function=f><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
                "",
                &[r#"f {"a": "2"}"#],
            ),
            ("<tool_call>{\"name\": \"f\"}</tool_call>", "", &["f {}"]),
            // Nobody knows of another parameter.
            (
                "<function=f><parameter=a>\nx\n<parameter=n>\n3\n</parameter></function>",
                "",
                &[r#"f {"a": "x\n<parameter=n>\n3"}"#],
            ),
        ],
    );
}

/// Values and what they make of arguments, with `⟨a⟩` for the tag before the value of `a` and `⟨⟩` for the one behind.
const LINES: &[(&str, &str)] = &[
    ("⟨a⟩\nx\n⟨n⟩\n3\n⟨⟩", r#"{"a": "x", "n": 3}"#),
    ("⟨a⟩\nx\n\n⟨n⟩3⟨⟩", r#"{"a": "x\n", "n": 3}"#),
    ("⟨a⟩\n⟨n⟩\n3\n⟨⟩", r#"{"a": "", "n": 3}"#),
    ("⟨n⟩\n3\n⟨a⟩\nx\n⟨free⟩\ny\n⟨⟩", r#"{"n": 3, "a": "x", "free": "y"}"#),
    ("⟨a⟩\nx⟨⟩ y\n⟨n⟩3⟨⟩", r#"{"a": "x⟨⟩ y", "n": 3}"#),
    ("⟨a⟩\nx⟨⟩\ny\n⟨n⟩3⟨⟩", r#"{"a": "x⟨⟩\ny", "n": 3}"#),
    // Not at the beginning of a line, of no parameter, and of one that has come.
    ("⟨a⟩x ⟨n⟩3⟨⟩", r#"{"a": "x ⟨n⟩3"}"#),
    ("⟨a⟩⟨n⟩3⟨⟩", r#"{"a": "⟨n⟩3"}"#),
    ("⟨a⟩x\n⟨m⟩3⟨⟩", r#"{"a": "x\n⟨m⟩3"}"#),
    ("⟨a⟩x\n⟨a⟩3⟨⟩", r#"{"a": "x\n⟨a⟩3"}"#),
    ("⟨n⟩1⟨⟩⟨a⟩x\n⟨n⟩3⟨⟩", r#"{"n": 1, "a": "x\n⟨n⟩3"}"#),
];

#[test]
fn a_line_with_another_parameter_of_the_tool_ends_a_value() {
    let properties = json!({"a": {"type": "string"}, "n": {"type": "integer"}, "free": {}});
    let tools =
        [json!({"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}})];
    let called = |syntax, text: &str| {
        let mut router = Router::new(&only(syntax), Phase::Content, true).with_tools(&tools);
        parts(router.push(text))
    };
    for (syntax, block, open, close) in [
        (Syntax::Qwen3Coder, "<function=f>\n…</function>", "<parameter=", ">"),
        (Syntax::Qwen3Coder, "<tool_call><function=f>…</function></tool_call>", "<parameter=", ">"),
        (Syntax::SeedOss, "<seed:tool_call><function=f>…</function></seed:tool_call>", "<parameter=", ">"),
        (
            Syntax::MiniMaxM2,
            "<minimax:tool_call><invoke name=\"f\">…</invoke></minimax:tool_call>",
            "<parameter name=\"",
            "\">",
        ),
    ] {
        let spell = |text: &str, quote: &str| {
            let tags = [("⟨⟩", "</parameter>"), ("⟨", open), ("⟩", close)];
            tags.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, &to.replace('"', quote)))
        };
        for (body, arguments) in LINES {
            let text = block.replace('…', &spell(body, "\""));
            let call = format!("f {}", spell(arguments, "\\\""));
            assert_eq!(
                called(syntax, &text),
                (String::new(), String::new(), vec![call]),
                "{syntax:?} {text}"
            );
        }
    }
    let text = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
    assert_eq!(called(Syntax::Glm4, text).2, [r#"f {"a": "x", "n": 3}"#]);
}

#[test]
fn a_closing_tag_that_is_repeated_behind_a_call_is_no_content() {
    let syntaxes = [
        (Syntax::Hermes, "<tool_call>{\"name\": \"f\"}…", "</tool_call>"),
        (Syntax::Qwen3Coder, "<function=f></function>…", "</tool_call>"),
        (Syntax::Glm4, "<tool_call>f…", "</tool_call>"),
        (Syntax::SeedOss, "<seed:tool_call><function=f></function>…", "</seed:tool_call>"),
        (Syntax::MiniMaxM2, "<minimax:tool_call><invoke name=\"f\"></invoke>…", "</minimax:tool_call>"),
        (Syntax::Pythonic, "<|tool_call_start|>[f()]…", "<|tool_call_end|>"),
        (Syntax::DeepSeekV31, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}…", "<｜tool▁call▁end｜>"),
        (Syntax::KimiK2, "<|tool_call_begin|>f<|tool_call_argument_begin|>{}…", "<|tool_call_end|>"),
        (Syntax::Granite, "<|tool_call|>[{\"name\": \"f\"}]…", "<|/tool_call|>"),
        (Syntax::Nemotron, "<TOOLCALL>[{\"name\": \"f\"}]…", "</TOOLCALL>"),
        (Syntax::Command, "<|START_ACTION|>[{\"tool_name\": \"f\"}]…", "<|END_ACTION|>"),
        (Syntax::Gemma4, "<|tool_call>call:f{}…", "<tool_call|>"),
    ];
    for (syntax, call, close) in syntaxes {
        for repeated in [format!("{close}{close}"), format!("{close}\n{close} {close}")] {
            let call = call.replace('…', &repeated);
            table(syntax, &[(&call, "", &["f {}"]), (&format!("{call}\n{call}"), "", &["f {}", "f {}"])]);
            // Behind text, it is text.
            let content = format!("So {close}");
            table(syntax, &[(&format!("{call}\n{content}"), &content, &["f {}"])]);
        }
    }
}

#[test]
fn arguments_in_markup_have_the_types_that_the_tool_declares() {
    let tools = [
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
            "text": {"type": "string"},
            "maybe": {"type": ["string", "null"]},
            "count": {"type": "integer"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "yes": {"type": "boolean"},
            "list": {"type": "array"},
            "map": {"type": "object"},
            "choice": {"enum": [1, 2]},
            "point": {"$ref": "#/$defs/Point"},
            "round": {"$ref": "#/properties/round"},
            "free": {},
        }, "$defs": {"Point": {"anyOf": [{"type": "object"}, {"$ref": "#/$defs/Nothing"}]}, "Nothing": {"type": "null"}}}}}),
    ];
    for (key, value, expected) in [
        ("text", "42", "\"42\""),
        ("text", "null", "\"null\""),
        ("point", "{\"x\": 1.0}", "{\"x\": 1.0}"),
        ("point", "null", "null"),
        ("round", "1", "\"1\""),
        ("text", " a\"é\\ ", "\" a\\\"é\\\\ \""),
        ("maybe", "null", "null"),
        ("maybe", "nulls", "\"nulls\""),
        ("count", "12345678901234567890123", "12345678901234567890123"),
        ("count", "many", "\"many\""),
        ("count", "None", "null"),
        ("ratio", "1.50", "1.50"),
        ("ratio", "null", "null"),
        ("yes", "True", "true"),
        ("yes", "false", "false"),
        ("list", "[1.0, \"a\"]", "[1.0, \"a\"]"),
        ("list", "['a', None]", "[\"a\", null]"),
        ("list", "{}", "\"{}\""),
        ("map", "{\"a\": [{}]}", "{\"a\": [{}]}"),
        ("map", "{'a': (1,)}", "{\"a\": [1]}"),
        ("choice", "2", "2"),
        ("free", "3", "\"3\""),
        ("other", "3", "\"3\""),
    ] {
        let text = format!(
            "<tool_call>\n<function=f>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
        );
        let mut router = Router::new(&only(Syntax::Qwen3Coder), Phase::Content, true).with_tools(&tools);
        assert_eq!(parts(router.push(&text)).2, [format!("f {{\"{key}\": {expected}}}")]);
    }
    let text = "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>7</arg_value>\n<arg_key>other</arg_key>\n<arg_value>7</arg_value>\n</tool_call>";
    let mut router = Router::new(&only(Syntax::Glm4), Phase::Content, true).with_tools(&tools);
    assert_eq!(parts(router.push(text)).2, [r#"f {"text": "7", "other": 7}"#]);
}

#[test]
fn glm() {
    table(
        Syntax::Glm4,
        &[
            ("<tool_call>f\n</tool_call>", "", &["f {}"]),
            (
                "So.\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b c</arg_value>\n<arg_key>n</arg_key>\n<arg_value>[1, {\"x\": null}]</arg_value>\n</tool_call>\n<tool_call>g<arg_key>a</arg_key><arg_value></arg_value></arg_value></tool_call>",
                "So.",
                &[r#"f {"a": "b c", "n": [1, {"x": null}]}"#, r#"g {"a": "</arg_value>"}"#],
            ),
        ],
    );
}

#[test]
fn llama() {
    table(
        Syntax::Llama3Json,
        &[
            (r#"{"name": "f", "parameters": {"a": "b"}}"#, "", &[r#"f {"a": "b"}"#]),
            (
                "\n{\"name\": \"f\", \"parameters\": {}};\n{\"type\": \"function\", \"name\": \"g\", \"parameters\": {}}\n",
                "",
                &["f {}", "g {}"],
            ),
            (r#"<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"}"#, "", &["f {}", "g {}"]),
            (
                r#"<|python_tag|>brave_search.call(query="who \"is\"?")"#,
                "",
                &[r#"brave_search {"query": "who \"is\"?"}"#],
            ),
            (
                "Let me compute.\n<|python_tag|>print(1 + 1)\nprint(2)\n",
                "Let me compute.",
                &[r#"python {"code": "print(1 + 1)\nprint(2)"}"#],
            ),
            (
                r#" [{"name": "f", "parameters": {"a": "]"}}, {"name": "g", "arguments": {}}] "#,
                "",
                &[r#"f {"a": "]"}"#, "g {}"],
            ),
            (r#"[{"name": "f", "parameters": {}}]; {"name": "g", "parameters": {}}"#, "", &["f {}", "g {}"]),
            (r#"<|python_tag|>[{"name": "f", "parameters": {}}]"#, "", &["f {}"]),
            ("<|python_tag|>[x for x in y]", "", &[r#"python {"code": "[x for x in y]"}"#]),
            // Lists that are answers.
            (r#"[{"name": "Ada", "age": 36}]"#, r#"[{"name": "Ada", "age": 36}]"#, &[]),
            (r#"[{"name": "f", "parameters": {}}, 1]"#, r#"[{"name": "f", "parameters": {}}, 1]"#, &[]),
            (
                r#"[{"name": "f", "parameters": {}}] is it."#,
                r#"[{"name": "f", "parameters": {}}] is it."#,
                &[],
            ),
            ("[1, 2]", "[1, 2]", &[]),
            ("[] is empty", "[] is empty", &[]),
            ("[a](b)", "[a](b)", &[]),
            // An answer in JSON, and calls that are not the whole answer.
            (r#"{"name": "Ada", "age": 36}"#, r#"{"name": "Ada", "age": 36}"#, &[]),
            (r#"{"name": "f", "parameters": {}} is how."#, r#"{"name": "f", "parameters": {}} is how."#, &[]),
            (r#"So: {"name": "f", "parameters": {}}"#, r#"So: {"name": "f", "parameters": {}}"#, &[]),
        ],
    );
    // Without tools, JSON is an answer.
    let text = r#"{"name": "f", "parameters": {}}"#;
    let mut router = Router::new(&only(Syntax::Llama3Json), Phase::Content, false);
    assert_eq!(parts(router.push(text)).1, text);
}

#[test]
fn mistral() {
    table(
        Syntax::Mistral { named: true },
        &[
            (
                r#"[TOOL_CALLS] [{"name": "f", "arguments": {"a": [1]}, "id": "VvvODy9mT"}, {"name": "g", "arguments": "{}"}]"#,
                "",
                &["f {\"a\": [1]}", "g {}"],
            ),
            (r#"[TOOL_CALLS]{"name": "f", "arguments": {}}"#, "", &["f {}"]),
            (
                r#"So.[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"}[TOOL_CALLS]get-x.y{"b": 1.0}"#,
                "So.",
                &[r#"f {"a": "[TOOL_CALLS]"}"#, r#"get-x.y {"b": 1.0}"#],
            ),
            (r#"[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{} done"#, "done", &["f {}"]),
        ],
    );
}

#[test]
fn pythonic() {
    table(
        Syntax::Pythonic,
        &[
            (
                r#"[f(a="x", b=[1, None, True, -2.50], c={'k': (1, "é")}), a.b()]"#,
                "",
                &[r#"f {"a": "x", "b": [1, null, true, -2.50], "c": {"k": [1, "é"]}}"#, "a.b {}"],
            ),
            (r#" [ f ( a = '' ) ] "#, " [ f ( a = '' ) ] ", &[]),
            (r#" [ f( a = '' , b = "", ) , ] "#, "", &[r#"f {"a": "", "b": ""}"#]),
            (
                r#"[f(a='])}\'"', b="""x"
y""", c='a' "b")]"#,
                "",
                &[r#"f {"a": "])}'\"", "b": "x\"\ny", "c": "ab"}"#],
            ),
            (r#"[f(a='\x41\u00e9\U0001f642\ud83d\ude42\q\101\n')]"#, "", &["f {\"a\": \"Aé🙂🙂\\\\qA\\n\"}"]),
            (
                r"[f(a=1., b=.5, c=1_000, d=1e5, e=null, f=(2), g=(), h=+3, i=[+.5, -2])]",
                "",
                &[
                    r#"f {"a": 1.0, "b": 0.5, "c": 1000, "d": 1e5, "e": null, "f": 2, "g": [], "h": 3, "i": [0.5, -2]}"#,
                ],
            ),
            (
                r#"[f(a="""
say "hi", 'you'

)]}\"""", b='''"""it's ''', c="""""", d='x' """y
z""")]"#,
                "",
                &[r#"f {"a": "\nsay \"hi\", 'you'\n\n)]}\"", "b": "\"\"\"it's ", "c": "", "d": "xy\nz"}"#],
            ),
            ("So.\n<|tool_call_start|>[f(a=1)]<|tool_call_end|>Done.", "So.Done.", &["f {\"a\": 1}"]),
            ("<|python_start|>[f()]<|python_end|>", "", &["f {}"]),
            ("<function_calls>\nf(a='<')\ng()\n</function_calls>", "", &["f {\"a\": \"<\"}", "g {}"]),
            ("<function_calls>f()", "", &["f {}"]),
            ("[link](http://x) and more", "[link](http://x) and more", &[]),
            ("[f(1)]", "[f(1)]", &[]),
            ("[f(a=b)]", "[f(a=b)]", &[]),
            ("[f(a=1)] is how.", "[f(a=1)] is how.", &[]),
            ("[1, 2]", "[1, 2]", &[]),
            ("[]", "[]", &[]),
        ],
    );
}

#[test]
fn deepseek() {
    for syntax in [Syntax::DeepSeekV3, Syntax::DeepSeekV31] {
        table(
            syntax,
            &[
                (
                    "So.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                    "So.",
                    &["f {\"a\": \"```\"}", "g {}"],
                ),
                (
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"<｜tool▁call▁end｜>\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁calls▁end｜>",
                    "",
                    &["f {\"a\": \"<｜tool▁call▁end｜>\"}", "g {}"],
                ),
                ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n``", "", &["f {}"]),
            ],
        );
    }
}

#[test]
fn the_others() {
    table(
        Syntax::SeedOss,
        &[
            (
                "<seed:tool_call>\n<function=f>\n<parameter=a>b</parameter>\n</function>\n</seed:tool_call>",
                "",
                &[r#"f {"a": "b"}"#],
            ),
            (
                "<tool_call><function=f></function></tool_call>",
                "<tool_call><function=f></function></tool_call>",
                &[],
            ),
        ],
    );
    table(
        Syntax::MiniMaxM2,
        &[(
            "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">b</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
            "",
            &[r#"f {"a": "b"}"#, "g {}"],
        )],
    );
    table(
        Syntax::KimiK2,
        &[(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            "",
            &["f {\"a\": 1}", "g {}"],
        )],
    );
    table(
        Syntax::Granite,
        &[
            ("<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "", &["f {}"]),
            ("<|tool_call|>{\"name\": \"f\", \"arguments\": {}}<|/tool_call|>", "", &["f {}"]),
        ],
    );
    table(
        Syntax::Nemotron,
        &[("<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "", &["f {}"])],
    );
    table(
        Syntax::Command,
        &[(
            "<|START_ACTION|>[\n  {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>",
            "",
            &["f {}"],
        )],
    );
}

#[test]
fn gemma() {
    table(
        Syntax::Gemma4,
        &[
            (
                "<|tool_call>call:f{a:<|\"|>x}, \"y\"<|\"|>,n:1.50,l:[1,<|\"|>é<|\"|>,{k:null}],o:{},t:true}<tool_call|>",
                "",
                &[r#"f {"a": "x}, \"y\"", "n": 1.50, "l": [1, "é", {"k": null}], "o": {}, "t": true}"#],
            ),
            (
                "So.\n<|tool_call>call:f{ }<tool_call|><|tool_call>call:g{ a : b c , <|\"|>d<|\"|> : 2 }",
                "So.",
                &["f {}", r#"g {"a": "b c", "d": 2}"#],
            ),
        ],
    );
}

#[test]
fn templates_tell_the_syntax() {
    let none = |_: &str| false;
    let detect = |template: &str| Conventions::detect(template, &none).syntax;
    for (template, syntax) in [
        ("{% if tools %}<tool_call>{{ call | tojson }}</tool_call>", Syntax::Hermes),
        ("<tool_call>\n<function=' + name", Syntax::Qwen3Coder),
        ("<tool_call>{{ name }}<arg_key>", Syntax::Glm4),
        ("{% if tools %}{\"name\": function name, \"parameters\": dictionary", Syntax::Llama3Json),
        ("<|python_tag|>", Syntax::Llama3Json),
        ("[TOOL_CALLS][", Syntax::Mistral { named: false }),
        ("[TOOL_CALLS]' + name + '[ARGS]'", Syntax::Mistral { named: true }),
        ("[func_name1(params_name1=params_value1", Syntax::Pythonic),
        ("<｜tool▁calls▁begin｜>```json", Syntax::DeepSeekV3),
        ("<｜tool▁calls▁begin｜>", Syntax::DeepSeekV31),
        ("<|start|>assistant<|channel|>final<|message|>", Syntax::Harmony),
        ("<|tool_calls_section_begin|>", Syntax::KimiK2),
        ("<|tool_call|>", Syntax::Granite),
        ("{{- '<|tool_call>call:' + name }}", Syntax::Gemma4),
        ("<seed:tool_call>\n<function=", Syntax::SeedOss),
        ("{% set begin = '<minimax:tool_call>' %}<invoke name=", Syntax::MiniMaxM2),
    ] {
        assert_eq!(detect(template), Some(syntax), "{template}");
    }
    assert_eq!(detect("{{ messages }}"), None);
    let seedling =
        Conventions::detect(include_str!("../../../../models/seedling/chat_template.jinja"), &none);
    assert_eq!((seedling.syntax, seedling.reasoning), (Some(Syntax::Hermes), Some(ReasoningTags::THINK)));
    let token = |text: &str| ["<tool_call>", "<think>", "</think>"].contains(&text);
    let known = Conventions::detect("{% for tool in tools %}", &token);
    assert_eq!(
        (known.syntax, known.reasoning.map(|tags| tags.open)),
        (Some(Syntax::Hermes), Some("<think>"))
    );
    assert_eq!(known.markers(), ["<think>", "</think>", "<tool_call>", "</tool_call>"]);
    assert_eq!(Conventions::detect("{{ messages }}", &token).syntax, None);
}

#[test]
fn a_whole_text_is_split_whatever_its_syntax() {
    let hermes = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</think>\"}}\n</tool_call>";
    let call = "f {\"a\": \"</think>\"}";
    for (text, content, calls) in [
        (hermes.to_owned(), None, &[call] as &[_]),
        (format!("Hi.\n\n{hermes}\n{hermes}"), Some("Hi."), &[call, call]),
        (
            "<think>\n<tool_call>{\"name\": \"f\"}</tool_call>\n</think>\n\nHi.".to_owned(),
            Some("<think>\n<tool_call>{\"name\": \"f\"}</tool_call>\n</think>\n\nHi."),
            &[],
        ),
        (format!("<think>\nHm.\n</think>\n\n{hermes}"), Some("<think>\nHm.\n</think>"), &[call]),
        (
            "I could <tool_call>{\"name\": \"f\"}</tool_call>.</think>\n<tool_call>{\"name\": \"g\"}</tool_call>".to_owned(),
            Some("I could <tool_call>{\"name\": \"f\"}</tool_call>.</think>"),
            &["g {}"],
        ),
        ("<function=f></function>".to_owned(), None, &["f {}"]),
        ("[TOOL_CALLS]f[ARGS]{}".to_owned(), None, &["f {}"]),
        ("<tool_call>f\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>".to_owned(), None, &["f {\"a\": 1}"]),
        ("<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>".to_owned(), None, &["f {}"]),
        ("Write <tool_call>f</tool_call>.".to_owned(), Some("Write <tool_call>f</tool_call>."), &[]),
        ("\n Hi. ".to_owned(), Some("\n Hi. "), &[]),
        (String::new(), None, &[]),
    ] {
        let (rest, found) = split_tool_calls(&text);
        let found: Vec<_> = found.iter().map(|call| format!("{} {}", call.name, call.arguments)).collect();
        assert_eq!((rest.as_deref(), found), (content, calls.iter().map(|&call| call.to_owned()).collect()), "{text}");
    }
}

#[test]
fn arguments_are_always_json_of_an_object() {
    for (text, calls) in [("[f(a=1e400, b='x')]", 1), ("[f(b='\\udc00')]", 0), ("[f(a={'b': [()]})]", 1)] {
        let mut router = Router::new(&only(Syntax::Pythonic), Phase::Content, true);
        router.push(text);
        let found = parts(router.finish()).2;
        assert_eq!(found.len(), calls, "{text}");
        assert!(
            found
                .iter()
                .all(|call| serde_json::from_str::<Value>(&call[2..]).is_ok_and(|value| value.is_object()))
        );
    }
}
