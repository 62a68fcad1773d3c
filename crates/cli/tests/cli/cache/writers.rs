//! Writers that are killed, and writers that meet.

use std::thread;
use std::time::{Duration, Instant};

use super::{Model, files, right};
use crate::process::{command, finish};

#[test]
fn a_writer_that_is_killed_leaves_nothing_that_matters() {
    let model = Model::new();
    let started = Instant::now();
    command(["prepare", "-m", model.path()]).spawn().unwrap().wait().unwrap();
    let whole = started.elapsed();
    let mut interrupted = 0;
    for moment in 0..20 {
        std::fs::remove_dir_all(model.folder.file(super::CACHE)).unwrap();
        let mut writer = command(["prepare", "-m", model.path()]).spawn().unwrap();
        // Spread over all of it, in an order that does not favour the start.
        thread::sleep(whole * (moment * 7 % 20) / 18);
        writer.kill().unwrap(); // SIGKILL
        interrupted += u32::from(!writer.wait().unwrap().success());
        std::fs::create_dir_all(model.cell()).unwrap();
        let answer = model.answers();
        assert!(answer.lines.is_empty(), "moment {moment}: {:?}", answer.lines);
        assert!(model.answers().is_from_cache, "moment {moment}");
        model.is_tidy();
    }
    assert!(interrupted >= 10, "only {interrupted} of 20 writers were killed");
}

#[test]
fn eight_starters_at_once_all_answer() {
    for round in 0..3 {
        let model = Model::new();
        let children: Vec<_> = (0..8).map(|_| model.command().spawn().unwrap()).collect();
        let waiting = children.into_iter().map(|child| thread::spawn(move || finish(child)));
        for outcome in waiting.collect::<Vec<_>>() {
            let answer = right(outcome.join().unwrap());
            assert!(answer.lines.is_empty(), "round {round}: {:?}", answer.lines);
        }
        assert!(model.answers().is_from_cache, "round {round}");
        model.is_tidy();
    }
}

#[test]
fn what_a_killed_writer_left_goes_with_the_next() {
    let model = Model::new();
    std::fs::create_dir_all(model.cell()).unwrap();
    for name in ["tmp-abc", "weights-0123456789abcdef.bin", "tmp-of-another-version"] {
        std::fs::write(model.cell().join(name), [0; 1000]).unwrap();
    }
    std::fs::create_dir(model.cell().join("tmp-folder")).unwrap();
    assert!(!model.answers().is_from_cache);
    model.is_tidy();
    // Beside a finished cell it goes with the next start; what nobody here has written stays.
    for name in ["tmp-late", "weights-0123456789abcdef.bin", "notes"] {
        std::fs::write(model.cell().join(name), "").unwrap();
    }
    assert!(model.answers().is_from_cache);
    assert!(model.cell().join("notes").exists());
    std::fs::remove_file(model.cell().join("notes")).unwrap();
    model.is_tidy();
}

#[test]
fn readers_keep_what_a_writer_replaces() {
    let model = Model::cached();
    // Each of these finds another tokenizer than the one before, and writes the cell anew while others start.
    let mut children = Vec::new();
    for turn in 0..6 {
        model.folder.write("chat_template.json", format!("{{\"turn\":{turn}}}"));
        children.push(model.command().spawn().unwrap());
        thread::sleep(Duration::from_millis(20));
    }
    for child in children {
        let outcome = finish(child);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(outcome.json()["generated_text"], " Paris.", "{outcome:?}");
    }
    model.answers();
    assert!(model.answers().is_from_cache);
    assert!(!files(&model.cell()).keys().any(|name| name.starts_with("tmp-")));
}
