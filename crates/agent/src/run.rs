//! `trainyard-agent run`: runs the command of a container as its first process has to.
//!
//! It behaves like a container whose first process is the command, but for what a program does
//! wrong as process 1: it ends by signals without a handler, and reaps orphans.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;
use trainyard_contract::{environment, modes};

use crate::children::{Children, Started};
use crate::mode::{Mode, PROGRAM, report_misuse};
use crate::scripts::{OF_AGENT, Scripts};
use crate::shell::server::{Config, Server};
use crate::signals;

pub(crate) const MODE: Mode = Mode {
    name: modes::RUN,
    summary: "Run the command of a container, and do what the first process of a container has to",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Runs the command of a container, and does what the first process of a container has to.

Usage: trainyard-agent run [--serve] -- command [arguments...]

The command is run in a process group of its own, with the terminal, if there is one, and with no signal blocked or
ignored. Every signal that this program gets is passed to it, except those that can't be: SIGKILL, SIGSTOP, those for
faults, and those of real time. Processes that others have left are taken note of when they end.

Options:
  --serve  Run commands for other pods of the same job meanwhile; see `trainyard-agent serve --help` for what may be in
           the environment. They are ended when the command has ended: SIGTERM, and after 2 s SIGKILL

Environment:
  TRAINYARD_SCRIPTS  If it is set, run the scripts of ScaleIns and ScaleOuts of this job beside the command, when the
                     operator says so; TRAINYARD_OBSERVER, TRAINYARD_AUTHORITY, TRAINYARD_NAMESPACE, TRAINYARD_JOB and
                     TRAINYARD_TOKEN_FILE as for `trainyard-agent wait`

Exit codes: that of the command, or 128 and the number of the signal that has ended it; 127 there is no such program,
126 it can't be run, 125 this program itself can't work, 2 a word before the command makes no sense.
";

/// The exit codes that shells and their relatives have for it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
const FAILED: u8 = 125;

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut words = args.iter();
    let mut is_beside_server = false;
    loop {
        match words.next() {
            Some(word) if word == "--" => break,
            Some(word) if word == modes::RUN_SERVE => is_beside_server = true,
            Some(word) => {
                let word = word.to_string_lossy();
                return report_misuse(
                    err,
                    &format!("`run` wants `--` before the command, and there is {word:?}"),
                );
            }
            None => return report_misuse(err, "`run` wants `--` and a command"),
        }
    }
    let Some(program) = words.next() else {
        return report_misuse(err, "`run` wants a command after `--`");
    };
    let mut command = Command::new(program);
    command.args(words).process_group(0);
    let mut fail = |code, problem: &dyn std::fmt::Display| {
        let _ = writeln!(err, "{PROGRAM}: {problem}");
        code
    };
    // First of all: a signal that comes before is lost.
    let prepared = signals::catch_all().and_then(|signals| Ok((signals, Children::new()?)));
    let (mut signals, children) = match prepared {
        Ok((signals, children)) => (signals, Arc::new(children)),
        Err(error) => return fail(FAILED, &format!("can't run {}: {error}", program.display())),
    };
    let server = if is_beside_server {
        let server = Config::read(&|name| std::env::var_os(name))
            .and_then(|config| Server::start(config, children.clone()));
        match server {
            Ok(server) => Some(server),
            Err(error) => return fail(FAILED, &error),
        }
    } else {
        None
    };
    let scripts = run_scripts(&mut command, &children, err);
    let mut fail = |code, problem: &dyn std::fmt::Display| {
        let _ = writeln!(err, "{PROGRAM}: {problem}");
        code
    };
    let started = match children.start(&mut command) {
        Ok(started) => started,
        Err(error) => {
            let is_missing = error.kind() == ErrorKind::NotFound;
            let code = if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
            return fail(code, &format!("can't run {}: {error}", program.display()));
        }
    };
    hand_over_terminal(started.pid);
    let code = forward_signals(&mut signals, &children, started);
    if let Some(scripts) = scripts {
        scripts.end();
    }
    if let Some(server) = server {
        server.end();
    }
    code
}

/// Runs scripts beside the command, if the operator has asked for it. The command does not depend
/// on them.
fn run_scripts(command: &mut Command, children: &Arc<Children>, err: &mut dyn Write) -> Option<Scripts> {
    let scripts = Scripts::start(&|name| std::env::var_os(name), children.clone());
    let scripts = scripts.unwrap_or_else(|error| {
        let _ = writeln!(err, "{PROGRAM}: no script can be run here: {error}");
        None
    });
    if std::env::var_os(environment::SCRIPTS).is_some() {
        for variable in OF_AGENT {
            command.env_remove(variable);
        }
    }
    scripts
}

/// Forwards signals until the command has ended. Returns its exit code.
fn forward_signals(signals: &mut Signals, children: &Children, mut started: Started) -> u8 {
    for signal in signals.forever() {
        if signal == SIGCHLD {
            children.reap();
            if let Some(code) = started.end.code() {
                return code;
            }
        } else if let Some(signal) = Signal::from_named_raw(signal) {
            // To the command alone, which would have got it as the first process.
            let _ = kill_process(started.pid, signal);
        }
    }
    FAILED
}

/// A process group in the background may not read from the terminal.
fn hand_over_terminal(group: Pid) {
    let input = io::stdin();
    let is_ours = input.is_terminal() && tcgetpgrp(&input).is_ok_and(|owner| owner == getpgrp());
    if is_ours && tcsetpgrp(&input, group).is_ok() {
        // It may have been stopped because it read before.
        let _ = kill_process_group(group, Signal::CONT);
    }
}
