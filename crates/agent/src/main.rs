//! `trainyard-agent`: what Trainyard does inside of pods.

use std::process::ExitCode;

fn main() -> ExitCode {
    trainyard_agent::main(std::env::args_os())
}
