//! The name of a checkpoint on the hub, checked before it becomes part of a path or of an address. Knows neither.

/// Longer segments are no names on the hub.
const LONGEST: usize = 96;

/// `owner/name`, with a branch, a tag or a commit behind `@` where one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// `owner/name`.
    pub repository: String,
    /// The branch, tag or commit; `main` unless one was given.
    pub revision: String,
}

impl HubName {
    /// The name in `text`; none where it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (owner, name) = repository.split_once('/')?;
        // In the cache `--` stands between owner and name, so that two names with it could share a folder.
        let fits = |segment: &str| is_segment(segment) && !segment.contains("--");
        (fits(owner) && fits(name) && revision.split('/').all(is_segment))
            .then(|| Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }

    /// Its folder in the cache.
    pub fn folder(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }
}

/// Whether `text` can be a segment of a path on any system without leading elsewhere.
pub fn is_segment(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=LONGEST).contains(&text.len())
        && !text.starts_with('.')
        && !text.contains("..")
        && text.chars().all(plain)
}

/// Whether `text` is the whole hash of a commit.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && is_hex(text)
}

/// Whether `text` is a SHA-256.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let name = HubName::parse("Qwen/Qwen3-0.6B").unwrap();
        assert_eq!((name.repository.as_str(), name.revision.as_str()), ("Qwen/Qwen3-0.6B", "main"));
        assert_eq!(name.folder(), "models--Qwen--Qwen3-0.6B");
        let name = HubName::parse("a/b@refs/pr/1").unwrap();
        assert_eq!((name.repository.as_str(), name.revision.as_str()), ("a/b", "refs/pr/1"));
    }

    #[test]
    fn what_could_lead_elsewhere_is_no_name() {
        let long = format!("a/{}", "b".repeat(97));
        for text in [
            "",
            "a",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/.b",
            ".a/b",
            "a/b..c",
            "a--b/c",
            "a/b c",
            "a/b\\c",
            "a/b:c",
            "a/b@",
            "a/b@..",
            "a/b@../../x",
            "a/b@/x",
            "a/b@x/",
            "a/b@a@b",
            "a/b@.git",
            "a/é",
            "a/b?c",
            "a/b%2e",
            &long,
        ] {
            assert_eq!(HubName::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn digests_are_whole_and_lower_case() {
        assert!(is_commit(&"0a".repeat(20)) && is_sha256(&"f9".repeat(32)));
        for text in [&"0a".repeat(19), &"0A".repeat(20), &"0g".repeat(20), "../../..", &"0a".repeat(32)] {
            assert!(!is_commit(text), "{text:?}");
        }
    }
}
