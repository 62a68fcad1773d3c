//! What the hub answers, taken apart and checked: nothing here is believed. Knows neither requests nor the cache.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Instant;

use serde::Deserialize;
use ureq::Body;
use ureq::http::Response;

use super::name::{is_commit, is_segment, is_sha256};

/// The header with the SHA-256 of a large file.
pub const LINKED_ETAG: &str = "x-linked-etag";

/// The longest list of files that is read: some hundred thousand names.
const LONGEST_LIST: u64 = 64 << 20;

/// A repository at one commit.
pub struct Listing {
    pub commit: String,
    pub files: BTreeSet<String>,
}

/// What the hub says of a file before it is fetched.
pub struct Remote {
    /// What its content is called in the cache.
    pub etag: String,
    pub size: u64,
    /// What its bytes must hash to, where the hub says so.
    pub sha256: Option<String>,
}

impl Listing {
    /// The list in `json`, or what is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Info {
            sha: String,
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let info: Info = serde_json::from_slice(json)
            .map_err(|_| "answers with something other than a list of files".to_owned())?;
        if !is_commit(&info.sha) {
            return Err("names a commit that is none".to_owned());
        }
        // Names that lead elsewhere are dropped here: no file that is read has one.
        let names = info.siblings.into_iter().map(|sibling| sibling.rfilename);
        Ok(Self { commit: info.sha, files: names.filter(|name| is_segment(name)).collect() })
    }
}

impl Remote {
    /// What the headers of an answer for a file of `commit` say, or what is wrong with them.
    pub fn parse(response: &Response<Body>, commit: &str) -> Result<Self, String> {
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if text("x-repo-commit").is_some_and(|found| found != commit) {
            return Err("gives another commit".to_owned());
        }
        let linked = text(LINKED_ETAG).map(unquoted);
        let etag = linked.or_else(|| text("etag").map(unquoted)).filter(|etag| is_segment(etag));
        let etag = etag.ok_or("gives no etag")?.to_owned();
        // The length of a redirect itself is not that of the file.
        let length = || text("content-length").filter(|_| response.status().is_success());
        let size = text("x-linked-size").or_else(length).and_then(|size| size.trim().parse().ok());
        let size = size.ok_or("does not tell the length")?;
        Ok(Self { etag, size, sha256: linked.filter(|linked| is_sha256(linked)).map(str::to_owned) })
    }
}

fn unquoted(etag: &str) -> &str {
    etag.trim().trim_start_matches("W/").trim_matches('"')
}

/// The whole body, unless it is too long or takes too long.
pub fn read_until(body: Body, until: Instant) -> Result<Vec<u8>, String> {
    let mut reader = body.into_with_config().limit(LONGEST_LIST).reader();
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match reader.read(&mut chunk).map_err(|error| error.to_string())? {
            0 => return Ok(bytes),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
        if Instant::now() > until {
            return Err("it takes too long".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(status: u16, headers: &[(&str, &str)]) -> Result<(String, u64, bool), String> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let remote = Remote::parse(&response.body(Body::builder().data("")).unwrap(), "c")?;
        Ok((remote.etag, remote.size, remote.sha256.is_some()))
    }

    #[test]
    fn the_head_of_a_file_is_taken_apart() {
        let hash = "0a".repeat(32);
        let ok = |etag: &str, size, checked| Ok((etag.to_owned(), size, checked));
        assert_eq!(remote(200, &[("etag", "W/\"ab\""), ("content-length", "7")]), ok("ab", 7, false));
        let linked =
            [("etag", "x"), ("content-length", "9"), ("x-linked-etag", &hash), ("x-linked-size", "7")];
        assert_eq!(remote(302, &linked), ok(&hash, 7, true));
        assert!(remote(302, &linked[..3]).unwrap_err().contains("length"));
        assert!(remote(200, &[("etag", "ab")]).unwrap_err().contains("length"));
        assert!(remote(200, &[("etag", "ab"), ("content-length", "-1")]).unwrap_err().contains("length"));
        assert!(remote(200, &[("content-length", "7")]).unwrap_err().contains("etag"));
        let other = [("etag", "ab"), ("content-length", "7"), ("x-repo-commit", "d")];
        assert!(remote(200, &other).unwrap_err().contains("commit"));
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for json in
            ["", "[]", "{}", "<html>", r#"{"sha": "main", "siblings": []}"#, r#"{"sha": 1, "siblings": []}"#]
        {
            assert!(Listing::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
