//! This program as the agent of the pods of the embedded cluster, which have no other image to take
//! it from.

use std::ffi::OsString;
use std::process::ExitCode;

use trainyard_core::view::Agent;
use trainyard_local::yard::{Isolation, Yard};

/// Runs this program as the agent: `trainyard agent ...`.
const SUBCOMMAND: &str = "agent";

/// Runs the agent if this program was called as such.
pub fn reenter(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = args.next()?;
    if trainyard_agent::is_called(&name) {
        return Some(trainyard_agent::main([name].into_iter().chain(args)));
    }
    let is_subcommand = args.next().is_some_and(|arg| arg == SUBCOMMAND);
    is_subcommand.then(|| trainyard_agent::main([name].into_iter().chain(args)))
}

/// The agent for pods that see the files of this machine.
pub fn for_yard(yard: &Yard) -> Option<Agent> {
    // Plain processes have no directory of their own to put the agent into.
    let program = yard
        .program
        .as_ref()
        .filter(|_| yard.isolation != Isolation::Plain)?;
    Some(Agent {
        image: "trainyard".to_owned(),
        image_pull_policy: None,
        may_be_root: true,
        command: vec![program.to_str()?.to_owned(), SUBCOMMAND.to_owned()],
        // It is known when the cluster has started; see `has_observer`.
        observer: None,
    })
}

/// Whether containers of the agent find its files at their places: the mount points have to be
/// made, and the files of this machine stay as they are.
pub fn has_observer(yard: &Yard) -> bool {
    yard.isolation != Isolation::Plain && yard.report.overlay.reason().is_none()
}
