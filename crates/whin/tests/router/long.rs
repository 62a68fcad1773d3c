//! Long answers: the time they take grows with their length, whatever they hold.

use std::time::Instant;

use whin::chat::{Conventions, Delta, Phase, Router, Syntax};

use super::{joined, parts};

/// Seconds for a mebibyte in single characters; a few hundredths on an idle machine.
const LONGEST: f64 = 2.0;

fn in_single_characters(syntax: Syntax, text: &str) -> Vec<Delta> {
    let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
    let start = Instant::now();
    let mut router = Router::new(&conventions, Phase::Undecided, true);
    let mut deltas: Vec<_> = text.chars().flat_map(|c| router.push(c.encode_utf8(&mut [0; 4]))).collect();
    deltas.extend(router.finish());
    let seconds = start.elapsed().as_secs_f64();
    let begin: String = text.chars().take(40).collect();
    assert!(seconds < LONGEST, "{seconds} s for {syntax:?} {begin}");
    joined(deltas)
}

#[test]
fn a_mebibyte_of_arguments() {
    let filling = "x".repeat(1 << 20);
    for (syntax, text) in [
        (Syntax::Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"…\"}}"),
        (Syntax::Qwen3Coder, "<tool_call><function=f><parameter=a>…</parameter></function></tool_call>"),
        (Syntax::Glm4, "<tool_call>f<arg_key>a</arg_key><arg_value>…</arg_value></tool_call>"),
        (Syntax::Llama3Json, "{\"name\": \"f\", \"parameters\": {\"a\": \"…\"}}"),
        (Syntax::Llama3Json, "<|python_tag|>…"),
        (Syntax::Mistral { named: true }, "[TOOL_CALLS]f[ARGS]{\"a\": \"…\"}"),
        (Syntax::Mistral { named: true }, "[TOOL_CALLS]…[ARGS]{}"),
        (Syntax::Pythonic, "[f(a='…')]"),
        (Syntax::DeepSeekV31, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"…\"}<｜tool▁call▁end｜>"),
        (Syntax::KimiK2, "<|tool_call_begin|>f<|tool_call_argument_begin|>{\"a\": \"…\"}"),
        (Syntax::Gemma4, "<|tool_call>call:f{a:<|\"|>…<|\"|>}"),
        (Syntax::Harmony, "<|channel|>commentary to=functions.f<|message|>{\"a\": \"…\"}<|call|>"),
        (Syntax::Harmony, "<|channel|>commentary to=python<|message|>…<|call|>"),
        (Syntax::Llama3Json, "[{\"name\": \"f\", \"parameters\": {\"a\": \"…\"}}]"),
    ] {
        let deltas = in_single_characters(syntax, &text.replace('…', &filling));
        assert_eq!(parts(deltas).2.len(), 1, "{text}");
    }
}

/// Beginnings within beginnings, none of which becomes anything.
#[test]
fn a_mebibyte_of_beginnings() {
    for (syntax, text) in [
        (Syntax::Hermes, "<tool_call>{\""),
        (Syntax::Hermes, "<tool_call>["),
        (Syntax::Hermes, "<tool_call>"),
        (Syntax::Hermes, "<tool_call> "),
        (Syntax::Qwen3Coder, "<tool_call><function=f><parameter=a>"),
        (Syntax::Qwen3Coder, "<function=f><parameter=a></parameter>"),
        (Syntax::Qwen3Coder, "<function=f><parameter=a>\n<parameter=n>"),
        (Syntax::Qwen3Coder, "<function=f><parameter=a>1</parameter> <parameter=b>2</parameter>\n"),
        (Syntax::Glm4, "<tool_call>f<arg_key>a</arg_key><arg_value>"),
        (Syntax::Llama3Json, "{\"name\": {"),
        (Syntax::Llama3Json, "["),
        (Syntax::Mistral { named: true }, "[TOOL_CALLS]f[ARGS]{\""),
        (Syntax::Pythonic, "[f(a=["),
        (Syntax::Pythonic, "<function_calls>f(a='''"),
        (Syntax::DeepSeekV3, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\""),
        (Syntax::KimiK2, "<|tool_call_begin|>"),
        (Syntax::Gemma4, "<|tool_call>call:f{a:["),
        (Syntax::Gemma4, "<|tool_call>call:f{a:<|\"|>"),
        (Syntax::Harmony, "<|channel|>commentary to=f<|message|>{\""),
        (Syntax::Harmony, "<|channel|>"),
        (Syntax::Harmony, "<|start|> "),
    ] {
        let text = text.repeat((1 << 20) / text.len());
        let deltas = in_single_characters(syntax, &text);
        if syntax != Syntax::Harmony {
            assert_eq!(deltas, [Delta::Content(text)]);
        }
    }
}
