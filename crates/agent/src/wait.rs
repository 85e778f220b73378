//! `trainyard-agent wait`: waits until the observer says that the programs of this pod may start.
//!
//! One thread listens to the observer. The other waits for what it hears and looks at the pod's
//! annotations, so that nothing that hangs on the network keeps a person from ending the wait.

mod follow;
mod log;
mod start_line;

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use trainyard_contract::directories::agent::paths;
use trainyard_contract::start::{ANNOTATION_START, START_NOW, Start, WAITED_IN_VAIN};
use trainyard_contract::{environment, modes, observer};

use crate::annotations;
use crate::mode::{Mode, PROGRAM, USAGE_ERROR, report_misuse};
use crate::observer::ObserverClient;
use crate::settings::{self, Environment, SettingError};
use crate::signals::exit_on_signal;

use follow::{Event, follow, listen};
use log::WaitLog;
pub use start_line::parse;

pub(crate) const MODE: Mode = Mode {
    name: modes::WAIT,
    summary: "Wait until the operator lets the programs of this pod start",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Waits until the operator lets the programs of this pod start. Whatever fails meanwhile is tried again.

Usage: trainyard-agent wait

Environment:
  TRAINYARD_OBSERVER          Where the operator is asked: https://name:port
  TRAINYARD_AUTHORITY         The certificate authorities by which it is known, as PEM
  TRAINYARD_NAMESPACE         The namespace of the job
  TRAINYARD_JOB               The name of the job
  TRAINYARD_ROLE              The role of this pod in the job
  TRAINYARD_TOKEN_FILE        The token of this pod [default: /var/run/trainyard/token]
  TRAINYARD_ANNOTATIONS_FILE  The annotations of this pod [default: /var/run/trainyard/annotations]
  TRAINYARD_TERMINATION_LOG   Where to write why the wait is in vain [default: /dev/termination-log]

To end the wait by hand, annotate the pod: kubectl annotate pod NAME trainyard.dev/start=now

Exit codes: 0 the programs may start, 1 the system does not let it wait, 2 a variable is missing or makes no sense,
3 the wait is in vain, 130 and 143 ended by a signal.
";

/// The exit code when the system does not let it work.
const FAILED: u8 = 1;

/// All that the wait has to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to ask.
    pub observer: ObserverClient,
    /// What to ask for.
    pub path: String,
    /// The annotations of this pod.
    pub annotations_file: PathBuf,
    /// How often to read them.
    pub poll_interval: Duration,
    /// Where to write why the wait is in vain.
    pub termination_log: PathBuf,
}

impl Config {
    /// As the operator has set it.
    pub fn read(environment: Environment<'_>) -> Result<Self, SettingError> {
        let observer = settings::observer(environment)?;
        let name = |variable| settings::object_name(environment, variable);
        let (namespace, job) = (name(environment::NAMESPACE)?, name(environment::JOB)?);
        let role = name(environment::ROLE)?;
        let file = |variable, default| settings::file(environment, variable, default);
        Ok(Self {
            observer,
            path: observer::start_of(&namespace, &job, &role),
            annotations_file: file("TRAINYARD_ANNOTATIONS_FILE", paths::ANNOTATIONS),
            poll_interval: Duration::from_secs(1),
            termination_log: file("TRAINYARD_TERMINATION_LOG", "/dev/termination-log"),
        })
    }
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The programs may start.
    Go,
    /// They never may.
    Never,
}

/// Waits, and logs how it goes. Fails only if there is no thread to listen.
///
/// A thread may still listen when it returns. It ends at the next line of the observer, or when its
/// timeout is over.
pub fn run(config: &Config, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Outcome> {
    let (sender, events) = channel();
    let (observer, path) = (config.observer.clone(), config.path.clone());
    thread::Builder::new()
        .name("observer".to_owned())
        .spawn(move || {
            let tell = |event| match sender.send(event) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            follow(
                |hear| listen(&observer, &path, hear),
                tell,
                thread::sleep,
                fastrand::f64,
            );
        })?;
    // A file that can't be read says nothing: a wait must not depend on it.
    let is_overridden = || {
        annotations::read(&config.annotations_file, ANNOTATION_START)
            .is_ok_and(|found| found.as_deref() == Some(START_NOW))
    };
    let mut log = WaitLog::new(out, err);
    let never = wait_for_start(&events, config.poll_interval, is_overridden, &mut log)?;
    if let Some(reason) = &never {
        log.never(reason);
        // The log has it as well.
        let _ = std::fs::write(&config.termination_log, reason);
    }
    Ok(if never.is_some() {
        Outcome::Never
    } else {
        Outcome::Go
    })
}

/// Waits for a final answer, or for the annotation of a person. Returns why the wait is in vain,
/// if it is.
fn wait_for_start(
    events: &Receiver<Event>,
    poll_interval: Duration,
    mut is_overridden: impl FnMut() -> bool,
    log: &mut WaitLog<'_>,
) -> io::Result<Option<String>> {
    loop {
        if is_overridden() {
            log.overridden(&format!("the annotation {ANNOTATION_START}"));
            return Ok(None);
        }
        match events.recv_timeout(poll_interval) {
            Ok(Event::Start(Start::Go)) => return Ok(None),
            Ok(Event::Start(Start::Never(reason))) => return Ok(Some(reason)),
            Ok(Event::Start(Start::Wait(reason))) => log.waiting(&reason),
            Ok(Event::Error(error)) => log.failure(&error),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other(
                    "the thread that listens to the operator has died",
                ));
            }
        }
    }
}

fn main(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let problem = format!(
            "`wait` takes no words after it, and there is {:?}",
            word.to_string_lossy()
        );
        return report_misuse(err, &problem);
    }
    // First of all: a signal that comes before is lost.
    if let Err(error) = exit_on_signal() {
        return failed(err, &error);
    }
    let config = match Config::read(&|name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: {error}");
            return USAGE_ERROR;
        }
    };
    match run(&config, out, err) {
        Ok(Outcome::Go) => 0,
        Ok(Outcome::Never) => WAITED_IN_VAIN,
        Err(error) => failed(err, &error),
    }
}

fn failed(err: &mut dyn Write, error: &io::Error) -> u8 {
    let _ = writeln!(err, "{PROGRAM}: can't wait: {error}");
    FAILED
}

#[cfg(test)]
mod tests;
