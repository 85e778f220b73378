//! `trainyard-agent stay`: the first process of a container in which others start what runs there.

use std::ffi::OsString;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

use crate::children::Children;
use crate::descendants::others;
use crate::mode::{Mode, PROGRAM, misused};
use crate::signals;

/// The line of this mode in the table of modes.
pub const MODE: Mode = Mode {
    name: "stay",
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
/// What others that were told to end may still do.
const GRACE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return misused(
            err,
            &format!("`stay` takes no words after it, and there is {word:?}"),
        );
    }
    // First of all: a signal that comes before is lost.
    let prepared = signals::all().and_then(|signals| Ok((signals, Children::new()?)));
    let (mut signals, children) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let _ = writeln!(err, "{PROGRAM}: can't stay: {error}");
            return FAILED;
        }
    };
    let told = signals.forever().find(|signal| {
        if *signal == SIGCHLD {
            children.reap();
        }
        matches!(*signal, SIGTERM | SIGINT)
    });
    if Pid::this().as_raw() == 1 {
        end_others(&children);
    }
    // Whoever is taken away is not done: to a pod that ends well nobody would give a successor.
    told.and_then(|signal| u8::try_from(signals::ENDED_BY_SIGNAL + signal).ok())
        .unwrap_or(FAILED)
}

/// Lets everybody else in this container end as well as they can: when its first process has ended, the kernel kills all
/// others at once. They were not started by this one, so that it knows them only by their being here.
fn end_others(children: &Children) {
    // There may be nobody else.
    let _ = kill(Pid::from_raw(-1), Signal::SIGTERM);
    let deadline = Instant::now() + GRACE;
    while !others().is_empty() && Instant::now() < deadline {
        thread::sleep(LOOK_EVERY);
        children.reap();
    }
}
