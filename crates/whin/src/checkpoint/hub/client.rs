//! Requests to the hub: who is asked, what is sent along, where a redirect may lead, which failures pass by themselves,
//! and what the others mean. Knows no cache.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use ureq::{Agent, Body, Timeout};

use super::answer::{LINKED_ETAG, Listing, Remote, read_until};
use super::name::HubName;
use super::settings::Settings;
use crate::{Error, ErrorKind, Result};

const MOST_REDIRECTS: usize = 10;
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Asks one hub.
pub struct Client {
    agent: Agent,
    endpoint: String,
    origin: Origin,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    patience: Patience,
    is_cached: bool,
    /// Whether a server has ever answered.
    was_reached: Cell<bool>,
}

/// Why a request failed.
pub enum Failure {
    /// It may work when it is repeated, after a pause if the server asks for one.
    Passing(Error, Option<Duration>),
    Lasting(Error),
}

/// Which server an address belongs to: a token for one is never sent to another.
#[derive(PartialEq, Eq)]
struct Origin(String, String, u16);

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        Some(Self(scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
    }
}

impl Client {
    /// Reads the token, but makes no request. Where the checkpoint `is_cached`, what goes wrong is told as a mere lack of
    /// something more.
    ///
    /// # Errors
    /// `invalid_arguments` where the address or the token cannot be one, or where the token cannot be read.
    pub fn new(settings: &Settings, is_cached: bool) -> Result<Self> {
        let endpoint = settings.endpoint.clone();
        let uri: Option<Uri> = endpoint.parse().ok();
        // What stands before an @ could be a password, and would be shown in messages.
        let uri = uri.filter(|uri| uri.query().is_none() && !endpoint.contains('@'));
        let origin = uri.as_ref().and_then(Origin::of).ok_or_else(|| {
            let message = "HF_ENDPOINT is no address of a server: give one as in https://huggingface.co";
            Error::new(ErrorKind::InvalidArguments, message)
        })?;
        let authorization = settings.token.read()?.map(|token| {
            let fits = token.bytes().all(|byte| byte.is_ascii_graphic());
            let value = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| fits);
            value.ok_or_else(|| {
                let message =
                    "the token of Hugging Face holds characters that no token has: set HF_TOKEN again";
                Error::new(ErrorKind::InvalidArguments, message)
            })
        });
        let (limit, connect) = (Some(settings.timeout), Some(settings.connect));
        let config = Agent::config_builder()
            .user_agent(concat!("whin/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(connect)
            .timeout_connect(connect)
            .timeout_recv_response(limit)
            .timeout_per_read(limit)
            .timeout_per_write(limit)
            .build();
        Ok(Self {
            agent: config.new_agent(),
            endpoint,
            origin,
            authorization: authorization.transpose()?,
            timeout: settings.timeout,
            patience: Patience { repeats: settings.repeats, pause: settings.pause },
            is_cached,
            was_reached: Cell::new(false),
        })
    }

    /// The files of `name` at `revision`.
    ///
    /// # Errors
    /// `checkpoint_not_found` where the hub does not have it or does not give it, `invalid_checkpoint` where its answer
    /// makes no sense, `io` where it cannot be reached.
    pub fn list(&self, name: &HubName, revision: &str) -> Result<Listing> {
        let revision = revision.replace('/', "%2F");
        let url = format!("{}/api/models/{}/revision/{revision}", self.endpoint, name.repository);
        self.repeated(|| {
            let response = self.send(&Method::GET, &url, None, name)?;
            // A server that sends byte after byte is not silent, but the list must end at some time.
            let body = read_until(response.into_body(), Instant::now() + 6 * self.timeout);
            let body = body.map_err(|what| self.passing(name, &format!("the list of files: {what}")))?;
            Listing::parse(&body).map_err(|what| self.senseless(&what))
        })
    }

    /// What the hub says of `file`.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn look(&self, name: &HubName, commit: &str, file: &str) -> Result<Remote> {
        let url = self.address(name, commit, file);
        self.repeated(|| {
            let response = self.send(&Method::HEAD, &url, None, name)?;
            Remote::parse(&response, commit).map_err(|what| self.senseless(&format!("{what} of {file}")))
        })
    }

    /// Asks for the bytes of `file` from `start` on.
    pub fn get(
        &self,
        name: &HubName,
        commit: &str,
        file: &str,
        start: u64,
    ) -> Result<Response<Body>, Failure> {
        self.send(&Method::GET, &self.address(name, commit, file), Some(start), name)
    }

    fn address(&self, name: &HubName, commit: &str, file: &str) -> String {
        // All parts have been checked: none holds a character that would have to be spelt out.
        format!("{}/{}/resolve/{commit}/{file}", self.endpoint, name.repository)
    }

    /// A failure that may pass by itself.
    pub fn passing(&self, name: &HubName, what: &str) -> Failure {
        Failure::Passing(self.interrupted(name, what), None)
    }

    fn senseless(&self, what: &str) -> Failure {
        Failure::Lasting(invalid(format!("{} {what}; check HF_ENDPOINT", self.endpoint)))
    }

    fn interrupted(&self, name: &HubName, what: &str) -> Error {
        self.undelivered(name, what, "check the connection, and start again: it goes on there")
    }

    fn undelivered(&self, name: &HubName, what: &str, remedy: &str) -> Error {
        let lead = self.lead(name);
        let remedy = if self.is_cached { String::new() } else { format!("; {remedy}") };
        let (repository, endpoint) = (&name.repository, &self.endpoint);
        let message = format!("{lead}{repository} cannot be downloaded from {endpoint}: {what}{remedy}");
        Error::new(ErrorKind::Io, message)
    }

    fn busy(&self, name: &HubName, status: StatusCode, pause: Duration) -> Error {
        let (lead, endpoint) = (self.lead(name), &self.endpoint);
        let (repository, pause) = (&name.repository, pause.as_secs());
        let token =
            if self.authorization.is_some() { "" } else { ", or set HF_TOKEN, which may ask for more" };
        let message = format!(
            "{lead}{endpoint} wants no more requests for {repository} within {pause} s ({status}): try again then{token}"
        );
        Error::new(ErrorKind::Io, message)
    }

    /// What comes before the failure of the hub: the name could have been meant as a path.
    fn lead(&self, name: &HubName) -> String {
        match self.is_cached {
            true => String::new(),
            false => format!("there is no folder {}, and ", name.repository),
        }
    }

    /// Does `request` until it works, fails for good, or has failed too often.
    fn repeated<T>(&self, mut request: impl FnMut() -> Result<T, Failure>) -> Result<T> {
        let mut patience = self.patience();
        loop {
            match request() {
                Ok(done) => return Ok(done),
                Err(failure) => patience.wait(failure)?,
            }
        }
    }

    /// All that a request has before it is given up.
    pub fn patience(&self) -> Patience {
        self.patience.clone()
    }

    /// Sends a request, and follows where it leads. A question for the head of a file is answered by the hub itself,
    /// not by the store to which it redirects.
    fn send(
        &self,
        method: &Method,
        url: &str,
        start: Option<u64>,
        name: &HubName,
    ) -> Result<Response<Body>, Failure> {
        let unusable = || self.senseless("redirects to no address");
        let mut uri: Uri = url.parse().map_err(|_| unusable())?;
        for _ in 0..=MOST_REDIRECTS {
            let origin = Origin::of(&uri).ok_or_else(unusable)?;
            let own = origin == self.origin;
            let request = self.request(method, &uri, start, own).map_err(|_| unusable())?;
            let response =
                self.agent.run(request).map_err(|error| self.unanswered(name, &origin.1, &error))?;
            self.was_reached.set(true);
            let ends = *method == Method::HEAD && response.headers().contains_key(LINKED_ETAG);
            if !response.status().is_redirection() || ends {
                return self.judged(response, own || start.is_none(), name);
            }
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            uri = location.and_then(|location| joined(&uri, location)).ok_or_else(unusable)?;
            if origin.0 == "https" && uri.scheme_str() != Some("https") {
                return Err(self.senseless("redirects to a place without encryption"));
            }
        }
        Err(self.senseless("redirects without end"))
    }

    fn unanswered(&self, name: &HubName, host: &str, error: &ureq::Error) -> Failure {
        // Who can be reached at no time is not worth waiting for; who was reached can be so again.
        if !self.was_reached.get() && is_unconnected(error) {
            let remedy = "check the path; for a name on the hub, check the connection";
            return Failure::Lasting(self.undelivered(name, &format!("{host}: {error}"), remedy));
        }
        let what = self.interrupted(name, &format!("{host}: {error}"));
        match error {
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_) => Failure::Passing(what, None),
            _ => Failure::Lasting(what),
        }
    }

    fn request(
        &self,
        method: &Method,
        uri: &Uri,
        start: Option<u64>,
        own: bool,
    ) -> Result<Request<()>, ureq::http::Error> {
        let mut request = Request::builder().method(method).uri(uri);
        if let (true, Some(authorization)) = (own, &self.authorization) {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some(start) = start.filter(|start| *start > 0) {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        request.body(())
    }

    /// The answer where it is a good one, else what its status means.
    fn judged(
        &self,
        response: Response<Body>,
        lasting: bool,
        name: &HubName,
    ) -> Result<Response<Body>, Failure> {
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(response);
        }
        let passes = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
        // Refused bytes of a store mean that the address which the hub gave has run out: the next one is fresh.
        if passes || !lasting {
            let asked = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            let pause = asked.and_then(seconds);
            if let Some(pause) = pause.filter(|pause| *pause > LONGEST_PAUSE) {
                return Err(Failure::Lasting(self.busy(name, status, pause)));
            }
            let error = self.interrupted(name, &format!("status {status}"));
            return Err(Failure::Passing(error, pause));
        }
        Err(Failure::Lasting(self.refusal(status, response.headers(), name)))
    }

    fn refusal(&self, status: StatusCode, headers: &HeaderMap, name: &HubName) -> Error {
        let HubName { repository, revision } = name;
        let endpoint = &self.endpoint;
        let code = headers.get("x-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
        let lead = self.lead(name);
        let remedy = format!(
            "accept its licence at {endpoint}/{repository}, and set HF_TOKEN to a token of that account \
             ({endpoint}/settings/tokens)"
        );
        let message = match status.as_u16() {
            401 | 403 if code == "GatedRepo" => format!("{repository} on {endpoint} is gated: {remedy}"),
            401 if self.authorization.is_none() => format!(
                "{lead}{endpoint} shows {repository} to nobody without a token: either it does not exist, so \
                 check the name, or it is private or gated: {remedy}"
            ),
            401 | 403 => format!(
                "{lead}{endpoint} does not give {repository} for this token ({status}): it is gated or \
                 private: {remedy}"
            ),
            404 if code == "RevisionNotFound" => {
                format!(
                    "{repository} on {endpoint} has no branch, tag or commit {revision}: check the name after @"
                )
            }
            404 if code == "EntryNotFound" => {
                format!("{endpoint} lists a file of {repository} that it does not have; try again later")
            }
            404 => format!(
                "{lead}there is no repository {repository} on {endpoint}: check the name, or give the folder that \
                 holds config.json and the .safetensors files"
            ),
            _ => {
                let message =
                    format!("{endpoint} does not give {repository}: status {status}; check HF_ENDPOINT");
                return Error::new(ErrorKind::Io, message);
            }
        };
        Error::new(ErrorKind::CheckpointNotFound, message)
    }
}

/// How often a request is still worth repeating, and after how long a pause.
#[derive(Clone)]
pub struct Patience {
    repeats: u32,
    pause: Duration,
}

impl Patience {
    /// Pauses before the next try, or gives up with the failure.
    pub fn wait(&mut self, failure: Failure) -> Result<()> {
        let (error, asked) = match failure {
            Failure::Passing(error, asked) if self.repeats > 0 => (error, asked),
            Failure::Passing(error, _) | Failure::Lasting(error) => return Err(error),
        };
        tracing::debug!("trying again: {error}");
        let pause = asked.unwrap_or_default().max(self.pause);
        if asked.is_some_and(|asked| !asked.is_zero()) {
            tracing::warn!("waiting {} s, as the hub asks", pause.as_secs_f64());
        }
        std::thread::sleep(pause);
        self.repeats -= 1;
        self.pause *= 2;
        Ok(())
    }
}

/// The time that a server asks for, unless it is a date.
fn seconds(text: &str) -> Option<Duration> {
    let digits = Some(text.trim()).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    // A number that is too large still is a long time.
    (!digits.is_empty()).then(|| Duration::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

/// Whether no connection was made.
fn is_unconnected(error: &ureq::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, UnexpectedEof,
    };
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(phase) => matches!(phase, Timeout::Resolve | Timeout::Connect),
        // The system's failures to find a host have no kind of their own: these are the others.
        ureq::Error::Io(error) => !matches!(
            error.kind(),
            BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut | UnexpectedEof
        ),
        _ => false,
    }
}

/// Where `location` leads from `base`.
fn joined(base: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let whole = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        location.to_owned()
    };
    whole.parse().ok()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidCheckpoint, message)
}

#[cfg(test)]
mod tests {
    use super::super::settings::Token;
    use super::*;

    #[test]
    fn redirects_lead_where_they_say() {
        let base = "https://hub:81/a/b".parse().unwrap();
        let leads = |location: &str| joined(&base, location).map(|uri| uri.to_string());
        assert_eq!(leads("/c?d").as_deref(), Some("https://hub:81/c?d"));
        assert_eq!(leads("//store/c").as_deref(), Some("https://store/c"));
        assert_eq!(leads("http://store/c").as_deref(), Some("http://store/c"));
        assert_eq!(leads("/a b"), None);
    }

    #[test]
    fn another_port_or_scheme_is_another_server() {
        let origin = |text: &str| Origin::of(&text.parse().unwrap()).unwrap();
        assert!(origin("https://Hub/a") == origin("https://hub:443"));
        for other in
            ["http://hub", "https://hub:444", "https://hub.evil", "https://hub@evil", "https://evil/hub"]
        {
            assert!(origin("https://hub") != origin(other), "{other}");
        }
        assert!(Origin::of(&"ftp://hub".parse().unwrap()).is_none());
        assert!(Origin::of(&"/hub".parse().unwrap()).is_none());
    }

    #[test]
    fn only_who_was_reached_is_tried_again() {
        let limit = Duration::from_secs(1);
        let settings = Settings {
            cache: "/nowhere".into(),
            endpoint: "http://hub".to_owned(),
            token: Token::None,
            offline: false,
            timeout: limit,
            connect: limit,
            pause: limit,
            repeats: 1,
        };
        let client = Client::new(&settings, false).unwrap();
        let name = HubName::parse("a/b").unwrap();
        let passes = |error: &ureq::Error| match client.unanswered(&name, "hub", error) {
            Failure::Passing(error, None) | Failure::Lasting(error)
                if !error.to_string().contains("no folder a/b") =>
            {
                panic!("{error}")
            }
            failure => matches!(failure, Failure::Passing(..)),
        };
        let io = |kind: io::ErrorKind| ureq::Error::Io(kind.into());
        let unconnected = [
            ureq::Error::HostNotFound,
            ureq::Error::Timeout(Timeout::Resolve),
            ureq::Error::Timeout(Timeout::Connect),
            io(io::ErrorKind::ConnectionRefused),
            io(io::ErrorKind::Other),
        ];
        assert!(unconnected.iter().all(|error| !passes(error)));
        assert!(passes(&ureq::Error::Timeout(Timeout::RecvResponse)));
        assert!(passes(&io(io::ErrorKind::ConnectionReset)));
        client.was_reached.set(true);
        assert!(unconnected.iter().all(passes));
    }

    #[test]
    fn patience_ends() {
        let mut patience = Patience { repeats: 2, pause: Duration::from_millis(1) };
        let failure = || Failure::Passing(invalid("x".to_owned()), None);
        assert!(patience.wait(failure()).is_ok() && patience.wait(failure()).is_ok());
        assert!(patience.wait(failure()).is_err());
    }
}
