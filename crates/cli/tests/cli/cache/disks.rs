//! Disks and folders that do not let a cell be written.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Answer, CACHE, Model, right};
use crate::checkpoints::Folder;
use crate::process::finish;

/// Runs `command` as somebody whom permissions bind: root may write anything, unless it gives that right away.
fn bound(command: &Command) -> Command {
    let root =
        fs::metadata("/proc/self").map(|of| std::os::unix::fs::MetadataExt::uid(&of)).unwrap_or(1) == 0;
    let mut bound = if root {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override", "--"]);
        setpriv.arg(command.get_program());
        setpriv
    } else {
        Command::new(command.get_program())
    };
    bound.args(command.get_args());
    piped(bound)
}

fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `command` by `sh -c script`, which calls it as `"$@"`.
fn by_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    piped(shell)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn answer(mut command: Command) -> Answer {
    right(finish(command.spawn().unwrap()))
}

#[test]
fn a_read_only_checkpoint_is_kept_in_the_users_folder() {
    let (model, user) = (Model::new(), Folder::empty());
    set_mode(Path::new(model.path()), 0o555);
    let run = |home: &str| {
        let mut command = bound(&model.command());
        answer(std::mem::replace(command.env("XDG_CACHE_HOME", home), Command::new("true")))
    };
    let first = run(user.path());
    assert!(!first.is_from_cache && first.lines.is_empty(), "{:?}", first.lines);
    assert!(run(user.path()).is_from_cache);
    assert!(!model.folder.file(CACHE).exists());

    // Without any place to write: an answer, and one line that says why.
    let nowhere = Folder::empty();
    set_mode(Path::new(nowhere.path()), 0o555);
    let answer = run(nowhere.path());
    assert!(!answer.is_from_cache);
    assert_eq!(answer.lines.len(), 1, "{:?}", answer.lines);
    assert!(answer.lines[0].starts_with("warning: the load cache cannot be written: "), "{:?}", answer.lines);
    assert!(answer.lines[0].contains("ermission denied"), "{:?}", answer.lines);
    for folder in [model.path(), nowhere.path()] {
        set_mode(Path::new(folder), 0o755);
    }
}

#[test]
fn a_cache_that_may_only_be_read_is_used() {
    let model = Model::cached();
    let all = [model.cell(), model.folder.file(CACHE), model.folder.file(".")];
    all.iter().for_each(|folder| set_mode(folder, 0o555));
    let is_from_cache = answer(bound(&model.command())).is_from_cache;
    all.iter().for_each(|folder| set_mode(folder, 0o755));
    assert!(is_from_cache);
}

#[test]
fn a_full_disk_costs_a_line_and_nothing_else() {
    let model = Model::new();
    // Files may not grow beyond 4 MB, in blocks of 512 bytes.
    let full = |model: &Model| by_shell("ulimit -f 8192; exec \"$@\"", &model.command());
    let first = answer(full(&model));
    assert!(!first.is_from_cache);
    assert_eq!(first.lines.len(), 1, "{:?}", first.lines);
    assert!(first.lines[0].contains("cannot be written"), "{:?}", first.lines);
    assert!(super::files(&model.cell()).keys().all(|name| name == "lock"), "nothing is left over");
    assert!(!model.answers().is_from_cache);
    assert!(answer(full(&model)).is_from_cache);
    model.is_tidy();
    // A damaged cell on a full disk: still one line.
    fs::write(model.cell().join("manifest.json"), "{}").unwrap();
    let both = answer(full(&model));
    assert!(both.lines[0].contains("cannot be written anew"), "{:?}", both.lines);
}

#[test]
fn a_full_file_system_costs_a_line_and_nothing_else() {
    let can_mount =
        Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success());
    if !can_mount {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let (model, disk) = (Model::new(), Folder::empty());
    let mut command = model.command();
    command.args(["--cache-dir", disk.path()]);
    for (size, fits) in [("5m", false), ("1k", false), ("64m", true)] {
        let script = format!("mount -t tmpfs -o size={size} tmpfs {} && exec \"$@\"", disk.path());
        let mut unshare = Command::new("unshare");
        let inner = by_shell(&script, &command);
        unshare.arg("-rm").arg(inner.get_program()).args(inner.get_args());
        let answer = answer(piped(unshare));
        assert!(!answer.is_from_cache);
        assert_eq!(answer.lines.is_empty(), fits, "{size}: {:?}", answer.lines);
    }
}

#[test]
fn a_user_without_a_home_has_an_answer() {
    let model = Model::new();
    let run = || {
        let mut command = model.command();
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
        answer(command)
    };
    assert!(!run().is_from_cache);
    assert!(run().is_from_cache);
    // The checkpoint's own place is a file, and the user's is relative, which counts for nothing.
    fs::remove_dir_all(model.folder.file(CACHE)).unwrap();
    fs::write(model.folder.file(CACHE), "mine").unwrap();
    let nowhere = Folder::empty();
    fs::write(nowhere.file("file"), "").unwrap();
    let mut command = model.command();
    command.env_remove("HOME").env("XDG_CACHE_HOME", nowhere.file("file"));
    let answer = answer(command);
    assert!(!answer.is_from_cache);
    assert_eq!(answer.lines.len(), 1, "{:?}", answer.lines);
    assert_eq!(fs::read(model.folder.file(CACHE)).unwrap(), b"mine", "a file of the user's stays");
}
