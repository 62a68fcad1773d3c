//! What it costs to follow answers through grammars: `WHIN_QWEN3_TOKENIZER=FOLDER cargo bench -p whin --bench masks`.
//!
//! Answers are drawn at random from what the masks allow, which is worse than what models write: hardly a token comes twice
//! in the same place. Figures are of one thread.

#[allow(dead_code)]
#[path = "../tests/walks/mod.rs"]
mod walks;

use std::time::{Duration, Instant};

use serde_json::json;
use whin::chat::Syntax;
use whin::constrain::{Calls, Format, Grammar, Grammars, tool_grammar};

fn main() {
    if std::env::var_os("WHIN_QWEN3_TOKENIZER").is_none() {
        println!(
            "not run: WHIN_QWEN3_TOKENIZER names no folder with Qwen3's tokenizer; tools/test fetches it"
        );
        return;
    }
    let started = Instant::now();
    let walker = walks::qwen3();
    println!("tokenizer read in {:?}", started.elapsed());
    let started = Instant::now();
    let grammars = Grammars::new(&walker.tokenizer, 151_936, &walker.eos).expect("a vocabulary");
    println!("vocabulary in {:?}", started.elapsed());
    let person = json!({ "type": "object", "properties": {
        "name": { "type": "string" }, "age": { "type": "integer", "minimum": 0 },
        "email": { "type": "string", "format": "email" },
        "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 5 },
        "address": { "type": "object", "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            "required": ["street", "city"] },
    }, "required": ["name", "age", "address"], "additionalProperties": false });
    let tool = json!({ "type": "function", "function": { "name": "get_weather", "parameters": { "type": "object",
        "properties": { "location": { "type": "string" }, "days": { "type": "integer" }, "unit": { "enum": ["c", "f"] } },
        "required": ["location"] } } });
    let call = Calls::Required { parallel: true };
    let call = tool_grammar(&walker.tokenizer, Syntax::Hermes, &[tool], &call).expect("a grammar");
    let format = |format| Grammar::new(&format).expect("a grammar");
    for (name, grammar) in [
        ("a schema", format(Format::json_schema(person))),
        ("any JSON object", format(Format::JsonObject)),
        ("a regex", format(Format::Regex(r"[A-Z][a-z]+( [A-Z][a-z]+){1,3}, \d{4}-\d{2}-\d{2}".into()))),
        ("a choice", format(Format::Choice((0..100).map(|n| format!("choice {n}")).collect()))),
        ("tool calls", call),
    ] {
        measure(name, &walker, &grammars, &grammar);
    }
}

fn measure(name: &str, walker: &walks::Walker, grammars: &Grammars, grammar: &Grammar) {
    let started = Instant::now();
    let matcher = grammars.compile(grammar).expect("a grammar");
    let first = started.elapsed();
    let started = Instant::now();
    let again = grammars.compile(grammar).map(|_| started.elapsed()).expect("a grammar");
    for round in ["first answers", "later answers"] {
        let mut times: Vec<Duration> = Vec::new();
        for seed in 0..20 {
            walker.timed_walk(matcher.clone(), seed, &mut times);
        }
        times.sort_unstable();
        let mean = times.iter().sum::<Duration>() / times.len() as u32;
        let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        let count = times.len();
        println!(
            "{name}, {round}: {mean:.1?} a token (median {half:.1?}, 99 of 100 below {most:.1?}, {count} tokens)"
        );
    }
    println!("{name}: compiled in {first:.1?}, found again in {again:.1?}");
}
