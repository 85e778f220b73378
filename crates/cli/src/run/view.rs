//! What a run looks like, as a state machine: events in, items to print and a dashboard out.
//!
//! It does no IO and reads no clock: every event comes with the time since the start. How items and
//! the dashboard look on a terminal or in a pipe is for [`super::show`].

mod dashboard;
mod event;
pub mod humanize;
mod pod;
mod size;
mod summary;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use trainyard_api::{Elastic, JobPhase, TrainingJob, TrainingJobStatus};

pub use dashboard::{Bar, Dashboard};
pub use event::{Event, Item, Source, Stop};
pub use pod::{ObservedPod, Phase as PodPhase};
pub use size::{Change, Size};
#[cfg(test)]
pub use summary::Cause;
pub use summary::Summary;

use self::dashboard::bar;
use super::progress::{self, ReportedProgress};

/// Last lines of a container that are kept for the summary.
const MAX_TAIL_LINES: usize = 12;
/// How often progress is printed where there is no dashboard.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// The state of a run.
#[derive(Debug)]
pub struct View {
    job: String,
    namespace: String,
    framework: String,
    /// Roles in the order of the manifest, with their replicas.
    roles: Vec<(String, usize)>,
    elastic: Option<ElasticRole>,
    /// The generation of the spec that this is of.
    generation: Option<i64>,
    /// Whether keys change the size of the job.
    has_keys: bool,
    phases: Vec<(JobPhase, Duration)>,
    status: TrainingJobStatus,
    /// By uid, deleted ones included.
    pods: BTreeMap<String, ObservedPod>,
    /// Uids in the order of their appearance.
    order: Vec<String>,
    /// A number for each name, for colours.
    names: BTreeMap<String, usize>,
    /// The last lines of each container, by the pod's uid and the container's name.
    tails: BTreeMap<(String, String), VecDeque<String>>,
    /// What each pod has reported, by the position of its role and its index.
    progress: BTreeMap<(usize, i32), ReportedProgress>,
    /// Progress from the status of the job, for clusters whose progress files are not read here.
    status_progress: Option<ReportedProgress>,
    progress_shown_at: Option<Duration>,
    notes: Vec<String>,
    stopping: Option<Stop>,
}

/// The role that grows and shrinks.
#[derive(Debug)]
struct ElasticRole {
    /// Its position.
    role: usize,
    spec: Elastic,
}

impl View {
    pub fn new(job: &TrainingJob) -> Self {
        Self {
            job: job.metadata.name.clone().unwrap_or_default(),
            namespace: job.metadata.namespace.clone().unwrap_or_default(),
            framework: job.spec.framework.name.clone(),
            roles: roles(job),
            elastic: elastic(job),
            generation: None,
            has_keys: false,
            phases: vec![(JobPhase::Pending, Duration::ZERO)],
            status: TrainingJobStatus::default(),
            pods: BTreeMap::new(),
            order: Vec::new(),
            names: BTreeMap::new(),
            tails: BTreeMap::new(),
            progress: BTreeMap::new(),
            status_progress: None,
            progress_shown_at: None,
            notes: Vec::new(),
            stopping: None,
        }
    }

    /// Applies an event and returns what is to be printed.
    pub fn apply(&mut self, at: Duration, event: Event) -> Vec<Item> {
        match event {
            Event::Note(note) => self.note(note),
            Event::Job(job) => self.job(at, *job),
            Event::Pod(pod) => self.pod(pod),
            Event::PodGone(uid) => {
                // Its log and exit code are kept for the summary.
                if let Some(pod) = self.pods.get_mut(&uid) {
                    pod.is_deleting = true;
                    pod.trouble = None;
                }
                Vec::new()
            }
            Event::Log { uid, container, line } => self.log(&uid, &container, line),
            Event::Unread {
                uid,
                container,
                is_running_on,
            } => self.unread(&uid, &container, is_running_on),
            Event::Progress { pod, line } => self.progress(at, &pod, &line),
            Event::Stopping(stop) => {
                self.stopping = Some(stop);
                vec![Item::Stopping(stop)]
            }
        }
    }

    pub fn status(&self) -> &TrainingJobStatus {
        &self.status
    }

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

    fn job(&mut self, at: Duration, mut job: TrainingJob) -> Vec<Item> {
        if let Some(name) = job.metadata.name.take() {
            self.job = name;
        }
        self.roles = roles(&job);
        // A watch may tell late of what was before a key.
        if job.metadata.generation >= self.generation {
            self.generation = job.metadata.generation;
            self.elastic = elastic(&job);
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
            self.update_status_progress(at)
        };
        if phase != self.phase() {
            self.phases.push((phase, at));
            items.push(Item::Phase { phase, at });
        }
        items
    }

    /// Takes over progress from the status, or its removal.
    fn update_status_progress(&mut self, at: Duration) -> Vec<Item> {
        let Some(report) = self.status.progress.as_ref().and_then(progress::from_status) else {
            self.status_progress = None;
            return Vec::new();
        };
        match &mut self.status_progress {
            Some(progress) => progress.replace(at, report),
            None => self.status_progress = Some(ReportedProgress::new(at, report)),
        }
        // Progress files that are read here had it before.
        if self.progress.is_empty() {
            self.progress_items(at)
        } else {
            Vec::new()
        }
    }

    fn pod(&mut self, pod: ObservedPod) -> Vec<Item> {
        let next = self.names.len();
        self.names.entry(pod.name.clone()).or_insert(next);
        let before = self.pods.get(&pod.uid);
        let source = self.source(&pod, None);
        let mut items = Vec::new();
        if let Some(trouble) = &pod.trouble
            && before.is_none_or(|before| before.trouble != pod.trouble)
        {
            items.push(Item::Trouble {
                source: source.clone(),
                message: trouble.clone(),
            });
        }
        // A pod that fails while it is being deleted is no problem.
        let failed = |pod: &ObservedPod| pod.phase == PodPhase::Failed && !pod.is_deleting;
        if failed(&pod) && before.is_none_or(|before| !failed(before)) && self.stopping.is_none() {
            let ended = pod.main().and_then(|main| main.ended.as_ref());
            let message = match ended {
                Some(ended) => summary::describe_exit(ended.exit_code, ended.reason.as_deref()),
                None => "failed".to_owned(),
            };
            items.push(Item::Trouble { source, message });
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
        let source = self.container_source(pod, container);
        let tail = self
            .tails
            .entry((uid.to_owned(), container.to_owned()))
            .or_default();
        tail.push_back(line.clone());
        if tail.len() > MAX_TAIL_LINES {
            tail.pop_front();
        }
        vec![Item::Log { source, line }]
    }

    /// The main container has the label of its pod.
    fn container_source(&self, pod: &ObservedPod, container: &str) -> Source {
        let is_main = pod.main_container.as_deref().is_none_or(|name| name == container);
        self.source(pod, (!is_main).then_some(container))
    }

    fn unread(&mut self, uid: &str, container: &str, is_running_on: bool) -> Vec<Item> {
        let Some(pod) = self.pods.get(uid) else {
            return Vec::new();
        };
        let source = self.container_source(pod, container);
        if is_running_on {
            return self.note(format!(
                "{} runs on after the end of the job: what it prints from here on is not shown",
                source.label
            ));
        }
        let message = "its log is cut off here: the rest of it did not arrive".to_owned();
        self.notes.push(format!("{}: {message}", source.label));
        vec![Item::Trouble { source, message }]
    }

    fn progress(&mut self, at: Duration, pod: &str, line: &str) -> Vec<Item> {
        let report = match progress::parse(line) {
            Ok(None) => return Vec::new(),
            Ok(Some(report)) => report,
            Err(error) => {
                let short = self.short_name(pod).to_owned();
                // A program that writes one such line writes many: one note is enough.
                let prefix = format!("{short} wrote progress that can't be read: ");
                if self.notes.iter().any(|note| note.starts_with(&prefix)) {
                    return Vec::new();
                }
                return self.note(format!("{prefix}{error}; see docs/progress.md"));
            }
        };
        let key = self.position(pod);
        match self.progress.get_mut(&key) {
            Some(progress) => progress.update(at, report),
            None => {
                self.progress.insert(key, ReportedProgress::new(at, report));
            }
        }
        match self.progress.first_key_value() {
            Some((first, _)) if *first == key => self.progress_items(at),
            _ => Vec::new(),
        }
    }

    /// The progress of the job is that of the first pod that reports: rank 0 in most jobs.
    fn job_progress(&self) -> Option<&ReportedProgress> {
        self.progress.values().next().or(self.status_progress.as_ref())
    }

    /// The progress of the job, at most every [`PROGRESS_INTERVAL`].
    fn progress_items(&mut self, at: Duration) -> Vec<Item> {
        let is_due = self
            .progress_shown_at
            .is_none_or(|shown| at.saturating_sub(shown) >= PROGRESS_INTERVAL);
        let Some(progress) = self.job_progress().filter(|_| is_due) else {
            return Vec::new();
        };
        let text = bar(progress, at).text();
        if text.is_empty() {
            // Artifacts are shown at the end.
            return Vec::new();
        }
        self.progress_shown_at = Some(at);
        vec![Item::Progress(text)]
    }

    /// All pods, deleted ones included, in the order of their appearance.
    fn pods(&self) -> impl DoubleEndedIterator<Item = &ObservedPod> {
        self.order.iter().filter_map(|uid| self.pods.get(uid))
    }

    /// The position of the role of a pod, and its index.
    fn position(&self, name: &str) -> (usize, i32) {
        let Some(pod) = self.pods.values().find(|pod| pod.name == name) else {
            return (usize::MAX, 0);
        };
        let role = self.roles.iter().position(|(role, _)| *role == pod.role);
        (role.unwrap_or(usize::MAX), pod.index)
    }

    fn source(&self, pod: &ObservedPod, container: Option<&str>) -> Source {
        let name = self.short_name(&pod.name);
        Source {
            label: match container {
                Some(container) => format!("{name}/{container}"),
                None => name.to_owned(),
            },
            number: self.names.get(&pod.name).copied().unwrap_or_default(),
        }
    }

    /// A pod's name without that of the job.
    fn short_name<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.job)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(name)
    }
}

/// The roles of a job, with the pods that they have.
fn roles(job: &TrainingJob) -> Vec<(String, usize)> {
    let elastic = job.spec.elastic_role();
    let status = job.status.as_ref();
    let members = status.and_then(|status| status.replicas);
    let roles = job.spec.roles.iter().enumerate().map(|(position, role)| {
        let members = members.filter(|_| elastic == Some(position));
        let replicas = members.unwrap_or_else(|| job.spec.replicas(position, role));
        (role.name.clone(), usize::try_from(replicas).unwrap_or_default())
    });
    roles.collect()
}

fn elastic(job: &TrainingJob) -> Option<ElasticRole> {
    Some(ElasticRole {
        role: job.spec.elastic_role()?,
        spec: job.spec.elastic.clone()?,
    })
}
