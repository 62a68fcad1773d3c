//! A hub on this machine, with the answers of the real one as far as downloads go, and a store on another port to which
//! it redirects for large files. A test can change any answer, and see what was asked.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::checkpoints::seedling;
use crate::process::{self, Outcome};

pub const NAME: &str = "small/seedling";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const SHARD: &str = "model-00001-of-00002.safetensors";
pub const LAST_SHARD: &str = "model-00002-of-00002.safetensors";

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whether the store was asked, not the hub.
    pub at_store: bool,
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

impl Asked {
    /// Whether it asks for the bytes of `file`.
    pub fn gets(&self, file: &str) -> bool {
        self.method == "GET" && self.path.ends_with(&format!("/{file}"))
    }
}

/// What the server says; without changes, the right thing.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sends only so many bytes of the body.
    pub cut: Option<usize>,
    /// Says nothing of its length.
    pub unsized_: bool,
    /// Keeps silent after that, or from the start, instead of closing the connection.
    pub stalls: bool,
}

impl Reply {
    pub fn header(&mut self, name: &str, value: &str) {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    pub fn refuse(&mut self, status: u16) {
        *self = Self { status, ..Self::default() };
    }
}

/// Changes answers; the number says how many like it came before.
type Twist = dyn Fn(&Asked, usize, &mut Reply) + Send + Sync;

struct State {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<Asked>>,
    twist: Mutex<Arc<Twist>>,
    store: String,
    ended: AtomicBool,
}

/// The server, and a home folder for those who ask it.
pub struct Hub {
    state: Arc<State>,
    pub endpoint: String,
    pub home: TempDir,
}

impl Hub {
    /// Serves the demo model, and files beside it that nobody should want.
    pub fn start() -> Self {
        let (hub, store) = (bound(), bound());
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let endpoint = address(&hub);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(seedling()).unwrap() {
            let entry = entry.unwrap();
            files.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
        }
        for unwanted in ["pytorch_model.bin", "model.gguf", "original/consolidated.pth", ".gitattributes"] {
            files.insert(unwanted.to_owned(), b"unwanted".to_vec());
        }
        let state = Arc::new(State {
            files: Mutex::new(files),
            asked: Mutex::default(),
            twist: Mutex::new(Arc::new(|_, _, _| ())),
            store: address(&store),
            ended: AtomicBool::new(false),
        });
        for (listener, at_store) in [(hub, false), (store, true)] {
            let state = state.clone();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (state, stream) = (state.clone(), stream.unwrap());
                    if state.ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client may go away at any time.
                    thread::spawn(move || drop(state.serve(stream, at_store)));
                }
            });
        }
        Self { state, endpoint, home: TempDir::new().unwrap() }
    }

    pub fn twist(&self, twist: impl Fn(&Asked, usize, &mut Reply) + Send + Sync + 'static) {
        *self.state.twist.lock().unwrap() = Arc::new(twist);
    }

    /// Answers as it should from now on, and forgets what was asked.
    pub fn reset(&self) {
        self.twist(|_, _, _| ());
        self.state.asked.lock().unwrap().clear();
    }

    pub fn set(&self, file: &str, bytes: impl Into<Vec<u8>>) {
        self.state.files.lock().unwrap().insert(file.to_owned(), bytes.into());
    }

    pub fn remove(&self, file: &str) {
        self.state.files.lock().unwrap().remove(file).unwrap();
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// The binary with this hub and no other setting of Hugging Face.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = process::command(args);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().to_ascii_uppercase();
            if ["HF_", "HUGGING", "TRANSFORMERS_", "XDG_"].iter().any(|start| name.starts_with(start))
                || name.ends_with("_PROXY")
            {
                command.env_remove(&name).env_remove(name.to_ascii_lowercase());
            }
        }
        command.env("HF_HOME", self.home.path()).env("HF_ENDPOINT", &self.endpoint);
        command
    }

    /// The address of the store.
    pub fn store(&self) -> String {
        self.state.store.clone()
    }

    pub fn whin(&self, args: &[&str]) -> Outcome {
        process::finish(self.command(args).spawn().unwrap())
    }

    pub fn inspect(&self) -> Outcome {
        self.whin(&["inspect", NAME])
    }

    /// What is in the repository's folder in the cache.
    pub fn cached(&self, path: &str) -> PathBuf {
        self.home.path().join("hub/models--small--seedling").join(path)
    }

    /// Whether a snapshot holds `file` with the right bytes.
    pub fn has(&self, file: &str) -> bool {
        let bytes = fs::read(self.cached("snapshots").join(COMMIT).join(file));
        bytes.is_ok_and(|bytes| Some(&bytes) == self.state.files.lock().unwrap().get(file))
    }

    /// The content of `file` in the cache, and where it lies before it is whole.
    pub fn blob(&self, file: &str) -> (PathBuf, PathBuf) {
        let etag = etag(file, &self.state.files.lock().unwrap()[file]);
        (self.cached("blobs").join(&etag), self.cached("blobs").join(format!("{etag}.incomplete")))
    }

    pub fn bytes(&self, file: &str) -> Vec<u8> {
        self.state.files.lock().unwrap()[file].clone()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        for address in [&self.endpoint, &self.state.store] {
            // Wakes the listener, which then ends.
            let _ = TcpStream::connect(address.trim_start_matches("http://"));
        }
    }
}

fn bound() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn is_large(file: &str) -> bool {
    file.ends_with(".safetensors") || file == "tokenizer.json"
}

fn etag(file: &str, bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if is_large(file) { hash } else { hash[..40].to_owned() }
}

impl State {
    fn serve(&self, stream: TcpStream, at_store: bool) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut asked = Asked { at_store, method, path, range: None, authorization: None };
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "range" => asked.range = Some(value.to_owned()),
                "authorization" => asked.authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut reply = self.right_reply(&asked);
        let before = {
            let mut all = self.asked.lock().unwrap();
            let like = |other: &&Asked| (&other.method, &other.path) == (&asked.method, &asked.path);
            let before = all.iter().filter(like).count();
            all.push(asked.clone());
            before
        };
        let twist = self.twist.lock().unwrap().clone();
        twist(&asked, before, &mut reply);
        send(stream, &asked, &reply)
    }

    fn right_reply(&self, asked: &Asked) -> Reply {
        let files = self.files.lock().unwrap();
        let mut reply = Reply { status: 404, ..Reply::default() };
        if let Some(revision) = asked.path.strip_prefix(&format!("/api/models/{NAME}/revision/")) {
            if !["main", "v1", "refs%2Fpr%2F1", COMMIT].contains(&revision) {
                reply.header("X-Error-Code", "RevisionNotFound");
                return reply;
            }
            let siblings: Vec<_> = files.keys().map(|name| json!({"rfilename": name})).collect();
            let body = json!({"id": NAME, "sha": COMMIT, "siblings": siblings}).to_string().into_bytes();
            return Reply { status: 200, body, ..Reply::default() };
        }
        let resolve = format!("/{NAME}/resolve/{COMMIT}/");
        let Some(name) = asked.path.strip_prefix(if asked.at_store { "/store/" } else { &resolve }) else {
            return reply;
        };
        let Some(bytes) = files.get(name) else { return reply };
        let (etag, length) = (format!("\"{}\"", etag(name, bytes)), bytes.len());
        if !asked.at_store {
            reply.header("X-Repo-Commit", COMMIT);
        }
        if is_large(name) && !asked.at_store {
            reply.status = 302;
            reply.header("Location", &format!("{}/store/{name}", self.store));
            reply.header("X-Linked-Etag", &etag);
            reply.header("X-Linked-Size", &length.to_string());
            reply.body = b"Found. Redirecting".to_vec();
            return reply;
        }
        reply.header("ETag", &etag);
        let start =
            asked.range.as_ref().map(|range| range["bytes=".len()..].trim_end_matches('-').parse::<usize>());
        reply.status = if start.is_some() { 206 } else { 200 };
        let start = start.map_or(0, Result::unwrap);
        if reply.status == 206 {
            reply.header("Content-Range", &format!("bytes {start}-{}/{length}", length - 1));
        }
        reply.body = bytes[start..].to_vec();
        reply
    }
}

fn send(mut stream: TcpStream, asked: &Asked, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} As said\r\nConnection: close\r\n", reply.status);
    if !reply.unsized_ {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let says_nothing = reply.stalls && reply.cut.is_none();
    if !says_nothing {
        stream.write_all((head + "\r\n").as_bytes())?;
        if asked.method != "HEAD" {
            stream.write_all(&reply.body[..reply.cut.unwrap_or(reply.body.len())])?;
        }
    }
    if reply.stalls {
        thread::sleep(Duration::from_secs(30));
    }
    Ok(())
}
