//! What people and pipes see.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::InMemoryTerm;
use trainyard_api::{JobPhase, ScalingStep};

use super::*;
use crate::run::outcome::Outcome;
use crate::run::view::{Bar, Cause, Change, Size, Source, Stop};

/// A stream that can be read by the test.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Vec<u8>>>);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

const PALE: Paint = Paint {
    colours: false,
    terminal: false,
};
const COLOURFUL: Paint = Paint {
    colours: true,
    terminal: true,
};

fn source(label: &str, number: usize) -> Source {
    Source {
        label: label.to_owned(),
        number,
    }
}

fn log(label: &str, number: usize, line: &str) -> Item {
    Item::Log {
        source: source(label, number),
        line: line.to_owned(),
    }
}

fn items() -> Vec<Item> {
    vec![
        Item::Note("images are ignored".to_owned()),
        Item::Phase {
            phase: JobPhase::Running,
            at: Duration::from_millis(412),
        },
        log("worker-0", 0, "hello"),
        log("worker-10", 1, "\u{1b}[2Jworld"),
        Item::Progress("step 1/2".to_owned()),
        Item::Trouble {
            source: source("worker-0", 0),
            message: "exit code 3".to_owned(),
        },
    ]
}

fn summary(outcome: Outcome) -> Summary {
    Summary {
        job: "mnist".to_owned(),
        namespace: "default".to_owned(),
        framework: "pytorch".to_owned(),
        outcome,
        exit_code: outcome.exit_code(),
        message: None,
        seconds: 3.25,
        phases: Vec::new(),
        pods: Vec::new(),
        restarts: 1,
        disruptions: 0,
        progress: None,
        result: None,
        root_cause: None,
        notes: Vec::new(),
        kept: None,
    }
}

fn failure() -> Summary {
    Summary {
        message: Some("RolesFailed: worker failed".to_owned()),
        root_cause: Some(Cause {
            pod: "mnist-worker-1".to_owned(),
            container: Some("train".to_owned()),
            exit_code: Some(137),
            reason: Some("OOMKilled".to_owned()),
            last_lines: vec!["loading".to_owned(), "more".to_owned()],
        }),
        ..summary(Outcome::Failed)
    }
}

/// What a plain show writes to its two streams.
fn plain(paint: Paint, quiet: bool, end: &Summary) -> (String, String) {
    let (logs, words) = (Stream::default(), Stream::default());
    let mut show = Plain::new(
        Box::new(logs.clone()),
        paint,
        Box::new(words.clone()),
        paint,
        quiet,
    );
    show.items(&items()).unwrap();
    show.end(end).unwrap();
    (logs.text(), words.text())
}

#[test]
fn pipes_get_logs_alone_and_untouched() {
    let (logs, words) = plain(PALE, false, &summary(Outcome::Succeeded));
    assert_eq!(logs, "worker-0 | hello\nworker-10 | \u{1b}[2Jworld\n");
    assert_eq!(
        words,
        "trainyard: note: images are ignored\n\
         trainyard: Running after 0.4 s\n\
         trainyard: step 1/2\n\
         trainyard: worker-0: exit code 3\n\
         trainyard: ✓ mnist succeeded in 3.2 s (0 pods, 1 restart)\n"
    );
}

#[test]
fn the_quiet_say_what_went_wrong_and_nothing_else() {
    let (logs, words) = plain(PALE, true, &summary(Outcome::Succeeded));
    assert_eq!(logs.lines().count(), 2);
    assert_eq!(words, "trainyard: worker-0: exit code 3\n");
    let (_, words) = plain(PALE, true, &failure());
    assert!(words.contains("✗ mnist failed after 3.2 s"), "{words}");
}

#[test]
fn a_failure_ends_with_its_cause() {
    let (_, words) = plain(PALE, false, &failure());
    let end: Vec<&str> = words.lines().skip(4).collect();
    assert_eq!(
        end,
        [
            "trainyard: ✗ mnist failed after 3.2 s (0 pods, 1 restart)",
            "trainyard:   RolesFailed: worker failed",
            "trainyard:   first to fail: mnist-worker-1 (container train): ended by signal 9, OOMKilled",
            "trainyard:   its last lines:",
            "trainyard:     │ loading",
            "trainyard:     │ more",
        ]
    );
}

#[test]
fn a_success_ends_with_its_result() {
    let pairs = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let end = Summary {
        result: Some(trainyard_api::JobResult {
            metrics: pairs(&[("accuracy", "0.98"), ("loss", "0.3")]),
            artifacts: pairs(&[("log", "/data/log"), ("model", "s3://bucket/model.pt")]),
        }),
        ..summary(Outcome::Succeeded)
    };
    let (_, words) = plain(PALE, false, &end);
    let end: Vec<&str> = words.lines().skip(4).collect();
    assert_eq!(
        end,
        [
            "trainyard: ✓ mnist succeeded in 3.2 s (0 pods, 1 restart)",
            "trainyard:   result: loss 0.3  accuracy 0.98",
            "trainyard:   log: /data/log",
            "trainyard:   model: s3://bucket/model.pt",
        ]
    );
}

#[test]
fn colours_are_in_the_text_only_where_they_are_wanted() {
    let (logs, words) = plain(COLOURFUL, false, &failure());
    assert!(
        logs.starts_with("\u{1b}[36mworker-0\u{1b}[0m | hello\n"),
        "{logs:?}"
    );
    assert!(words.contains("\u{1b}[31m"), "{words:?}");
    let (logs, words) = plain(PALE, false, &failure());
    assert!(!logs.starts_with('\u{1b}') && !words.contains('\u{1b}'));
}

#[test]
fn what_others_write_does_not_command_a_terminal() {
    let evil = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}c\u{9b}2Jfire\u{8}";
    let mut end = failure();
    end.message = Some(evil.to_owned());
    if let Some(cause) = &mut end.root_cause {
        cause.reason = Some(evil.to_owned());
        cause.last_lines = vec![evil.to_owned()];
    }
    let items = [
        log("worker-0", 0, evil),
        Item::Note(evil.to_owned()),
        Item::Trouble {
            source: source("worker-0", 0),
            message: evil.to_owned(),
        },
    ];
    let paint = Paint {
        colours: false,
        terminal: true,
    };
    let streams = (Stream::default(), Stream::default());
    let (logs, words) = (Box::new(streams.0.clone()), Box::new(streams.1.clone()));
    let mut show = Plain::new(logs, paint, words, paint, false);
    show.items(&items).unwrap();
    show.end(&end).unwrap();
    let said = streams.0.text() + &streams.1.text();
    assert_eq!(said.matches("fire").count(), 6, "{said:?}");
    assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
    let mut dashboard = dashboard();
    dashboard.troubles = vec![(source(evil, 0), evil.to_owned())];
    dashboard.job = evil.to_owned();
    dashboard.roles = vec![(evil.to_owned(), 3, 4)];
    dashboard.size = Some(Size {
        now: 4,
        target: 4,
        min: 2,
        max: None,
        change: Some(Change {
            role: evil.to_owned(),
            pods: evil.to_owned(),
            leaving: None,
        }),
        has_keys: false,
    });
    let lines = text::dashboard_lines(&dashboard, paint, 80).concat();
    assert!(!lines.chars().any(char::is_control), "{lines:?}");
    // The live view is on a terminal, whatever it is told.
    let terminal = InMemoryTerm::new(20, 100);
    let mut show = Live::to_terminal(terminal.clone(), PALE);
    show.items(&items).unwrap();
    show.end(&end).unwrap();
    let contents = terminal.contents();
    assert_eq!(contents.matches("fire").count(), 6, "{contents}");
}

fn dashboard() -> Dashboard {
    Dashboard {
        job: "mnist".to_owned(),
        phase: (JobPhase::Running, Duration::from_millis(2_300)),
        roles: vec![("worker".to_owned(), 3, 4)],
        size: None,
        progress: Some(Bar {
            fraction: Some(0.25),
            facts: vec!["step 10/40".to_owned(), "loss 0.5000".to_owned()],
            eta: Some(Duration::from_secs(12)),
        }),
        troubles: Vec::new(),
        stopping: None,
    }
}

#[test]
fn a_terminal_has_logs_above_and_the_present_below() {
    let terminal = InMemoryTerm::new(20, 100);
    let mut show = Live::to_terminal(terminal.clone(), PALE);
    show.draw(&dashboard()).unwrap();
    show.items(&items()).unwrap();
    show.draw(&dashboard()).unwrap();
    assert_eq!(
        terminal.contents(),
        "• note: images are ignored\n\
         • Running after 0.4 s\n\
         worker-0 │ hello\n\
         worker-10 │ world\n\
         • worker-0: exit code 3\n\
         mnist Running 2.3 s  worker 3/4\n\
         ━━━━━━━━━━──────────────────────────────  25 %  step 10/40  loss 0.5000  ETA 12 s"
    );
    show.items(&[log("worker-0", 0, "again")]).unwrap();
    assert!(terminal.contents().contains("\nworker-0  │ again\nmnist Running"));
    show.end(&summary(Outcome::Succeeded)).unwrap();
    let contents = terminal.contents();
    assert!(
        contents.ends_with("\n✓ mnist succeeded in 3.2 s (0 pods, 1 restart)"),
        "{contents}"
    );
    assert!(!contents.contains("mnist Running"), "{contents}");
}

#[test]
fn the_present_shrinks_and_grows() {
    let terminal = InMemoryTerm::new(20, 60);
    let mut show = Live::to_terminal(terminal.clone(), PALE);
    let mut dashboard = dashboard();
    dashboard.progress = None;
    dashboard.troubles = (0..5)
        .map(|n| {
            (
                source(&format!("worker-{n}"), n),
                "Unschedulable: no\nroom".to_owned(),
            )
        })
        .collect();
    dashboard.stopping = Some((Stop::Interrupted, 4));
    show.draw(&dashboard).unwrap();
    assert_eq!(
        terminal.contents(),
        "mnist Running 2.3 s  worker 3/4\n\
         worker-0: Unschedulable: no room\n\
         worker-1: Unschedulable: no room\n\
         worker-2: Unschedulable: no room\n\
         and 2 more\n\
         stopping: 4 pods left; Ctrl-C ends it at once"
    );
    dashboard.troubles.clear();
    dashboard.stopping = None;
    show.draw(&dashboard).unwrap();
    show.draw(&dashboard).unwrap();
    assert_eq!(terminal.contents(), "mnist Running 2.3 s  worker 3/4");
    drop(show);
    assert_eq!(terminal.contents(), "");
}

#[test]
fn an_elastic_job_has_its_size_and_who_joins_or_leaves() {
    let terminal = InMemoryTerm::new(20, 100);
    let mut show = Live::to_terminal(terminal.clone(), PALE);
    let mut dashboard = dashboard();
    dashboard.progress = None;
    let change = |leaving: Option<ScalingStep>| Change {
        role: "worker".to_owned(),
        pods: "2,4-5".to_owned(),
        leaving,
    };
    let mut size = Size {
        now: 4,
        target: 4,
        min: 2,
        max: Some(6),
        change: None,
        has_keys: true,
    };
    let mut line = |size: &Size| {
        dashboard.size = Some(size.clone());
        show.draw(&dashboard).unwrap();
        terminal.contents().lines().last().unwrap().to_owned()
    };
    assert_eq!(line(&size), "size 4 (2 to 6)  keys + and - change it");
    (size.target, size.change) = (1, Some(change(Some(ScalingStep::Acknowledged))));
    assert_eq!(
        line(&size),
        "size 4 → 1 (2 to 6)  worker 2,4-5 leaves: Acknowledged  keys + and - change it"
    );
    (size.target, size.max, size.has_keys) = (4, None, false);
    size.change = Some(change(None));
    assert_eq!(line(&size), "size 4 (2 or more)  worker 2,4-5 joins");
}

#[test]
fn the_run_is_drawn_only_where_nothing_else_would_write() {
    let terminal = OutputStreams {
        stdout: true,
        stderr: true,
        no_color: false,
        dumb: false,
    };
    assert!(terminal.is_live(false) && terminal.is_live(true));
    let piped = OutputStreams {
        stdout: false,
        ..terminal
    };
    assert!(!piped.is_live(false) && piped.is_live(true));
    let logged = OutputStreams {
        stderr: false,
        ..terminal
    };
    assert!(!logged.is_live(false) && !logged.is_live(true));
    let dumb = OutputStreams {
        dumb: true,
        ..terminal
    };
    assert!(!dumb.is_live(false));
    assert!(terminal.paint(true).colours && !terminal.paint(false).colours);
    let pale = OutputStreams {
        no_color: true,
        ..terminal
    };
    assert!(pale.is_live(false) && !pale.paint(true).colours);
}
