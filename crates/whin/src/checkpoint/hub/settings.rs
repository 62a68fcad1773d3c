//! What the environment says about the Hugging Face cache and hub, in the variables that `huggingface_hub` reads. Knows
//! no request.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::short_text;
use crate::{Error, ErrorKind, Result};

const ENDPOINT: &str = "https://huggingface.co";

/// Where the cache is, and how the hub may be asked.
#[derive(Clone)]
pub struct Settings {
    /// The folder that holds `models--owner--name`.
    pub cache: PathBuf,
    /// The address of the hub, without a slash at its end.
    pub endpoint: String,
    /// Who asks.
    pub token: Token,
    /// Whether no connection may be made.
    pub offline: bool,
    /// How long a server may be silent.
    pub timeout: Duration,
    /// How long finding and connecting to one may take. Short, since many a name is a mistyped path.
    pub connect: Duration,
    /// How long to wait before the first repetition of a request that failed; doubled each time.
    pub pause: Duration,
    /// How often it is repeated.
    pub repeats: u32,
}

/// Where the token is that says who asks.
#[derive(Clone)]
pub enum Token {
    /// Nowhere: none is sent.
    None,
    Given(String),
    /// In this file, if it exists.
    Stored(PathBuf),
}

impl Settings {
    /// The settings of this process.
    ///
    /// # Errors
    /// `invalid_arguments` naming a variable whose value cannot be used.
    pub fn from_env() -> Result<Self> {
        Self::read(&|name| std::env::var_os(name), std::env::home_dir())
    }

    fn read(var: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<Self> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name)?.into_string().ok();
        let path = |name: &str| set(name).map(|value| expanded(value, home.as_deref(), var));
        let is_on = |value: Option<String>| {
            let value = value.unwrap_or_default().to_ascii_uppercase();
            ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
        };
        let base = || {
            let caches = path("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")))?;
            Some(caches.join("huggingface"))
        };
        let hf_home = path("HF_HOME").or_else(base);
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| Some(hf_home.as_ref()?.join("hub"))).ok_or_else(|| {
            invalid("there is no home folder for the Hugging Face cache: set HF_HOME to a folder".to_owned())
        })?;
        let token_file = path("HF_TOKEN_PATH").or_else(|| Some(hf_home?.join("token")));
        let given = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN")).map(Token::Given);
        let token = given.or_else(|| token_file.map(Token::Stored));
        let token = token.filter(|_| !is_on(text("HF_HUB_DISABLE_IMPLICIT_TOKEN")));
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let timeout = text("HF_HUB_DOWNLOAD_TIMEOUT").map(|value| seconds("HF_HUB_DOWNLOAD_TIMEOUT", &value));
        let timeout = timeout.transpose()?.flatten();
        Ok(Self {
            cache,
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: token.unwrap_or(Token::None),
            offline: is_on(text("HF_HUB_OFFLINE").or_else(|| text("TRANSFORMERS_OFFLINE"))),
            timeout: timeout.unwrap_or(Duration::from_secs(10)),
            connect: timeout.unwrap_or(Duration::from_secs(3)),
            pause: Duration::from_millis(500),
            repeats: 4,
        })
    }
}

impl Token {
    /// The token itself.
    ///
    /// # Errors
    /// `invalid_arguments` where its file cannot be read.
    pub fn read(&self) -> Result<Option<String>> {
        let token = match self {
            Self::None => return Ok(None),
            Self::Given(token) => token.clone(),
            Self::Stored(path) => match short_text(path) {
                Ok(token) => token,
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) => {
                    let message = format!(
                        "cannot read the token of Hugging Face in {}: {error}; set HF_TOKEN, or \
                         HF_HUB_DISABLE_IMPLICIT_TOKEN=1 to send none",
                        path.display()
                    );
                    return Err(invalid(message).caused_by(error));
                }
            },
        };
        Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// `~` at the start of a path stands for the home folder, `$NAME` and `${NAME}` for variables that exist, as in a shell.
fn expanded(path: OsString, home: Option<&Path>, var: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let path = match (Path::new(&path).strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.into(),
    };
    let Some(text) = path.to_str() else { return path };
    let (mut out, mut rest) = (String::new(), text);
    while let Some(start) = rest.find('$') {
        let after = &rest[start + 1..];
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let braced = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let (name, tail) = braced.unwrap_or_else(|| after.split_at(end));
        out += &rest[..start];
        match var(name).filter(|_| !name.is_empty()).and_then(|value| value.into_string().ok()) {
            Some(value) => out += &value,
            None => out += &rest[start..rest.len() - tail.len()],
        }
        rest = tail;
    }
    (out + rest).into()
}

/// None for 0, which stands for the usual time.
fn seconds(name: &str, value: &str) -> Result<Option<Duration>> {
    let number = value.trim().parse().ok().filter(|number| *number <= 86_400);
    let number =
        number.ok_or_else(|| invalid(format!("{name} is {value:?}: give whole seconds, at most 86400")))?;
    Ok(Some(Duration::from_secs(number)).filter(|time| !time.is_zero()))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArguments, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings> {
        let var = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::read(&var, Some("/home/me".into()))
    }

    fn cache(variables: &[(&str, &str)]) -> String {
        read(variables).unwrap().cache.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        assert_eq!(cache(&[]), "/home/me/.cache/huggingface/hub");
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/y")]), "/home/me/y/hub");
        assert_eq!(cache(&[("HF_HOME", "")]), "/home/me/.cache/huggingface/hub");
        assert_eq!(cache(&[("HF_HOME", "$A/${B}c$D/$"), ("A", "/a"), ("B", "b")]), "/a/bc$D/$/hub");
        assert_eq!(cache(&[("HF_HOME", "/y"), ("HUGGINGFACE_HUB_CACHE", "/z")]), "/z");
        assert_eq!(cache(&[("HF_HUB_CACHE", "/w"), ("HUGGINGFACE_HUB_CACHE", "/z")]), "/w");
    }

    #[test]
    fn the_token_is_the_variable_else_the_file() {
        let home = tempfile::TempDir::new().unwrap();
        let folder = home.path().to_str().unwrap();
        std::fs::write(home.path().join("token"), "hf_file\n").unwrap();
        std::fs::write(home.path().join("other"), " hf_other ").unwrap();
        let other = home.path().join("other");
        let token = |more: &[(&str, &str)]| {
            read(&[&[("HF_HOME", folder)], more].concat()).unwrap().token.read().unwrap()
        };
        assert_eq!(token(&[]).as_deref(), Some("hf_file"));
        assert_eq!(token(&[("HF_TOKEN_PATH", other.to_str().unwrap())]).as_deref(), Some("hf_other"));
        assert_eq!(token(&[("HF_TOKEN", "hf_env\n")]).as_deref(), Some("hf_env"));
        assert_eq!(token(&[("HF_TOKEN", "hf_env"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(token(&[("HF_TOKEN", " \n")]), None);
        for absent in ["absent", "token/absent"] {
            let absent = home.path().join(absent);
            assert_eq!(token(&[("HF_TOKEN_PATH", absent.to_str().unwrap())]), None);
        }
    }

    #[test]
    fn switches_and_limits_are_read() {
        for value in ["1", "true", "YES", "On"] {
            assert!(read(&[("HF_HUB_OFFLINE", value)]).unwrap().offline, "{value}");
        }
        for value in ["0", "", "no", "false", "2"] {
            assert!(!read(&[("HF_HUB_OFFLINE", value)]).unwrap().offline, "{value}");
        }
        assert_eq!(read(&[("HF_ENDPOINT", "http://x:1/hub/")]).unwrap().endpoint, "http://x:1/hub");
        assert_eq!(read(&[("HF_HUB_DOWNLOAD_TIMEOUT", "3")]).unwrap().timeout, Duration::from_secs(3));
        assert_eq!(read(&[("HF_HUB_DOWNLOAD_TIMEOUT", "0")]).unwrap().timeout, Duration::from_secs(10));
        assert_eq!(read(&[("HF_HUB_DOWNLOAD_TIMEOUT", "20")]).unwrap().connect, Duration::from_secs(20));
        assert_eq!(read(&[]).unwrap().connect, Duration::from_secs(3));
        assert!(read(&[("TRANSFORMERS_OFFLINE", "1")]).unwrap().offline);
        assert!(!read(&[("TRANSFORMERS_OFFLINE", "1"), ("HF_HUB_OFFLINE", "0")]).unwrap().offline);
        for value in ["-1", "soon", "1e9", "99999"] {
            let error = read(&[("HF_HUB_DOWNLOAD_TIMEOUT", value)]).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArguments);
        }
    }
}
