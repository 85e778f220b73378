//! Follows a kind: lists it, watches it, and lists again when needed.
//!
//! kube's own watcher does the same, but does not tell the version of a list. The index needs it to
//! tell deleted objects from those that are newer than the list. This one also decodes straight
//! from the received bytes.
//!
//! A watch that breaks goes on from its last version. The kind is listed again when the server says
//! that this version is too old (410), and when it has refused the watch several times in a row for
//! other reasons: the list shows whether we may see the kind at all, and gives another version.
//!
//! A busy server ends everybody's watches early. That is no failure of the watch: one that was
//! served is opened again within half a second, however often it ends.

mod pages;

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::{WATCH_BACKOFF as BACKOFF, jitter};
use crate::index::Source;
use crate::slim::Version;
use pages::{ListMeta, Splitter};

/// A watch that was served for so long ends as it was asked to, and is opened again at once.
const HEALTHY_AFTER: Duration = Duration::from_secs(20);
/// A watch that was served waits as after so many failures in a row, and no longer: half a second
/// at most.
const MAX_FAILURES_OF_SERVED: u32 = 3;
/// The server sends a bookmark about every minute. After so long without one, the connection is
/// dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
/// How often a watch may be refused at the same version before the kind is listed again.
const MAX_REFUSALS: u32 = 5;
/// The server is asked to end a watch after so long and up to a fifth more, so that not all watches
/// begin anew at once.
const WATCH_SECONDS: u32 = 240;

/// A kind to follow.
#[derive(Clone, Debug)]
pub struct Target {
    /// The kind, for logs.
    pub kind: &'static str,
    /// The path of the list.
    pub path: String,
    pub labels: Option<String>,
    pub metadata_only: bool,
    /// How many objects are listed at once.
    pub page: u32,
}

/// Receives the objects of a kind.
pub trait Sink: Send + Sync {
    /// A list of a version begins.
    fn listing(&self, version: Version);
    /// An object, as JSON. Returns its version.
    fn object(&self, json: &str, source: Source) -> Result<Version, serde_json::Error>;
    /// A deleted object, as JSON. Returns its version.
    fn gone(&self, json: &str) -> Result<Version, serde_json::Error>;
    /// The list that began at `began` is complete.
    fn listed(&self, version: Version, began: Instant);
    /// There was no other change up to a version.
    fn bookmark(&self, version: Version);
    /// The kind does not exist, or may not be listed.
    fn refused(&self) {}
    /// A list or a watch ended early. Without an error, its version was too old.
    fn interrupted(&self, error: Option<&Error>);
}

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Client(#[from] kube::Error),
    #[error("reading: {0}")]
    Read(#[from] std::io::Error),
    #[error("not what a server sends: {0}")]
    Decode(#[from] serde_json::Error),
    #[error(transparent)]
    Request(#[from] kube::core::request::Error),
    #[error("the watch ended with {code}: {message}")]
    Watch { code: u16, message: String },
}

impl Error {
    /// Returns the status code of the server.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Client(kube::Error::Api(status)) => Some(status.code),
            Self::Watch { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns true if the server refused the watch, or sent what can't be read. One that is
    /// overloaded or can't be reached refuses nothing, and another list would be a burden.
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
    event: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: ListMeta,
}

#[derive(Deserialize)]
struct ErrorStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// Follows a target until dropped. Lists again when `resync` changes.
pub async fn follow(client: kube::Client, target: Target, sink: &dyn Sink, mut resync: watch::Receiver<u64>) {
    let mut failures = 0;
    let mut refusals = 0;
    let mut listed_before = None;
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
        // A list that brings news is progress. One for which a watch was refused shows only that
        // the server still lists.
        let is_news = listed_before.replace(version.clone()).as_ref() != Some(&version);
        if is_news && refusals == 0 {
            failures = 0;
        }
        refusals = 0;
        loop {
            let (began, from) = (Instant::now(), version.clone());
            let mut was_served = false;
            let watch = async {
                let stream = open_watch(&client, &target, &version).await?;
                was_served = true;
                read_watch(stream, &target, sink, &mut version).await
            };
            let end = tokio::select! {
                end = watch => end,
                Ok(()) = resync.changed() => break,
            };
            let has_moved = version != from;
            if has_moved || began.elapsed() >= HEALTHY_AFTER {
                failures = 0;
            }
            if matches!(&end, Err(error) if error.code() == Some(410)) {
                sink.interrupted(None);
                break;
            }
            if end.is_ok() && began.elapsed() >= HEALTHY_AFTER {
                continue;
            }
            sink.interrupted(end.as_ref().err());
            let is_refused = matches!(&end, Err(error) if error.is_refusal());
            refusals = match (is_refused, has_moved) {
                (true, false) => refusals + 1,
                // It is the first refusal at this version.
                (true, true) => 1,
                (false, _) => 0,
            };
            failures += 1;
            if was_served && !is_refused {
                failures = failures.min(MAX_FAILURES_OF_SERVED);
            }
            tokio::time::sleep(BACKOFF.pause(failures, jitter())).await;
            if refusals >= MAX_REFUSALS {
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
        log_undecodable(target, text.and_then(|json| sink.object(json, Source::List)));
    };
    let metadata = loop {
        let page = if target.metadata_only {
            request.list_metadata(&params)?
        } else {
            request.list(&params)?
        };
        let metadata = read_page(client, page, &mut each).await?;
        params.continue_token = metadata.continue_token.clone().filter(|token| !token.is_empty());
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

async fn open_watch(
    client: &kube::Client,
    target: &Target,
    version: &str,
) -> Result<impl AsyncBufRead + use<>, Error> {
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
    Ok(client.request_stream(request).await?)
}

/// Reads a watch until it ends, and keeps the version that it has reached.
async fn read_watch(
    stream: impl AsyncBufRead,
    target: &Target,
    sink: &dyn Sink,
    version: &mut String,
) -> Result<(), Error> {
    let mut stream = std::pin::pin!(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match tokio::time::timeout(IDLE_TIMEOUT, read_line(&mut stream, &mut line)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
        }
        handle_line(&line, target, sink, version)?;
        // A long line must not take memory for ever.
        if line.capacity() > 1 << 20 {
            line = Vec::new();
        }
    }
}

/// Reads a line. Returns false if the stream ends before the line does.
async fn read_line(stream: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    Ok(stream.read_until(b'\n', line).await? > 0 && line.last() == Some(&b'\n'))
}

fn handle_line(line: &[u8], target: &Target, sink: &dyn Sink, version: &mut String) -> Result<(), Error> {
    let Line { event, object } = serde_json::from_slice(line)?;
    let reached = match &*event {
        "ADDED" | "MODIFIED" => log_undecodable(target, sink.object(object.get(), Source::Watch)),
        "DELETED" => log_undecodable(target, sink.gone(object.get())),
        "BOOKMARK" => None,
        _ => {
            let ErrorStatus { code, message } = serde_json::from_str(object.get())?;
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
    if event == "BOOKMARK" {
        sink.bookmark(Version::parse(version));
    }
    Ok(())
}

/// An object that can't be decoded is left out, so that it holds up no other.
fn log_undecodable(target: &Target, result: Result<Version, serde_json::Error>) -> Option<Version> {
    if let Err(error) = &result {
        tracing::error!(kind = target.kind, %error, "left out an object that can't be decoded");
    }
    result.ok()
}

#[cfg(test)]
mod tests;
