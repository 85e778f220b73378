//! Runs the scripts of requests beside the program of a launcher: `trainyard-agent run` where
//! `TRAINYARD_SCRIPTS` is set.
//!
//! The observer says which attempt to make. Each is made once. How it ended is reported for as long
//! as the observer says so, because the operator that was told may be gone. No shell reads the
//! script, its arguments or its variables.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Signal, kill_process_group};
use trainyard_contract::script::{
    MAX_OUTPUT, ScriptEnd, ScriptOrder, ScriptReport, ScriptRun, printable_end,
};
use trainyard_contract::{environment, observer};

use crate::backoff::Backoff;
use crate::children::{Children, Started};
use crate::observer::{ObserverClient, ObserverError};
use crate::settings::{self, Environment, SettingError};

/// Variables that only the agent needs. Launchers pass theirs on to other hosts.
pub(crate) const OF_AGENT: [&str; 4] = [
    environment::OBSERVER,
    environment::AUTHORITY,
    environment::NAMESPACE,
    environment::SCRIPTS,
];

/// How often a script that runs is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// What was reported is reported again after this.
const RESEND_INTERVAL: Duration = Duration::from_secs(3);
/// From SIGTERM to SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// How long the output of a script is read that has ended: processes that it has left may hold it
/// open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Of this file without an executable bit, or of a text without `#!`, `sh` makes sense.
const SHELL: &str = "sh";
/// What the kernel says of a text without `#!`.
const ENOEXEC: i32 = 8;

/// What happens to the one who runs scripts.
enum Event {
    Told(ScriptOrder),
    End,
}

/// Runs scripts in a thread of its own.
pub(crate) struct Scripts {
    events: Sender<Event>,
    thread: JoinHandle<()>,
}

impl Scripts {
    /// Follows the observer from now on. `None` if the operator has not asked for it.
    pub(crate) fn start(
        environment: Environment<'_>,
        children: Arc<Children>,
    ) -> Result<Option<Self>, SettingError> {
        if environment(environment::SCRIPTS).is_none_or(|value| value.is_empty()) {
            return Ok(None);
        }
        let observer = settings::observer(environment)?;
        let name = |variable| settings::object_name(environment, variable);
        let path = observer::script(&name(environment::NAMESPACE)?, &name(environment::JOB)?);
        let (events, happens) = channel();
        let (following, ask, tell) = (observer.clone(), path.clone(), events.clone());
        thread::spawn(move || follow(&following, &ask, &tell));
        let put = move |body: &str| observer.put(&path, body);
        let thread = thread::spawn(move || Runner::new(children).run(&happens, put));
        Ok(Some(Self { events, thread }))
    }

    /// Ends the script that runs.
    pub(crate) fn end(self) {
        if self.events.send(Event::End).is_ok() {
            // A panic in it was told.
            let _ = self.thread.join();
        }
    }
}

fn follow(observer: &ObserverClient, path: &str, tell: &Sender<Event>) {
    let read = |line: &[u8]| ScriptOrder::read(line).map(Event::Told);
    observer.follow(path, read, tell);
}

/// The end of what a script prints.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let surplus = self.0.len().saturating_sub(MAX_OUTPUT);
        self.0.drain(..surplus);
    }
}

/// A script that runs.
struct Running {
    run: ScriptRun,
    started: Started,
    tail: Arc<Mutex<Tail>>,
    /// Closed when all of the output was read.
    output: Receiver<()>,
    deadline: Instant,
    /// When the script was asked to end.
    asked_at: Option<Instant>,
    /// Its exit code, and when it had ended.
    ended: Option<(u8, Instant)>,
}

impl Running {
    fn start(run: &ScriptRun, children: &Children, now: Instant) -> io::Result<Self> {
        let (started, mut reader) = match spawn(&run.program, &run.args, run, children) {
            Err(error)
                if error.kind() == ErrorKind::PermissionDenied || error.raw_os_error() == Some(ENOEXEC) =>
            {
                let words: Vec<String> = [run.program.clone()]
                    .into_iter()
                    .chain(run.args.clone())
                    .collect();
                spawn(SHELL, &words, run, children)?
            }
            other => other?,
        };
        let tail: Arc<Mutex<Tail>> = Arc::default();
        let (done, output) = channel();
        let kept = tail.clone();
        thread::spawn(move || {
            let _done: Sender<()> = done;
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                kept.lock().add(buffer.get(..length).unwrap_or_default());
            }
        });
        let seconds = u64::try_from(run.timeout_seconds).unwrap_or_default();
        Ok(Self {
            run: run.clone(),
            started,
            tail,
            output,
            deadline: now + Duration::from_secs(seconds),
            asked_at: None,
            ended: None,
        })
    }

    fn signal(&self, signal: Signal) {
        // It may have ended meanwhile.
        let _ = kill_process_group(self.started.pid, signal);
    }

    /// How it ended, if it has.
    fn look(&mut self, now: Instant) -> Option<ScriptReport> {
        if self.ended.is_none() {
            self.ended = self.started.end.code().map(|code| (code, now));
            match (self.asked_at, self.ended) {
                (None, None) if now >= self.deadline => {
                    self.signal(Signal::TERM);
                    self.asked_at = Some(now);
                }
                // Also what it has left behind.
                (Some(_), Some(_)) => self.signal(Signal::KILL),
                (Some(at), None) if now.duration_since(at) >= GRACE_PERIOD => self.signal(Signal::KILL),
                _ => {}
            }
        }
        let (code, at) = self.ended?;
        let all_is_read = matches!(
            self.output.try_recv(),
            Err(std::sync::mpsc::TryRecvError::Disconnected)
        );
        if !all_is_read && now.duration_since(at) < OUTPUT_TIMEOUT {
            return None;
        }
        Some(ScriptReport {
            request: self.run.request.clone(),
            attempt: self.run.attempt,
            end: match self.asked_at {
                Some(_) => ScriptEnd::TimedOut,
                None => ScriptEnd::Exited { code: code.into() },
            },
            output: printable_end(&self.tail.lock().0),
        })
    }
}

/// Starts a program. Returns it with its output and errors.
fn spawn(
    program: &str,
    words: &[String],
    run: &ScriptRun,
    children: &Children,
) -> io::Result<(Started, io::PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    for variable in OF_AGENT {
        command.env_remove(variable);
    }
    let env = run.env.iter().map(|(name, value)| (name, value));
    command
        .args(words)
        .envs(env)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    Ok((children.start(&mut command)?, reader))
}

/// Makes the attempts that the observer asks for, one at a time.
struct Runner {
    children: Arc<Children>,
    /// What is to be run.
    order: Option<ScriptRun>,
    running: Option<Running>,
    /// How the last attempt ended.
    last: Option<ScriptReport>,
    /// All attempts that were begun.
    begun: HashSet<(String, i32)>,
}

impl Runner {
    fn new(children: Arc<Children>) -> Self {
        Self {
            children,
            order: None,
            running: None,
            last: None,
            begun: HashSet::new(),
        }
    }

    fn run(mut self, events: &Receiver<Event>, put: impl Fn(&str) -> Result<(), ObserverError>) {
        let mut sender = Resender::default();
        loop {
            let next = if self.order.is_some() {
                events.recv_timeout(POLL_INTERVAL)
            } else {
                events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match next {
                Ok(Event::Told(order)) => self.obey(order, Instant::now()),
                Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => return self.stop(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if let Some(report) = self.report(now) {
                sender.send(report, now, &put);
            }
        }
    }

    fn obey(&mut self, order: ScriptOrder, now: Instant) {
        let ScriptOrder::Run(run) = order else {
            self.stop();
            self.order = None;
            return;
        };
        if let Some(known) = &self.order
            && known.request == run.request
            && known.attempt >= run.attempt
        {
            // An attempt before this one is from who does not know of it yet.
            return;
        }
        self.stop();
        if self.begun.insert((run.request.clone(), run.attempt)) {
            match Running::start(&run, &self.children, now) {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    let problem = format!("can't run {}: {error}", run.program);
                    self.last = Some(ScriptReport {
                        request: run.request.clone(),
                        attempt: run.attempt,
                        end: ScriptEnd::NotStarted,
                        output: printable_end(problem.as_bytes()),
                    });
                }
            }
        }
        self.order = Some(run);
    }

    /// Ends the script that runs. Nobody wants to know how.
    fn stop(&mut self) {
        if let Some(running) = self.running.take().filter(|running| running.ended.is_none()) {
            running.signal(Signal::KILL);
        }
    }

    /// How the attempt ended that is to be made, if it has.
    fn report(&mut self, now: Instant) -> Option<&ScriptReport> {
        if let Some(report) = self.running.as_mut().and_then(|running| running.look(now)) {
            self.running = None;
            self.last = Some(report);
        }
        let order = self.order.as_ref()?;
        let is_of_it =
            |last: &&ScriptReport| (&last.request, last.attempt) == (&order.request, order.attempt);
        self.last.as_ref().filter(is_of_it)
    }
}

/// Sends a report that is news, and again from time to time.
#[derive(Default)]
struct Resender {
    sent: Option<(String, i32)>,
    not_before: Option<Instant>,
    backoff: Backoff,
}

impl Resender {
    fn send(
        &mut self,
        report: &ScriptReport,
        now: Instant,
        put: &impl Fn(&str) -> Result<(), ObserverError>,
    ) {
        let attempt = (report.request.clone(), report.attempt);
        let is_news = self.sent.as_ref() != Some(&attempt);
        if !is_news && self.not_before.is_some_and(|at| at > now) {
            return;
        }
        self.sent = Some(attempt);
        let pause = match put(&report.write()) {
            Ok(()) => {
                self.backoff.reset();
                RESEND_INTERVAL
            }
            Err(failure) => self.backoff.pause(failure.max_pause(), fastrand::f64()),
        };
        self.not_before = Some(Instant::now() + pause);
    }
}
