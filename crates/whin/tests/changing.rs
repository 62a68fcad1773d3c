//! Checkpoints that change while they are read: what is packed then is never taken for what is there.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

mod copies;

use std::fs;
use std::path::Path;

use whin::{CacheMode, Checkpoint, Engine, ErrorKind, Options};

const SHARD: &str = "model-00002-of-00002.safetensors";

/// Puts another file in the place of `name`, as a download does: the old one stays with whoever has it open.
fn replace(folder: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(folder.join(name)).unwrap();
    change(&mut bytes);
    fs::write(folder.join("new"), bytes).unwrap();
    fs::rename(folder.join("new"), folder.join(name)).unwrap();
}

fn replace_shard(folder: &Path) {
    replace(folder, SHARD, |bytes| {
        let len = bytes.len();
        bytes[len / 2..len / 2 + 1000].fill(0);
    });
}

/// Whether the checkpoint as it is now would come out of a cache.
fn is_cached(folder: &Path) -> bool {
    Engine::load(Some(folder), &Options::default()).unwrap().is_from_cache()
}

#[test]
fn a_shard_that_changes_after_it_was_opened_is_not_packed_under_its_name() {
    let folder = copies::seedling();
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    let mut replaced = false;
    let mut progress = |_, _| {
        if !std::mem::replace(&mut replaced, true) {
            replace_shard(folder.path());
        }
    };
    let error = Engine::prepare(&checkpoint, &Options::default(), &mut progress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("changed while it was read"), "{error}");
    assert!(!is_cached(folder.path()), "nothing was kept");
    assert!(is_cached(folder.path()));
}

#[test]
fn an_engine_of_an_old_shard_leaves_no_cache() {
    let folder = copies::seedling();
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    let mut progress = |done, total| {
        if done == total {
            replace_shard(folder.path());
        }
    };
    let engine = Engine::start(&checkpoint, &Options::default(), &mut progress).unwrap();
    engine.wait_for_cache();
    assert!(!is_cached(folder.path()));
}

#[test]
fn a_config_that_changes_after_it_was_read_is_noticed() {
    let changed = |folder: &Path| {
        replace(folder, "config.json", |bytes| {
            *bytes = String::from_utf8(bytes.clone()).unwrap().replace("1e-06", "1e-05").into_bytes();
        });
    };
    let folder = copies::seedling();
    let checkpoint = Checkpoint::open(Some(folder.path())).unwrap();
    changed(folder.path());
    let error = Engine::prepare(&checkpoint, &Options::default(), &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("changed while it was read"), "{error}");

    // Nor does a cache of what is there now serve for what was read before.
    let cache = tempfile::tempdir().unwrap();
    let options = Options { cache: CacheMode::Folder(cache.path().to_owned()), ..Options::default() };
    let now = Checkpoint::open(Some(folder.path())).unwrap();
    assert!(Engine::prepare(&now, &options, &mut |_, _| ()).unwrap().is_new);
    assert!(!Engine::prepare(&now, &options, &mut |_, _| ()).unwrap().is_new);
    assert!(!Engine::start(&checkpoint, &options, &mut |_, _| ()).unwrap().is_from_cache());
}

#[test]
#[cfg(unix)]
fn a_folder_that_is_another_for_a_moment_is_noticed() {
    use std::os::unix::fs::symlink;
    let (one, other, place) = (copies::seedling(), copies::seedling(), tempfile::tempdir().unwrap());
    replace_shard(other.path());
    let link = place.path().join("current");
    let point_to = |folder: &Path| {
        symlink(folder, place.path().join("new")).unwrap();
        fs::rename(place.path().join("new"), &link).unwrap();
    };
    let cache = tempfile::tempdir().unwrap();
    let options = Options { cache: CacheMode::Folder(cache.path().to_owned()), ..Options::default() };
    point_to(one.path());
    let checkpoint = Checkpoint::open(Some(&link)).unwrap();
    // The shards are the other's, and everything looks as before when they have been packed.
    point_to(other.path());
    let error = Engine::prepare(&checkpoint, &options, &mut |_, _| point_to(one.path())).unwrap_err();
    assert!(error.to_string().contains("changed while it was read"), "{error}");
    for folder in [one.path(), other.path()] {
        assert!(!Engine::load(Some(folder), &options).unwrap().is_from_cache(), "{}", folder.display());
    }
}
