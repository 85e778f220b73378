//! `trainyard run` trains on this machine and says how far it is.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::local::ran;
use super::{list, repository, text};

/// The quickstart, in a directory of its own.
fn quickstart() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in ["job.yaml", "train.py"] {
        fs::copy(
            repository().join("examples/quickstart").join(file),
            directory.path().join(file),
        )
        .unwrap();
    }
    directory
}

fn summary(arguments: &[&str]) -> (Option<i32>, Value, String) {
    let (code, out, words) = ran(&[&["--output", "json"], arguments].concat());
    let summary = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{words}"));
    (code, summary, words)
}

#[test]
fn four_workers_train_the_quickstart() {
    let directory = quickstart();
    let (code, summary, words) = summary(&["-C", directory.path().to_str().unwrap(), "job.yaml"]);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(list(&summary, "/pods").len(), 4, "{summary}");
    assert_eq!(
        summary["progress"]["step"], 600,
        "the last report is told: {summary}"
    );
    assert_eq!(summary["progress"]["total"], 600);
    let loss = summary["progress"]["metrics"]["loss"].as_f64().unwrap();
    assert!(loss < 0.1, "{loss}");
    assert!(directory.path().join("model.json").exists());
}

#[test]
fn a_worker_that_fails_is_replaced_and_the_training_goes_on_from_its_checkpoint() {
    let directory = quickstart();
    let (code, summary, words) = summary(&[
        "-C",
        directory.path().to_str().unwrap(),
        "--env",
        "CRASH_AT_STEP=150",
        "job.yaml",
    ]);
    assert_eq!(code, Some(0), "{words}");
    assert!(summary["restarts"].as_i64().unwrap() >= 1, "{summary}");
    assert_eq!(summary["progress"]["step"], 600);
}

#[test]
fn progress_is_what_the_first_pod_last_said() {
    let script = "echo \"step=$((RANK + 1)) total=9 loss=0.5\" >> $TRAINYARD_PROGRESS; \
                  echo '{\"loss\": 0.25, \"name\": \"x\"}' >> $TRAINYARD_PROGRESS";
    let (code, summary, words) = summary(&["-n", "2", "--", "sh", "-c", script]);
    assert_eq!(code, Some(0), "{words}");
    let expected = serde_json::json!({"step": 1, "total": 9, "metrics": {"loss": 0.25}});
    assert_eq!(summary["progress"], expected, "{words}");
}

#[test]
fn a_container_that_names_its_own_progress_file_keeps_it() {
    let (code, out, words) = ran(&[
        "--env",
        "TRAINYARD_PROGRESS=/elsewhere",
        "--",
        "sh",
        "-c",
        "echo $TRAINYARD_PROGRESS",
    ]);
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "worker-0 | /elsewhere\n"),
        "{words}"
    );
}

#[test]
fn logs_are_kept_where_they_are_asked_for() {
    let (_, summary, words) = summary(&["--keep", "-n", "2", "--", "sh", "-c", "echo rank $RANK"]);
    let kept = Path::new(text(&summary, "/kept"));
    assert!(words.contains(text(&summary, "/kept")), "{words}");
    let log = |pod: &str| fs::read_to_string(kept.join(pod).join("logs/main-0.log")).unwrap();
    assert!(log("sh-worker-0").contains("rank 0"));
    assert!(log("sh-worker-1").contains("rank 1"));
    fs::remove_dir_all(kept).unwrap();
}
