//! This program as the agent of the pods of the embedded cluster, which have no other image to take it from.

use std::ffi::OsString;
use std::process::ExitCode;

use trainyard_core::view::Agent;
use trainyard_local::yard::{Isolation, Yard};

/// The word that makes this program the agent, where it is called by its own name.
const WORD: &str = "agent";

/// Does what the agent does, if this program was called as such.
pub fn reenter(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = args.next()?;
    if trainyard_agent::is_called(&name) {
        return Some(trainyard_agent::main([name].into_iter().chain(args)));
    }
    let is_word = args.next().is_some_and(|word| word == WORD);
    is_word.then(|| trainyard_agent::main([name].into_iter().chain(args)))
}

/// The agent for pods that see the files of this machine.
pub fn of(yard: &Yard) -> Option<Agent> {
    // Plain processes have no directories of their own, where it would be put.
    let program = yard
        .program
        .as_ref()
        .filter(|_| yard.isolation != Isolation::Plain)?;
    Some(Agent {
        image: "trainyard".to_owned(),
        image_pull_policy: None,
        may_be_root: true,
        command: vec![program.to_str()?.to_owned(), WORD.to_owned()],
        // Nothing is gained by creating pods early where no image is pulled and no place is looked for.
        observer: None,
    })
}
