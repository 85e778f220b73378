//! Watches: the existing objects, if wanted, then all events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, Either, StreamBody};
use tokio::time::{Instant, sleep_until};
use tower::BoxError;

use super::Answer;
use super::encode::{self, Form};
use super::list::selector;
use super::query::Query;
use crate::api::error::StatusError;
use crate::api::kinds::Kind;
use crate::api::selector::Selector;
use crate::api::semantics::Target;
use crate::api::status;
use crate::api::store::{Compacted, Event, Happening, Reader, Stored};
use crate::api::{Api, Shared};

const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);
const MAX_BATCH: usize = 128;

pub(super) fn watch(
    api: &Api,
    target: &Target<'_>,
    query: &Query,
    form: Form,
    name: Option<&str>,
) -> Result<Answer, StatusError> {
    let kind = target.kind.clone();
    let selector = selector(&kind, query)?;
    let (initial, reader) = match query.version()?.filter(|_| !query.initial_events) {
        None => {
            let (page, reader) = target.shared.store.follow(kind.table, target.namespace);
            (page.objects.into(), Ok(reader))
        }
        Some(version) => (
            VecDeque::new(),
            target.shared.store.follow_since(kind.table, version),
        ),
    };
    let now = Instant::now();
    let watching = Watching {
        shared: api.shared.clone(),
        namespace: target.namespace.to_owned(),
        name: name.map(ToOwned::to_owned),
        kind,
        selector,
        form,
        initial,
        announce_end: query.initial_events,
        reader,
        bookmarks: query.bookmarks,
        next_bookmark: now + BOOKMARK_INTERVAL,
        end: now + query.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
        ended: false,
    };
    let frames = stream::unfold(watching, |mut watching| async move {
        let bytes = watching.next().await?;
        Some((bytes, watching))
    });
    let frames = frames.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes)));
    let body = Either::Right(StreamBody::new(frames).boxed_unsync());
    Ok(encode::with(StatusCode::OK, "application/json", body))
}

struct Watching {
    shared: Arc<Shared>,
    kind: Arc<Kind>,
    namespace: String,
    name: Option<String>,
    selector: Selector,
    form: Form,
    /// Existing objects that have not been sent yet.
    initial: VecDeque<Arc<Stored>>,
    /// Whether to send a bookmark after the existing objects.
    announce_end: bool,
    reader: Result<Reader, Compacted>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    ended: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            let mut out = Vec::new();
            if let Err(compacted) = self.write_more(&mut out) {
                self.ended = true;
                write_expired(&mut out, compacted);
            }
            if !out.is_empty() {
                return Some(out.into());
            }
            // Everything up to now was sent, so a bookmark is correct.
            let now = Instant::now();
            if now >= self.end {
                self.ended = true;
                return self.bookmark(false);
            }
            if self.bookmarks && now >= self.next_bookmark {
                self.next_bookmark = now + BOOKMARK_INTERVAL;
                return self.bookmark(false);
            }
            let wake = if self.bookmarks {
                self.end.min(self.next_bookmark)
            } else {
                self.end
            };
            let Ok(reader) = &mut self.reader else { return None };
            tokio::select! {
                biased;
                () = reader.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    fn write_more(&mut self, out: &mut Vec<u8>) -> Result<(), Compacted> {
        let count = self.initial.len().min(MAX_BATCH);
        for object in self.initial.drain(..count).collect::<Vec<_>>() {
            if self.concerns(&object) && self.selector.selects(&object.head) {
                self.write_event(out, "ADDED", &object);
            }
        }
        if !self.initial.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.announce_end)
            && let Some(bookmark) = self.bookmark(true)
        {
            out.extend_from_slice(&bookmark);
        }
        let reader = self.reader.as_mut().map_err(|compacted| *compacted)?;
        // Events of other objects are skipped.
        loop {
            let events = self.shared.store.read(self.kind.table, reader, MAX_BATCH)?;
            let Some(_) = events.first() else { return Ok(()) };
            for event in &events {
                let watch = Watch {
                    kind: &self.kind,
                    namespace: &self.namespace,
                    name: self.name.as_deref(),
                    selector: &self.selector,
                    form: self.form,
                };
                watch.write(out, event);
            }
            if !out.is_empty() {
                return Ok(());
            }
        }
    }

    fn concerns(&self, object: &Stored) -> bool {
        self.name.as_deref().is_none_or(|name| name == &*object.head.name)
    }

    fn write_event(&self, out: &mut Vec<u8>, what: &str, object: &Stored) {
        write_event(out, what, &self.kind, object, self.form);
    }

    fn bookmark(&self, end_of_initial: bool) -> Option<Bytes> {
        if !self.bookmarks && !end_of_initial {
            return None;
        }
        let version = self.reader.as_ref().ok()?.version();
        let (kind, api_version) = match self.form {
            Form::Whole => (&*self.kind.kind, &*self.kind.api_version),
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1"),
        };
        let mut metadata =
            serde_json::json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if end_of_initial {
            metadata["annotations"] = serde_json::json!({"k8s.io/initial-events-end": "true"});
        }
        let object = serde_json::json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        let event = serde_json::json!({"type": "BOOKMARK", "object": object});
        Some(format!("{event}\n").into())
    }
}

struct Watch<'a> {
    kind: &'a Kind,
    namespace: &'a str,
    name: Option<&'a str>,
    selector: &'a Selector,
    form: Form,
}

impl Watch<'_> {
    fn write(&self, out: &mut Vec<u8>, event: &Event) {
        let head = &event.object.head;
        let elsewhere = !self.namespace.is_empty() && *self.namespace != *head.namespace;
        if elsewhere || self.name.is_some_and(|name| *name != *head.name) {
            return;
        }
        let now = event.happening != Happening::Deleted && self.selector.selects(head);
        let before = event
            .previous
            .as_ref()
            .filter(|previous| self.selector.selects(&previous.head));
        // With a selector, an object is added or deleted when it starts or stops to match.
        match (before, now) {
            (None, true) => write_event(out, "ADDED", self.kind, &event.object, self.form),
            (Some(_), true) => write_event(out, "MODIFIED", self.kind, &event.object, self.form),
            (Some(_), false) if event.happening == Happening::Deleted => {
                write_event(out, "DELETED", self.kind, &event.object, self.form);
            }
            (Some(before), false) => {
                write_event(out, "DELETED", self.kind, &before.at(event.version), self.form);
            }
            (None, false) => {}
        }
    }
}

fn write_event(out: &mut Vec<u8>, what: &str, kind: &Kind, object: &Stored, form: Form) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(what.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    encode::write(out, kind, object, form);
    out.extend_from_slice(b"}\n");
}

fn write_expired(out: &mut Vec<u8>, compacted: Compacted) {
    let message = format!(
        "too old resource version: {} ({})",
        compacted.wanted, compacted.oldest
    );
    let object = status::to_json(&status::expired(message));
    let event = serde_json::json!({"type": "ERROR", "object": object});
    out.extend_from_slice(format!("{event}\n").as_bytes());
}
