//! One signed request, and what its answer means.

use std::fmt;
use std::time::Duration;

use millpond_core::time::Timestamp;
use reqwest::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};

use crate::client::client;
use crate::guard::Guard;
use crate::sign::{Secret, signature};
use crate::target::{Refused, read};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Characters of an answer that are quoted in an error.
const QUOTED_CHARS_MAX: usize = 200;

/// The longest wait that an answer may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// An endpoint that is told things by signed requests.
#[derive(Clone)]
pub struct Webhook {
    url: Url,
    guard: Guard,
    secrets: Vec<Secret>,
}

/// A request that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Failed {
    /// What happened, without the secret and without the query of the URL.
    pub why: String,
    /// The endpoint said it is gone for good (410): nothing should be sent to it any more.
    pub gone: bool,
    /// The wait that the endpoint asked for.
    pub retry_after: Option<Duration>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("to", &self.shown()).finish_non_exhaustive()
    }
}

impl Webhook {
    /// An endpoint, checked as far as that can be done without looking its name up. Unsigned until it has a secret.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the URL can never be posted to.
    pub fn new(url: &str, guard: Guard) -> Result<Self, Refused> {
        Ok(Self { url: read(url, &guard)?, guard, secrets: Vec::new() })
    }

    /// The same endpoint with one more secret that signs: during a change two of them hold.
    ///
    /// # Errors
    ///
    /// [`Refused::Secret`].
    pub fn signed(mut self, secret: &str) -> Result<Self, Refused> {
        self.secrets.push(Secret::read(secret)?);
        Ok(self)
    }

    /// Scheme, host and path: what of a URL may be shown.
    pub fn shown(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = self.url.host_str().unwrap_or_default();
        format!("{}://{host}{port}{}", self.url.scheme(), self.url.path())
    }

    /// Posts a JSON document. `id` is the same over retries, `at` is the time of this attempt.
    ///
    /// # Errors
    ///
    /// [`Failed`], unless the answer is a 2xx within 30 seconds.
    pub async fn post(&self, id: &str, at: Timestamp, body: Vec<u8>) -> Result<(), Failed> {
        let seconds = at.as_micros().div_euclid(1_000_000);
        let mut request = self
            .client()?
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds);
        if !self.secrets.is_empty() {
            request = request.header("webhook-signature", signature(&self.secrets, id, seconds, &body));
        }
        let answer = request.body(body).send().await.map_err(|error| self.failed(&causes(&error)))?;
        self.judge(answer).await
    }

    fn client(&self) -> Result<Client, Failed> {
        // A client with its connections could be kept; failures are rare enough for one each.
        client(&self.guard).map_err(|why| self.failed(&why))
    }

    fn failed(&self, why: &str) -> Failed {
        Failed { why: format!("POST {}: {why}", self.shown()), gone: false, retry_after: None }
    }

    async fn judge(&self, answer: Response) -> Result<(), Failed> {
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let header =
            |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let retry_after = header(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let location = header(LOCATION).filter(|_| status.is_redirection());
        let said = first_bytes(answer).await;
        let said: String = said.chars().take(QUOTED_CHARS_MAX).collect();
        let why = match (location, said.trim()) {
            (Some(to), _) => format!("answered {status}: redirects are not followed (to {to})"),
            (None, "") => format!("answered {status}"),
            (None, said) => format!("answered {status}: {said}"),
        };
        Err(Failed {
            gone: status == StatusCode::GONE,
            retry_after: retry_after.map(|wait| wait.min(RETRY_AFTER_MAX)),
            ..self.failed(&why)
        })
    }
}

async fn first_bytes(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_BYTES_MAX
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        bytes.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - bytes.len())]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An error with its causes, without the URL: its query may hold a secret.
fn causes(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    let what = if error.is_timeout() { "no answer in time" } else { "cannot be reached" };
    if causes.is_empty() { what.to_owned() } else { format!("{what}: {}", causes.join(": ")) }
}
