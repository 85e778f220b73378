//! `trainyard operator`: the operator.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// Run the operator.
#[derive(clap::Args)]
pub struct Args {}

/// Runs until it is told to stop.
pub fn run(_: Args) -> Result<ExitCode> {
    bail!("the operator is not part of this build")
}
