//! Runs a job on a cluster and watches it to its end. The cluster may be any that a [`kube::Client`] reaches: the one in
//! this process, or a real one.

mod create;
mod drain;
mod end;
mod logs;
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

use self::drain::{Ending, Here};
pub use self::end::delete;
use self::logs::{Followers, Line};
use self::watch::Change;
use super::outcome::Outcome;
use super::show::Show;
use super::view::{Event, PodSeen, Stop, Summary, View};

/// How often the present is drawn where nothing happens.
const REDRAW: Duration = Duration::from_millis(100);
/// Lines that are read before the present is drawn again.
const BATCH: usize = 512;
/// How long the operator may take to notice the job before we say that nothing happens.
const UNNOTICED: Duration = Duration::from_secs(10);
/// Warnings of pods that have not been seen; more are of somebody else's.
const MAX_EARLY: usize = 256;
/// An end that is never reached.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// What is to run.
#[derive(Debug)]
pub struct Plan {
    /// The job.
    pub job: TrainingJob,
    /// What it needs.
    pub companions: Vec<Value>,
    /// What the user should know before anything happens.
    pub notes: Vec<String>,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// Why a job could not be run at all.
#[derive(Debug)]
pub enum Error {
    /// The server does not want it.
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

/// Creates the job, shows what happens, and comes back with how it ended.
///
/// The first interrupt deletes the job and waits for its pods; the second, or one after the job's end, comes back at
/// once. `progress` brings the
/// lines that programs append to their progress files, each with the name of its pod.
pub async fn drive(
    client: Client,
    plan: Plan,
    start: Instant,
    show: &mut dyn Show,
    interrupts: impl Stream<Item = ()>,
    progress: impl Stream<Item = (String, String)>,
) -> Result<Summary, Error> {
    let mut interrupts = pin!(interrupts.fuse());
    let mut progress = pin!(progress.fuse());
    let mut view = View::new(&plan.job);
    for note in plan.notes {
        // Who does not want to hear is noticed at the first line of the job.
        let _ = show.items(&view.apply(start.elapsed(), Event::Note(note)));
    }
    let job = create::all(&client, plan.job, &plan.companions).await?;
    let namespace = job.namespace().unwrap_or_default();
    let (changes, mut incoming) = mpsc::unbounded_channel();
    let _watches = watch::start(&client, &job, &changes);
    let (followers, mut lines) = Followers::new(Api::namespaced(client.clone(), &namespace));
    let mut run = Run {
        jobs: Api::namespaced(client.clone(), &namespace),
        pods: Api::namespaced(client, &namespace),
        name: job.name_any(),
        uid: job.uid(),
        reports: job.reports_progress(),
        view,
        show,
        start,
        followers,
        here: Here::default(),
        heard: Instant::now(),
        early: Vec::new(),
        told: BTreeSet::new(),
        job_gone: false,
        state: State::Running,
    };
    run.tell(Event::Job(Box::new(job)));
    let time_is_over = sleep_until(start + plan.timeout.unwrap_or(NEVER));
    let mut time_is_over = pin!(time_is_over);
    let unnoticed = sleep_until(Instant::now() + UNNOTICED);
    let mut unnoticed = pin!(unnoticed);
    let mut asked = false;
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);

    loop {
        let (last_call, tells) = (run.last_call(), run.tells());
        tokio::select! {
            // What has happened comes before giving up, and giving up before lines, of which there may be ever more.
            biased;
            Some(()) = interrupts.next() => {
                if !matches!(run.state, State::Running) {
                    break;
                }
                run.stop(Stop::Interrupted).await;
            }
            Some(change) = incoming.recv() => run.change(change).await,
            Some((pod, line)) = progress.next() => run.tell(Event::Progress { pod, line }),
            () = &mut time_is_over, if matches!(run.state, State::Running) => run.stop(Stop::TimedOut).await,
            () = &mut unnoticed, if !asked => {
                asked = true;
                run.ask();
            }
            Some(()) = run.followers.ended() => {}
            () = sleep_until(last_call) => {
                run.look().await;
                break;
            }
            () = sleep_until(tells.unwrap_or(last_call)), if tells.is_some() => run.tell_leaving(),
            Some(line) = lines.recv() => run.say(line, &mut lines),
            _ = redraw.tick(), if run.show.is_live() => {}
        }
        if run.is_over() {
            run.look().await;
            // The nodes have told all of it before they told that the pods have ended.
            while let Some(Some((pod, line))) = progress.next().now_or_never() {
                run.tell(Event::Progress { pod, line });
            }
            while !matches!(run.state, State::Lost(..))
                && let Ok(line) = lines.try_recv()
            {
                run.say(line, &mut lines);
            }
            break;
        }
        run.draw();
    }
    run.cut();
    Ok(run.end())
}

/// Where the run is.
enum State {
    /// The job goes its way.
    Running,
    /// The job is deleted, and its pods are waited for.
    Stopping(Stop),
    /// The job has ended, and the rest of its logs and pods on their way out are waited for.
    Draining(Ending),
    /// Nobody reads what we print, or the server is of no help any more.
    Lost(Outcome, String),
}

struct Run<'a> {
    jobs: Api<TrainingJob>,
    pods: Api<Pod>,
    name: String,
    uid: Option<String>,
    /// Whether its programs say how far they are, and the operator writes it down.
    reports: bool,
    view: View,
    show: &'a mut dyn Show,
    start: Instant,
    followers: Followers,
    here: Here,
    /// When a log, or a pod, last said something.
    heard: Instant,
    /// Warnings of pods that have not been seen yet, and may be somebody else's: uid, name, and why.
    early: Vec<(String, String, String)>,
    /// The warnings that were told, once for all pods that they are of.
    told: BTreeSet<String>,
    job_gone: bool,
    state: State,
}

impl Run<'_> {
    fn tell(&mut self, event: Event) {
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
            // A terminal that is gone is noticed when something is printed.
            let _ = self.show.picture(&self.view.picture(self.start.elapsed()));
        }
    }

    /// A line, and those that came with it.
    fn say(&mut self, first: Line, lines: &mut mpsc::Receiver<Line>) {
        let mut items = Vec::new();
        let more = std::iter::from_fn(|| lines.try_recv().ok());
        for line in std::iter::once(first).chain(more).take(BATCH) {
            items.extend(self.view.apply(self.start.elapsed(), line.into()));
        }
        if let Err(error) = self.show.items(&items) {
            self.state = State::Lost(
                Outcome::Interrupted,
                format!("the output can't be written: {error}"),
            );
        }
        // Now, and not when the lines came: a slow reader may have taken long for them.
        self.heard = Instant::now();
    }

    async fn change(&mut self, change: Change) {
        match change {
            Change::Job(job) => {
                self.tell(Event::Job(job));
                if matches!(self.state, State::Running)
                    && let Some((outcome, message)) = end::verdict(&self.view)
                {
                    self.drain(outcome, message).await;
                }
            }
            Change::JobGone => {
                self.job_gone = true;
                if matches!(self.state, State::Running) {
                    let message = "somebody deleted the job".to_owned();
                    self.drain(Outcome::Failed, Some(message)).await;
                }
            }
            Change::Pod(pod) => self.pod(&pod),
            Change::PodGone(uid) => self.gone(uid),
            Change::Pods(uids) => {
                let gone: Vec<String> = self
                    .here
                    .uids()
                    .filter(|uid| !uids.contains(*uid))
                    .cloned()
                    .collect();
                for uid in gone {
                    self.gone(uid);
                }
            }
            Change::Warning { uid, pod, why } if self.here.contains(&uid) => self.warn(&pod, &why),
            Change::Warning { uid, pod, why } => {
                if self.early.len() < MAX_EARLY {
                    self.early.push((uid, pod, why));
                }
            }
            Change::Failed(error) => {
                self.tell(Event::Note(format!(
                    "the cluster does not answer: {error}; still trying"
                )));
            }
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let seen = PodSeen::of(pod);
        self.heard = Instant::now();
        self.here.see(seen.clone(), self.heard);
        self.followers.see(&seen);
        let uid = seen.uid.clone();
        self.tell(Event::Pod(seen));
        for (_, pod, why) in self
            .early
            .extract_if(.., |(of, _, _)| *of == uid)
            .collect::<Vec<_>>()
        {
            self.warn(&pod, &why);
        }
    }

    fn gone(&mut self, uid: String) {
        self.heard = Instant::now();
        self.here.remove(&uid);
        self.tell(Event::PodGone(uid));
    }

    fn warn(&mut self, pod: &str, why: &str) {
        if self.told.insert(why.to_owned()) {
            self.tell(Event::Note(format!("{pod} does not start: {why}")));
        }
    }

    /// Says so if nobody has taken notice of the job.
    fn ask(&mut self) {
        if matches!(self.state, State::Running) && self.view.status().observed_generation.is_none() {
            let note =
                "nothing has happened to the job yet: is the operator running there? See docs/install.md";
            self.tell(Event::Note(note.to_owned()));
        }
    }

    /// Deletes the job, which ends its pods as kindly as they allow.
    async fn stop(&mut self, why: Stop) {
        self.tell(Event::Stopping(why));
        self.draw();
        self.state = match self.jobs.delete(&self.name, &DeleteParams::background()).await {
            Ok(_) => State::Stopping(why),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.job_gone = true;
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
