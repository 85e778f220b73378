//! What Trainyard does inside of pods: a small static program that the operator adds to them.
//!
//! It may know its environment, a few files, what the operator's observer tells it over TLS, and
//! other pods of the same job. It knows no Kubernetes client and no asynchronous runtime, so that
//! it stays small: it runs in every pod that waits. It takes no decision about a job; the operator
//! says what may happen, and this program carries it out where the operator has no hands.
//!
//! Start with [`main`], which is the program, and `modes`, the table of all modes. [`wait`] waits
//! for other roles, [`observer`] asks the operator, `install` puts this program where other
//! containers find it, `hosts` keeps lists of hosts current, [`progress`] reports how far a
//! training is, [`shell`] is the remote shell, both sides, `pdsh` the same on many hosts at once,
//! and `run` runs the command of a container. `children` has the duties of the first process of
//! a container, and `idle_init` is a mode that does nothing else.

mod alias;
mod annotations;
mod backoff;
mod children;
mod descendants;
mod drain;
mod hosts;
mod idle_init;
mod install;
mod mode;
mod modes;
pub mod observer;
mod pdsh;
pub mod progress;
mod run;
mod scripts;
mod settings;
pub mod shell;
mod signals;
mod text;
pub mod wait;

use std::ffi::{OsStr, OsString};
use std::io::{stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

/// The program: does what its name and the words after it say, until it is done. It is meant to be
/// the only thing that the process does: SIGTERM and SIGINT end the process, and threads may be
/// left when it returns.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    modes::call(&name, &args, &mut stdout(), &mut stderr()).into()
}

/// Whether this is a name by which pods call the agent, so that another program can be the agent
/// for those who do.
pub fn is_called(name: &OsStr) -> bool {
    alias::Alias::of(name).is_some()
        || Path::new(name)
            .file_name()
            .is_some_and(|name| name == mode::PROGRAM)
}
