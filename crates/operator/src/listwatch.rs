//! List, then watch, and begin again when that is needed: the protocol by which a kind is followed.
//!
//! kube's own watcher does the same, but does not say of which version a list is, and the index needs that to tell
//! what is gone from what is newer than the list. It also decodes straight from the bytes received.
//!
//! A watch that breaks goes on from where it was. It is listed anew when the server says that it is too late for that
//! (410), and when the server has refused the watch several times in a row for other reasons: then it is the list that
//! shows whether we may still see the kind at all, and that leads past whatever the watch can't get past.

mod pages;

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};
use crate::index::Source;
use crate::slim::Version;
use pages::{ListMeta, Splitter};

/// The pause between attempts. The last is short enough that an outage of a minute costs little more than a minute.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(100),
    max: Duration::from_secs(10),
};
/// A watch that has lasted so long was a good one.
const HEALTHY: Duration = Duration::from_secs(20);
/// The server sends a bookmark every minute or so; after so long without a word the connection is taken for dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// A watch that was refused so often, at the same place, does not get any further.
const REFUSALS: u32 = 5;
/// The server is asked to end a watch after so long, and up to a fifth longer, so that not all begin anew at once.
const WATCH_SECONDS: u32 = 240;

/// What is followed.
#[derive(Clone, Debug)]
pub struct Target {
    /// The kind, for those who read logs.
    pub kind: &'static str,
    /// The path of the collection.
    pub path: String,
    /// Labels to select by.
    pub labels: Option<String>,
    /// Whether metadata is all that is wanted.
    pub metadata_only: bool,
    /// How many objects a page of a list has.
    pub page: u32,
}

/// Where it goes.
pub trait Sink: Send + Sync {
    /// A list of a version begins.
    fn listing(&self, version: Version);
    /// An object, as JSON. Its version.
    fn object(&self, json: &str, source: Source) -> Result<Version, serde_json::Error>;
    /// An object that is gone, as JSON. Its version.
    fn gone(&self, json: &str) -> Result<Version, serde_json::Error>;
    /// The list that was begun at a time is complete.
    fn listed(&self, version: Version, began: Instant);
    /// Nothing more has happened up to a version.
    fn bookmark(&self, version: Version);
    /// The server has no such list, or none for us.
    fn refused(&self) {}
    /// It has to be begun anew, or could not be begun.
    fn interrupted(&self, error: Option<&Error>);
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused it or could not be reached.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The connection broke.
    #[error("reading: {0}")]
    Read(#[from] std::io::Error),
    /// The server sent what is neither a list nor an event.
    #[error("not what a server sends: {0}")]
    Decode(#[from] serde_json::Error),
    /// The request could not be made.
    #[error(transparent)]
    Request(#[from] kube::core::request::Error),
    /// The server ended the watch with an error.
    #[error("the watch ended with {code}: {message}")]
    Watch {
        /// The code.
        code: u16,
        /// The server's words.
        message: String,
    },
}

impl Error {
    /// The server's code.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Client(kube::Error::Api(status)) => Some(status.code),
            Self::Watch { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the server was there and did not want to, or said what makes no sense. One that can't be reached, or has too
    /// much to do, has nothing against us, and lists would be one more burden.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Decode(_) => true,
            _ => self.code().is_some_and(|code| !matches!(code, 429 | 502..=504)),
        }
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    what: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: ListMeta,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// Follows a target until dropped. A change of `resync` makes it list anew.
pub async fn follow(client: kube::Client, target: Target, sink: &dyn Sink, mut resync: watch::Receiver<u64>) {
    let mut failures = 0;
    loop {
        resync.mark_unchanged();
        let began = Instant::now();
        let mut version = match list(&client, &target, sink, began).await {
            Ok(version) => version,
            Err(error) => {
                if matches!(error.code(), Some(403 | 404)) {
                    sink.refused();
                }
                sink.interrupted(Some(&error));
                failures += 1;
                tokio::time::sleep(BACKOFF.pause(failures, jitter())).await;
                continue;
            }
        };
        let mut refusals = 0;
        loop {
            let (began, from) = (Instant::now(), version.clone());
            let end = tokio::select! {
                end = watch(&client, &target, sink, &mut version) => end,
                Ok(()) = resync.changed() => break,
            };
            if began.elapsed() >= HEALTHY {
                failures = 0;
            }
            if matches!(&end, Err(error) if error.code() == Some(410)) {
                sink.interrupted(None);
                break;
            }
            if end.is_ok() && began.elapsed() >= HEALTHY {
                // It ended as it was asked to.
                continue;
            }
            sink.interrupted(end.as_ref().err());
            failures += 1;
            refusals = match &end {
                Err(error) if error.is_refusal() && version == from => refusals + 1,
                // It was further on, or nobody knows what would have been said.
                Err(error) if error.is_refusal() => 1,
                _ => 0,
            };
            tokio::time::sleep(BACKOFF.pause(failures, jitter())).await;
            if refusals >= REFUSALS {
                break;
            }
        }
    }
}

async fn list(
    client: &kube::Client,
    target: &Target,
    sink: &dyn Sink,
    began: Instant,
) -> Result<String, Error> {
    let mut params = ListParams {
        label_selector: target.labels.clone(),
        ..ListParams::default()
    }
    .limit(target.page);
    let request = Request::new(&target.path);
    let mut first = true;
    let mut each = |metadata: &ListMeta, object: &[u8]| {
        if std::mem::take(&mut first) {
            sink.listing(Version::parse(&metadata.resource_version));
        }
        let text = std::str::from_utf8(object).map_err(serde::de::Error::custom);
        decoded(target, text.and_then(|json| sink.object(json, Source::List)));
    };
    let metadata = loop {
        let page = if target.metadata_only {
            request.list_metadata(&params)?
        } else {
            request.list(&params)?
        };
        let metadata = read_page(client, page, &mut each).await?;
        params.continue_token = metadata.more.clone().filter(|more| !more.is_empty());
        if params.continue_token.is_none() {
            break metadata;
        }
    };
    let version = Version::parse(&metadata.resource_version);
    if first {
        sink.listing(version);
    }
    sink.listed(version, began);
    Ok(metadata.resource_version)
}

async fn read_page(
    client: &kube::Client,
    request: http::Request<Vec<u8>>,
    each: &mut (dyn FnMut(&ListMeta, &[u8]) + Send),
) -> Result<ListMeta, Error> {
    let mut stream = std::pin::pin!(client.request_stream(request).await?);
    let mut splitter = Splitter::default();
    let mut metadata = None;
    loop {
        let bytes = stream.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(splitter.finish(each)?);
        }
        splitter.feed(bytes, each, &mut metadata)?;
        let taken = bytes.len();
        stream.as_mut().consume(taken);
    }
}

async fn watch(
    client: &kube::Client,
    target: &Target,
    sink: &dyn Sink,
    version: &mut String,
) -> Result<(), Error> {
    let seconds = Duration::from_secs(u64::from(WATCH_SECONDS)).mul_f64(1.0 + 0.2 * jitter());
    let params = WatchParams {
        label_selector: target.labels.clone(),
        timeout: u32::try_from(seconds.as_secs()).ok(),
        bookmarks: true,
        ..WatchParams::default()
    };
    let request = Request::new(&target.path);
    let request = if target.metadata_only {
        request.watch_metadata(&params, version)?
    } else {
        request.watch(&params, version)?
    };
    let stream = client.request_stream(request).await?;
    let mut stream = std::pin::pin!(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match tokio::time::timeout(IDLE_TIMEOUT, read_line(&mut stream, &mut line)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
        }
        take(&line, target, sink, version)?;
        // A line of unusual length must not be paid for in local ever after.
        if line.capacity() > 1 << 20 {
            line = Vec::new();
        }
    }
}

/// Reads a line; false at the end of the stream, or if the stream ends within a line.
async fn read_line(stream: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    Ok(stream.read_until(b'\n', line).await? > 0 && line.last() == Some(&b'\n'))
}

fn take(line: &[u8], target: &Target, sink: &dyn Sink, version: &mut String) -> Result<(), Error> {
    let Line { what, object } = serde_json::from_slice(line)?;
    let reached = match &*what {
        "ADDED" | "MODIFIED" => decoded(target, sink.object(object.get(), Source::Watch)),
        "DELETED" => decoded(target, sink.gone(object.get())),
        "BOOKMARK" => None,
        _ => {
            let Failure { code, message } = serde_json::from_str(object.get())?;
            return Err(Error::Watch { code, message });
        }
    };
    *version = match reached {
        Some(Version(reached)) if reached != 0 => reached.to_string(),
        _ => {
            serde_json::from_str::<Versioned>(object.get())?
                .metadata
                .resource_version
        }
    };
    if what == "BOOKMARK" {
        sink.bookmark(Version::parse(version));
    }
    Ok(())
}

/// One object that can't be decoded stalls nobody.
fn decoded(target: &Target, result: Result<Version, serde_json::Error>) -> Option<Version> {
    if let Err(error) = &result {
        tracing::error!(kind = target.kind, %error, "left out an object that can't be decoded");
    }
    result.ok()
}

#[cfg(test)]
mod tests;
