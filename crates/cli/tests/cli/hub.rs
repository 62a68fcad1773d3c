//! Names on the hub: what is downloaded, what is refused, and what is sent to whom.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::checkpoints::{Folder, seedling};
use crate::hub_server::{COMMIT, Hub, LAST_SHARD, NAME, SHARD};
use crate::process::{finish, refused};

const INDEX: &str = "model.safetensors.index.json";
pub const TOKEN: &str = "hf_secretSECRETsecret";

/// The hub with the demo model downloaded, and nothing asked since.
pub fn downloaded() -> Hub {
    let hub = Hub::start();
    hub.inspect().succeeded();
    hub.reset();
    hub
}

/// Nothing under a name that counts as whole has other bytes than it should, and no attempt is left over.
#[track_caller]
pub fn is_clean(hub: &Hub) {
    for file in [SHARD, LAST_SHARD] {
        let (blob, part) = hub.blob(file);
        assert!(!part.exists(), "{part:?}");
        assert!(fs::read(&blob).is_ok_and(|bytes| bytes == hub.bytes(file)), "{blob:?}");
        assert!(hub.has(file), "{file}");
    }
}

#[track_caller]
pub fn wait_for(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_name_is_downloaded_once_and_answers() {
    let hub = Hub::start();
    let run = ["run", "-m", NAME, "The capital of France is"];
    let first = hub.whin(&run).succeeded();
    assert_eq!(first.stdout, " Paris.");
    for line in ["downloading config.json, ", "downloading model-00002-of-00002.safetensors, "] {
        assert_eq!(first.stderr.lines().filter(|other| other.starts_with(line)).count(), 1, "{first:?}");
    }
    let wanted =
        fs::read_dir(seedling()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let snapshot = hub.cached("snapshots").join(COMMIT);
    for file in wanted.filter(|file| !file.ends_with(".md")) {
        assert!(hub.has(&file), "{file}");
        let (blob, _) = hub.blob(&file);
        #[cfg(unix)]
        assert_eq!(
            fs::read_link(snapshot.join(&file)).unwrap(),
            Path::new("../../blobs").join(blob.file_name().unwrap())
        );
        assert!(blob.is_file());
    }
    assert_eq!(fs::read_to_string(hub.cached("refs/main")).unwrap(), COMMIT);
    assert!(
        !hub.cached("blobs")
            .read_dir()
            .unwrap()
            .any(|blob| { blob.unwrap().file_name().to_str().unwrap().ends_with(".incomplete") })
    );
    for unwanted in ["README.md", "pytorch_model.bin", "model.gguf", "original/consolidated.pth"] {
        assert!(!hub.asked().iter().any(|asked| asked.path.ends_with(unwanted)), "{unwanted}");
        assert!(!snapshot.join(unwanted).exists());
    }
    // From now on nobody is asked, whatever the name of the revision.
    hub.reset();
    let second = hub.whin(&run).succeeded();
    assert_eq!(second.stdout, " Paris.");
    assert!(!second.stderr.contains("downloading"), "{second:?}");
    hub.whin(&["tokenize", "-m", &format!("{NAME}@{COMMIT}"), "x"]).succeeded();
    finish(hub.command(&run).env("HF_HUB_OFFLINE", "1").spawn().unwrap()).succeeded();
    assert!(hub.asked().is_empty(), "{:?}", hub.asked());
}

#[test]
fn a_folder_of_that_name_wins() {
    let hub = Hub::start();
    let place = Folder::empty();
    fs::create_dir_all(place.file(NAME)).unwrap();
    for entry in fs::read_dir(seedling()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.file(NAME).join(entry.file_name())).unwrap();
    }
    finish(hub.command(&["inspect", NAME]).current_dir(place.path()).spawn().unwrap()).succeeded();
    assert!(hub.asked().is_empty());
}

#[test]
fn a_connection_that_breaks_is_taken_up_again() {
    let hub = Hub::start();
    hub.twist(|asked, before, reply| {
        if asked.at_store && asked.gets(SHARD) && before == 0 {
            reply.cut = Some(1_000_000);
        }
    });
    hub.inspect().succeeded();
    is_clean(&hub);
    let asked = hub.asked().into_iter().filter(|asked| asked.at_store && asked.gets(SHARD));
    let ranges: Vec<Option<String>> = asked.map(|asked| asked.range).collect();
    assert_eq!(ranges, [None, Some("bytes=1000000-".to_owned())]);
}

#[test]
fn a_download_that_was_killed_goes_on_where_it_was() {
    let hub = Hub::start();
    hub.twist(|asked, _, reply| {
        if asked.at_store && asked.gets(SHARD) {
            (reply.cut, reply.stalls) = (Some(2_000_000), true);
        }
    });
    let child = hub.command(&["inspect", NAME]).spawn().unwrap();
    let (blob, part) = hub.blob(SHARD);
    wait_for(|| fs::metadata(&part).is_ok_and(|part| part.len() == 2_000_000));
    kill(child);
    assert!(!blob.exists() && !hub.has(SHARD));
    hub.reset();
    hub.inspect().succeeded();
    is_clean(&hub);
    let asked = hub.asked().into_iter().find(|asked| asked.at_store && asked.gets(SHARD)).unwrap();
    assert_eq!(asked.range.as_deref(), Some("bytes=2000000-"));
    assert!(!hub.asked().iter().any(|asked| asked.path.ends_with("config.json")), "it was there already");
}

#[test]
fn a_server_without_parts_sends_everything_again() {
    let hub = Hub::start();
    let whole = hub.bytes(SHARD);
    hub.twist(move |asked, before, reply| {
        if asked.at_store && asked.gets(SHARD) {
            (reply.status, reply.body) = (200, whole.clone());
            reply.headers.clear();
            reply.cut = (before == 0).then_some(1_000_000);
        }
    });
    hub.inspect().succeeded();
    is_clean(&hub);
}

#[test]
fn another_length_is_refused() {
    for unsized_ in [false, true] {
        for change in [-1_i32, 1] {
            if unsized_ && change < 0 {
                continue; // An end before the end is a broken connection, as above.
            }
            let hub = Hub::start();
            hub.twist(move |asked, _, reply| {
                if asked.at_store && asked.gets(SHARD) {
                    reply.unsized_ = unsized_;
                    match change {
                        1 => reply.body.push(0),
                        _ => drop(reply.body.pop()),
                    }
                }
            });
            hub.inspect().failed("invalid_checkpoint", &[SHARD, "announced", "HF_ENDPOINT"]);
            assert!(!hub.blob(SHARD).0.exists() && !hub.has(SHARD));
            hub.reset();
            hub.inspect().succeeded();
            is_clean(&hub);
        }
    }
}

#[test]
fn another_hash_is_refused_and_not_kept() {
    let hub = Hub::start();
    hub.twist(|asked, _, reply| {
        if asked.at_store && asked.gets(SHARD) {
            reply.body[1_234_567] ^= 1;
        }
    });
    hub.inspect().failed("invalid_checkpoint", &[SHARD, "SHA-256"]);
    let (blob, part) = hub.blob(SHARD);
    assert!(!blob.exists() && !part.exists() && !hub.has(SHARD));
    // What another tool left under the right name, but with other bytes, is found out too.
    hub.reset();
    fs::write(&part, vec![7; 1_000_000]).unwrap();
    hub.inspect().succeeded();
    is_clean(&hub);
    let config = Hub::start();
    let (_, part) = config.blob("config.json");
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(part, "no config").unwrap();
    config.inspect().succeeded();
    assert!(config.has("config.json"));
    let ranges = hub.asked().into_iter().filter(|asked| asked.at_store && asked.gets(SHARD));
    assert_eq!(ranges.map(|asked| asked.range.is_some()).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn refusals_say_what_to_do() {
    let hub = Hub::start();
    let licence = format!("{}/{NAME}", hub.endpoint);
    let refuse = |status, code: &'static str| {
        hub.twist(move |asked, _, reply| {
            if asked.path.starts_with("/api") {
                reply.refuse(status);
                reply.header("X-Error-Code", code);
            }
        });
    };
    let no = "checkpoint_not_found";
    refuse(401, "RepoNotFound");
    hub.inspect().failed(no, &[NAME, "no folder", "private or gated", "HF_TOKEN", &licence]);
    refuse(401, "GatedRepo");
    hub.inspect().failed(no, &[NAME, "gated", "HF_TOKEN", "licence", &licence]);
    refuse(403, "GatedRepo");
    let outcome = finish(hub.command(&["inspect", NAME]).env("HF_TOKEN", TOKEN).spawn().unwrap());
    outcome.failed(no, &["gated", "HF_TOKEN", "licence", &licence]);
    assert!(!outcome.stderr.contains(TOKEN));
    refuse(403, "");
    hub.inspect().failed(no, &["does not give", "HF_TOKEN"]);
    refuse(404, "RepoNotFound");
    hub.inspect().failed(no, &[NAME, "no folder", "no repository", &hub.endpoint]);
    hub.reset();
    hub.whin(&["inspect", &format!("{NAME}@v9")]).failed(no, &[NAME, "v9", "branch"]);
    assert_eq!(hub.asked().len(), 1, "none of these is worth repeating");
    assert!(!hub.cached("").exists(), "nothing was there to be kept");
}

#[test]
fn failures_that_pass_are_waited_for() {
    let hub = Hub::start();
    hub.twist(|asked, before, reply| {
        if before > 0 {
            return;
        }
        if asked.path.starts_with("/api") {
            reply.refuse(500);
        } else if asked.method == "HEAD" && asked.path.ends_with("tokenizer.json") {
            reply.refuse(429);
            reply.header("Retry-After", "2");
        } else if asked.at_store && asked.gets(SHARD) {
            reply.refuse(403); // a link of the store that has run out
        }
    });
    let started = Instant::now();
    let outcome = hub.inspect().succeeded();
    assert!(started.elapsed() > Duration::from_secs(2));
    let line = "warning: waiting 2 s, as the hub asks";
    assert_eq!(outcome.stderr.lines().filter(|other| *other == line).count(), 1, "{outcome:?}");
    is_clean(&hub);
}

#[test]
fn a_long_pause_is_not_sat_through() {
    for (at_store, asked_for) in [(false, "31"), (false, "99999999999999999999999"), (true, " 3600")] {
        let hub = Hub::start();
        hub.twist(move |asked, _, reply| {
            if asked.at_store == at_store {
                reply.refuse(429);
                reply.header("Retry-After", asked_for);
            }
        });
        let started = Instant::now();
        let shown = format!("within {} s", asked_for.trim().parse().unwrap_or(u64::MAX));
        hub.inspect().failed("io", &["no folder", NAME, "429", &shown, "HF_TOKEN"]);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert_eq!(hub.asked().iter().filter(|asked| asked.at_store == at_store).count(), 1);
    }
}

#[test]
fn a_silent_server_is_given_up() {
    let hub = Hub::start();
    hub.twist(|_, _, reply| reply.stalls = true);
    let inspect = || {
        let mut command = hub.command(&["inspect", NAME]);
        finish(command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1").spawn().unwrap())
    };
    let started = Instant::now();
    inspect().failed("io", &[NAME, "imeout", &hub.endpoint, "connection"]);
    assert!(started.elapsed() < Duration::from_secs(25));
    hub.twist(|asked, before, reply| {
        if asked.at_store && asked.gets(SHARD) && before == 0 {
            (reply.cut, reply.stalls) = (Some(1_000_000), true);
        }
    });
    inspect().succeeded();
    is_clean(&hub);
}

#[test]
fn no_server_is_a_failure_that_names_it() {
    let hub = Hub::start();
    // Refused, not to be found, and silent: mostly it is a mistyped path, which is said first and soon.
    for endpoint in ["http://127.0.0.1:1", "http://nowhere.invalid", "http://192.0.2.1"] {
        let started = Instant::now();
        let mut command = hub.command(&["inspect", NAME]);
        let outcome = finish(command.env("HF_ENDPOINT", endpoint).spawn().unwrap());
        outcome.failed("io", &[endpoint, "check the path", "check the connection"]);
        assert!(
            outcome.stderr.starts_with(&format!("error[io]: there is no folder {NAME}, ")),
            "{outcome:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(6), "{endpoint}: {:?}", started.elapsed());
    }
    for wrong in ["huggingface.co", "ftp://x", "http://me:secret@x", "http://"] {
        let mut command = hub.command(&["inspect", NAME]);
        let outcome = finish(command.env("HF_ENDPOINT", wrong).spawn().unwrap());
        outcome.failed("invalid_arguments", &["HF_ENDPOINT"]);
        assert!(!outcome.stderr.contains("secret"));
    }
    let mut command = hub.command(&["inspect", NAME]);
    let outcome = finish(command.env("HF_TOKEN", format!("{TOKEN}\nX-Evil: 1")).spawn().unwrap());
    outcome.failed("invalid_arguments", &["HF_TOKEN"]);
    assert!(!outcome.stderr.contains(TOKEN));
}

#[test]
fn revisions_are_branches_tags_and_commits() {
    for revision in ["v1", "refs/pr/1", COMMIT] {
        let hub = Hub::start();
        let name = format!("{NAME}@{revision}");
        hub.whin(&["inspect", &name]).succeeded();
        is_clean(&hub);
        assert!(!hub.cached("refs/main").exists());
        let noted = fs::read_to_string(hub.cached("refs").join(revision));
        assert_eq!(noted.ok().as_deref(), (revision != COMMIT).then_some(COMMIT));
        hub.reset();
        hub.whin(&["inspect", &name]).succeeded();
        assert!(hub.asked().is_empty());
    }
}

#[test]
fn hostile_names_lead_nowhere() {
    for name in
        ["small/..", "../seedling", "small/seed..ling", "small/.seedling", "small/seedling@../x", "a--b/c"]
    {
        refused(["inspect", name], "checkpoint_not_found", &[name, "owner/name"]);
    }
    // In the list of files: not taken.
    let hub = Hub::start();
    for name in ["../evil.safetensors", "/evil", "a/config.json", "..", "..\\evil", "C:evil"] {
        hub.set(name, "evil");
    }
    hub.inspect().succeeded();
    is_clean(&hub);
    assert!(!hub.asked().iter().any(|asked| asked.path.contains("evil") || asked.path.contains("a/config")));
    // In the index: refused, whether the list has them or not.
    for name in ["../evil.safetensors", "/evil", "a/config.json", "absent.safetensors"] {
        let hub = Hub::start();
        hub.set("../evil.safetensors", "evil");
        hub.set("a/config.json", "evil");
        hub.set(INDEX, json!({"weight_map": {"model.norm.weight": name}}).to_string());
        hub.inspect().failed("invalid_checkpoint", &[INDEX, name]);
        assert!(
            !hub.asked().iter().any(|asked| asked.path.contains("evil") || asked.path.contains("a/config"))
        );
    }
    // As the commit or the name of a content: refused before it becomes part of a path.
    let hub = Hub::start();
    for commit in ["../../../evil", "main", "0123", &COMMIT.to_uppercase()] {
        let body = json!({"sha": commit, "siblings": []}).to_string();
        hub.twist(move |asked, _, reply| {
            if asked.path.starts_with("/api") {
                reply.body = body.clone().into_bytes();
            }
        });
        hub.inspect().failed("invalid_checkpoint", &["commit", &hub.endpoint]);
    }
    for etag in ["\"../../evil\"", "\"/evil\"", "\"\"", "\".\""] {
        hub.twist(move |asked, _, reply| {
            if asked.method == "HEAD" {
                reply.header("ETag", etag);
            }
        });
        hub.inspect().failed("invalid_checkpoint", &["etag", "config.json"]);
    }
    assert!(!hub.cached("snapshots").exists() && !hub.cached("blobs").exists());
}

#[test]
fn a_token_goes_to_the_hub_alone() {
    let hub = Hub::start();
    fs::write(hub.home.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let outcome = hub.inspect().succeeded();
    assert!(!outcome.stderr.contains(TOKEN));
    let (at_store, at_hub): (Vec<_>, Vec<_>) = hub.asked().into_iter().partition(|asked| asked.at_store);
    assert!(at_hub.iter().all(|asked| asked.authorization.as_deref() == Some(&format!("Bearer {TOKEN}"))));
    assert!(at_store.iter().any(|asked| asked.gets(SHARD)));
    assert!(at_store.iter().all(|asked| asked.authorization.is_none()), "{at_store:?}");
}

#[test]
fn a_move_within_the_hub_is_followed_and_elsewhere_without_the_token() {
    let hub = Hub::start();
    hub.twist(|asked, before, reply| {
        if asked.path.starts_with("/api") && before == 0 {
            reply.status = 307;
            reply.header("Location", &asked.path.clone());
        }
    });
    let mut command = hub.command(&["inspect", NAME]);
    finish(command.env("HF_TOKEN", TOKEN).spawn().unwrap()).succeeded();
    assert_eq!(hub.asked().iter().filter(|asked| asked.path.starts_with("/api")).count(), 2);
    assert!(hub.asked().iter().all(|asked| asked.at_store || asked.authorization.is_some()));
    let other = Hub::start();
    let place = other.endpoint.clone();
    let hub = Hub::start();
    hub.twist(move |asked, _, reply| {
        if asked.path.starts_with("/api") {
            reply.status = 307;
            reply.header("Location", &format!("{place}{}", asked.path));
        }
    });
    let mut command = hub.command(&["inspect", NAME]);
    finish(command.env("HF_TOKEN", TOKEN).spawn().unwrap()).succeeded();
    assert!(!other.asked().is_empty());
    assert!(other.asked().iter().all(|asked| asked.authorization.is_none()), "{:?}", other.asked());
    hub.twist(|asked, _, reply| {
        reply.status = 307;
        reply.header("Location", &asked.path.clone());
    });
    hub.whin(&["inspect", &format!("{NAME}@v1")]).failed("invalid_checkpoint", &["redirects without end"]);
}

#[test]
fn a_mirror_that_sends_everything_elsewhere_works() {
    let hub = Hub::start();
    let store = hub.store();
    hub.twist(move |asked, _, reply| {
        if let (false, Some((_, file))) = (asked.at_store, asked.path.split_once(COMMIT)) {
            // Nothing of what the real hub tells beside it.
            reply.headers.clear();
            (reply.status, reply.body) = (308, b"elsewhere".to_vec());
            reply.header("Location", &format!("{store}/store{file}"));
        }
    });
    hub.inspect().succeeded();
    is_clean(&hub);
}

#[test]
fn what_cannot_run_costs_no_download() {
    let hub = Hub::start();
    let mut config: Value = serde_json::from_slice(&hub.bytes("config.json")).unwrap();
    config["hidden_act"] = json!("swoosh");
    hub.set("config.json", config.to_string());
    hub.inspect().failed("unsupported_architecture", &["swoosh"]);
    assert!(
        !hub.asked().iter().any(|asked| asked.path.contains("model-") || asked.path.contains("tokenizer"))
    );
    let hub = Hub::start();
    for file in [INDEX, SHARD, LAST_SHARD, "model.gguf"] {
        hub.remove(file);
    }
    hub.inspect().failed("invalid_checkpoint", &[NAME, "no safetensors", "pickled"]);
    hub.set("model.gguf", "GGUF");
    hub.inspect().failed("invalid_checkpoint", &[NAME, "no safetensors", "GGUF"]);
    assert!(hub.asked().iter().all(|asked| asked.path.starts_with("/api")));
    let hub = Hub::start();
    hub.remove("config.json");
    hub.inspect().failed("invalid_checkpoint", &[NAME, "no config.json"]);
}

#[test]
fn a_single_file_needs_no_index() {
    let hub = Hub::start();
    let fixture = Folder::fixture("base");
    for file in [INDEX, SHARD, LAST_SHARD] {
        hub.remove(file);
    }
    for file in ["config.json", "model.safetensors"] {
        hub.set(file, fs::read(fixture.file(file)).unwrap());
    }
    hub.remove("generation_config.json");
    hub.inspect().succeeded();
    assert!(hub.has("model.safetensors"));
}
