//! `trainyard-agent attend`: runs one command for who has started this program and holds its input and output.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};

use crate::children::Children;
use crate::mode::{Mode, UNUSABLE, misused};
use crate::shell::link::Link;
use crate::shell::wire::Pipes;
use crate::signals;

use super::commands::Commands;
use super::{FAILED, STACK_SIZE, say, session, silence};

/// The line of this mode in the table of modes.
pub const MODE: Mode = Mode {
    name: "attend",
    summary: "Run one command for who speaks on the standard input and output",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Runs one command for who speaks on the standard input and output, as `rsh` does when the Kubernetes API has started this
program in another container.

Usage: trainyard-agent attend

What is said is as between `rsh` and `serve`, and so is what becomes of the command: it is run by /bin/sh, in the
environment and the working directory of this container, in a process group of its own. When the input ends, or nothing
comes for 10 s, the group gets SIGTERM, and after 2 s SIGKILL. Processes that the command leaves in the background stay.
If TRAINYARD_SHELL_SILENCE_SECONDS is more than 10, it is that.

SIGTERM and SIGINT end it: all processes below it get SIGTERM, and what is left of them after 2 s SIGKILL.

Exit codes: 0 all is said, 1 the other side went before, 2 a variable makes no sense, 130 and 143 it was ended by SIGINT
or SIGTERM.
";

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return misused(
            err,
            &format!("`attend` takes no words after it, and there is {word:?}"),
        );
    }
    // First of all: a signal that comes before is lost.
    let prepared = signals::all().and_then(|signals| Ok((signals, Children::new()?, Pipes::standard()?)));
    let (mut signals, children, pipes) = match prepared {
        Ok((signals, children, pipes)) => (signals, Arc::new(children), pipes),
        Err(error) => {
            say(&format!("can't attend: {error}"));
            return FAILED;
        }
    };
    let silence = match silence(&|name| std::env::var_os(name)) {
        Ok(silence) => silence,
        Err(error) => {
            say(&error.to_string());
            return UNUSABLE;
        }
    };
    let commands = Arc::new(Commands::new(children.clone()));
    let attending = {
        let (commands, done) = (commands.clone(), signals.handle());
        let attend = move || {
            let result = Link::new(pipes, silence)
                .map_err(session::SessionError::from)
                .and_then(|link| session::serve(link, &commands));
            done.close();
            result
        };
        thread::Builder::new().stack_size(STACK_SIZE).spawn(attend)
    };
    let attending = match attending {
        Ok(attending) => attending,
        Err(error) => {
            say(&format!("can't attend: {error}"));
            return FAILED;
        }
    };
    for signal in signals.forever() {
        match signal {
            SIGCHLD => children.reap(),
            SIGTERM | SIGINT => {
                commands.end();
                return u8::try_from(signals::ENDED_BY_SIGNAL + signal).unwrap_or(FAILED);
            }
            _ => {}
        }
    }
    match attending.join() {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            say(&format!("ended what was asked for: {error}"));
            FAILED
        }
        Err(_) => FAILED,
    }
}
