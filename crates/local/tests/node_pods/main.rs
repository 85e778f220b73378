//! Pods through the API: scheduled, run by the kubelet, and reported as a real one reports them.
//!
//! Each test starts this program again, which enters a yard and has an API server and a node in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is a test, which Clippy can not see without the usual harness"
)]

mod asked;
mod cluster;
mod kept_out;
mod pods;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    if let Some(code) = trainyard_local::reenter(std::env::args_os()) {
        return code;
    }
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "run") {
        return cluster::main(&arguments[2]);
    }
    let trials = pods::ALL
        .iter()
        .map(|(name, _)| Trial::test(*name, move || start(name)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn start(name: &str) -> Result<(), Failed> {
    let home = tempfile::tempdir()?;
    let directory = if name == pods::IN_ROOT_DIRECTORY {
        Path::new("/")
    } else {
        home.path()
    };
    let output = Command::new(std::env::current_exe()?)
        .args(["run", name])
        .current_dir(directory)
        .env(cluster::STATE, home.path())
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}
