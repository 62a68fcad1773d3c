//! Calls that are damaged, of every syntax: they stay content, to the letter.

use whin::chat::{Conventions, Phase, Syntax};

use super::expect;

/// Texts that are no calls in a syntax, however much they look like some.
pub const TABLE: &[(Syntax, &[&str])] = &[
    (
        Syntax::Hermes,
        &[
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1,}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": {a: 1}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": NaN}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\x\"}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\u12g4\"}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"line\nline\"}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": [}}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": 1}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": \"[1]\"}</tool_call>",
            "<tool_call>{\"name\": \"f\"}, {\"name\": \"g\"}</tool_call>",
            "<tool_call>[{\"name\": \"f\"}, 1]</tool_call>",
            "<tool_call>\"f\"</tool_call>",
            "<tool_call>f({})</tool_call>",
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>",
            "<tool_call>{\"name\": \"f\"}</tool_cal>",
            "<tool_call><function=f></function> and</tool_call>",
            "<tool_call>{\"\": \"f\"}",
            "<tool_call>{\"name\": null}",
            "<tool_call>{\"name\": \"\\ud83d\"}",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": -}}",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1.}}",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1e}}",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": +1}}",
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}",
        ],
    ),
    (
        Syntax::Qwen3Coder,
        &[
            "<function=f",
            "<function=>\n</function>",
            "<function=a b></function>",
            "<function=f><parameter=a>1</function>",
            "<function=f><parameter=a>1</parameter>",
            "<function=f><parameter=a\n>1</parameter></function>",
            "<function=f>text</function>",
            "<tool_call><function f></function></tool_call>",
            "<tool_call><function=f><parameter=a>1</parameter></functions></tool_call>",
        ],
    ),
    (
        Syntax::Glm4,
        &[
            "<tool_call>",
            "<tool_call>f",
            "<tool_call>a word</tool_call>",
            "<tool_call>f\n<arg_key>a</arg_key></tool_call>",
            "<tool_call>f\n<arg_key>a</arg_key><arg_value>1</tool_call>",
            "<tool_call>f\n<arg_value>1</arg_value></tool_call>",
            "<tool_call>f\n<arg_key>a<arg_value>1</arg_value></tool_call>",
        ],
    ),
    (
        Syntax::Llama3Json,
        &[
            "{\"name\": \"f\", \"parameters\": {}",
            "{\"name\": \"f\", \"parameters\": {}}, {\"name\": \"g\", \"parameters\": {}}",
            "{\"name\": \"f\", \"parameters\": {}}; so",
            "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\"}",
            "{}",
            "{",
            "<|python_tag|>",
            "<|python_tag|> \n",
            "<|python_tag|>{\"name\": \"f\", ",
            "<|python_tag|>{\"name\": \"f\"} then",
        ],
    ),
    (
        Syntax::Mistral { named: false },
        &[
            "[TOOL_CALLS]",
            "[TOOL_CALLS] []",
            "[TOOL_CALLS] [{\"name\": \"f\"}",
            "[TOOL_CALLS]f",
            "[TOOL_CALLS]f[ARGS]",
            "[TOOL_CALLS]f[ARGS]1",
            "[TOOL_CALLS]f[ARGS]{\"a\": }",
            "[TOOL_CALLS]f[ARG]{}",
            "[TOOL_CALLS]f[CALL_ID]a-b[ARGS]{}",
            "[TOOL_CALLS][ARGS]{}",
            "[TOOL_CALLS] is a token.",
            "[TOOL_CALL]f[ARGS]{}",
        ],
    ),
    (
        Syntax::Pythonic,
        &[
            "[f(",
            "[f()",
            "[f(a=)]",
            "[f(a='x)]",
            "[f(a='x\n')]",
            "[f(a=1 b=2)]",
            "[f(a=1, a=2)]",
            "[f(a=01)]",
            "[f(a=0x10)]",
            "[f(a=_1)]",
            "[f(a={1: 2})]",
            "[f(a={'b'})]",
            "[f(a=[1)]]",
            "[f(a='\\ud800')]",
            "[f(a='\\xg1')]",
            "[f(**a)]",
            "[1f()]",
            "[f() g()]",
            "[f()],",
            "<function_calls></function_calls>",
            "<function_calls>f() g()</function_calls>",
            "<|tool_call_start|>[f()]<|tool_call_ends|>",
            "<|python_start|>print(1)<|python_end|>",
        ],
    ),
    (
        Syntax::DeepSeekV3,
        &[
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁begin｜>f",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{\"a\": 1",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>\n```json\n{}\n```<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f g\n```json\n{}\n```<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```` <｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n``json\n{}",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>a\nb<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{} so",
        ],
    ),
    (
        Syntax::KimiK2,
        &[
            "<|tool_call_begin|><|tool_call_argument_begin|>{}<|tool_call_end|>",
            "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\"}<|tool_call_end|>",
        ],
    ),
    (
        Syntax::Granite,
        &["<|tool_call|>", "<|tool_call|>[]", "<|tool_call|>[{\"name\": \"\"}]", "<|tool_call|>f"],
    ),
    (
        Syntax::Nemotron,
        &["<TOOLCALL>[{\"name\": \"f\"}]</TOOLCALLS>", "<TOOLCALL>[{\"name\": \"f\"}", "<TOOLCALL>no"],
    ),
    (Syntax::Command, &["<|START_ACTION|>[{\"tool_name\": 1}]<|END_ACTION|>", "<|START_ACTION|>no"]),
    (
        Syntax::Harmony,
        &[
            "<|channel|>commentary to=functions.f<|message|>{\"a\": 1",
            "<|channel|>commentary to=functions.f<|message|>{'a': 1}",
            "<|channel|>commentary to=functions.f<|message|>[]",
            "<|channel|>commentary to=functions.f<|message|>{} so",
            "<|channel|>commentary to=functions.f<|message|>{\"a\": \"\\ud800\"}",
            "<|chan",
            "Hi.",
        ],
    ),
];

#[test]
fn damaged_calls_stay_content() {
    for &(syntax, texts) in TABLE {
        let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
        for &text in texts {
            expect(&conventions, Phase::Undecided, text, ("", text, &[]));
        }
    }
}

/// A sound call behind a damaged one is still found.
#[test]
fn a_damaged_call_hides_none_behind_it() {
    for (syntax, damaged, sound) in [
        (Syntax::Hermes, "<tool_call>{\"name\": }</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>"),
        (Syntax::Qwen3Coder, "<function=f>x</function>", "<function=f></function>"),
        (Syntax::Glm4, "<tool_call>a b</tool_call>", "<tool_call>f\n</tool_call>"),
        (Syntax::Mistral { named: true }, "[TOOL_CALLS]f[ARGS]{,}", "[TOOL_CALLS]f[ARGS]{}"),
        (
            Syntax::DeepSeekV31,
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{,}",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}",
        ),
        (Syntax::Pythonic, "<|tool_call_start|>[f(]", "<|tool_call_start|>[f()]<|tool_call_end|>"),
        (Syntax::Granite, "<|tool_call|>[{}]", "<|tool_call|>[{\"name\": \"f\"}]"),
        (Syntax::Llama3Json, "Hm. <|python_tag|>{,}", "<|python_tag|>{\"name\": \"f\"}"),
        (
            Syntax::Harmony,
            "<|channel|>commentary to=functions.f<|message|>{,}",
            "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}",
        ),
    ] {
        let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
        // Channels hold text as it stands; around tags, blanks beside calls go.
        let blank = if syntax == Syntax::Harmony { "" } else { "\n" };
        expect(&conventions, Phase::Undecided, &format!("{damaged}{blank}{sound}"), ("", damaged, &["f {}"]));
    }
}
