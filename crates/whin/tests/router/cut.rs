//! Answers that are cut off: no half call comes out, neither as a call nor as text.

use whin::chat::{Conventions, Phase, Router, Syntax};

use super::pieces::SOUND;
use super::{Parts, parts, split_with};

fn cut(syntax: Syntax, text: &str) -> Parts {
    split_with(&Conventions { reasoning: None, syntax: Some(syntax) }, Phase::Undecided, text, true)
}

#[test]
fn a_call_that_is_cut_off_anywhere_behind_its_start_marker_shows_nothing() {
    let mut seen = 0;
    for (text, syntax) in SOUND.iter().flat_map(|&text| Syntax::ALL.map(|syntax| (text, syntax))) {
        let (_, content, calls) = cut(syntax, text);
        let leads = text.starts_with('{') || text.starts_with("[f") || text.starts_with("[{");
        if leads || !content.is_empty() || calls.is_empty() {
            continue;
        }
        for (place, _) in text.char_indices() {
            let conventions = Conventions { reasoning: None, syntax: Some(syntax) };
            let mut router = Router::new(&conventions, Phase::Undecided, true);
            router.push(&text[..place]);
            if router.phase() == Phase::Call {
                let (_, content, cut) = cut(syntax, &text[..place]);
                assert_eq!(content, "", "{syntax:?} {:?}", &text[..place]);
                assert!(calls.starts_with(&cut), "{syntax:?} {:?} {cut:?}", &text[..place]);
                seen += 1;
            }
        }
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn what_is_complete_before_the_cut_counts() {
    use Syntax::{Glm4, Granite, Harmony, Hermes, Llama3Json, Pythonic, Qwen3Coder};
    for (syntax, text, content, calls) in [
        (Hermes, "Hi.\n\n<tool_call>", "Hi.", &[] as &[&str]),
        (Hermes, "Hi.\n\n<tool_call>\n{\"name\": \"f\", \"argu", "Hi.", &[]),
        (Hermes, "<tool_call>{\"name\": \"f\"}", "", &["f {}"]),
        (Hermes, "<tool_call>{\"name\": \"f\"}</tool_c", "", &["f {}"]),
        (Hermes, "<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_ca", "", &["f {}"]),
        (Hermes, "<tool_call>{\"name\": \"f\"}</tool_call></tool", "", &["f {}"]),
        (Hermes, "<tool_call>{\"name\": \"f\"}\n{\"name\": \"g", "", &["f {}"]),
        (Qwen3Coder, "<tool_call><function=f></function><function=g><para", "", &["f {}"]),
        (Qwen3Coder, "<function=f><parameter=a>1</parameter>", "", &[]),
        (Glm4, "<tool_call>f\n<arg_key>a</arg_key>", "", &[]),
        (Granite, "<|tool_call|>[{\"name\": \"f\"}", "", &[]),
        (Llama3Json, "<|python_tag|>print(", "", &[]),
        (Llama3Json, "<|python_tag|>print(1)", "", &[]),
        (Llama3Json, "<|python_tag|>f.call(a=1)", "", &["f {\"a\": 1}"]),
        (Llama3Json, "{\"name\": \"f\", \"parameters\": {}}; {\"na", "", &["f {}"]),
        (Pythonic, "[f(a=1), g(", "", &["f {\"a\": 1}"]),
        (Pythonic, "<|python_start|>[f(a=1), g(", "", &["f {\"a\": 1}"]),
        (Harmony, "<|channel|>commentary to=functions.f<|message|>{\"a\"", "", &[]),
        (Harmony, "<|channel|>commentary to=functions.f<|message|>", "", &[]),
        (Harmony, "<|channel|>commentary to=functions.f<|message|> <", "", &[]),
        (Harmony, "<|channel|>commentary to=functions.f<|message|>{}", "", &["f {}"]),
        (Harmony, "<|channel|>commentary to=functions.f<|message|>{}<|ca", "", &["f {}"]),
        (Harmony, "<|channel|>commentary to=python code<|message|>print(1)", "", &[]),
        (Harmony, " to=functions.f<|channel|>comm", "", &[]),
        (Harmony, "<|chan", "", &[]),
        (Harmony, "<|channel|>final<|message|>Hi", "Hi", &[]),
    ] {
        let calls = calls.iter().map(|&call| call.to_owned()).collect();
        assert_eq!(cut(syntax, text), (String::new(), content.to_owned(), calls), "{syntax:?} {text:?}");
    }
}

#[test]
fn what_is_no_call_or_may_be_an_answer_stays_content_where_it_is_cut() {
    use Syntax::{Glm4, Harmony, Hermes, Llama3Json, Pythonic, Qwen3Coder};
    for (syntax, text) in [
        (Hermes, "Models write <tool_call> and then JSON"),
        (Hermes, "<tool_call>{\"name\": \"f\"}} or s"),
        (Hermes, "a <"),
        (Hermes, "<tool_cal"),
        (Qwen3Coder, "<function=a word"),
        (Glm4, "The <tool_call> tag holds a call"),
        (Llama3Json, "{\"name\": \"Ada\", \"age\""),
        (Llama3Json, "[{\"name\": \"Ada\", \"age\""),
        (Pythonic, "[link"),
        (Harmony, "to"),
        (Harmony, "<|channel|>commentary to=functions.f<|message|>no"),
    ] {
        assert_eq!(cut(syntax, text), (String::new(), text.to_owned(), Vec::new()), "{syntax:?}");
    }
    // Without tools, nothing is a call.
    let conventions = Conventions { reasoning: None, syntax: Some(Hermes) };
    let mut router = Router::new(&conventions, Phase::Content, false);
    let mut deltas = router.push("<tool_call>{");
    deltas.extend(router.finish_cut());
    assert_eq!(parts(deltas).1, "<tool_call>{");
}
