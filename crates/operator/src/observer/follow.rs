//! Streams of lines, one for each change.

use std::convert::Infallible;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
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
    /// When somebody who has heard nothing since is to be told that this side is there.
    due: Instant,
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
                self.due = Instant::now() + SIGN_OF_LIFE;
                return Some(Bytes::from(line));
            }
            // Thousands wait here, and none of them needs it.
            drop(line);
            let changed = tokio::select! {
                () = self.shutdown.cancelled() => return None,
                // Changes that are of no interest to this one are no sign of life to it.
                changed = timeout_at(self.due, self.feed.changed()) => changed,
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    self.due = Instant::now() + SIGN_OF_LIFE;
                    return Some(Bytes::from_static(b"\n"));
                }
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
        due: Instant::now() + SIGN_OF_LIFE,
        over: false,
    };
    unfold(follower, |mut follower| async move {
        let line = follower.next().await?;
        Some((Ok(line), follower))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use futures::StreamExt;
    use tokio::time::sleep;
    use trainyard_api::Progress;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_are_signs_of_life_while_a_job_changes_in_other_ways() {
        let seen = |step| {
            Some(Arc::new(Observed {
                namespace: "ns".to_owned(),
                name: "job".to_owned(),
                phase: None,
                roles: Vec::new(),
                progress: Some(Progress {
                    step: Some(step),
                    ..Progress::default()
                }),
            }))
        };
        let (feed, receiver) = watch::channel(seen(0));
        tokio::spawn(async move {
            for step in 1.. {
                sleep(SIGN_OF_LIFE / 3).await;
                if feed.send(seen(step)).is_err() {
                    return;
                }
            }
        });
        let mut lines = pin!(start(receiver, "worker".to_owned(), CancellationToken::new()));
        let first = lines.next().await.unwrap().unwrap();
        assert!(first.starts_with(b"{\"state\":\"Wait\""), "{first:?}");
        for _ in 0..3 {
            let begun = Instant::now();
            assert_eq!(lines.next().await.unwrap().unwrap(), "\n");
            assert!(begun.elapsed() <= SIGN_OF_LIFE + Duration::from_secs(1));
        }
    }
}
