//! Whatever the text and however it is cut, pieces give what the whole gives.

use proptest::prelude::*;
use serde_json::json;
use whin::chat::{Conventions, Delta, Phase, ReasoningTags, Router, Syntax};

use super::malformed::TABLE;
use super::{finish, joined, parts};

/// Calls that are sound, one at least for each syntax.
pub const SOUND: &[&str] = &[
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}\n</tool_call>",
    "<tool_call>{\"arguments\": \"{\\\"a\\\": 1.0}\", \"name\": \"é\"}",
    "<tool_call>\n<function=f>\n<parameter=a>\n日本</parameter>\n</parameter>\n</function>\n</tool_call>",
    "<function=f>\n</function>",
    "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{1</arg_value>\n</tool_call>",
    "{\"name\": \"f\", \"parameters\": {\"a\": [1, {}]}};",
    "<|python_tag|>f.call(a='🙂')",
    "<|python_tag|>{\"name\": \"f\"}",
    "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]",
    "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"a\": \"{\"}",
    "[f(a='x]', b=[1, None], c=\"\"), g()]",
    "<|tool_call_start|>[f(a='''x\n''')]<|tool_call_end|>",
    "<function_calls>f()\ng()</function_calls>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    "<|tool_call|>[{\"name\": \"f\"}]<|/tool_call|>",
    "<TOOLCALL>[{\"name\": \"f\"}]</TOOLCALL>",
    "<|START_ACTION|>[{\"tool_name\": \"f\"}]<|END_ACTION|>",
    "<seed:tool_call><function=f><parameter=a>b</parameter></function></seed:tool_call>",
    "<minimax:tool_call><invoke name=\"f\"><parameter name=\"a\">b</parameter></invoke></minimax:tool_call>",
    "<|tool_call>call:f{a:<|\"|>}<|\"|>,b:[1]}<tool_call|>",
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
    "<|channel|>commentary to=python code<|message|>print(f)<|call|>",
    "<|channel|>final<|message|>Hi.<|return|>",
    "[{\"name\": \"f\", \"parameters\": {\"a\": \"[\"}}, {\"name\": \"g\", \"parameters\": {}}]",
    "<tool_call>{\"name\": \"f\"}</tool_call></tool_call>",
    "<function=f>\n<parameter=a>\nx\n<parameter=n>\n3\n</parameter>\n</function>",
    "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
];

/// Pieces of texts and of markup.
const WORDS: &[&str] = &[
    " ",
    "\n",
    "\n\n",
    "a",
    "é",
    "日本",
    "🙂",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    "=",
    ";",
    "`",
    "1",
    "null",
    "name",
    "<think>",
    "</think>",
    "<thi",
    "</",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "</function>",
    "<parameter=a>",
    "<parameter=n>\n",
    "</parameter>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|start|>",
    "<|call|>",
    "analysis",
    "final",
    "to=f",
    "to=python",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "```",
];

fn texts() -> impl Strategy<Value = String> {
    let malformed: Vec<&str> = TABLE.iter().flat_map(|(_, texts)| texts.iter().copied()).collect();
    let cut = (prop::sample::select(SOUND), any::<prop::sample::Index>()).prop_map(|(text, cut)| {
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        &text[..places[cut.index(places.len())]]
    });
    let part = prop_oneof![
        3 => prop::sample::select(SOUND),
        1 => prop::sample::select(malformed),
        1 => cut,
        4 => prop::sample::select(WORDS),
    ];
    let thought = prop_oneof![Just(""), Just("<think>\n"), Just("\n<think>a</think>\n\n")];
    (thought, prop::collection::vec(part, 0..8))
        .prop_map(|(thought, parts)| format!("{thought}{}", parts.concat()))
}

fn conventions() -> impl Strategy<Value = Conventions> {
    let syntaxes: Vec<_> = Syntax::ALL.into_iter().map(Some).chain([None]).collect();
    (prop::sample::select(syntaxes), any::<bool>()).prop_map(|(syntax, thinks)| Conventions {
        reasoning: thinks.then_some(ReasoningTags::THINK),
        syntax,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16384))]

    #[test]
    fn any_pieces_give_what_the_whole_text_gives(
        conventions in conventions(),
        start in prop::sample::select(vec![Phase::Undecided, Phase::Reasoning, Phase::Content]),
        (tools, declared, cut) in any::<(bool, bool, bool)>(),
        text in texts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let parameters = json!({"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}});
        let declarations = if declared { vec![json!({"name": "f", "parameters": parameters})] } else { Vec::new() };
        let router = || Router::new(&conventions, start, tools).with_tools(&declarations);
        let mut whole_router = router();
        let mut whole = whole_router.push(&text);
        whole.extend(finish(&mut whole_router, cut));

        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.retain(|&place| text.is_char_boundary(place));
        places.extend([0, text.len()]);
        places.sort_unstable();
        let mut router = router();
        let mut pieces = Vec::new();
        for pair in places.windows(2) {
            let deltas = router.push(&text[pair[0]..pair[1]]);
            prop_assert_eq!(&joined(deltas.clone()), &deltas);
            pieces.extend(deltas);
            prop_assert!(text[..pair[1]].ends_with(router.since_phase()));
        }
        pieces.extend(finish(&mut router, cut));
        // Nobody pushes after the end; if someone does, there is text.
        router.push(&text);
        router.finish();
        prop_assert!(!pieces.iter().any(|delta| matches!(delta, Delta::Content(text) | Delta::Reasoning(text) if text.is_empty())));
        prop_assert_eq!(joined(pieces), joined(whole.clone()));

        // Whatever is called can be read, and without calls and reasoning nothing is lost.
        let (reasoning, content, calls) = parts(whole);
        for call in &calls {
            let arguments = &call[call.find(" {").map_or(0, |place| place + 1)..];
            prop_assert!(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments).is_ok(), "{}", call);
        }
        prop_assert!(tools || calls.is_empty());
        let tags = start != Phase::Reasoning && conventions.syntax != Some(Syntax::Harmony);
        if tags && !cut && calls.is_empty() && reasoning.is_empty() && !text.contains("think>") {
            prop_assert_eq!(content, text);
        }
    }

    #[test]
    fn a_whole_text_of_any_sort_can_be_split(text in texts()) {
        let (content, calls) = whin::chat::split_tool_calls(&text);
        prop_assert!(!calls.is_empty() || content.unwrap_or_default() == text);
    }
}

/// Each of the sound calls is one in some syntax.
#[test]
fn the_sound_calls_are_sound() {
    for text in SOUND.iter().filter(|text| text.contains(['f', 'é']) && !text.contains("<|message|>H")) {
        let sound = Syntax::ALL.iter().any(|&syntax| {
            let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
            let mut router = Router::new(&conventions, Phase::Undecided, true);
            let mut deltas = router.push(text);
            deltas.extend(router.finish());
            let (reasoning, content, calls) = parts(deltas);
            reasoning.is_empty() && content.is_empty() && !calls.is_empty()
        });
        assert!(sound, "{text}");
    }
}

/// The inputs that the fuzzer of answers begins with: each text in each syntax, whole and in single characters.
#[test]
fn seeds_of_the_fuzzer_hold() {
    let mut texts: Vec<&str> = TABLE.iter().flat_map(|(_, texts)| texts.iter().copied()).collect();
    texts.extend(SOUND);
    let mut calls = 0;
    for text in texts {
        for choice in 0..=u8::MAX {
            let input = [&[choice, choice / 51], text.as_bytes()].concat();
            calls += usize::from(whin::fuzzing::answer(&input));
        }
    }
    assert!(calls > 256);
}
