//! What a run looks like, as a state machine: events in, items to print and a picture of the present out.
//!
//! It does no IO and knows no clock: every event comes with the time since the start. How items and the picture look on
//! a terminal or in a pipe is for [`super::show`].

mod event;
mod picture;
mod pod;
mod summary;
pub mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use trainyard_api::{JobPhase, TrainingJob, TrainingJobStatus};

pub use event::{Event, Item, Speaker, Stop};
pub use picture::{Bar, Picture};
pub use pod::{Phase as PodPhase, PodSeen};
#[cfg(test)]
pub use summary::Cause;
pub use summary::Summary;

use self::picture::bar;
use super::progress::{self, Progress};

/// So many of a container's last lines are kept for the end.
const TAIL: usize = 12;
/// Progress is told so often where there is no picture of it.
const TELL_PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// All that has been seen of a run.
#[derive(Debug)]
pub struct View {
    job: String,
    namespace: String,
    framework: String,
    /// Roles in the order of the manifest, with their pods.
    roles: Vec<(String, usize)>,
    phases: Vec<(JobPhase, Duration)>,
    status: TrainingJobStatus,
    /// By uid, also those that are gone.
    pods: BTreeMap<String, PodSeen>,
    /// Uids in the order of their appearance.
    order: Vec<String>,
    /// A number for each name, for colours.
    names: BTreeMap<String, usize>,
    /// The last lines of each container, by the pod's uid and the container's name.
    tails: BTreeMap<(String, String), VecDeque<String>>,
    /// What each pod has reported, by its place in the job.
    progress: BTreeMap<(usize, i32), Progress>,
    /// What the operator has written of that into the status, on clusters whose pods are not heard themselves.
    written: Option<Progress>,
    told_progress: Option<Duration>,
    notes: Vec<String>,
    stopping: Option<Stop>,
}

impl View {
    /// A run of a job, of which nothing has been seen yet.
    pub fn new(job: &TrainingJob) -> Self {
        let roles = job.spec.roles.iter().map(|role| {
            let replicas = role.replicas.unwrap_or(1);
            (role.name.clone(), usize::try_from(replicas).unwrap_or_default())
        });
        Self {
            job: job.metadata.name.clone().unwrap_or_default(),
            namespace: job.metadata.namespace.clone().unwrap_or_default(),
            framework: job.spec.framework.name.clone(),
            roles: roles.collect(),
            phases: vec![(JobPhase::Pending, Duration::ZERO)],
            status: TrainingJobStatus::default(),
            pods: BTreeMap::new(),
            order: Vec::new(),
            names: BTreeMap::new(),
            tails: BTreeMap::new(),
            progress: BTreeMap::new(),
            written: None,
            told_progress: None,
            notes: Vec::new(),
            stopping: None,
        }
    }

    /// Takes notice of an event; what comes back is to be printed.
    pub fn apply(&mut self, at: Duration, event: Event) -> Vec<Item> {
        match event {
            Event::Note(note) => self.note(note),
            Event::Job(job) => self.job(at, *job),
            Event::Pod(pod) => self.pod(pod),
            Event::PodGone(uid) => {
                // What it said and how it ended is kept for the end; that it is here is not.
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.deleting = true;
                    pod.trouble = None;
                }
                Vec::new()
            }
            Event::Log { uid, container, line } => self.log(&uid, &container, line),
            Event::Unread {
                uid,
                container,
                goes_on,
            } => self.unread(&uid, &container, goes_on),
            Event::Progress { pod, line } => self.progress(at, &pod, &line),
            Event::Stopping(stop) => {
                self.stopping = Some(stop);
                vec![Item::Stopping(stop)]
            }
        }
    }

    /// What was last seen of the job.
    pub fn status(&self) -> &TrainingJobStatus {
        &self.status
    }

    /// The phase the job is in.
    pub fn phase(&self) -> JobPhase {
        self.phases.last().map_or(JobPhase::Pending, |(phase, _)| *phase)
    }

    fn note(&mut self, note: String) -> Vec<Item> {
        if self.notes.contains(&note) {
            return Vec::new();
        }
        self.notes.push(note.clone());
        vec![Item::Note(note)]
    }

    fn job(&mut self, at: Duration, job: TrainingJob) -> Vec<Item> {
        if let Some(name) = job.metadata.name {
            self.job = name;
        }
        if let Some(namespace) = job.metadata.namespace {
            self.namespace = namespace;
        }
        let Some(status) = job.status else {
            return Vec::new();
        };
        let phase = status.phase.unwrap_or(JobPhase::Pending);
        let before = std::mem::replace(&mut self.status, status);
        let mut items = if before.progress == self.status.progress {
            Vec::new()
        } else {
            self.written(at)
        };
        if phase != self.phase() {
            self.phases.push((phase, at));
            items.push(Item::Phase { phase, at });
        }
        items
    }

    /// The operator has written what programs say of their progress, or has begun anew.
    fn written(&mut self, at: Duration) -> Vec<Item> {
        let Some(report) = self.status.progress.as_ref().and_then(progress::written) else {
            self.written = None;
            return Vec::new();
        };
        match &mut self.written {
            Some(progress) => progress.replace(at, report),
            None => self.written = Some(Progress::new(at, report)),
        }
        // Programs that are heard themselves have said it before.
        if self.progress.is_empty() {
            self.tell_progress(at)
        } else {
            Vec::new()
        }
    }

    fn pod(&mut self, pod: PodSeen) -> Vec<Item> {
        let next = self.names.len();
        self.names.entry(pod.name.clone()).or_insert(next);
        let before = self.pods.get(&pod.uid);
        let speaker = self.speaker(&pod, None);
        let mut items = Vec::new();
        if let Some(trouble) = &pod.trouble
            && before.is_none_or(|before| before.trouble != pod.trouble)
        {
            items.push(Item::Trouble {
                speaker: speaker.clone(),
                message: trouble.clone(),
            });
        }
        // A pod that fails because it is being deleted does what it was told.
        let failed = |pod: &PodSeen| pod.phase == PodPhase::Failed && !pod.deleting;
        if failed(&pod) && before.is_none_or(|before| !failed(before)) && self.stopping.is_none() {
            let ended = pod.main().and_then(|main| main.ended.as_ref());
            let message = match ended {
                Some(ended) => summary::ending(ended.exit_code, ended.reason.as_deref()),
                None => "failed".to_owned(),
            };
            items.push(Item::Trouble { speaker, message });
        }
        if before.is_none() {
            self.order.push(pod.uid.clone());
        }
        self.pods.insert(pod.uid.clone(), pod);
        items
    }

    fn log(&mut self, uid: &str, container: &str, line: String) -> Vec<Item> {
        let Some(pod) = self.pods.get(uid) else {
            return Vec::new();
        };
        let speaker = self.container(pod, container);
        let tail = self
            .tails
            .entry((uid.to_owned(), container.to_owned()))
            .or_default();
        tail.push_back(line.clone());
        if tail.len() > TAIL {
            tail.pop_front();
        }
        vec![Item::Log { speaker, line }]
    }

    /// Who speaks where a container does: the one that trains speaks for its pod.
    fn container(&self, pod: &PodSeen, container: &str) -> Speaker {
        let is_main = pod.trains.as_deref().is_none_or(|name| name == container);
        self.speaker(pod, (!is_main).then_some(container))
    }

    fn unread(&mut self, uid: &str, container: &str, goes_on: bool) -> Vec<Item> {
        let Some(pod) = self.pods.get(uid) else {
            return Vec::new();
        };
        let speaker = self.container(pod, container);
        if goes_on {
            return self.note(format!(
                "{} runs on after the end of the job: what it prints from here on is not shown",
                speaker.label
            ));
        }
        let message = "its log is cut off here: the rest of it did not arrive".to_owned();
        self.notes.push(format!("{}: {message}", speaker.label));
        vec![Item::Trouble { speaker, message }]
    }

    fn progress(&mut self, at: Duration, pod: &str, line: &str) -> Vec<Item> {
        let report = match progress::parse(line) {
            Ok(None) => return Vec::new(),
            Ok(Some(report)) => report,
            Err(error) => {
                let short = self.short(pod).to_owned();
                // One is enough: a program that writes one such line writes many.
                let told = format!("{short} wrote progress that can't be read: ");
                if self.notes.iter().any(|note| note.starts_with(&told)) {
                    return Vec::new();
                }
                return self.note(format!("{told}{error}; see docs/progress.md"));
            }
        };
        let key = self.place(pod);
        match self.progress.get_mut(&key) {
            Some(progress) => progress.update(at, report),
            None => {
                self.progress.insert(key, Progress::new(at, report));
            }
        }
        match self.progress.first_key_value() {
            Some((first, _)) if *first == key => self.tell_progress(at),
            _ => Vec::new(),
        }
    }

    /// How far the job is, by who speaks for it.
    fn job_progress(&self) -> Option<&Progress> {
        self.progress.values().next().or(self.written.as_ref())
    }

    /// Says how far the job is, if that was not said a moment ago.
    fn tell_progress(&mut self, at: Duration) -> Vec<Item> {
        let told = self.told_progress;
        let is_due = told.is_none_or(|told| at.saturating_sub(told) >= TELL_PROGRESS_EVERY);
        let Some(progress) = self.job_progress().filter(|_| is_due) else {
            return Vec::new();
        };
        let text = bar(progress, at).text();
        self.told_progress = Some(at);
        vec![Item::Progress(text)]
    }

    /// All pods that were ever seen, in the order of their appearance.
    fn pods(&self) -> impl DoubleEndedIterator<Item = &PodSeen> {
        self.order.iter().filter_map(|uid| self.pods.get(uid))
    }

    /// The place of a pod in the job. The first that reports anything speaks for all: that is rank 0 in most jobs.
    fn place(&self, name: &str) -> (usize, i32) {
        let Some(pod) = self.pods.values().find(|pod| pod.name == name) else {
            return (usize::MAX, 0);
        };
        let role = self.roles.iter().position(|(role, _)| *role == pod.role);
        (role.unwrap_or(usize::MAX), pod.index)
    }

    fn speaker(&self, pod: &PodSeen, container: Option<&str>) -> Speaker {
        let name = self.short(&pod.name);
        Speaker {
            label: match container {
                Some(container) => format!("{name}/{container}"),
                None => name.to_owned(),
            },
            number: self.names.get(&pod.name).copied().unwrap_or_default(),
        }
    }

    /// A pod's name without the job's, which is the same for all.
    fn short<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.job)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(name)
    }
}
