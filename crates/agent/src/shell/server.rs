//! `trainyard-agent serve`: runs commands for other pods of the same job.
//!
//! One thread for each connection, which waits for everything that concerns it at once. Who is not
//! yet known costs little: there are only so many at a time, and each has only so long.

mod caller;
mod commands;
mod leave;
mod listen;
mod running;
pub mod serve_stdio;
mod session;
mod words;

use std::ffi::OsString;
use std::io::{self, Write, stderr};
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use trainyard_contract::{environment, modes};

use crate::children::Children;
use crate::mode::{Mode, PROGRAM, USAGE_ERROR, report_misuse};
use crate::settings::{self, Environment, SettingError};
use crate::signals;

use super::identity::{Identity, IdentityError};
use commands::Commands;
use leave::{IDLE_TIMEOUT, Leave, end_when_left};

pub(crate) const MODE: Mode = Mode {
    name: modes::SERVE,
    summary: "Run commands for other pods of the same job: the server of the remote shell",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Runs commands for other pods of the same job: the server of the remote shell, of which `rsh` is the client.

Usage: trainyard-agent serve

It takes only clients with a certificate that the authority of this job has signed, and none that is of another attempt
of the job: of the time before all its pods have started anew together, or after it. A command is run by /bin/sh, or
directly where there is none, in the environment and the working directory of this program, in a process group of its
own. When its client goes away, or is silent for 10 s, the group gets SIGTERM, and after 2 s SIGKILL. A command that
leaves processes in the background has ended when it has itself; they stay.

It is made to be the first process of a container: it takes note of the end of processes that others have left.
SIGTERM and SIGINT end it: all processes below it get SIGTERM, and what is left of them after 2 s SIGKILL. If its pod is
told to leave the job, it ends by itself when no command has run for 5 s, as by SIGTERM.

Environment:
  TRAINYARD_DRAIN          The directory with the files by which the pod is told to leave
  TRAINYARD_DRAIN_SILENTLY If set, only the programs that are started here say that they know
  TRAINYARD_IDENTITY       The directory with ca.crt, tls.crt and tls.key [default: /var/run/trainyard-identity]
  TRAINYARD_SHELL_PORT     The port to listen on; 0 is any that is free [default: 7522]
  TRAINYARD_SHELL_ATTEMPT  How often all pods of the job have started anew together [default: 0]
  TRAINYARD_SHELL_ADDRESS  The address to listen on [default: all]
  TRAINYARD_SHELL_SILENCE_SECONDS
                           For how many seconds a client may be silent, if they are more than 10

Exit codes: 130 and 143 it was ended by SIGINT or SIGTERM, 1 it can't listen, 2 a variable or a file makes no sense.
";

const FAILED: u8 = 1;
/// More than any thread of the server needs.
const STACK_SIZE: usize = 512 * 1024;
/// How long a client may send nothing, unless the environment says that it may for longer.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const ADDRESS_VARIABLE: &str = "TRAINYARD_SHELL_ADDRESS";

/// All that the server has to know.
#[derive(Debug)]
pub struct Config {
    identity: Identity,
    port: u16,
    address: Option<IpAddr>,
    idle_timeout: Duration,
    /// How the pod is told to leave, if it may be.
    leave: Option<Leave>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was not told what it needs.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// It has no identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody could reach it.
    #[error("can't listen on the port {port}: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// There is no thread to wait until the pod is told to leave.
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
}

impl ServeError {
    /// With which code a program ends for it.
    pub fn code(&self) -> u8 {
        match self {
            Self::Setting(_) | Self::Identity(_) => USAGE_ERROR,
            Self::Listen { .. } | Self::Thread(_) => FAILED,
        }
    }
}

impl Config {
    /// As the operator has set it.
    pub fn read(environment: Environment<'_>) -> Result<Self, ServeError> {
        Ok(Self {
            port: super::port(environment)?,
            address: settings::optional(environment, ADDRESS_VARIABLE, "an IP address")?,
            idle_timeout: idle_timeout(environment)?,
            leave: environment(environment::DRAIN).map(|directory| Leave {
                directory: directory.into(),
                is_silent: environment(environment::DRAIN_SILENTLY).is_some(),
            }),
            identity: Identity::read(
                &super::identity_directory(environment),
                super::attempt(environment)?,
            )?,
        })
    }
}

/// How long a client may send nothing. The environment can only raise it: with less, a slow client
/// would lose its command.
fn idle_timeout(environment: Environment<'_>) -> Result<Duration, SettingError> {
    let asked = super::idle_timeout(environment)?;
    Ok(asked.map_or(MIN_IDLE_TIMEOUT, |asked| asked.max(MIN_IDLE_TIMEOUT)))
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    commands: Arc<Commands>,
}

impl Server {
    /// Listens, in threads of its own. Whoever owns the children must reap them.
    pub fn start(config: Config, children: Arc<Children>) -> Result<Self, ServeError> {
        let tls = config.identity.server()?;
        children.raise_file_limit();
        let commands = Arc::new(Commands::new(children));
        let place = (config.address, config.port);
        listen::listen(place, &tls, config.idle_timeout, &commands).map_err(|source| ServeError::Listen {
            port: config.port,
            source,
        })?;
        if let Some(leave) = config.leave {
            let commands = commands.clone();
            let end = || {
                // As if the kubelet had asked for it, so that there is one way to end.
                let _ = kill_process(getpid(), Signal::TERM);
            };
            let wait = move || end_when_left(&leave, IDLE_TIMEOUT, &commands, end);
            let started = thread::Builder::new().stack_size(STACK_SIZE).spawn(wait);
            started.map_err(ServeError::Thread)?;
        }
        Ok(Self { commands })
    }

    /// Ends all commands. None is started any more.
    pub fn end(&self) {
        self.commands.end();
    }
}

/// Writes a line to the log of the pod. A failure to write is ignored.
fn log(sentence: &str) {
    let _ = writeln!(stderr(), "{PROGRAM}: {sentence}");
}

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    if let Some(word) = args.first() {
        let word = word.to_string_lossy();
        return report_misuse(
            err,
            &format!("`serve` takes no words after it, and there is {word:?}"),
        );
    }
    // First of all: a signal that comes before is lost.
    let prepared = signals::catch_all().and_then(|signals| Ok((signals, Children::new()?)));
    let (mut signals, children) = match prepared {
        Ok((signals, children)) => (signals, Arc::new(children)),
        Err(error) => {
            log(&format!("can't serve: {error}"));
            return FAILED;
        }
    };
    let server = Config::read(&|name| std::env::var_os(name))
        .and_then(|config| Server::start(config, children.clone()));
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            log(&error.to_string());
            return error.code();
        }
    };
    let received = signals.forever().find(|signal| {
        if *signal == SIGCHLD {
            children.reap();
        }
        matches!(*signal, SIGTERM | SIGINT)
    });
    server.end();
    // Not 0, because a pod that has succeeded is not replaced.
    received
        .and_then(|signal| u8::try_from(signals::SIGNAL_EXIT_BASE + signal).ok())
        .unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", 10)]
    #[case("2", 10)]
    #[case("11", 11)]
    fn a_client_may_be_silent_for_as_long_as_usual_at_least(#[case] value: &str, #[case] seconds: u64) {
        let found = idle_timeout(&|_| Some(value.into())).unwrap();
        assert_eq!(found, Duration::from_secs(seconds));
    }
}
