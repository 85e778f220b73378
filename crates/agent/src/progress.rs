//! `trainyard-agent progress`: reports what the program beside it says of its progress.
//!
//! The program appends lines to a file. Their latest values are sent to the operator from time to
//! time, and once more at SIGTERM, when the program has ended.

mod reader;
pub mod report;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use trainyard_contract::observer::{self, ProgressReport, number_text};
use trainyard_contract::{environment, modes};

use crate::backoff::Backoff;
use crate::mode::{Mode, PROGRAM, USAGE_ERROR, report_misuse};
use crate::observer::{ObserverClient, ObserverError};
use crate::settings::{self, Environment, SettingError};

use reader::Reader;
use report::Report;

pub(crate) const MODE: Mode = Mode {
    name: modes::PROGRESS,
    summary: "Report what the programs of this pod say of their progress",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Reports what the program of this pod appends to a file: JSON objects or words, `step=10 total=100 loss=0.3`.

Usage: trainyard-agent progress

Environment:
  TRAINYARD_PROGRESS_FILE  The file
  TRAINYARD_OBSERVER, TRAINYARD_AUTHORITY, TRAINYARD_NAMESPACE, TRAINYARD_JOB, TRAINYARD_TOKEN_FILE
                           As for `trainyard-agent wait`

The latest values are sent when they have changed, at most every 5 s, and once more when this program is told to end. A
program that says nothing costs nothing. The first line that can't be read makes a note.

Exit codes: 0 ended by a signal, 1 the system does not let it work, 2 a variable is missing or makes no sense.
";

const FAILED: u8 = 1;
/// How often the file is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Changed values are sent at most this often.
const MIN_SEND_INTERVAL: Duration = Duration::from_secs(5);
/// Unchanged values are sent again after this: the operator that had them may be gone.
const RESEND_INTERVAL: Duration = Duration::from_mins(1);
/// How long the agent tries to send the last values. The grace period of a pod is 30 s by default.
const FINAL_SEND_TIMEOUT: Duration = Duration::from_secs(25);

/// The body to send, without values that the observer would refuse: one of them would block all
/// others.
fn body(report: &Report) -> String {
    let step = |step: Option<u64>| step.and_then(|step| i64::try_from(step).ok());
    let metrics = report.metrics.iter();
    ProgressReport {
        metrics: metrics
            .map(|(name, number)| (name.clone(), number_text(*number)))
            .collect(),
        artifacts: report.artifacts.clone(),
        step: step(report.step),
        total: step(report.total),
    }
    .write()
}

/// When to send what.
struct Sender<S> {
    send: S,
    /// As text, because NaN is never equal to itself.
    sent: Option<(String, Instant)>,
    backoff: Backoff,
    not_before: Option<Instant>,
    logged: String,
}

impl<S: FnMut(&str) -> Result<(), ObserverError>> Sender<S> {
    fn new(send: S) -> Self {
        Self {
            send,
            sent: None,
            backoff: Backoff::default(),
            not_before: None,
            logged: String::new(),
        }
    }

    /// Sends the report if it is due. Returns whether the operator has the latest values.
    fn send_if_due(&mut self, report: &Report, now: Instant, last: bool, err: &mut dyn Write) -> bool {
        let body = body(report);
        let (is_news, since) = match &self.sent {
            Some((sent, at)) => (*sent != body, now.duration_since(*at)),
            None => (*report != Report::default(), RESEND_INTERVAL),
        };
        let pace = if is_news {
            MIN_SEND_INTERVAL
        } else {
            RESEND_INTERVAL
        };
        let is_due = if last {
            is_news
        } else {
            since >= pace && *report != Report::default()
        };
        if !is_due {
            return !is_news;
        }
        if self.not_before.is_some_and(|at| at > now) {
            return false;
        }
        match (self.send)(&body) {
            Ok(()) => {
                self.sent = Some((body, now));
                self.backoff.reset();
                self.not_before = None;
                true
            }
            Err(failure) => {
                let trouble = failure.to_string();
                let elsewhere = failure.is_elsewhere();
                if !elsewhere && trouble != self.logged {
                    let _ = writeln!(err, "{PROGRAM}: {trouble}; trying again");
                    self.logged = trouble;
                }
                if elsewhere {
                    self.backoff.reset();
                }
                self.not_before = Some(now + self.backoff.pause(failure.max_pause(), fastrand::f64()));
                false
            }
        }
    }
}

struct Config {
    observer: ObserverClient,
    path: String,
    file: PathBuf,
}

fn read(environment: Environment<'_>) -> Result<Config, SettingError> {
    let observer = settings::observer(environment)?;
    let name = |variable| settings::object_name(environment, variable);
    let (namespace, job) = (name(environment::NAMESPACE)?, name(environment::JOB)?);
    Ok(Config {
        observer,
        path: observer::progress(&namespace, &job),
        file: settings::required(environment, environment::PROGRESS_FILE)?.into(),
    })
}

/// Reports until SIGTERM, then the last values.
fn run(config: &Config, ends: &AtomicBool, err: &mut dyn Write) {
    let mut reader = Reader::default();
    let mut report = Report::default();
    let mut noted = false;
    let mut sender = Sender::new(|body: &str| config.observer.put(&config.path, body));
    let mut end: Option<Instant> = None;
    loop {
        let last = ends.load(Ordering::SeqCst);
        // The file may not exist yet.
        for line in reader.read(&config.file, last).unwrap_or_default() {
            match report::parse(&line) {
                Ok(said) => report.merge(said.unwrap_or_default()),
                Err(problem) if !noted => {
                    noted = true;
                    let _ = writeln!(
                        err,
                        "{PROGRAM}: a line of {} is passed over: {problem}",
                        config.file.display()
                    );
                }
                Err(_) => {}
            }
        }
        let now = Instant::now();
        let done = sender.send_if_due(&report, now, last, err);
        if last {
            let end = *end.get_or_insert(now + FINAL_SEND_TIMEOUT);
            if done || now > end {
                return;
            }
        }
        thread::sleep(if last { POLL_INTERVAL / 4 } else { POLL_INTERVAL });
    }
}

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return report_misuse(
            err,
            &format!("`progress` takes no words after it, and there is {word:?}"),
        );
    }
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        if let Err(error) = signal_hook::flag::register(signal, ends.clone()) {
            let _ = writeln!(err, "{PROGRAM}: {error}");
            return FAILED;
        }
    }
    match read(&|name| std::env::var_os(name)) {
        Ok(config) => {
            run(&config, &ends, err);
            0
        }
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: {error}");
            USAGE_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::observer::AnswerError;

    fn said(line: &str) -> Report {
        report::parse(line).unwrap().unwrap()
    }

    fn refused(status: u16) -> ObserverError {
        ObserverError::Answer {
            address: "https://a:1".parse().unwrap(),
            problem: AnswerError::Refused {
                status,
                sentence: "no".to_owned(),
            },
        }
    }

    #[test]
    fn numbers_are_sent_as_text() {
        let body: Value = serde_json::from_str(&body(&said("step=3 total=9 loss=nan lr=0.1"))).unwrap();
        assert_eq!(
            body,
            json!({"step": 3, "total": 9, "metrics": {"loss": "NaN", "lr": "0.1"}})
        );
    }

    #[test]
    fn the_latest_is_sent_at_its_pace_and_at_the_end() {
        let sent = std::cell::RefCell::new(Vec::new());
        let mut sender = Sender::new(|body: &str| {
            sent.borrow_mut().push(body.len());
            Ok(())
        });
        let start = Instant::now();
        let mut at = |seconds: u64, line: Option<&str>, last: bool| {
            let report = line.map(said).unwrap_or_default();
            let done = sender.send_if_due(
                &report,
                start + Duration::from_secs(seconds),
                last,
                &mut Vec::new(),
            );
            (done, sent.borrow().len())
        };
        assert_eq!(at(0, None, false), (true, 0), "nothing was said");
        assert_eq!(at(1, Some("step=1"), false), (true, 1), "the first at once");
        assert_eq!(at(2, Some("step=2"), false), (false, 1));
        assert_eq!(at(6, Some("step=3"), false), (true, 2));
        assert_eq!(at(30, Some("step=3"), false), (true, 2), "it is there already");
        assert_eq!(at(66, Some("step=3"), false), (true, 3), "who had it may be gone");
        assert_eq!(at(67, Some("step=4"), true), (true, 4), "the last at once");
        assert_eq!(at(68, Some("step=4"), true), (true, 4));
        assert_eq!(at(80, Some("step=4 loss=nan"), false), (true, 5));
        assert_eq!(
            at(90, Some("step=4 loss=nan"), false),
            (true, 5),
            "what is no number is no news either"
        );
    }

    #[test]
    fn another_replica_is_asked_soon_and_silently() {
        let mut tries = 0;
        let mut sender = Sender::new(|_: &str| {
            tries += 1;
            if tries < 4 { Err(refused(421)) } else { Ok(()) }
        });
        let (mut now, mut err) = (Instant::now(), Vec::new());
        let mut rounds = 0;
        while !sender.send_if_due(&said("step=1"), now, true, &mut err) {
            now += Duration::from_millis(50);
            rounds += 1;
        }
        assert!(rounds <= 4, "{rounds}");
        assert_eq!(String::from_utf8(err).unwrap(), "");
    }

    #[test]
    fn a_trouble_is_told_once_and_tried_again_later() {
        let mut tries = 0;
        let mut sender = Sender::new(|_: &str| {
            tries += 1;
            Err(refused(403))
        });
        let (start, mut err) = (Instant::now(), Vec::new());
        for tenth in 0..100 {
            sender.send_if_due(
                &said("step=1"),
                start + Duration::from_millis(100 * tenth),
                false,
                &mut err,
            );
        }
        drop(sender);
        assert!(tries < 12, "{tries}");
        let err = String::from_utf8(err).unwrap();
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}
