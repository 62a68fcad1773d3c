//! `whin run` with options that change which token is chosen.

use std::collections::HashSet;

use serde_json::Value;

use crate::process::{json, whin};
use crate::run::answer;

const STORY: &str = "Once upon a time";

fn tokens(args: &[&str]) -> Vec<Value> {
    answer(&json([&["run", STORY, "-n", "40"], args].concat())).to_vec()
}

#[test]
fn a_seed_fixes_the_draw() {
    let first = tokens(&["--temperature", "0.8", "--seed", "7"]);
    assert_eq!(tokens(&["--temperature", "0.8", "--seed", "7"]), first);
    assert_eq!(tokens(&["--temperature", "0.8", "--seed", "7", "--threads", "1"]), first);
    assert_ne!(tokens(&["--temperature", "0.8", "--seed", "8"]), first);
    assert_ne!(tokens(&[]), first);
    let largest = json(["run", STORY, "-n", "2", "--temperature", "1", "--seed", "18446744073709551615"]);
    assert_eq!(largest["seed"], u64::MAX);
}

#[test]
fn a_seed_that_was_not_given_is_reported_and_gives_the_run_again() {
    let args = ["run", STORY, "-n", "40", "--temperature", "1.2"];
    let result = json(args);
    let seed = result["seed"].to_string();
    assert_eq!(tokens(&["--temperature", "1.2", "--seed", &seed]), answer(&result));
    let other = json(args);
    assert_ne!(other["seed"], result["seed"]);

    let streamed = whin(args).succeeded();
    let (_, after) = streamed.stderr.split_once(" · seed ").unwrap();
    let seed = after.split_whitespace().next().unwrap();
    let again = whin([&args[..], &["--seed", seed]].concat()).succeeded();
    assert_eq!(again.stdout, streamed.stdout);
    // A greedy answer has nothing to do with a seed.
    assert!(!whin(["run", STORY, "-n", "3"]).succeeded().stderr.contains("seed"));
}

#[test]
fn settings_that_leave_one_token_are_greedy() {
    let greedy = tokens(&[]);
    assert_eq!(tokens(&["--temperature", "0"]), greedy);
    assert_eq!(tokens(&["--top-k", "1", "--temperature", "1.5"]), greedy);
    assert_eq!(tokens(&["--top-p", "0", "--temperature", "1.5"]), greedy);
    assert_eq!(tokens(&["--min-p", "1", "--temperature", "1.5"]), greedy);
    // Off is off, however it is said.
    let drawn = tokens(&["--temperature", "1", "--seed", "3"]);
    for off in
        [["--top-k", "0"], ["--top-k", "-1"], ["--top-k", "99999999"], ["--top-p", "1"], ["--min-p", "0"]]
    {
        assert_eq!(tokens(&[&["--temperature", "1", "--seed", "3"], &off[..]].concat()), drawn, "{off:?}");
    }
}

#[test]
fn penalties_make_an_answer_repeat_less_and_negative_ones_more() {
    // A bias lets token 42 win many a time, but not each time.
    let wins = |args: &[&str]| {
        let tokens = tokens(&[&["--logit-bias", "42=12"], args].concat());
        tokens.iter().filter(|id| **id == 42).count()
    };
    let plain = wins(&[]);
    assert!(wins(&["--frequency-penalty", "2"]) < plain);
    assert!(wins(&["--frequency-penalty", "-2"]) > plain);
    assert!(wins(&["--presence-penalty", "-2"]) > plain);
    assert_ne!(tokens(&["--presence-penalty", "2"]), tokens(&[]));
    // So strong that nothing of prompt or answer comes again.
    let result = json(["run", STORY, "-n", "40", "--repeat-penalty", "1000"]);
    let all = result["token_ids"].as_array().unwrap();
    let distinct: HashSet<String> = all.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
}

#[test]
fn a_bias_forces_or_bans_a_token() {
    let greedy = tokens(&[]);
    let banned = tokens(&["--logit-bias", &format!("{}=-100", greedy[0])]);
    assert!(!banned.contains(&greedy[0]));
    let forced = tokens(&["--logit-bias", "42=100"]);
    assert!(forced.iter().all(|id| *id == 42), "{forced:?}");
    // The last one cancels nothing: each counts for its own token.
    let both = tokens(&["--logit-bias", "42=100", "--logit-bias", "43=200"]);
    assert!(both.iter().all(|id| *id == 43), "{both:?}");
}
