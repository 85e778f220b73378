//! What is waited for when a job has ended: the rest of its logs, and pods that have their grace period.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::ListParams;
use tokio::time::{Instant, timeout};

use super::logs::Key;
use super::{NEVER, Run, State, watch};
use crate::run::outcome::Outcome;
use crate::run::view::{Event, PodSeen};

/// How long a pod that nobody ends is listened to after the job's end: the operator deletes pods when it has said that
/// the job has ended.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long the log of a container that has ended may bring nothing and not end. What its program has left behind may
/// hold it open for ever.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the cluster may take to say once more how the job is.
const LOOK: Duration = Duration::from_secs(5);
/// How much longer than its grace period a pod may take to end.
const SLACK: Duration = Duration::from_secs(10);

/// How a job has ended, the rest of which is waited for.
pub struct Ending {
    pub outcome: Outcome,
    pub message: Option<String>,
    since: Instant,
    /// Whether the user knows what is waited for.
    told: bool,
}

/// Pods that exist, by uid.
#[derive(Default)]
pub struct Here(BTreeMap<String, Present>);

struct Present {
    seen: PodSeen,
    /// When a pod that is being deleted should be gone.
    until: Option<Instant>,
}

impl Present {
    fn leaves(&self) -> bool {
        self.until.is_some() && !self.seen.is_over()
    }
}

impl Here {
    /// Takes notice of a pod.
    pub fn see(&mut self, seen: PodSeen, now: Instant) {
        let before = self.0.get(&seen.uid).and_then(|present| present.until);
        let until = seen.grace.map(|grace| {
            let until = now
                .checked_add(grace.saturating_add(SLACK))
                .unwrap_or(now + NEVER);
            before.map_or(until, |before| before.min(until))
        });
        self.0.insert(seen.uid.clone(), Present { seen, until });
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

    /// Whether all pods have ended.
    fn are_over(&self) -> bool {
        self.0.values().all(|present| present.seen.is_over())
    }

    /// Pods on their way out.
    fn leaving(&self) -> impl Iterator<Item = &Present> {
        self.0.values().filter(|present| present.leaves())
    }

    /// Whether there is a pod that runs, and that nobody ends.
    fn stays(&self) -> bool {
        let mut pods = self.0.values();
        pods.any(|present| !present.leaves() && !present.seen.is_over())
    }

    /// Whether a container runs, in a pod that nobody ends.
    fn goes_on(&self, (uid, name, restarts): &Key) -> bool {
        self.0.get(uid).is_some_and(|present| {
            let mut containers = present.seen.containers.iter();
            let container = containers.find(|container| container.name == *name);
            let runs = container
                .is_none_or(|container| container.ended.is_none() && container.restarts == *restarts);
            runs && !present.leaves() && !present.seen.is_over()
        })
    }
}

impl Run<'_> {
    /// The job has ended: its logs are read to their end, and pods that are being deleted have their grace period.
    pub(super) async fn drain(&mut self, outcome: Outcome, message: Option<String>) {
        // The watch of pods may be behind that of the job; a log that nobody has begun to read would be lost.
        let selector = ListParams::default().labels(&watch::pods_of(&self.name));
        if let Ok(pods) = self.pods.list(&selector).await {
            for pod in &pods {
                self.pod(pod);
            }
        }
        let since = Instant::now();
        self.heard = since;
        self.state = State::Draining(Ending {
            outcome,
            message,
            since,
            told: false,
        });
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_over(&self) -> bool {
        match &self.state {
            State::Running => false,
            State::Stopping(_) => self.job_gone && self.here.is_empty() && self.followers.is_empty(),
            State::Draining(_) => self.followers.is_empty() && self.here.are_over(),
            State::Lost(..) => true,
        }
    }

    /// When what is still waited for is given up.
    pub(super) fn last_call(&self) -> Instant {
        // For those who say something, time begins anew with every line; who reads slowly loses none.
        let silence = self.heard + IDLE_TIMEOUT;
        let since = match &self.state {
            State::Draining(ending) => ending.since,
            State::Stopping(_) if self.job_gone && self.here.is_empty() => return silence,
            _ => return Instant::now() + NEVER,
        };
        let rest = self.followers.open().any(|log| !self.here.goes_on(log));
        let leaving = self.here.leaving().filter_map(|present| present.until);
        // Who goes on might talk for ever, so that its lines are no reason to wait.
        let staying = self.here.stays().then_some(since + LAST_LINES);
        let all = leaving.chain(rest.then_some(silence)).chain(staying);
        all.max().unwrap_or(silence)
    }

    /// When the user is to be told what is waited for, if that is so.
    pub(super) fn tells(&self) -> Option<Instant> {
        match &self.state {
            State::Draining(ending) if !ending.told && self.here.leaving().next().is_some() => {
                Some(ending.since + LAST_LINES)
            }
            _ => None,
        }
    }

    /// Tells what is waited for.
    pub(super) fn tell_leaving(&mut self) {
        if let State::Draining(ending) = &mut self.state {
            ending.told = true;
        }
        let names: Vec<&str> = self.here.leaving().map(|pod| pod.seen.name.as_str()).collect();
        let note = format!(
            "the job has ended, and {} may take the grace period to end; Ctrl-C ends it at once",
            names.join(", ")
        );
        self.tell(Event::Note(note));
    }

    /// Looks at a job that has ended once more. What its programs said last came to the operator before their pods were over,
    /// and it writes that when it has written that the job has ended; the watch may not have told it yet.
    pub(super) async fn look(&mut self) {
        if !self.reports || !matches!(self.state, State::Draining(_)) {
            return;
        }
        let Ok(Ok(job)) = timeout(LOOK, self.jobs.get(&self.name)).await else {
            return;
        };
        // Somebody may have created another of the same name.
        if job.uid() == self.uid {
            self.tell(Event::Job(Box::new(job)));
        }
    }

    /// Says which logs were not read to their end.
    pub(super) fn cut(&mut self) {
        match &self.state {
            State::Draining(_) => {}
            // Who is stopped twice does not want to hear more.
            State::Stopping(_) if self.here.is_empty() => {}
            _ => return,
        }
        let open: Vec<Key> = self.followers.open().cloned().collect();
        for log in open {
            let goes_on = self.here.goes_on(&log);
            let (uid, container, _) = log;
            self.tell(Event::Unread {
                uid,
                container,
                goes_on,
            });
        }
    }
}
