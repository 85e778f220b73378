//! Streams of lines, one for each change.

use std::collections::BTreeSet;
use std::convert::Infallible;

use futures::Stream;
use futures::stream::unfold;
use hyper::body::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use trainyard_contract::drain::Drain;
use trainyard_contract::observer::{HEARTBEAT_INTERVAL, JobHosts, RoleHosts};
use trainyard_contract::script::ScriptOrder;
use trainyard_contract::start::Start;
use trainyard_core::local_state::ScriptOffer;
use trainyard_core::observe::{Observed, ObservedRole};

use super::feed::ObservedJob;

/// A line, with its newline.
pub(super) type Line = Result<Bytes, Infallible>;

/// Returns a line for each change of a job, until it is deleted.
pub(super) fn changes(
    feed: watch::Receiver<ObservedJob>,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = |observed: Option<&Observed>| match observed {
        Some(observed) => NextLine::Line(json(observed)),
        None => NextLine::End,
    };
    follow(feed, shutdown, line)
}

/// Returns lines that say whether programs of a role may start, until they may or never will.
pub(super) fn start(
    feed: watch::Receiver<ObservedJob>,
    role: String,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = move |observed: Option<&Observed>| {
        let role = observed.and_then(|observed| observed.roles.iter().find(|known| known.name == role));
        match role.map(|role| &role.start) {
            Some(start @ Start::Wait(_)) => NextLine::Line(json(start)),
            Some(start) => NextLine::Last(json(start)),
            None => NextLine::Line(json(&Start::Wait("the job has not been accepted".to_owned()))),
        }
    };
    follow(feed, shutdown, line)
}

/// Returns lines that say how many pods each role has and which are ready, until the job is
/// deleted. They have indices and not names, so that a line is short however many pods there are.
pub(super) fn hosts(
    feed: watch::Receiver<ObservedJob>,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = |observed: Option<&Observed>| match observed {
        Some(observed) => NextLine::Line(json(&JobHosts {
            roles: observed.roles.iter().map(role_hosts).collect(),
        })),
        None => NextLine::End,
    };
    follow(feed, shutdown, line)
}

/// Returns lines that say whether a pod is to leave, until the job is deleted.
pub(super) fn drain(
    feed: watch::Receiver<ObservedJob>,
    pod: String,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = move |observed: Option<&Observed>| {
        let Some(observed) = observed else {
            return NextLine::End;
        };
        let mut pods = observed.roles.iter().flat_map(|role| &role.pods);
        let drain = pods.find(|known| known.name == pod).map(|known| &known.drain);
        NextLine::Line(json(drain.unwrap_or(&Drain::Stay)))
    };
    follow(feed, shutdown, line)
}

/// Returns lines that say which script a pod is to run, until the job is deleted or this replica
/// does not lead any more.
pub(super) fn script(
    feed: watch::Receiver<ObservedJob>,
    pod_uid: String,
    leads: impl Fn() -> bool + Send,
    shutdown: CancellationToken,
) -> impl Stream<Item = Line> + Send {
    let line = move |observed: Option<&Observed>| {
        let Some(observed) = observed.filter(|_| leads()) else {
            return NextLine::End;
        };
        let order = match &observed.script {
            ScriptOffer::Undecided => return NextLine::Unchanged,
            ScriptOffer::Run(offered) if *offered.task.pod_uid == *pod_uid => {
                ScriptOrder::Run(offered.task.run.clone())
            }
            ScriptOffer::Run(_) | ScriptOffer::Idle => ScriptOrder::Idle,
        };
        NextLine::Line(order.write() + "\n")
    };
    follow(feed, shutdown, line)
}

/// The pods that programs may be started in: not those that are to leave, although the role has
/// them until they have left.
fn role_hosts(role: &ObservedRole) -> RoleHosts {
    let number = |number: i32| u32::try_from(number).ok();
    let ready = role.pods.iter().filter(|pod| pod.ready && pod.drain.stays());
    let ready = ready.filter_map(|pod| number(pod.index));
    let leaving: BTreeSet<i32> = role
        .pods
        .iter()
        .filter_map(|pod| (!pod.drain.stays()).then_some(pod.index))
        .collect();
    let members = role.members.without(|index| leaving.contains(&index));
    RoleHosts {
        members: members.gaps(),
        ..RoleHosts::new(&role.name, number(members.end()).unwrap_or_default(), ready)
    }
}

fn json(told: &impl serde::Serialize) -> String {
    // Only a map whose keys are no text could fail, and there is none.
    serde_json::to_string(told).unwrap_or_default() + "\n"
}

enum NextLine {
    Line(String),
    Last(String),
    /// The last line still holds, if there was one.
    Unchanged,
    /// There is no line, and none will come.
    End,
}

struct Follower<F> {
    feed: watch::Receiver<ObservedJob>,
    shutdown: CancellationToken,
    line: F,
    last: String,
    /// When an empty line is sent.
    due: Instant,
    over: bool,
}

impl<F: FnMut(Option<&Observed>) -> NextLine> Follower<F> {
    /// Waits for the next line that differs from the last.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.over {
            let told = (self.line)(self.feed.borrow_and_update().as_deref());
            let line = match told {
                NextLine::End => return None,
                NextLine::Line(line) => line,
                NextLine::Unchanged => self.last.clone(),
                NextLine::Last(line) => {
                    self.over = true;
                    line
                }
            };
            if line != self.last {
                self.last.clone_from(&line);
                self.due = Instant::now() + HEARTBEAT_INTERVAL;
                return Some(Bytes::from(line));
            }
            // Thousands of followers wait here, and don't need the line.
            drop(line);
            let changed = tokio::select! {
                () = self.shutdown.cancelled() => return None,
                // A change that makes no new line does not postpone the empty line.
                changed = timeout_at(self.due, self.feed.changed()) => changed,
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    self.due = Instant::now() + HEARTBEAT_INTERVAL;
                    return Some(Bytes::from_static(b"\n"));
                }
            }
        }
        None
    }
}

fn follow<F>(
    feed: watch::Receiver<ObservedJob>,
    shutdown: CancellationToken,
    line: F,
) -> impl Stream<Item = Line> + Send
where
    F: FnMut(Option<&Observed>) -> NextLine + Send,
{
    let follower = Follower {
        feed,
        shutdown,
        line,
        last: String::new(),
        due: Instant::now() + HEARTBEAT_INTERVAL,
        over: false,
    };
    unfold(follower, |mut follower| async move {
        let line = follower.next().await?;
        Some((Ok(line), follower))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::pin::pin;
    use std::sync::Arc;

    use futures::StreamExt;
    use tokio::time::sleep;
    use trainyard_api::{Progress, RolePhase};
    use trainyard_core::local_state::ScriptOffer;
    use trainyard_core::members::Members;
    use trainyard_core::observe::ObservedPod;

    use super::*;

    /// As the list of hosts was the first thing that et-operator changed.
    #[test]
    fn a_pod_that_is_to_leave_is_no_host_any_more() {
        let pod = |index| ObservedPod {
            index,
            name: format!("mnist-worker-{index}"),
            host: format!("mnist-worker-{index}"),
            address: None,
            running: true,
            ready: index != 3,
            drain: match index {
                1 | 4 => Drain::Leave { deadline: None },
                _ => Drain::Stay,
            },
        };
        let role = |members: Members| ObservedRole {
            name: "worker".to_owned(),
            phase: RolePhase::Running,
            replicas: members.count(),
            running: members.count(),
            ready: members.count(),
            succeeded: 0,
            start: Start::Go,
            pods: members.iter().map(pod).collect(),
            members,
        };
        let hosts = role_hosts(&role(Members::first(5)));
        let listed = (hosts.replicas, hosts.members.as_deref(), &*hosts.ready);
        assert_eq!(listed, (4, Some("0,2-3"), "0,2"));
        // A line is as short as before where nobody leaves between others.
        let hosts = role_hosts(&role(Members::first(2)));
        assert_eq!((hosts.replicas, hosts.members, &*hosts.ready), (1, None, "0"));
    }

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
                script: ScriptOffer::Undecided,
            }))
        };
        let (feed, receiver) = watch::channel(seen(0));
        tokio::spawn(async move {
            for step in 1.. {
                sleep(HEARTBEAT_INTERVAL / 3).await;
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
            assert!(begun.elapsed() <= HEARTBEAT_INTERVAL + Duration::from_secs(1));
        }
    }
}
