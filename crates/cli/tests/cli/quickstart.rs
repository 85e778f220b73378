//! The quickstart trains. Its workers are started by hand here, with the environment that the
//! operator would give them. These tests need python3, and fail without it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::{list, repository};

const WORKERS: u16 = 4;

/// Starts all workers in a directory, with variables besides those of the operator.
fn start(directory: &Path, variables: &[(&str, &str)]) -> Vec<Child> {
    // Free a moment ago, on an address of this machine that nobody else uses.
    let port = TcpListener::bind("127.29.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let program = repository().join("examples/quickstart/train.py");
    let worker = |rank: u16| {
        Command::new("python3")
            .arg(fs::canonicalize(&program).unwrap())
            .current_dir(directory)
            .env("MASTER_ADDR", "127.29.0.1")
            .env("MASTER_PORT", port.to_string())
            .env("WORLD_SIZE", WORKERS.to_string())
            .env("RANK", rank.to_string())
            .env("TRAINYARD_PROGRESS", directory.join(format!("progress-{rank}")))
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("this test needs python3: {error}"))
    };
    // Rank 0 last: the others must wait for it.
    (0..WORKERS).rev().map(worker).collect()
}

/// Waits for all; what they did, by rank.
fn finish(workers: Vec<Child>) -> Vec<Output> {
    let outputs = workers
        .into_iter()
        .map(|worker| worker.wait_with_output().unwrap());
    let mut outputs: Vec<Output> = outputs.collect();
    outputs.reverse();
    outputs
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What rank 0 reported of itself.
fn reports(directory: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("progress-0")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_loss_falls_and_the_model_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = finish(start(directory.path(), &[]));
    for output in &outputs {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(out(output).contains("of 4: 120 points, starting afresh"));
    }
    let reports = reports(directory.path());
    let losses: Vec<f64> = reports
        .iter()
        .map(|report| report["loss"].as_f64().unwrap())
        .collect();
    assert!(losses[0] > 0.3 && losses[losses.len() - 1] < 0.1, "{losses:?}");
    assert_eq!(reports[reports.len() - 1]["step"], reports[0]["total"]);
    assert!(
        !directory.path().join("progress-1").exists(),
        "rank 0 speaks for all"
    );
    let model: Value =
        serde_json::from_slice(&fs::read(directory.path().join("model.json")).unwrap()).unwrap();
    assert_eq!(list(&model, "/weights").len(), 49);
    assert!(!directory.path().join("checkpoint.json").exists());
}

#[test]
fn a_training_that_lost_a_worker_goes_on_from_its_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let variables = [("STEPS", "300"), ("CRASH_AT_STEP", "150")];
    let failed = finish(start(directory.path(), &variables));
    let codes: Vec<_> = failed.iter().map(|output| output.status.code()).collect();
    assert_eq!(codes, [Some(1); 4], "one takes all with it");
    let saved: Value =
        serde_json::from_slice(&fs::read(directory.path().join("checkpoint.json")).unwrap()).unwrap();
    assert_eq!(saved["step"], 149);

    let resumed = finish(start(directory.path(), &variables));
    for output in &resumed {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(out(output).contains("going on from step 149"), "{}", out(output));
    }
    // What comes out is what an undisturbed training of the same length finds.
    let whole = tempfile::tempdir().unwrap();
    finish(start(whole.path(), &[("STEPS", "300")]));
    let model = |directory: &Path| fs::read_to_string(directory.join("model.json")).unwrap();
    assert_eq!(model(directory.path()), model(whole.path()));
}

#[test]
fn a_training_that_is_told_to_stop_leaves_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let workers = start(directory.path(), &[("STEPS", "1000000")]);
    let progress = directory.path().join("progress-0");
    while fs::metadata(&progress).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    for worker in &workers {
        // A signal can't be sent without a crate or a program, and the program is everywhere.
        let sent = Command::new("kill")
            .arg(worker.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
    }
    let codes: Vec<_> = finish(workers)
        .iter()
        .map(|output| output.status.code())
        .collect();
    assert_eq!(codes[3], Some(143), "it was told first");
    // The others may notice that it is gone before they are told themselves.
    assert!(
        codes.iter().all(|code| matches!(code, Some(143 | 1))),
        "{codes:?}"
    );
    let saved: Value =
        serde_json::from_slice(&fs::read(directory.path().join("checkpoint.json")).unwrap()).unwrap();
    assert!(saved["step"].as_u64().unwrap() >= 1);
    let files = fs::read_dir(directory.path()).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert!(
        names.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")),
        "{names:?}"
    );
}
