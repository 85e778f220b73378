//! A watch of the objects of a kind.

#![allow(
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use trainyard_eventually::within;

use super::Lab;
use super::objects::Query;

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was created or changed.
    Applied(Value),
    /// It was deleted.
    Deleted(Value),
}

/// All changes of the objects of a kind, from the moment at which this was made.
pub struct Follower<'a> {
    lab: &'a Lab,
    api: Api<DynamicObject>,
    version: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>>,
}

impl Lab {
    /// Follows the objects of a kind.
    ///
    /// # Panics
    /// If they can't be listed.
    pub fn follow(&self, kind: &str) -> Follower<'_> {
        let api = self.api(&Query::parse(kind));
        let list = self.runtime.block_on(api.list(&ListParams::default().limit(1)));
        let list = list.unwrap_or_else(|error| panic!("list {kind}: {error}"));
        Follower {
            lab: self,
            api,
            version: list.metadata.resource_version.unwrap_or_default(),
            events: None,
        }
    }
}

impl Follower<'_> {
    /// The next change.
    ///
    /// # Panics
    /// If none comes, or if changes can't be seen.
    pub fn next(&mut self, what: &str) -> Change {
        let lab = self.lab;
        let next = async {
            loop {
                if let Some(change) = self.step().await {
                    return change;
                }
            }
        };
        let what = format!("{}: {what}", lab.namespace);
        lab.runtime.block_on(within(&what, next))
    }

    /// Reads changes until `look` returns something.
    ///
    /// # Panics
    /// If it never comes, with the last change that came.
    pub fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Change) -> Option<T>) -> T {
        let mut last = None;
        loop {
            let change = self.next(&format!("{what}, after {last:#?}"));
            if let Some(found) = look(&change) {
                return found;
            }
            last = Some(change);
        }
    }

    async fn step(&mut self) -> Option<Change> {
        let events = if let Some(events) = &mut self.events {
            events
        } else {
            let opened = self.api.watch(&WatchParams::default(), &self.version).await;
            let opened = opened.unwrap_or_else(|error| panic!("watch: {error}"));
            self.events.insert(opened.boxed())
        };
        let event = events.try_next().await;
        let change = match event.unwrap_or_else(|error| panic!("watch: {error}")) {
            // A server ends every watch at some time; the next one resumes from there.
            None => {
                self.events = None;
                return None;
            }
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                self.version = object.metadata.resource_version.clone().unwrap_or_default();
                Change::Applied(json!(object))
            }
            Some(WatchEvent::Deleted(object)) => {
                self.version = object.metadata.resource_version.clone().unwrap_or_default();
                Change::Deleted(json!(object))
            }
            Some(WatchEvent::Bookmark(bookmark)) => {
                self.version = bookmark.metadata.resource_version;
                return None;
            }
            Some(WatchEvent::Error(error)) => panic!("watch: {error}"),
        };
        Some(change)
    }
}
