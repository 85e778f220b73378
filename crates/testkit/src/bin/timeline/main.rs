//! `timeline`: has a job shrink on the embedded cluster and draws what watches told of it, as SVG.
//!
//! `make timeline` draws the picture of docs/elasticity.md with it. The program that leaves is the
//! example of that page.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "it uses the vocabulary of tests, which fail by panicking"
)]

mod recording;
mod svg;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::backend::within;
use trainyard_testkit::lab::{self, Change, Follower, Image, Lab};

use recording::Recording;

const JOB: &str = "search";
/// The job of the page has so many pods, of which one leaves.
const PODS: i32 = 4;
const LEAVES: &str = "search-worker-2";

/// What the example leaves out: a step of training, a checkpoint and an end take a while.
const PRELUDE: &str = "\
import atexit, time
atexit.register(time.sleep, 0.6)
STEPS = 100_000
def restore(): return 0
def train(step): time.sleep(0.4)
def save(step): time.sleep(1.5)
";

fn main() -> ExitCode {
    lab::backend::require_images(&[Image::AGENT, Image::PYTHON]);
    within(|| match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn run() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let usage = "use: timeline PAGE.md PICTURE.svg";
    let (page, picture) = (arguments.next().context(usage)?, arguments.next().context(usage)?);
    let recording = record(&example(&page)?);
    for (step, at) in recording.steps() {
        println!("{at:6.2} s  {step}");
    }
    std::fs::write(&picture, svg::draw(&recording))
        .with_context(|| format!("cannot write {}", picture.display()))
}

/// The Python example of a page.
fn example(page: &Path) -> Result<String> {
    let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let (_, rest) = text
        .split_once("```python\n")
        .context("the page has no example")?;
    let (example, _) = rest.split_once("```").context("the example has no end")?;
    Ok(format!("{PRELUDE}{example}"))
}

fn manifest(program: &str, aliases: &Value) -> Value {
    let container = json!({"command": ["python3", "-c", program]});
    let mut template = lab::template(images::PYTHON, &container);
    template["spec"]["hostAliases"] = aliases.clone();
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": JOB},
        "spec": {
            "framework": {"name": "custom"},
            "elastic": {"replicas": PODS, "minReplicas": 2, "maxReplicas": 8},
            "roles": [{"name": "worker", "restartPolicy": "OnFailure", "template": template}],
        },
    })
}

/// A change, and which kind of object it is of.
type SeenChange = (usize, Instant, Change);

const KINDS: [&str; 3] = ["tj", "scalein", "pods"];

/// Passes on the changes of a kind until nobody listens any more.
fn pass_on(kind: usize, mut follower: Follower<'_>, listener: &Sender<SeenChange>) {
    loop {
        let change = follower.next("a change of the job that shrinks");
        if listener.send((kind, Instant::now(), change)).is_err() {
            return;
        }
    }
}

fn record(program: &str) -> Recording {
    let (lab, _operator, aliases) = Lab::with_observer("timeline");
    lab.apply(&manifest(program, &aliases).to_string()).unwrap();
    lab.until("all pods run", || {
        let status = lab.get(&format!("tj {JOB}"))["status"].clone();
        let is_up = status["phase"] == "Running" && status["ready"] == format!("{PODS}/{PODS}");
        is_up.then_some(()).ok_or_else(|| status.to_string())
    });
    let mut recording = Recording::default();
    let begun = Instant::now();
    recording.job(0.0, &Change::Applied(lab.get(&format!("tj {JOB}"))));
    for name in lab.pods(JOB) {
        recording.pod(0.0, &Change::Applied(lab.get(&format!("pod {name}"))));
    }
    let (listener, told) = channel();
    thread::scope(|scope| {
        for (kind, name) in KINDS.iter().enumerate() {
            let (follower, listener) = (lab.follow(name), listener.clone());
            scope.spawn(move || pass_on(kind, follower, &listener));
        }
        drop(listener);
        let request = json!({
            "apiVersion": "trainyard.dev/v1alpha1",
            "kind": "ScaleIn",
            "metadata": {"name": "one-leaves"},
            "spec": {"jobRef": {"name": JOB}, "toDelete": {"podNames": [LEAVES]}},
        });
        lab.apply(&request.to_string()).unwrap();
        let mut is_deleted = false;
        let mut has_succeeded = false;
        for (kind, at, change) in told {
            let at = at.duration_since(begun).as_secs_f64();
            recording.end = at;
            let (Change::Applied(object) | Change::Deleted(object)) = &change;
            match kind {
                0 => recording.job(at, &change),
                1 => recording.request(at, &change),
                _ => recording.pod(at, &change),
            }
            is_deleted |= matches!(change, Change::Deleted(_)) && object["metadata"]["name"] == LEAVES;
            has_succeeded |= kind == 1 && object["status"]["phase"] == "ScaleSucceeded";
            if is_deleted && has_succeeded {
                break;
            }
        }
        // It ends the followers, which wait for another change each.
        lab.delete(&format!("tj {JOB}"));
    });
    recording
}
