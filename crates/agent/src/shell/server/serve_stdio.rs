//! `trainyard-agent attend`: runs one command for the client on standard input and output.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use trainyard_contract::modes;

use crate::children::Children;
use crate::mode::{Mode, USAGE_ERROR, report_misuse};
use crate::shell::link::Link;
use crate::shell::wire::Pipes;
use crate::signals;

use super::commands::Commands;
use super::{FAILED, STACK_SIZE, idle_timeout, log, session};

pub(crate) const MODE: Mode = Mode {
    name: modes::ATTEND,
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
        return report_misuse(
            err,
            &format!("`attend` takes no words after it, and there is {word:?}"),
        );
    }
    // First of all: a signal that comes before is lost.
    let prepared =
        signals::catch_all().and_then(|signals| Ok((signals, Children::new()?, Pipes::standard()?)));
    let (mut signals, children, pipes) = match prepared {
        Ok((signals, children, pipes)) => (signals, Arc::new(children), pipes),
        Err(error) => {
            log(&format!("can't attend: {error}"));
            return FAILED;
        }
    };
    let idle_timeout = match idle_timeout(&|name| std::env::var_os(name)) {
        Ok(idle_timeout) => idle_timeout,
        Err(error) => {
            log(&error.to_string());
            return USAGE_ERROR;
        }
    };
    let commands = Arc::new(Commands::new(children.clone()));
    let serving = {
        let (commands, done) = (commands.clone(), signals.handle());
        let serve = move || {
            let result = Link::new(pipes, idle_timeout)
                .map_err(session::SessionError::from)
                .and_then(|link| session::serve(link, &commands));
            done.close();
            result
        };
        thread::Builder::new().stack_size(STACK_SIZE).spawn(serve)
    };
    let serving = match serving {
        Ok(serving) => serving,
        Err(error) => {
            log(&format!("can't attend: {error}"));
            return FAILED;
        }
    };
    for signal in signals.forever() {
        match signal {
            SIGCHLD => children.reap(),
            SIGTERM | SIGINT => {
                commands.end();
                return u8::try_from(signals::SIGNAL_EXIT_BASE + signal).unwrap_or(FAILED);
            }
            _ => {}
        }
    }
    match serving.join() {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            log(&format!("ended what was asked for: {error}"));
            FAILED
        }
        Err(_) => FAILED,
    }
}
