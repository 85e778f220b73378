//! The same small pods, run by a real kubelet and by the embedded node: how they end and what they were on the way must
//! be the same, but for the known differences.
//!
//! The embedded side runs in a process of its own, since from within a yard no real cluster can be reached.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is a test, which Clippy can not see without the usual harness"
)]

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};
use trainyard_testkit::differential::history::{History, record};
use trainyard_testkit::differential::{known, pods};
use trainyard_testkit::lab::{Lab, backend};

/// Tells a process that it is the embedded side, and where its record goes.
const RECORD: &str = "TRAINYARD_RECORD";

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(RECORD) {
        return backend::within(|| {
            let place = tempfile::tempdir().unwrap();
            let histories = record(&Lab::with_profile("small", "privileged"), place.path());
            std::fs::write(&path, serde_json::to_vec(&histories).unwrap()).unwrap();
        });
    }
    if let Some(code) = trainyard_local::reenter(std::env::args_os()) {
        return code;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("embedded.json");
    let status = Command::new(std::env::current_exe().unwrap())
        .env(RECORD, &file)
        .env("TRAINYARD_LAB", "embedded")
        .status()
        .unwrap();
    assert!(status.success(), "the embedded side: {status}");
    let embedded: BTreeMap<String, History> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let volume = place.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let real = record(&Lab::with_profile("small", "privileged"), &volume);
    let trials = pods::small_pods().into_iter().map(|pod| {
        let (mut real, mut embedded) = (real[pod.name].clone(), embedded[pod.name].clone());
        Trial::test(pod.name, move || {
            known::forgive_history(&pod, &mut real, &mut embedded);
            if real == embedded {
                return Ok(());
            }
            Err(real.difference(&embedded).into())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
