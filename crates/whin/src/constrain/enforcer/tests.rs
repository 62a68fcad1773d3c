use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::*;
use crate::chat::{Answer, Conventions, ReasoningTags, Syntax};
use crate::constrain::{Format, Grammar, final_channel, strict_grammar};

struct World {
    tokenizer: Tokenizer,
    grammars: Grammars,
    eos: u32,
    shown: Vec<u32>,
    conventions: Conventions,
}

impl World {
    fn new(conventions: Conventions) -> Self {
        let json = include_bytes!("../../../../../models/seedling/tokenizer.json");
        let mut json: Value = serde_json::from_slice(json).unwrap();
        let added = json["added_tokens"].as_array_mut().unwrap();
        let mut next = added.iter().filter_map(|token| token["id"].as_u64()).max().unwrap() + 1;
        for marker in conventions.markers().into_iter().chain([">4", "k>", "</think>4", ">\n\n42!", ">x"]) {
            if !added.iter().any(|token| token["content"] == marker) {
                let special = marker.starts_with("<|");
                added.push(json!({ "id": next, "content": marker, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": special }));
                next += 1;
            }
        }
        let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes(), "tokenizer.json").unwrap();
        let eos = tokenizer.token_to_id("<|im_end|>").unwrap();
        let grammars = Grammars::new(&tokenizer, tokenizer.vocab_size(), &[eos]).unwrap();
        let shown = conventions.markers().iter().filter_map(|text| tokenizer.token_to_id(text)).collect();
        Self { tokenizer, grammars, eos, shown, conventions }
    }

    fn enforcer(&self, phase: Phase) -> Enforcer {
        let mut grammar = Grammar::new(&Format::Regex("[0-9]{1,3}!".into())).unwrap();
        let (openings, close) = match self.conventions.syntax {
            Some(Syntax::Harmony) => {
                if phase != Phase::Content {
                    grammar = final_channel(&grammar, &self.tokenizer);
                }
                (
                    vec![
                        "<|channel|>analysis<|message|>",
                        "<|start|>assistant<|channel|>analysis<|message|>",
                    ],
                    "<|end|>",
                )
            }
            _ => (vec!["<think>"], "</think>"),
        };
        let matcher = self.grammars.compile(&grammar).unwrap();
        let stream = TextStream::new(&self.tokenizer, true).showing(&self.shown);
        let router = Router::new(&self.conventions, phase, false);
        Enforcer::behind_reasoning(
            &self.grammars,
            matcher,
            (&self.tokenizer, stream),
            (router, phase),
            (&openings, close),
        )
    }

    fn ids(&self, texts: &[&str]) -> Vec<u32> {
        texts.iter().flat_map(|text| self.tokenizer.encode(text).unwrap()).collect()
    }

    /// The tokens of an answer that mostly consists of `usual` ones.
    fn walk(&self, phase: Phase, usual: &[u32], seed: u64) -> Vec<u32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut enforcer = self.enforcer(phase);
        let mut ids = Vec::new();
        for _ in 0..5000 {
            let mask = enforcer.mask().unwrap().to_vec();
            let allowed =
                |id: &&u32| mask.get(**id as usize / 32).is_some_and(|word| word >> (**id % 32) & 1 == 1);
            let all: Vec<u32> = (0..mask.len() as u32 * 32).collect();
            let usual: Vec<&u32> = usual.iter().filter(allowed).collect();
            let id = match usual.choose(&mut random) {
                Some(id) if random.random_bool(0.9) => **id,
                _ => **all.iter().filter(allowed).collect::<Vec<_>>().choose(&mut random).unwrap(),
            };
            let taken = enforcer.accept(id).unwrap_or_else(|error| {
                let text = self.tokenizer.decode(&ids, false);
                panic!("{error}: {:?} after {text:?}", self.tokenizer.decode(&[id], false))
            });
            if taken == self.eos {
                return ids;
            }
            ids.push(taken);
        }
        panic!("no end: {:?}", self.tokenizer.decode(&ids, false));
    }

    /// Every walk is an answer of the form behind its reasoning. Returns how many reasoned.
    fn check(&self, phase: Phase, usual: &[&str]) -> usize {
        let mut usual = self.ids(usual);
        usual.push(self.eos);
        let mut reasoned = 0;
        for seed in 0..300 {
            let ids = self.walk(phase, &usual, seed);
            let mut stream = TextStream::new(&self.tokenizer, true).showing(&self.shown);
            let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
            text += &stream.finish();
            let mut router = Router::new(&self.conventions, phase, false);
            let mut answer = Answer::default();
            router.push(&text).iter().chain(&router.finish()).for_each(|delta| answer.push(delta));
            reasoned += usize::from(answer.reasoning.is_some());
            let content = answer.content.unwrap_or_else(|| panic!("no content: {text:?}"));
            let digits = content.strip_suffix('!').unwrap_or_else(|| panic!("{content:?} in {text:?}"));
            assert!(
                (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()),
                "{text:?}"
            );
        }
        reasoned
    }
}

#[test]
fn the_grammar_holds_behind_the_tags() {
    let world = World::new(Conventions { reasoning: Some(ReasoningTags::THINK), syntax: None });
    let usual = [
        "<think>",
        "</think>",
        "<",
        "</",
        "think",
        "thin",
        "k>",
        ">",
        ">4",
        "</think>4",
        ">\n\n42!",
        ">x",
        "\n\n",
        "\n",
        " ",
        "4",
        "!",
    ];
    let reasoned = world.check(Phase::Undecided, &usual);
    assert!((10..290).contains(&reasoned), "{reasoned}");
    assert!(world.check(Phase::Reasoning, &usual) > 200);
    // The prompt has closed the block.
    assert_eq!(world.check(Phase::Content, &usual), 0);
}

#[test]
fn the_grammar_holds_in_the_final_channel() {
    let world = World::new(Conventions { reasoning: None, syntax: Some(Syntax::Harmony) });
    let usual = [
        "<|channel|>",
        "analysis",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "assistant",
        "final",
        "4",
        "!",
        "x",
        "\n",
    ];
    let reasoned = world.check(Phase::Undecided, &usual);
    assert!((10..290).contains(&reasoned), "{reasoned}");
    assert!(world.check(Phase::Reasoning, &usual) > 200);
    assert_eq!(world.check(Phase::Content, &usual), 0);
}

#[test]
fn an_end_within_the_reasoning_only_ends_that() {
    let world = World::new(Conventions { reasoning: Some(ReasoningTags::THINK), syntax: None });
    let mut enforcer = world.enforcer(Phase::Reasoning);
    let close = world.tokenizer.token_to_id("</think>").unwrap();
    assert_eq!(enforcer.accept(world.eos).unwrap(), close);
    assert!(enforcer.mask().unwrap()[world.eos as usize / 32] >> (world.eos % 32) & 1 == 0);
    for id in world.ids(&["\n\n", "4", "!"]) {
        enforcer.accept(id).unwrap();
    }
    assert_eq!(enforcer.accept(world.eos).unwrap(), world.eos);
}

/// Writes `text` in calls of a strict tool, and gives what is left of it where it is not allowed.
fn written(world: &World, text: &str) -> Option<String> {
    let tools = [json!({ "type": "function", "function": { "name": "f", "strict": true, "parameters": {
        "type": "object", "properties": { "a": { "type": "string", "enum": ["Oslo", "Lima"] } } } } })];
    let grammars = strict_grammar(&world.tokenizer, world.conventions.syntax, &tools).unwrap();
    let calls = grammars
        .iter()
        .map(|(grammar, marker)| (world.grammars.compile(grammar).unwrap(), *marker))
        .collect();
    let router = Router::new(&world.conventions, Phase::Content, true).with_tools(&tools);
    let stream = TextStream::new(&world.tokenizer, true).showing(&world.shown);
    let mut enforcer =
        Enforcer::in_calls(&world.grammars, calls, (&world.tokenizer, stream), router).unwrap();
    let ids = world.ids(&[text]);
    for (place, &id) in ids.iter().enumerate() {
        if enforcer.mask().unwrap()[id as usize / 32] >> (id % 32) & 1 == 0 {
            return Some(world.tokenizer.decode(&ids[place..], false));
        }
        enforcer.accept(id).unwrap();
    }
    None
}

/// `Oslo` is a city that the tool knows, `Rome` is not.
fn check_calls(syntax: Syntax, texts: &[&str]) {
    let world = World::new(Conventions { reasoning: None, syntax: Some(syntax) });
    for text in texts {
        assert_eq!(written(&world, text), None, "{text}");
        let wrong = text.replace("Lima", "Rome");
        assert!(written(&world, &wrong).is_some_and(|rest| rest.contains("ome")), "{wrong}");
    }
}

#[test]
fn calls_are_enforced_behind_each_marker_that_they_may_begin_with() {
    check_calls(
        Syntax::Qwen3Coder,
        &[
            "Hi <tool_call>\n<function=f>\n<parameter=a>\nLima\n</parameter>\n</function>\n</tool_call>",
            "Hi <function=f>\n<parameter=a>\nLima\n</parameter>\n</function>\nand on",
            "<function=f>\n<parameter=a>\nOslo\n</parameter>\n</function>\n<function=f>\n<parameter=a>\nLima\n</parameter>\n</function>",
        ],
    );
    let call = |city: &str| {
        format!(
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{{\"a\": \"{city}\"}}<|tool_call_end|>"
        )
    };
    let (oslo, lima) = (call("Oslo"), call("Lima"));
    check_calls(
        Syntax::KimiK2,
        &[
            &format!("Hi <|tool_calls_section_begin|>{lima}<|tool_calls_section_end|> and on"),
            &format!("<|tool_calls_section_begin|>{oslo}{lima}<|tool_calls_section_end|>"),
            &format!("Hi {lima}"),
        ],
    );
    let call =
        |city: &str| format!("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{{\"a\": \"{city}\"}}<｜tool▁call▁end｜>");
    let (oslo, lima) = (call("Oslo"), call("Lima"));
    check_calls(
        Syntax::DeepSeekV31,
        &[
            &format!("Hi <｜tool▁calls▁begin｜>{lima}<｜tool▁calls▁end｜>"),
            &format!("<｜tool▁calls▁begin｜>{oslo}{lima}<｜tool▁calls▁end｜>"),
            &format!("Hi {lima}"),
        ],
    );
    let call = |city: &str| format!("{{\"name\": \"f\", \"arguments\": {{\"a\": \"{city}\"}}}}");
    let list = format!("<|tool_call|>[{}, {}]", call("Oslo"), call("Lima"));
    check_calls(Syntax::Granite, &[&list]);
}

#[test]
fn calls_without_markers_are_not_enforced() {
    let world = World::new(Conventions { reasoning: None, syntax: Some(Syntax::Pythonic) });
    let tools = [json!({ "type": "function", "function": { "name": "f", "strict": true } })];
    for syntax in [None, Some(Syntax::Pythonic), Some(Syntax::Harmony), Some(Syntax::Llama3Json)] {
        assert!(strict_grammar(&world.tokenizer, syntax, &tools).unwrap().is_empty());
    }
    let odd = json!({ "type": "function", "function": { "name": "an odd name" } });
    let tools = [tools[0].clone(), odd];
    assert!(strict_grammar(&world.tokenizer, Some(Syntax::KimiK2), &tools).unwrap().is_empty());
    assert_eq!(strict_grammar(&world.tokenizer, Some(Syntax::Hermes), &tools).unwrap().len(), 1);
}
