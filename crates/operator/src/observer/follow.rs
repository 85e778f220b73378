//! Streams of lines, one for each change.

use std::convert::Infallible;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use trainyard_core::indices;
use trainyard_core::observe::{Observed, ObservedRole, Start};

use super::feed::Seen;

/// How often those who hear nothing are told that somebody is still there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// A line, with its end.
pub(super) type Line = Result<Bytes, Infallible>;

/// All changes of a job, until it is gone.
pub(super) fn changes(
    feed: watch::Receiver<Seen>,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = |observed: Option<&Observed>| match observed {
        Some(observed) => Told::Line(json(observed)),
        None => Told::End,
    };
    follow(feed, shutdown, line)
}

/// Whether programs of a role may start, until they may or never will.
pub(super) fn start(
    feed: watch::Receiver<Seen>,
    role: String,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = move |observed: Option<&Observed>| {
        let role = observed.and_then(|observed| observed.roles.iter().find(|known| known.name == role));
        match role.map(|role| &role.start) {
            Some(start @ Start::Wait(_)) => Told::Line(json(start)),
            Some(start) => Told::Last(json(start)),
            None => Told::Line(json(&Start::Wait("the job has not been accepted".to_owned()))),
        }
    };
    follow(feed, shutdown, line)
}

/// How many pods each role has and which of them are ready, until the job is gone. Numbers and not names: a line stays short
/// however many pods there are.
pub(super) fn hosts(
    feed: watch::Receiver<Seen>,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = |observed: Option<&Observed>| match observed {
        Some(observed) => Told::Line(json(&Hosts {
            roles: observed.roles.iter().map(HostsOfRole::of).collect(),
        })),
        None => Told::End,
    };
    follow(feed, shutdown, line)
}

#[derive(Serialize)]
struct Hosts<'a> {
    roles: Vec<HostsOfRole<'a>>,
}

#[derive(Serialize)]
struct HostsOfRole<'a> {
    name: &'a str,
    replicas: i32,
    ready: String,
}

impl<'a> HostsOfRole<'a> {
    fn of(role: &'a ObservedRole) -> Self {
        let ready = role
            .pods
            .iter()
            .filter(|pod| pod.ready)
            .map(|pod| pod.index)
            .collect();
        Self {
            name: &role.name,
            replicas: role.replicas,
            ready: indices::format(&ready).unwrap_or_default(),
        }
    }
}

fn json(told: &impl serde::Serialize) -> String {
    // What is told has no maps with keys that are no text, which is all that could fail.
    serde_json::to_string(told).unwrap_or_default() + "\n"
}

/// What is said of a state.
enum Told {
    /// A line, and more may come.
    Line(String),
    /// The last line.
    Last(String),
    /// Nothing, and nothing more will come.
    End,
}

struct Follower<F> {
    feed: watch::Receiver<Seen>,
    shutdown: CancellationToken,
    line: F,
    last: String,
    over: bool,
}

impl<F: FnMut(Option<&Observed>) -> Told> Follower<F> {
    /// The next line: at once if there is news, else when there is.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            let told = (self.line)(self.feed.borrow_and_update().as_deref());
            let line = match told {
                Told::End => return None,
                Told::Line(line) => line,
                Told::Last(line) => {
                    self.over = true;
                    line
                }
            };
            if line != self.last {
                self.last.clone_from(&line);
                return Some(Bytes::from(line));
            }
            let changed = tokio::select! {
                () = self.shutdown.cancelled() => return None,
                changed = timeout(SIGN_OF_LIFE, self.feed.changed()) => changed,
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(Bytes::from_static(b"\n")),
            }
        }
        None
    }
}

fn follow<F>(
    feed: watch::Receiver<Seen>,
    shutdown: CancellationToken,
    line: F,
) -> impl Stream<Item = Line> + Send
where
    F: FnMut(Option<&Observed>) -> Told + Send,
{
    let follower = Follower {
        feed,
        shutdown,
        line,
        last: String::new(),
        over: false,
    };
    unfold(follower, |mut follower| async move {
        let line = follower.next().await?;
        Some((Ok(line), follower))
    })
}
