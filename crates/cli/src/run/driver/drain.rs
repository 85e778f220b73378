//! Waiting after the end of a job, for the rest of its logs and for pods that are terminating.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::ListParams;
use tokio::time::{Instant, timeout};

use super::logs::Key;
use super::{NEVER, Run, State, watch};
use crate::run::outcome::Outcome;
use crate::run::view::{Event, ObservedPod};

/// How long the logs of a running pod are read after the job's end. The operator deletes pods only
/// after it has written that the job has ended.
const TRAILING_LOG_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the log of a terminated container may be idle without ending: a process that its
/// program left behind may hold it open for ever.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last read of the job may take.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than its grace period a pod may take to end.
const TERMINATION_SLACK: Duration = Duration::from_secs(10);

/// How a job has ended while it is being drained.
pub struct Ending {
    pub outcome: Outcome,
    pub message: Option<String>,
    since: Instant,
    /// Whether a note said which pods are terminating.
    is_noted: bool,
}

/// Pods that exist, by uid.
#[derive(Default)]
pub struct PodTracker(BTreeMap<String, TrackedPod>);

struct TrackedPod {
    seen: ObservedPod,
    /// When a pod that is being deleted should be gone.
    until: Option<Instant>,
}

impl TrackedPod {
    fn is_terminating(&self) -> bool {
        self.until.is_some() && !self.seen.is_over()
    }
}

impl PodTracker {
    pub fn update(&mut self, seen: ObservedPod, now: Instant) {
        let before = self.0.get(&seen.uid).and_then(|pod| pod.until);
        let until = seen.grace_period.map(|grace| {
            let until = now
                .checked_add(grace.saturating_add(TERMINATION_SLACK))
                .unwrap_or(now + NEVER);
            before.map_or(until, |before| before.min(until))
        });
        self.0.insert(seen.uid.clone(), TrackedPod { seen, until });
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.0.contains_key(uid)
    }

    pub fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn uids(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    fn have_all_ended(&self) -> bool {
        self.0.values().all(|pod| pod.seen.is_over())
    }

    fn terminating(&self) -> impl Iterator<Item = &TrackedPod> {
        self.0.values().filter(|pod| pod.is_terminating())
    }

    /// Whether a pod runs and is not being deleted.
    fn has_running(&self) -> bool {
        let mut pods = self.0.values();
        pods.any(|pod| !pod.is_terminating() && !pod.seen.is_over())
    }

    /// Whether a container runs, in a pod that is not being deleted.
    fn is_running_on(&self, (uid, name, restarts): &Key) -> bool {
        self.0.get(uid).is_some_and(|pod| {
            let mut containers = pod.seen.containers.iter();
            let container = containers.find(|container| container.name == *name);
            let runs = container
                .is_none_or(|container| container.ended.is_none() && container.restarts == *restarts);
            runs && !pod.is_terminating() && !pod.seen.is_over()
        })
    }
}

impl Run<'_> {
    /// Starts to drain a job that has ended.
    pub(super) async fn drain(&mut self, outcome: Outcome, message: Option<String>) {
        // The watch of pods may be behind that of the job, and logs of pods not seen yet would be
        // lost.
        let selector = ListParams::default().labels(&watch::pods_of(&self.name));
        if let Ok(pods) = self.pods.list(&selector).await {
            for pod in &pods {
                self.update_pod(pod);
            }
        }
        let since = Instant::now();
        self.last_activity = since;
        self.state = State::Draining(Ending {
            outcome,
            message,
            since,
            is_noted: false,
        });
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_over(&self) -> bool {
        match &self.state {
            State::Running => false,
            State::Stopping(_) => self.is_job_gone && self.tracked.is_empty() && self.followers.is_empty(),
            State::Draining(_) => self.followers.is_empty() && self.tracked.have_all_ended(),
            State::Lost(..) => true,
        }
    }

    /// When the run stops waiting for logs and pods.
    pub(super) fn give_up_at(&self) -> Instant {
        // Every line restarts this timeout, so that a slow reader loses none.
        let silence = self.last_activity + IDLE_TIMEOUT;
        let since = match &self.state {
            State::Draining(ending) => ending.since,
            State::Stopping(_) if self.is_job_gone && self.tracked.is_empty() => return silence,
            _ => return Instant::now() + NEVER,
        };
        let rest = self.followers.open().any(|log| !self.tracked.is_running_on(log));
        let leaving = self.tracked.terminating().filter_map(|pod| pod.until);
        // A pod that keeps running may print for ever, so its lines do not extend the wait.
        let staying = self.tracked.has_running().then_some(since + TRAILING_LOG_TIMEOUT);
        let all = leaving.chain(rest.then_some(silence)).chain(staying);
        all.max().unwrap_or(silence)
    }

    /// When a note should say which pods are terminating; None if it was shown or there are none.
    pub(super) fn terminating_note_at(&self) -> Option<Instant> {
        match &self.state {
            State::Draining(ending) if !ending.is_noted && self.tracked.terminating().next().is_some() => {
                Some(ending.since + TRAILING_LOG_TIMEOUT)
            }
            _ => None,
        }
    }

    pub(super) fn note_terminating(&mut self) {
        if let State::Draining(ending) = &mut self.state {
            ending.is_noted = true;
        }
        let names: Vec<&str> = self
            .tracked
            .terminating()
            .map(|pod| pod.seen.name.as_str())
            .collect();
        let note = format!(
            "the job has ended, and {} may take the grace period to end; Ctrl-C ends it at once",
            names.join(", ")
        );
        self.record(Event::Note(note));
    }

    /// Reads a job that has ended once more. The operator writes the last progress after it has
    /// written the end of the job, and the watch may not have brought it yet.
    pub(super) async fn refresh_job(&mut self) {
        if !self.reports_progress || !matches!(self.state, State::Draining(_)) {
            return;
        }
        let Ok(Ok(job)) = timeout(REFRESH_TIMEOUT, self.jobs.get(&self.name)).await else {
            return;
        };
        // Another job of the same name may have been created.
        if job.uid() == self.uid {
            self.record(Event::Job(Box::new(job)));
        }
    }

    /// Notes which logs were not read to their end.
    pub(super) fn note_unread_logs(&mut self) {
        match &self.state {
            State::Draining(_) => {}
            // The user has interrupted twice and wants no more output.
            State::Stopping(_) if self.tracked.is_empty() => {}
            _ => return,
        }
        let open: Vec<Key> = self.followers.open().cloned().collect();
        for log in open {
            let is_running_on = self.tracked.is_running_on(&log);
            let (uid, container, _) = log;
            self.record(Event::Unread {
                uid,
                container,
                is_running_on,
            });
        }
    }
}
