//! Runs a job on a cluster and watches it to its end. The cluster is any that a [`kube::Client`]
//! reaches: the one in this process, or a real one.

mod create;
mod drain;
mod end;
mod logs;
mod resize;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use trainyard_api::TrainingJob;

use self::drain::{Ending, PodTracker};
pub use self::end::delete;
use self::logs::{Line, LogFollowers};
use self::watch::Change;
use super::keys::SizeKey;
use super::outcome::Outcome;
use super::show::Show;
use super::view::{Event, ObservedPod, Stop, Summary, View};

/// How often the dashboard is drawn while nothing happens.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Log lines that are shown before the dashboard is drawn again.
const MAX_BATCH: usize = 512;
/// How long the operator may take to write a status before a note says that nothing happens.
const UNNOTICED_TIMEOUT: Duration = Duration::from_secs(10);
/// Warnings that are kept for pods that have not been seen yet.
const MAX_EARLY_WARNINGS: usize = 256;
/// A timeout that is never reached.
const NEVER: Duration = Duration::from_hours(24 * 365);

#[derive(Debug)]
pub struct Plan {
    pub job: TrainingJob,
    /// Objects that the job needs, created before it.
    pub companions: Vec<Value>,
    /// Shown before anything happens.
    pub notes: Vec<String>,
    pub timeout: Option<Duration>,
    /// Whether there is a keyboard.
    pub has_keys: bool,
}

/// Why a job could not be run at all.
#[derive(Debug)]
pub enum Error {
    /// The server refused it.
    Refused(String),
    /// The server can't be reached, or failed.
    Broken(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(message) | Self::Broken(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// Creates the job, shows what happens, and returns how it ended.
///
/// The first interrupt deletes the job and waits for its pods; the second, or one after the job's
/// end, returns at once. `keys` change the size of an elastic job. `progress` brings the lines that
/// programs append to their progress files, each with the name of its pod.
pub async fn drive(
    client: Client,
    plan: Plan,
    start: Instant,
    show: &mut dyn Show,
    interrupts: impl Stream<Item = ()>,
    keys: impl Stream<Item = SizeKey>,
    progress: impl Stream<Item = (String, String)>,
) -> Result<Summary, Error> {
    let mut interrupts = pin!(interrupts.fuse());
    let mut keys = pin!(keys.fuse());
    let mut progress = pin!(progress.fuse());
    let mut view = View::new(&plan.job);
    if plan.has_keys {
        view.offer_keys();
    }
    for note in plan.notes {
        // A closed output is noticed at the first line of the job.
        let _ = show.items(&view.apply(start.elapsed(), Event::Note(note)));
    }
    let job = create::create_all(&client, plan.job, &plan.companions).await?;
    let (changes, mut incoming) = mpsc::unbounded_channel();
    let _watches = watch::start(&client, &job, &changes);
    let (mut run, mut lines) = Run::new(client, &job, view, show, start);
    run.record(Event::Job(Box::new(job)));
    let time_is_over = sleep_until(start + plan.timeout.unwrap_or(NEVER));
    let mut time_is_over = pin!(time_is_over);
    let unnoticed = sleep_until(Instant::now() + UNNOTICED_TIMEOUT);
    let mut unnoticed = pin!(unnoticed);
    let mut has_checked = false;
    let mut redraw = interval(REDRAW_INTERVAL);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);

    loop {
        let (give_up_at, note_at) = (run.give_up_at(), run.terminating_note_at());
        tokio::select! {
            // In this order: changes before timeouts, and both before log lines, which may never
            // end.
            biased;
            Some(()) = interrupts.next() => {
                if !matches!(run.state, State::Running) {
                    break;
                }
                run.stop(Stop::Interrupted).await;
            }
            Some(change) = incoming.recv() => run.handle_change(change).await,
            Some(key) = keys.next() => run.resize(key).await,
            Some((pod, line)) = progress.next() => run.record(Event::Progress { pod, line }),
            () = &mut time_is_over, if matches!(run.state, State::Running) => run.stop(Stop::TimedOut).await,
            () = &mut unnoticed, if !has_checked => {
                has_checked = true;
                run.check_noticed();
            }
            Some(()) = run.followers.ended() => {}
            () = sleep_until(give_up_at) => {
                run.refresh_job().await;
                break;
            }
            () = sleep_until(note_at.unwrap_or(give_up_at)), if note_at.is_some() => run.note_terminating(),
            Some(line) = lines.recv() => run.show_lines(line, &mut lines),
            _ = redraw.tick(), if run.show.is_live() => {}
        }
        if run.is_over() {
            run.refresh_job().await;
            // Nodes report progress before they report that a pod has ended, so all of it is here.
            while let Some(Some((pod, line))) = progress.next().now_or_never() {
                run.record(Event::Progress { pod, line });
            }
            run.show_rest(&mut lines);
            break;
        }
        run.draw();
    }
    run.note_unread_logs();
    Ok(run.end())
}

enum State {
    Running,
    /// The job was deleted, and its pods are terminating.
    Stopping(Stop),
    /// The job has ended; the rest of its logs is read, and its pods are terminating.
    Draining(Ending),
    /// Our output is closed, or the server refused to delete the job.
    Lost(Outcome, String),
}

struct Run<'a> {
    jobs: Api<TrainingJob>,
    pods: Api<Pod>,
    name: String,
    uid: Option<String>,
    /// Whether the operator writes the progress of the programs into the status.
    reports_progress: bool,
    view: View,
    show: &'a mut dyn Show,
    start: Instant,
    followers: LogFollowers,
    tracked: PodTracker,
    /// When a log line or a change of a pod last arrived.
    last_activity: Instant,
    /// Warnings of pods that have not been seen yet, and may be of another job: uid, name, reason.
    early_warnings: Vec<(String, String, String)>,
    /// Each warning is shown once, however many pods have it.
    shown_warnings: BTreeSet<String>,
    is_job_gone: bool,
    state: State,
}

impl<'a> Run<'a> {
    /// The run of a job that was created, and the log lines of its pods.
    fn new(
        client: Client,
        job: &TrainingJob,
        view: View,
        show: &'a mut dyn Show,
        start: Instant,
    ) -> (Self, mpsc::Receiver<Line>) {
        let namespace = job.namespace().unwrap_or_default();
        let (followers, lines) = LogFollowers::new(Api::namespaced(client.clone(), &namespace));
        let run = Self {
            jobs: Api::namespaced(client.clone(), &namespace),
            pods: Api::namespaced(client, &namespace),
            name: job.name_any(),
            uid: job.uid(),
            reports_progress: job.reports_progress(),
            view,
            show,
            start,
            followers,
            tracked: PodTracker::default(),
            last_activity: Instant::now(),
            early_warnings: Vec::new(),
            shown_warnings: BTreeSet::new(),
            is_job_gone: false,
            state: State::Running,
        };
        (run, lines)
    }

    /// Updates the view and shows what came of it.
    fn record(&mut self, event: Event) {
        let items = self.view.apply(self.start.elapsed(), event);
        if let Err(error) = self.show.items(&items) {
            self.state = State::Lost(
                Outcome::Interrupted,
                format!("the output can't be written: {error}"),
            );
        }
    }

    fn draw(&mut self) {
        if self.show.is_live() {
            // A closed terminal is noticed when something is printed.
            let _ = self.show.draw(&self.view.dashboard(self.start.elapsed()));
        }
    }

    /// Shows a line and those that arrived with it.
    fn show_lines(&mut self, first: Line, lines: &mut mpsc::Receiver<Line>) {
        let mut items = Vec::new();
        let more = std::iter::from_fn(|| lines.try_recv().ok());
        for line in std::iter::once(first).chain(more).take(MAX_BATCH) {
            items.extend(self.view.apply(self.start.elapsed(), line.into()));
        }
        if let Err(error) = self.show.items(&items) {
            self.state = State::Lost(
                Outcome::Interrupted,
                format!("the output can't be written: {error}"),
            );
        }
        // Not before: writing to a slow reader may have taken long.
        self.last_activity = Instant::now();
    }

    /// Shows the lines that have arrived, unless our output is closed.
    fn show_rest(&mut self, lines: &mut mpsc::Receiver<Line>) {
        while !matches!(self.state, State::Lost(..))
            && let Ok(line) = lines.try_recv()
        {
            self.show_lines(line, lines);
        }
    }

    async fn handle_change(&mut self, change: Change) {
        match change {
            Change::Job(job) => {
                self.record(Event::Job(job));
                if matches!(self.state, State::Running)
                    && let Some((outcome, message)) = end::outcome(&self.view)
                {
                    self.drain(outcome, message).await;
                }
            }
            Change::JobGone => {
                self.is_job_gone = true;
                if matches!(self.state, State::Running) {
                    let message = "somebody deleted the job".to_owned();
                    self.drain(Outcome::Failed, Some(message)).await;
                }
            }
            Change::Pod(pod) => self.update_pod(&pod),
            Change::PodGone(uid) => self.remove_pod(uid),
            Change::Pods(uids) => {
                let gone: Vec<String> = self
                    .tracked
                    .uids()
                    .filter(|uid| !uids.contains(*uid))
                    .cloned()
                    .collect();
                for uid in gone {
                    self.remove_pod(uid);
                }
            }
            Change::Warning { uid, pod, why } if self.tracked.contains(&uid) => self.warn(&pod, &why),
            Change::Warning { uid, pod, why } => {
                if self.early_warnings.len() < MAX_EARLY_WARNINGS {
                    self.early_warnings.push((uid, pod, why));
                }
            }
            Change::Failed(error) => {
                self.record(Event::Note(format!(
                    "the cluster does not answer: {error}; still trying"
                )));
            }
        }
    }

    fn update_pod(&mut self, pod: &Pod) {
        let seen = ObservedPod::of(pod);
        self.last_activity = Instant::now();
        self.tracked.update(seen.clone(), self.last_activity);
        self.followers.follow(&seen);
        let uid = seen.uid.clone();
        self.record(Event::Pod(seen));
        for (_, pod, why) in self
            .early_warnings
            .extract_if(.., |(of, _, _)| *of == uid)
            .collect::<Vec<_>>()
        {
            self.warn(&pod, &why);
        }
    }

    fn remove_pod(&mut self, uid: String) {
        self.last_activity = Instant::now();
        self.tracked.remove(&uid);
        self.record(Event::PodGone(uid));
    }

    fn warn(&mut self, pod: &str, why: &str) {
        if self.shown_warnings.insert(why.to_owned()) {
            self.record(Event::Note(format!("{pod} does not start: {why}")));
        }
    }

    /// Shows a note if the operator has not noticed the job.
    fn check_noticed(&mut self) {
        if matches!(self.state, State::Running) && self.view.status().observed_generation.is_none() {
            let note =
                "nothing has happened to the job yet: is the operator running there? See docs/install.md";
            self.record(Event::Note(note.to_owned()));
        }
    }

    /// Deletes the job; its pods get their grace period.
    async fn stop(&mut self, why: Stop) {
        self.record(Event::Stopping(why));
        self.draw();
        self.state = match self.jobs.delete(&self.name, &DeleteParams::background()).await {
            Ok(_) => State::Stopping(why),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.is_job_gone = true;
                State::Stopping(why)
            }
            Err(error) => State::Lost(outcome_of(why), format!("the job could not be deleted: {error}")),
        };
    }

    fn end(self) -> Summary {
        let (outcome, message) = match self.state {
            State::Running => (Outcome::Interrupted, None),
            State::Stopping(why) => (outcome_of(why), None),
            State::Draining(ending) => (ending.outcome, ending.message),
            State::Lost(outcome, message) => (outcome, Some(message)),
        };
        self.view.summary(self.start.elapsed(), outcome, message)
    }
}

fn outcome_of(stop: Stop) -> Outcome {
    match stop {
        Stop::Interrupted => Outcome::Interrupted,
        Stop::TimedOut => Outcome::TimedOut,
    }
}
