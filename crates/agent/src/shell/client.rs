//! `trainyard-agent rsh`, also called `kubexec.sh`: runs a command in another pod of the same job.

mod api;
mod arguments;
mod connect;
mod dial;
mod session;
pub mod ssh;
mod stdio;

use std::ffi::OsString;
use std::io::Write;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::mode::{Mode, PROGRAM};
use crate::settings::{Environment, SettingError};
use crate::signals::ExitSignals;

use super::identity::Identity;

pub use arguments::{ArgumentError, Call};
use connect::{Transport, connect};
use dial::Timeouts;

pub(crate) const MODE: Mode = Mode {
    name: "rsh",
    summary: "Run a command in another pod of the same job: the client of the remote shell",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Runs a command in another pod of the same job: the client of the remote shell. There `trainyard-agent serve` runs, or
else the Kubernetes API starts `trainyard-agent attend` there. This is called by launchers such as mpirun in place of
ssh. A program of the name kubexec.sh or ssh is this mode, too.

Usage: trainyard-agent rsh [options] host command...
       kubexec.sh [options] host command...

Options are those of ssh. All are taken, and none means anything but -n and -f, by which the command has no input.
The words of the command are joined by blanks and run there by /bin/sh, in the environment and the working directory of
that container.

Input, output and errors are passed as they are, and so is the exit code; 128 and its number if a signal has ended the
command. SIGTERM, SIGINT and SIGHUP are passed to the process group of the command. If this program ends in another
way, the command gets SIGTERM, and after 2 s SIGKILL.

A host that is not known yet, takes no connections, or is of another job or attempt, is tried again for 30 s; if the
Kubernetes API says that this pod may not run commands there, for 10 s. A host that falls silent is given up after 4 s,
or as the environment says.

Environment:
  TRAINYARD_IDENTITY    The directory with ca.crt, tls.crt and tls.key [default: /var/run/trainyard-identity]
  TRAINYARD_SHELL_PORT  The port of the server [default: 7522]
  TRAINYARD_SHELL_ATTEMPT
                        How often all pods of the job have started anew together, which must be as often for the host
                        [default: 0]
  TRAINYARD_SHELL_SILENCE_SECONDS
                        After how many seconds a host that falls silent is given up, at least 2 [default: 4]
  TRAINYARD_EXEC        The path that the Kubernetes API has for `attend` in a pod, with {} for its name, which is the
                        first part of the host's. If it is set, pods are reached like this, and TRAINYARD_IDENTITY has
                        ca.crt and token
  KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT
                        The Kubernetes API
  TRAINYARD_SSH         The SSH client of the image. If it is set, all of this is left to it, with the same options,
                        which then mean what they mean to it; see `trainyard-agent connect --help`

Exit codes: that of the command, or 255 if it could not be run or its end is not known.
";

/// The exit code for everything that is not the command's own, as `ssh` has it.
const FAILED: u8 = 255;

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    match call(args) {
        Ok(code) => code,
        Err(problem) => {
            let _ = writeln!(err, "{PROGRAM}: {problem}");
            FAILED
        }
    }
}

fn call(args: &[OsString]) -> Result<u8, String> {
    let environment = |name: &str| std::env::var_os(name);
    if let Some(client) = ssh::client(&environment) {
        return Err(ssh::become_client(&client, args));
    }
    let signals = ExitSignals::new(&[SIGTERM, SIGINT, SIGHUP]).map_err(|error| error.to_string())?;
    let call = Call::parse(args).map_err(|error| format!("{error}; see `{PROGRAM} rsh --help`"))?;
    let with_host = |error: &dyn std::fmt::Display| format!("{}: {error}", call.host);
    let transport = transport(&environment).map_err(|error| with_host(&error))?;
    let timeouts = timeouts(&environment).map_err(|error| with_host(&error))?;
    let link = connect(&call.host, &transport, &timeouts).map_err(|error| with_host(&error))?;
    session::run(link, &call, signals).map_err(|error| with_host(&error))
}

/// The timeouts, with that of the environment.
fn timeouts(environment: Environment<'_>) -> Result<Timeouts, SettingError> {
    let default = Timeouts::default();
    Ok(Timeouts {
        idle: super::idle_timeout(environment)?.unwrap_or(default.idle),
        ..default
    })
}

/// How other pods are reached: as the operator has set it.
fn transport(environment: Environment<'_>) -> Result<Transport, String> {
    let directory = super::identity_directory(environment);
    if let Some(api) = api::Api::read(environment, &directory).map_err(|error| error.to_string())? {
        return Ok(Transport::Exec(api));
    }
    Ok(Transport::Agent {
        port: super::port(environment).map_err(|error| error.to_string())?,
        tls: Identity::read(
            &directory,
            super::attempt(environment).map_err(|error| error.to_string())?,
        )
        .and_then(Identity::client)
        .map_err(|error| error.to_string())?,
    })
}
