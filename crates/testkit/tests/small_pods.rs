//! The same small pods, run by a real kubelet and by the embedded node: how they end and what they
//! were on the way must be the same, but for the known differences.
//!
//! All pods are recorded at once, by the first test that asks. The record is kept with the cluster
//! for the tests after it, each of which compares one pod. The embedded side runs in a process of
//! its own, since from within a yard no real cluster can be reached.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is a test, which Clippy can not see without the usual harness"
)]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::{Deserialize, Serialize};
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::differential::history::{History, record};
use trainyard_testkit::differential::{known, pods};
use trainyard_testkit::lab::{Lab, backend};

/// Tells a process that it is the embedded side, and where its record goes.
const RECORD: &str = "TRAINYARD_RECORD";

type Histories = BTreeMap<String, History>;

/// What both sides have shown.
#[derive(Serialize, Deserialize)]
struct Recorded {
    real: Histories,
    embedded: Histories,
}

fn main() -> ExitCode {
    if let Some(path) = std::env::var_os(RECORD) {
        return backend::within(|| {
            let place = tempfile::tempdir().unwrap();
            let histories = record(&Lab::with_profile("small", "privileged"), place.path());
            fs::write(&path, serde_json::to_vec(&histories).unwrap()).unwrap();
        });
    }
    if let Some(code) = trainyard_local::reenter(std::env::args_os()) {
        return code;
    }
    let trials = pods::small_pods()
        .into_iter()
        .map(|pod| Trial::test(pod.name, move || compare(&pod)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn compare(pod: &pods::SmallPod) -> Result<(), Failed> {
    let mut recorded = recorded()?;
    let (real, embedded) = (&mut recorded.real, &mut recorded.embedded);
    let real = real.get_mut(pod.name).ok_or("the real node did not run it")?;
    let embedded = embedded
        .get_mut(pod.name)
        .ok_or("the embedded node did not run it")?;
    known::remove_known_from_history(pod, real, embedded);
    if real == embedded {
        return Ok(());
    }
    Err(real.difference(embedded).into())
}

/// What both sides have shown, or why they have not: that is kept, too, since to try again would
/// take as long again.
fn recorded() -> Result<Recorded, Failed> {
    let cluster = Cluster::from_env().ok_or("this suite needs a test cluster: use `make test-cluster`")?;
    let file = cluster.dir().join("small-pods.json");
    cluster
        .once("small-pods", || {
            let recorded = record_both().map_err(|error| format!("{error:#}"));
            Ok(fs::write(&file, serde_json::to_vec(&recorded)?)?)
        })
        .map_err(|error| format!("{error:#}"))?;
    let recorded: Result<Recorded, String> = serde_json::from_slice(&fs::read(&file)?)?;
    Ok(recorded?)
}

fn record_both() -> Result<Recorded> {
    let place = tempfile::tempdir()?;
    let embedded = record_embedded(&place.path().join("embedded.json"))?;
    let volume = place.path().join("volume");
    fs::create_dir(&volume)?;
    let real = catch_unwind(AssertUnwindSafe(|| {
        record(&Lab::with_profile("small", "privileged"), &volume)
    }));
    let real = real.map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        anyhow::anyhow!("the real side: {}", words.unwrap_or_default())
    })?;
    Ok(Recorded { real, embedded })
}

fn record_embedded(file: &Path) -> Result<Histories> {
    let status = Command::new(std::env::current_exe()?)
        .env(RECORD, file)
        .env("TRAINYARD_LAB", "embedded")
        .status()?;
    ensure!(status.success(), "the embedded side: {status}");
    serde_json::from_slice(&fs::read(file)?).context("the record of the embedded side")
}
