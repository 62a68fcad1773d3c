//! `whin prepare` and `whin cache`.

use std::fs;

use super::{CACHE, Model};
use crate::checkpoints::Folder;
use crate::process::{command, finish, json, misused, refused, whin};

#[test]
fn prepare_makes_the_first_start_quick() {
    let model = Model::new();
    let outcome = whin(["prepare", "-m", model.path()]).succeeded();
    assert!(outcome.stdout.starts_with("packed in ") && outcome.stderr.is_empty(), "{outcome:?}");
    model.is_tidy();
    assert!(model.answers().is_from_cache);
    let again = whin(["prepare", "-m", model.path()]).succeeded().stdout;
    assert_eq!(again, format!("packed already in {}\n", model.cell().display()));
    let written = json(["prepare", "-m", model.path(), "--weights", "int4"]);
    assert!(written["folder"].as_str().unwrap().ends_with("int4-panels16"), "{written}");
    assert_eq!(written["is_new"], true);
    assert!(model.answers_with(&["--weights", "int4"]).is_from_cache);
}

#[test]
fn prepare_writes_where_it_is_told() {
    let (model, out) = (Model::new(), Folder::empty());
    whin(["prepare", "-m", model.path(), "--out", out.path()]).succeeded();
    assert!(!model.folder.file(CACHE).exists());
    assert!(model.answers_with(&["--cache-dir", out.path()]).is_from_cache);
    assert!(!model.folder.file(CACHE).exists());
    // Two checkpoints in one folder do not meet.
    let other = Model::new();
    assert!(!other.answers_with(&["--cache-dir", out.path()]).is_from_cache);
    assert!(model.answers_with(&["--cache-dir", out.path()]).is_from_cache);
    assert!(other.answers_with(&["--cache-dir", out.path()]).is_from_cache);
}

#[test]
fn what_cannot_be_prepared_is_refused() {
    let model = Model::new();
    let file = model.folder.file("config.json");
    refused(["prepare", "-m", model.path(), "--out", file.to_str().unwrap()], "io", &["config.json"]);
    refused(["prepare"], "invalid_arguments", &["built-in"]);
    refused(["prepare", "-m", model.path(), "--device", "reference"], "invalid_arguments", &["reference"]);
    refused(["prepare", "-m", "/nowhere"], "checkpoint_not_found", &["/nowhere"]);
    model.folder.truncate("model-00001-of-00002.safetensors");
    refused(["prepare", "-m", model.path()], "invalid_checkpoint", &["model-00001-of-00002.safetensors"]);
    assert!(!model.folder.file(CACHE).exists(), "a broken checkpoint is found before anything is written");
}

#[test]
fn packed_weights_are_listed_and_removed() {
    let (model, user) = (Model::cached(), Folder::empty());
    let cache = |args: &[&str]| {
        let mut command = command(["cache"]);
        command
            .args(args)
            .env("XDG_CACHE_HOME", user.path())
            .env_remove("HF_HOME")
            .env_remove("HF_HUB_CACHE");
        finish(command.spawn().unwrap()).succeeded()
    };
    let list = |args: &[&str]| cache(&[&["list", "--json"], args].concat()).json()["caches"].clone();
    assert_eq!(list(&[]).as_array().unwrap().len(), 0, "a checkpoint's own are listed where it is named");
    whin(["prepare", "-m", model.path(), "--weights", "bf16"]).succeeded();
    let own = list(&["-m", model.path()]);
    assert_eq!(own.as_array().unwrap().len(), 2, "{own}");
    assert_eq!((&own[0]["weights"], &own[1]["weights"]), (&"bf16".into(), &"int8".into()));
    assert_eq!(own[0]["checkpoint"], model.path());
    let data = fs::metadata(model.data()).unwrap().len();
    assert!((data..data + 100_000).contains(&own[1]["bytes"].as_u64().unwrap()), "{own}");
    let shown = cache(&["list", "-m", model.path()]).stdout;
    assert!(shown.contains("int8") && shown.contains("MiB") && shown.contains(model.path()), "{shown}");

    refused(["cache", "rm"], "invalid_arguments", &["--model", "--all"]);
    misused(["cache", "rm", "--all", "--weights", "int3"], &["int3", "int8"]);
    refused(["cache", "list", "-m", "/nowhere"], "checkpoint_not_found", &["/nowhere"]);
    refused(["cache", "list", "-m", "no/such-model"], "checkpoint_not_found", &["no/such-model"]);
    assert!(cache(&["rm", "-m", model.path(), "--weights", "bf16"]).stdout.contains("bf16-panels16"));
    assert_eq!(list(&["-m", model.path()]).as_array().unwrap().len(), 1);
    cache(&["rm", "-m", model.path()]);
    assert!(!model.folder.file(CACHE).exists(), "nothing is left of it");
    assert!(cache(&["rm", "-m", model.path()]).stderr.contains("nothing to remove"));
    assert!(!model.answers().is_from_cache);
}

#[test]
fn a_shared_folder_is_listed_and_emptied() {
    let (one, other, shared) = (Model::new(), Model::new(), Folder::empty());
    for model in [&one, &other] {
        whin(["prepare", "-m", model.path(), "--out", shared.path()]).succeeded();
    }
    fs::write(shared.file("mine"), "").unwrap();
    // Folders that a wrongly given one may hold: one that looks a little like a cell, and one that looks like one.
    for folder in ["also-mine/a", "also-mine/int8-panels16"] {
        fs::create_dir_all(shared.file(folder)).unwrap();
        for file in ["lock", "data.txt"] {
            fs::write(shared.file(folder).join(file), "mine").unwrap();
        }
    }
    let list = |args: &[&str]| {
        let args = [&["cache", "list", "--cache-dir", shared.path()], args].concat();
        json(args)["caches"].as_array().unwrap().len()
    };
    assert_eq!((list(&[]), list(&["-m", one.path()])), (3, 1));
    whin(["cache", "rm", "--cache-dir", shared.path(), "-m", one.path()]).succeeded();
    assert_eq!(list(&[]), 2);
    let rm = whin(["cache", "rm", "--cache-dir", shared.path(), "--all"]);
    assert_eq!(rm.code, Some(1), "{rm:?}");
    assert!(rm.stderr.starts_with("error[io]: ") && rm.stderr.contains("also-mine/int8-panels16"), "{rm:?}");
    for folder in ["also-mine/a", "also-mine/int8-panels16"] {
        assert_eq!(fs::read(shared.file(folder).join("data.txt")).unwrap(), b"mine");
    }
    let left = fs::read_dir(shared.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["also-mine", "mine"], "what is not packed weights stays");
}

#[test]
#[cfg(unix)]
fn packed_weights_of_the_hub_are_found_by_name() {
    let (model, user) = (Model::cached(), Folder::empty());
    let snapshot = user
        .file("huggingface/hub/models--whin--seedling/snapshots/0123456789012345678901234567890123456789");
    fs::create_dir_all(snapshot.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(model.path(), &snapshot).unwrap();
    let list = |args: &[&str]| {
        let mut command = command(["cache", "list", "--json"]);
        command
            .args(args)
            .env("XDG_CACHE_HOME", user.path())
            .env_remove("HF_HOME")
            .env_remove("HF_HUB_CACHE");
        finish(command.spawn().unwrap()).succeeded().json()["caches"].as_array().unwrap().len()
    };
    assert_eq!((list(&[]), list(&["-m", "whin/seedling"])), (1, 1));
}

#[test]
#[cfg(unix)]
fn links_do_not_lead_the_cache_elsewhere() {
    use std::os::unix::fs::symlink;
    let (model, elsewhere, user) = (Model::new(), Folder::empty(), Folder::empty());
    let cell = elsewhere.file("int8-panels16");
    fs::create_dir(&cell).unwrap();
    fs::write(cell.join("lock"), "").unwrap();
    fs::write(cell.join("thesis.tex"), "mine").unwrap();
    symlink(elsewhere.path(), model.folder.file(CACHE)).unwrap();
    let run = |mut command: std::process::Command| {
        super::right(finish(command.env("XDG_CACHE_HOME", user.path()).spawn().unwrap()))
    };
    assert!(!run(model.command()).is_from_cache);
    assert!(run(model.command()).is_from_cache, "it is kept in the user's folder");
    let mut rm = command(["cache", "rm", "-m", model.path()]);
    finish(rm.env("XDG_CACHE_HOME", user.path()).spawn().unwrap()).succeeded();
    assert_eq!(super::files(&cell).into_keys().collect::<Vec<_>>(), ["lock", "thesis.tex"]);

    // Inside of the cache's own folder they are replaced, not followed.
    let model = Model::cached();
    let lock = model.cell().join("lock");
    for (link, target) in [(lock, "a"), (model.folder.file(CACHE).join(".gitignore"), "b")] {
        fs::remove_file(&link).unwrap();
        symlink(elsewhere.file(target), link).unwrap();
    }
    fs::write(model.cell().join("manifest.json"), "{}").unwrap();
    model.recovers("links");
    assert!(!elsewhere.file("a").exists() && !elsewhere.file("b").exists());

    // A cell behind a link, sound as it may be, is neither used nor swept.
    let behind = elsewhere.file("cell");
    fs::rename(model.cell(), &behind).unwrap();
    fs::write(behind.join("tmp-mine"), "mine").unwrap();
    symlink(&behind, model.cell()).unwrap();
    let before = super::files(&behind);
    model.recovers("a link for a cell");
    assert_eq!(super::files(&behind), before);
}

#[test]
#[cfg(unix)]
fn what_is_no_file_keeps_nobody_waiting() {
    let model = Model::cached();
    let note = model.folder.file(CACHE).join(".gitignore");
    fs::remove_file(&note).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&note).status().unwrap().success());
    whin(["cache", "rm", "-m", model.path()]).succeeded();
    assert!(!model.cell().exists() && note.exists());
}

#[test]
fn two_that_prepare_at_once_both_succeed() {
    let model = Model::new();
    let children: Vec<_> =
        (0..4).map(|_| command(["prepare", "-m", model.path()]).spawn().unwrap()).collect();
    let outcomes: Vec<_> = children.into_iter().map(finish).collect();
    let packed = outcomes.iter().filter(|outcome| outcome.stdout.starts_with("packed in ")).count();
    assert!(outcomes.iter().all(|outcome| outcome.code == Some(0)) && packed == 1, "{outcomes:?}");
    model.is_tidy();
}

#[test]
#[cfg(unix)]
fn names_that_are_no_text_are_shown_as_far_as_they_can_be() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (model, out) = (Model::new(), Folder::empty());
    let odd = out.file("x").with_file_name(OsStr::from_bytes(b"y\xff"));
    let run = |args: &[&OsStr]| whin(args).succeeded().json();
    let [prepare, m, to, as_json] = ["prepare", "-m", "--out", "--json"].map(OsStr::new);
    assert_eq!(run(&[prepare, m, model.path().as_ref(), to, odd.as_os_str(), as_json])["is_new"], true);
    let [cache, list, dir] = ["cache", "list", "--cache-dir"].map(OsStr::new);
    assert_eq!(run(&[cache, list, dir, odd.as_os_str(), as_json])["caches"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_left_of_a_removed_checkpoint_can_be_removed() {
    let (model, shared) = (Model::new(), Folder::empty());
    whin(["prepare", "-m", model.path(), "--out", shared.path()]).succeeded();
    let path = model.path().to_owned();
    drop(model);
    let removed = whin(["cache", "rm", "-m", &path, "--cache-dir", shared.path()]).succeeded();
    assert!(removed.stdout.contains("int8-panels16"), "{removed:?}");
    assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 0);
}
