//! Splits answers into reasoning, content and tool calls: what is what, and that pieces change nothing.

mod calls;
mod cut;
mod long;
mod malformed;
mod pieces;

use whin::chat::{Conventions, Delta, Phase, ReasoningTags, Router, Syntax, ToolCall};

const QWEN: Conventions = Conventions { reasoning: Some(ReasoningTags::THINK), syntax: Some(Syntax::Hermes) };
const HARMONY: Conventions = Conventions { reasoning: None, syntax: Some(Syntax::Harmony) };

/// An answer in three parts: reasoning, content, and the calls as `name arguments`.
type Parts = (String, String, Vec<String>);

fn parts(deltas: impl IntoIterator<Item = Delta>) -> Parts {
    let mut parts = Parts::default();
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => parts.0 += &text,
            Delta::Content(text) => parts.1 += &text,
            Delta::Call(ToolCall { name, arguments }) => parts.2.push(format!("{name} {arguments}")),
        }
    }
    parts
}

/// The parts of a whole text, after seeing that single characters give the same deltas.
fn split(conventions: &Conventions, start: Phase, text: &str) -> Parts {
    split_with(conventions, start, text, false)
}

/// The same, where the text may have been cut off.
fn split_with(conventions: &Conventions, start: Phase, text: &str, cut: bool) -> Parts {
    let mut router = Router::new(conventions, start, true);
    let mut whole = router.push(text);
    whole.extend(finish(&mut router, cut));
    let mut router = Router::new(conventions, start, true);
    let mut pieces: Vec<_> = text.chars().flat_map(|c| router.push(c.encode_utf8(&mut [0; 4]))).collect();
    pieces.extend(finish(&mut router, cut));
    assert_eq!(joined(pieces), joined(whole.clone()), "{text:?}");
    parts(whole)
}

fn finish(router: &mut Router, cut: bool) -> Vec<Delta> {
    if cut { router.finish_cut() } else { router.finish() }
}

/// The deltas with neighbours of a kind joined.
fn joined(deltas: impl IntoIterator<Item = Delta>) -> Vec<Delta> {
    let mut result: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (result.last_mut(), delta) {
            (Some(Delta::Content(before)), Delta::Content(text))
            | (Some(Delta::Reasoning(before)), Delta::Reasoning(text)) => before.push_str(&text),
            (_, delta) => result.push(delta),
        }
    }
    result
}

fn expect(
    conventions: &Conventions,
    start: Phase,
    text: &str,
    (reasoning, content, calls): (&str, &str, &[&str]),
) {
    let calls = calls.iter().map(|&call| call.to_owned()).collect();
    assert_eq!(
        split(conventions, start, text),
        (reasoning.to_owned(), content.to_owned(), calls),
        "{text:?}"
    );
}

#[test]
fn reasoning_is_split_off_and_one_newline_pair_goes_with_its_tags() {
    use Phase::{Content, Reasoning, Undecided};
    for (start, text, reasoning, content) in [
        (Undecided, "<think>\nWhy?\n</think>\n\nSo.", "Why?", "So."),
        (Undecided, "\n <think>Why?</think>So.", "Why?", "So."),
        (Undecided, "<think>\n\n</think>\n\nSo.", "", "So."),
        (Undecided, "<think>\n</think>So.", "", "So."),
        (Undecided, "<think>\n\na\n\n</think>\n \n  So.\n", "\na\n", "  So.\n"),
        (Undecided, "So. <think>no</think>", "", "So. <think>no</think>"),
        (Undecided, "</think>So.", "", "</think>So."),
        (Undecided, "<thin", "", "<thin"),
        (Undecided, "\n\nSo.", "", "\n\nSo."),
        (Undecided, "<think>a</thin", "a</thin", ""),
        (Undecided, "<think>cut\n", "cut\n", ""),
        (Undecided, "<think>a</think>b</think><think>c</think>", "a", "b</think><think>c</think>"),
        (Undecided, "<think>a</think>\n\n", "a", ""),
        (Undecided, "<think>a</<</think></think>", "a</<", "</think>"),
        (Reasoning, "Why?\n</think>\n\nSo.", "Why?", "So."),
        (Reasoning, "\nWhy?\n\nNo, why?", "Why?\n\nNo, why?", ""),
        (Reasoning, "", "", ""),
        (Content, "So.", "", "So."),
        (Content, "<think>again</think>So.", "again", "So."),
        (Content, "So.</think>", "", "So.</think>"),
    ] {
        expect(&QWEN, start, text, (reasoning, content, &[]));
    }
}

#[test]
fn a_call_in_json_is_what_a_json_reader_says() {
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    for arguments in [
        r#"{"a": "</tool_call>"}"#,
        r#"{"command": "mkdir -p test/{test1,test2"}"#,
        r#"{"a": "\"}]{[\\"}"#,
        r#"{"n": 1.0, "big": 12345678901234567890123, "e": 1E400, "u": "é\u00e9日本"}"#,
        "{}",
        "{ \"a\" :[ ] }",
    ] {
        expect(&QWEN, Phase::Undecided, &call(arguments), ("", "", &[&format!("f {arguments}")]));
    }
    for (text, calls) in [
        ("<tool_call>{\"arguments\": {\"a\": 1}, \"id\": [3], \"name\": \"f\"}", &["f {\"a\": 1}"] as &[_]),
        ("<tool_call>{\"name\": \"f\", \"parameters\": {\"a\": 1}}</tool_", &["f {\"a\": 1}"]),
        ("<tool_call>{\"name\": \"f\"}</tool_call>", &["f {}"]),
        ("<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", &["f {}"]),
        ("<tool_call>{\"name\": \"f\", \"arguments\": \"\"}</tool_call>", &["f {}"]),
        (r#"<tool_call>{"name": "f", "arguments": "{\"a\": 1.0}"}</tool_call>"#, &["f {\"a\": 1.0}"]),
        ("<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]</tool_call>", &["f {}", "g {}"]),
        ("<tool_call>{\"name\": \"f\"}\n{\"name\": \"g\"}</tool_call>", &["f {}", "g {}"]),
        ("\n<tool_call>{\"name\": \"f\"}\n<tool_call>{\"name\": \"g\"}</tool_call> \n", &["f {}", "g {}"]),
        ("<think>x</think>\n\n<tool_call>{\"name\": \"f\"}</tool_call>\n", &["f {}"]),
    ] {
        let reasoning = if text.starts_with("<think>") { "x" } else { "" };
        expect(&QWEN, Phase::Undecided, text, (reasoning, "", calls));
    }
}

#[test]
fn blanks_beside_calls_go_and_text_stays_in_order() {
    let call = "<tool_call>\n{\"name\": \"f\"}\n</tool_call>";
    for (text, content) in [
        (format!("Let me see.\n\n{call}\n"), "Let me see."),
        (format!("{call}\n\nDone.\n"), "Done.\n"),
        (format!("One.\n{call}\n\nTwo."), "One.\n\nTwo."),
    ] {
        expect(&QWEN, Phase::Undecided, &text, ("", content, &["f {}"]));
    }
    let mut router = Router::new(&QWEN, Phase::Content, true);
    let deltas = router.push(&format!("a {call}b {call} c"));
    let f = || Delta::Call(ToolCall { name: "f".to_owned(), arguments: "{}".to_owned() });
    let text = |text: &str| Delta::Content(text.to_owned());
    assert_eq!(deltas, [text("a"), f(), text("b"), f(), text(" c")]);
}

#[test]
fn what_is_no_call_stays_content_to_the_letter() {
    for text in [
        "Models write <tool_call> and then JSON.",
        "<tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"argu",
        "<tool_call>{\"name\": \"f\"} or so</tool_call>",
        "<tool_call>{\"name\": \"f\"}}</tool_call>",
        "<tool_call>{\"name\": 3}</tool_call>",
        "<tool_call>{\"name\": \" \"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{'name': 'f'}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>",
        "<tool_call>{\"name\": \"f\nile\"}</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call></tool_call>",
        "</tool_call>",
        "<tool_cal",
        " \n",
    ] {
        expect(&QWEN, Phase::Undecided, text, ("", text, &[]));
    }
    let deep = format!("<tool_call>{}", "[".repeat(100_000));
    expect(&QWEN, Phase::Undecided, &deep, ("", &deep, &[]));
    // Something sound may follow, or stand within.
    let broken = "<tool_call>{\"name\": \"f</tool_call>\n";
    let sound = "<tool_call>{\"name\": \"g\"}</tool_call>";
    expect(&QWEN, Phase::Undecided, &format!("{broken}{sound}"), ("", broken.trim_end(), &["g {}"]));
    expect(&QWEN, Phase::Undecided, &format!("<tool_call>{sound}"), ("", "<tool_call>", &["g {}"]));
}

#[test]
fn calls_in_reasoning_do_not_count_and_without_tools_nothing_is_one() {
    let draft = "Perhaps <tool_call>{\"name\": \"f\"}</tool_call>?";
    let text = format!("<think>{draft}</think><tool_call>{{\"name\": \"g\"}}</tool_call>");
    expect(&QWEN, Phase::Undecided, &text, (draft, "", &["g {}"]));
    let mut router = Router::new(&QWEN, Phase::Content, false);
    assert_eq!(router.push(draft), [Delta::Content(draft.to_owned())]);
    assert_eq!(router.push(" \n"), [Delta::Content(" \n".to_owned())]);
}

#[test]
fn text_streams_at_once_but_for_what_may_be_a_tag() {
    use Phase::{Call, Content, Reasoning, Undecided};
    let mut router = Router::new(&QWEN, Undecided, true);
    let mut steps = Vec::new();
    for piece in [
        "\n",
        "<th",
        "ink>",
        "\n",
        "a\n",
        "b</",
        "x</think",
        ">",
        "\n",
        "Hi",
        " <tool",
        "s>",
        " <tool_call>",
        "{\"na",
    ] {
        let (reasoning, content, _) = parts(router.push(piece));
        steps.push((reasoning + &content, router.phase(), router.since_phase().to_owned()));
    }
    let seen: Vec<_> =
        steps.iter().map(|(text, phase, since)| (text.as_str(), *phase, since.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("", Undecided, "\n"),
            ("", Undecided, "\n<th"),
            ("", Reasoning, ""),
            ("", Reasoning, "\n"),
            ("a", Reasoning, "\na\n"),
            ("\nb", Reasoning, "\na\nb</"),
            ("</x", Reasoning, "\na\nb</x</think"),
            ("", Content, ""),
            ("", Content, "\n"),
            ("Hi", Content, "\nHi"),
            ("", Content, "\nHi <tool"),
            (" <tools>", Content, "\nHi <tools>"),
            ("", Call, ""),
            ("", Call, "{\"na"),
        ]
    );
    assert_eq!(router.finish(), [Delta::Content(" <tool_call>{\"na".to_owned())]);
}

#[test]
fn the_prompt_says_where_an_answer_begins() {
    for (prompt, phase) in [
        ("<|im_start|>assistant\n<think>\n", Phase::Reasoning),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", Phase::Content),
        ("<|im_start|>assistant\n", Phase::Undecided),
        ("<|im_start|>user\n<think>\n<|im_end|>\n<|im_start|>assistant\n", Phase::Undecided),
        ("", Phase::Undecided),
    ] {
        assert_eq!(QWEN.start(prompt), phase, "{prompt:?}");
    }
    assert_eq!(Conventions { reasoning: None, ..QWEN }.start("<think>"), Phase::Content);
    for (prompt, phase) in [
        ("<|start|>assistant", Phase::Undecided),
        ("<|start|>assistant<|channel|>analysis<|message|>", Phase::Reasoning),
        ("<|start|>assistant<|channel|>final<|message|>\n", Phase::Content),
    ] {
        assert_eq!(HARMONY.start(prompt), phase, "{prompt:?}");
    }
}

#[test]
fn channels_are_reasoning_content_and_calls() {
    let analysis = "<|channel|>analysis<|message|>Hm.<|end|>";
    for (text, expected) in [
        (format!("{analysis}<|start|>assistant<|channel|>final<|message|>Hi.<|return|>"), ("Hm.", "Hi.", &[] as &[_])),
        (format!("{analysis}<|start|>assistant<|channel|>final<|message|>Hi"), ("Hm.", "Hi", &[])),
        (
            format!("{analysis}<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{\"a\": \"<|call|>\"}}<|call|>"),
            ("Hm.", "", &["f {\"a\": \"<|call|>\"}"]),
        ),
        (
            format!("{analysis}<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{{}}"),
            ("Hm.", "", &["f {}"]),
        ),
        (
            format!("{analysis}<|start|>assistant<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|><|call|>"),
            ("Hm.\nSo.", "First.", &["f {}"]),
        ),
        ("Hi.".to_owned(), ("", "Hi.", &[])),
        ("<|channel|>analysis<|mess".to_owned(), ("", "", &[])),
        ("<|channel|>analysis<|message|>cut".to_owned(), ("cut", "", &[])),
        ("<|channel|>commentary to=functions.f<|message|>{\"a\"".to_owned(), ("", "<|channel|>commentary to=functions.f<|message|>{\"a\"", &[])),
        (
            "<|channel|>commentary to=functions.f<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>Hi.".to_owned(),
            ("", "<|channel|>commentary to=functions.f<|message|>no\nHi.", &[]),
        ),
    ] {
        expect(&HARMONY, Phase::Undecided, &text, expected);
    }
}

#[test]
fn built_in_tools_of_channels_are_called_and_show_no_markup() {
    let commentary = |to: &str, body: &str| format!("<|channel|>commentary to={to}<|message|>{body}<|call|>");
    for (text, expected) in [
        (
            commentary("python code", "x = {1: 2}\nprint(\"x\")\n"),
            ("", "", &[r#"python {"code": "x = {1: 2}\nprint(\"x\")"}"#] as &[_]),
        ),
        (
            "<|channel|>analysis to=python code<|message|>print(1)".to_owned(),
            ("", "", &[r#"python {"code": "print(1)"}"#]),
        ),
        (commentary("python", " {\"code\": \"1\"} "), ("", "", &[r#"python {"code": "1"}"#])),
        (commentary("python", "{1: 2}"), ("", "", &[r#"python {"code": "{1: 2}"}"#])),
        (
            commentary("browser.search <|constrain|>json", "{\"query\": \"<|call|>\"}"),
            ("", "", &[r#"browser.search {"query": "<|call|>"}"#]),
        ),
        (
            format!("{}<|start|>assistant{}", commentary("python", "1"), commentary("functions.f", "{}")),
            ("", "", &[r#"python {"code": "1"}"#, "f {}"]),
        ),
        // What is no call is what its channel says.
        (commentary("browser.search", "who?"), ("", "who?", &[])),
        (commentary("browser.search", "{who}"), ("", "{who}", &[])),
        ("<|channel|>analysis to=browser.search<|message|>who?<|end|>".to_owned(), ("who?", "", &[])),
    ] {
        expect(&HARMONY, Phase::Undecided, &text, expected);
    }
    let mut router = Router::new(&HARMONY, Phase::Undecided, false);
    let text = format!("{}<|start|>assistant<|channel|>final<|message|>So.", commentary("python", "1"));
    assert_eq!(parts(router.push(&text)), (String::new(), "1\nSo.".to_owned(), Vec::new()));
}

#[test]
fn without_tools_a_message_to_one_is_text_with_its_markup() {
    let call = "<|channel|>commentary to=functions.f<|message|>{}";
    let text = format!("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{call}<|call|>");
    let mut router = Router::new(&HARMONY, Phase::Undecided, false);
    let mut deltas = router.push(&text);
    deltas.extend(router.finish());
    let content = format!("<|start|>assistant{call}");
    assert_eq!(deltas, [Delta::Reasoning("Hm.".to_owned()), Delta::Content(content)]);
    // A message to a person is content.
    expect(&HARMONY, Phase::Undecided, "<|channel|>final to=user<|message|>{}", ("", "{}", &[]));
}
