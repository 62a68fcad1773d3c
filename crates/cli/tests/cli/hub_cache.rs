//! The cache of the hub: what in it is used, completed or replaced, and by whom at a time.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::hub::{TOKEN, downloaded, is_clean, kill, wait_for};
use crate::hub_server::{COMMIT, Hub, LAST_SHARD, NAME, SHARD};
use crate::process::finish;

#[test]
fn offline_means_no_connection() {
    let hub = Hub::start();
    let offline =
        |value: &str| finish(hub.command(&["inspect", NAME]).env("HF_HUB_OFFLINE", value).spawn().unwrap());
    for value in ["1", "true", "YES", "on"] {
        offline(value).failed("checkpoint_not_found", &[NAME, "HF_HUB_OFFLINE", "hf download", "no folder"]);
    }
    assert!(hub.asked().is_empty());
    hub.inspect().succeeded();
    hub.reset();
    offline("1").succeeded();
    fs::remove_file(hub.blob(LAST_SHARD).0).unwrap();
    offline("1").failed("checkpoint_not_found", &[LAST_SHARD, COMMIT, "HF_HUB_OFFLINE"]);
    fs::remove_file(hub.cached("snapshots").join(COMMIT).join("config.json")).unwrap();
    offline("1").failed("checkpoint_not_found", &["config.json", LAST_SHARD]);
    assert!(hub.asked().is_empty());
}

#[test]
fn a_snapshot_with_gaps_is_completed() {
    let hub = downloaded();
    let snapshot = hub.cached("snapshots").join(COMMIT);
    fs::remove_file(hub.blob(LAST_SHARD).0).unwrap();
    fs::remove_file(snapshot.join("generation_config.json")).unwrap();
    hub.inspect().succeeded();
    is_clean(&hub);
    assert!(hub.has("generation_config.json"));
    let gets = |file: &str| hub.asked().iter().filter(|asked| asked.gets(file)).count();
    assert_eq!((gets(SHARD), gets("generation_config.json"), gets("config.json")), (0, 0, 0));
    assert_eq!(hub.asked().iter().filter(|asked| asked.at_store && asked.gets(LAST_SHARD)).count(), 1);
    // A link whose content is gone is no file that never was there.
    fs::remove_file(hub.blob("generation_config.json").0).unwrap();
    hub.inspect().succeeded();
    assert!(hub.has("generation_config.json"));
    // Another tool's half-done work: only a config.
    for entry in fs::read_dir(&snapshot).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("config.json") {
            fs::remove_file(path).unwrap();
        }
    }
    hub.whin(&["run", "-m", NAME, "The capital of France is"]).succeeded();
    is_clean(&hub);
}

#[test]
fn what_can_run_asks_nobody() {
    let hub = downloaded();
    let snapshot = hub.cached("snapshots").join(COMMIT);
    for optional in ["generation_config.json", "tokenizer_config.json", "chat_template.jinja"] {
        fs::remove_file(snapshot.join(optional)).unwrap();
    }
    hub.twist(|_, _, reply| reply.stalls = true);
    let run = hub.whin(&["run", "-m", NAME, "-n", "2", "The capital of France is"]).succeeded();
    assert_eq!(run.stdout, " Paris.");
    assert!(!run.stderr.contains("warning"), "{run:?}");
    assert!(hub.asked().is_empty());
}

#[test]
fn a_tokenizer_that_is_missing_is_asked_for_once_a_day() {
    let hub = downloaded();
    let tokenizer = hub.cached("snapshots").join(COMMIT).join("tokenizer.json");
    let asked_long_ago = || {
        let note = fs::File::options().write(true).open(hub.cached(".asked").join(COMMIT)).unwrap();
        note.set_modified(std::time::SystemTime::now() - Duration::from_secs(25 * 3600)).unwrap();
    };
    let run = || hub.whin(&["run", "-m", NAME, "-n", "2", "--prompt-ids", "1,2"]);
    // A hub that never answers is waited for a little, the first time.
    fs::remove_file(&tokenizer).unwrap();
    hub.twist(|_, _, reply| reply.stalls = true);
    let started = Instant::now();
    let first = run();
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let warns = |line: &&str| line.starts_with("warning: the cache has");
    let warnings: Vec<&str> = first.stderr.lines().filter(warns).collect();
    assert_eq!(warnings.len(), 1, "{first:?}");
    for part in [NAME, "tokenizer.json", &hub.endpoint, "again in a day", "hf download"] {
        assert!(warnings[0].contains(part), "{part:?}: {first:?}");
    }
    assert!(!first.stderr.contains("no folder"), "{first:?}");
    assert_eq!(hub.asked().len(), 1);
    let second = run().succeeded();
    assert!(!second.stderr.contains("the cache has"), "{second:?}");
    assert_eq!(hub.asked().len(), 1);
    // So is one that has lost the commit, and nothing of another commit is taken for it.
    asked_long_ago();
    hub.reset();
    hub.twist(|asked, _, reply| {
        if asked.path.contains(COMMIT) {
            reply.refuse(404);
            reply.header("X-Error-Code", "RevisionNotFound");
        }
    });
    let lost = run();
    assert_eq!((lost.code, hub.asked().len()), (Some(0), 1), "{lost:?}");
    assert!(lost.stderr.contains("no branch, tag or commit"), "{lost:?}");
    // A day later it may be there.
    asked_long_ago();
    hub.reset();
    hub.whin(&["run", "-m", NAME, "The capital of France is"]).succeeded();
    assert!(hub.has("tokenizer.json"));
    // What the hub does not have either is no reason to ask at each start.
    fs::remove_file(&tokenizer).unwrap();
    fs::remove_dir_all(hub.cached(".asked")).unwrap();
    hub.remove("tokenizer.json");
    hub.reset();
    run().succeeded();
    run().succeeded();
    assert_eq!(hub.asked().len(), 1);
    let fresh = Hub::start();
    fresh.remove("tokenizer.json");
    fresh.inspect().succeeded();
    fresh.reset();
    fresh.inspect().succeeded();
    assert!(fresh.asked().is_empty());
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let hub = Hub::start();
    let blocked = hub.home.path().join("file");
    fs::write(&blocked, "").unwrap();
    let cache = blocked.join("hub");
    let outcome = finish(hub.command(&["inspect", NAME]).env("HF_HUB_CACHE", &cache).spawn().unwrap());
    outcome.failed("io", &["cannot write", cache.to_str().unwrap(), "HF_HUB_CACHE"]);
    #[cfg(target_os = "linux")]
    {
        // A folder that not even root can write to.
        let outcome =
            finish(hub.command(&["inspect", NAME]).env("HF_HUB_CACHE", "/proc/hub").spawn().unwrap());
        outcome.failed("io", &["cannot write /proc/hub", "HF_HUB_CACHE"]);
        // A device that is always full.
        hub.inspect().succeeded();
        let (blob, part) = hub.blob(SHARD);
        fs::remove_file(blob).unwrap();
        std::os::unix::fs::symlink("/dev/full", part).unwrap();
        hub.inspect().failed("io", &["cannot write", "make room"]);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let hub = downloaded();
        let folders = ["", "snapshots", "blobs", "refs"].map(|folder| hub.cached(folder));
        let set = |mode| {
            for folder in &folders {
                fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
            }
        };
        set(0o555);
        let outcome = hub.inspect();
        set(0o755);
        outcome.succeeded();
        assert!(hub.asked().is_empty());
    }
}

#[test]
fn two_processes_at_once_fetch_each_file_once() {
    let hub = Hub::start();
    hub.twist(|asked, _, _| {
        if asked.at_store {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let children: Vec<Child> = (0..3).map(|_| hub.command(&["inspect", NAME]).spawn().unwrap()).collect();
    for child in children {
        finish(child).succeeded();
    }
    is_clean(&hub);
    for file in [SHARD, LAST_SHARD, "tokenizer.json"] {
        assert_eq!(
            hub.asked().iter().filter(|asked| asked.at_store && asked.gets(file)).count(),
            1,
            "{file}"
        );
    }
}

#[test]
fn a_holder_of_the_lock_that_dies_leaves_it() {
    let hub = Hub::start();
    hub.twist(|asked, before, reply| {
        if asked.at_store && asked.gets(SHARD) && before == 0 {
            (reply.cut, reply.stalls) = (Some(1_000_000), true);
        }
    });
    let first = hub.command(&["inspect", NAME]).spawn().unwrap();
    let (_, part) = hub.blob(SHARD);
    wait_for(|| fs::metadata(&part).is_ok_and(|part| part.len() == 1_000_000));
    let second = hub.command(&["inspect", NAME]).spawn().unwrap();
    wait_for(|| {
        hub.asked().iter().filter(|asked| asked.method == "HEAD" && asked.path.ends_with(SHARD)).count() == 2
    });
    kill(first);
    finish(second).succeeded();
    is_clean(&hub);
}

#[cfg(target_os = "linux")]
#[test]
fn notes_that_are_no_short_files_are_not_waited_for() {
    let pipe = |path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(path);
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let zeros = |path: &Path| {
        let _ = fs::remove_file(path);
        std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    };
    let sparse = |path: &Path| {
        let _ = fs::remove_file(path);
        fs::File::create(path).unwrap().set_len(5 << 30).unwrap();
    };
    let makers: [&dyn Fn(&Path); 3] = [&pipe, &zeros, &sparse];
    // As the note of a commit: worth nothing, and replaced.
    let hub = Hub::start();
    for make in makers {
        let note = hub.cached("refs/main");
        fs::create_dir_all(note.parent().unwrap()).unwrap();
        make(&note);
        hub.inspect().succeeded();
        assert!(!note.is_symlink() && fs::read_to_string(&note).unwrap() == COMMIT);
        assert_eq!(note.parent().unwrap().read_dir().unwrap().count(), 1);
    }
    // As the token: named, but only where one is needed.
    for make in makers {
        let hub = Hub::start();
        let token = hub.home.path().join("token");
        make(&token);
        hub.inspect().failed("invalid_arguments", &[token.to_str().unwrap(), "HF_TOKEN"]);
        assert!(hub.asked().is_empty());
        hub.whin(&["cache", "list"]).succeeded();
        finish(hub.command(&["inspect", NAME]).env("HF_HUB_OFFLINE", "1").spawn().unwrap())
            .failed("checkpoint_not_found", &["HF_HUB_OFFLINE"]);
        finish(hub.command(&["inspect", NAME]).env("HF_TOKEN", TOKEN).spawn().unwrap()).succeeded();
        hub.inspect().succeeded();
    }
    // As what an earlier try left.
    let hub = Hub::start();
    let (_, part) = hub.blob(SHARD);
    pipe(&part);
    hub.inspect().failed("io", &[part.to_str().unwrap(), "pipe", "remove it"]);
}
