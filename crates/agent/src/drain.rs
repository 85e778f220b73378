//! `trainyard-agent drain`: tells the program beside it to leave, when the operator says so, and
//! reports how far the program is.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use trainyard_contract::directories::drain::names::{ACKNOWLEDGED, CHECKPOINT, LEAVE};
use trainyard_contract::drain::{Drain, DrainReport, DrainState};
use trainyard_contract::{environment, modes, observer};

use crate::backoff::Backoff;
use crate::install::place::write;
use crate::mode::{Mode, PROGRAM, USAGE_ERROR, report_misuse};
use crate::observer::{ObserverClient, ObserverError};
use crate::settings::{self, Environment, SettingError};
use crate::signals::exit_with_success_on_signal;

pub(crate) const MODE: Mode = Mode {
    name: modes::DRAIN,
    summary: "Tell the program of this pod to leave a job that goes on",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Tells the program of this pod to leave when the number of pods of the job changes, and reports how far it is.

Usage: trainyard-agent drain

Environment:
  TRAINYARD_DRAIN_DIRECTORY  A directory that the program knows as TRAINYARD_DRAIN
  TRAINYARD_OBSERVER, TRAINYARD_AUTHORITY, TRAINYARD_NAMESPACE, TRAINYARD_JOB, TRAINYARD_TOKEN_FILE
                             As for `trainyard-agent wait`

The file `leave` appears there when the program is to leave. It contains until when. The program makes the file
`acknowledged`, writes its checkpoint, makes the file `checkpoint`, which may contain the step, and exits.

Exit codes: 0 ended by a signal, 1 a file can't be written, 2 a variable is missing or makes no sense.
";

const FAILED: u8 = 1;
/// How often the program's files are looked at once it was told to leave.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// What was reported is reported again after this: the operator that knew it may be gone, and the
/// next one waits 10 s for those who say nothing.
const RESEND_INTERVAL: Duration = Duration::from_secs(3);
/// A number of a step is no longer than this.
const MAX_STEP: u64 = 32;

struct Config {
    observer: ObserverClient,
    path: String,
    directory: PathBuf,
}

fn read(environment: Environment<'_>) -> Result<Config, SettingError> {
    let observer = settings::observer(environment)?;
    let name = |variable| settings::object_name(environment, variable);
    let (namespace, job) = (name(environment::NAMESPACE)?, name(environment::JOB)?);
    Ok(Config {
        observer,
        path: observer::drain(&namespace, &job),
        directory: settings::required(environment, environment::DRAIN_DIRECTORY)?.into(),
    })
}

/// How far the program is, by the files that it has made.
fn progress(directory: &Path) -> Option<DrainReport> {
    let exists = |name: &str| directory.join(name).exists();
    if exists(CHECKPOINT) {
        let state = DrainState::CheckpointDone;
        return Some(DrainReport {
            state,
            step: step(&directory.join(CHECKPOINT)),
        });
    }
    exists(ACKNOWLEDGED).then_some(DrainReport {
        state: DrainState::Acknowledged,
        step: None,
    })
}

fn step(file: &Path) -> Option<i64> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = fs::File::open(file).ok()?;
    file.take(MAX_STEP).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|step| *step >= 0)
}

/// What was reported last, and when it is reported again.
#[derive(Default)]
struct Reporter {
    sent: Option<(DrainReport, Instant)>,
    not_before: Option<Instant>,
    backoff: Backoff,
}

impl Reporter {
    /// Sends a report that is news, or that the operator may have forgotten.
    fn send(
        &mut self,
        report: &DrainReport,
        now: Instant,
        put: impl FnOnce(&str) -> Result<(), ObserverError>,
    ) {
        let is_known =
            |(sent, at): &(DrainReport, Instant)| sent == report && now.duration_since(*at) < RESEND_INTERVAL;
        if self.sent.as_ref().is_some_and(is_known) || self.not_before.is_some_and(|at| at > now) {
            return;
        }
        match put(&report.write()) {
            Ok(()) => {
                self.sent = Some((report.clone(), now));
                self.backoff.reset();
                self.not_before = None;
            }
            Err(failure) => {
                self.not_before = Some(now + self.backoff.pause(failure.max_pause(), fastrand::f64()));
            }
        }
    }
}

/// Carries out what the operator says, for as long as files can be written.
fn run(config: &Config, told: &Receiver<Drain>) -> io::Result<()> {
    let mut leaves = false;
    let mut reporter = Reporter::default();
    loop {
        let next = if leaves {
            told.recv_timeout(POLL_INTERVAL)
        } else {
            told.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok(Drain::Leave { deadline }) if !leaves => {
                leaves = true;
                let text = deadline.map(|deadline| deadline + "\n").unwrap_or_default();
                write(&config.directory, Path::new(LEAVE), &text).map_err(io::Error::other)?;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            // Who was told once leaves: there is no way back for the program.
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(report) = progress(&config.directory).filter(|_| leaves) {
            let put = |body: &str| config.observer.put(&config.path, body);
            reporter.send(&report, Instant::now(), put);
        }
    }
}

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return report_misuse(
            err,
            &format!("`drain` takes no words after it, and there is {word:?}"),
        );
    }
    let mut fail = |code, error: &dyn std::fmt::Display| {
        let _ = writeln!(err, "{PROGRAM}: {error}");
        code
    };
    if let Err(error) = exit_with_success_on_signal() {
        return fail(FAILED, &error);
    }
    let config = match read(&|name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(error) => return fail(USAGE_ERROR, &error),
    };
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(|| config.observer.follow(&config.path, Drain::read, &tell));
        match run(&config, &told) {
            Ok(()) => 0,
            Err(error) => {
                let code = fail(FAILED, &error);
                // The thread that listens never ends by itself.
                std::process::exit(code.into());
            }
        }
    })
}
