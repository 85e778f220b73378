//! `trainyard-agent stay`: the first process of a container in which others start what runs there.

use std::ffi::OsString;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use trainyard_contract::modes;

use crate::children::Children;
use crate::descendants::others;
use crate::mode::{Mode, PROGRAM, report_misuse};
use crate::signals;

pub(crate) const MODE: Mode = Mode {
    name: modes::STAY,
    summary: "Do nothing but what the first process of a container has to, until told to end",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Does nothing but what the first process of a container has to, for containers in which others start what runs there.

Usage: trainyard-agent stay

Processes that others have left are taken note of when they end. SIGTERM and SIGINT end it; if it is the first process
of its container, all others there get SIGTERM before, and what is left of them ends after 2 s.

Exit codes: 130 and 143 it was ended by SIGINT or SIGTERM, 1 it can't work.
";

const FAILED: u8 = 1;
/// From SIGTERM to the end of all processes.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return report_misuse(
            err,
            &format!("`stay` takes no words after it, and there is {word:?}"),
        );
    }
    // First of all: a signal that comes before is lost.
    let prepared = signals::catch_all().and_then(|signals| Ok((signals, Children::new()?)));
    let (mut signals, children) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: can't stay: {error}");
            return FAILED;
        }
    };
    let received = signals.forever().find(|signal| {
        if *signal == SIGCHLD {
            children.reap();
        }
        matches!(*signal, SIGTERM | SIGINT)
    });
    if Pid::this().as_raw() == 1 {
        end_others(&children);
    }
    // Not 0, because a pod that has succeeded is not replaced.
    received
        .and_then(|signal| u8::try_from(signals::SIGNAL_EXIT_BASE + signal).ok())
        .unwrap_or(FAILED)
}

/// Ends all other processes of this container gracefully. When its first process has ended, the
/// kernel kills the others at once. This process did not start them, and finds them in /proc.
fn end_others(children: &Children) {
    // There may be no other process.
    let _ = kill(Pid::from_raw(-1), Signal::SIGTERM);
    let deadline = Instant::now() + GRACE_PERIOD;
    while !others().is_empty() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
        children.reap();
    }
}
