//! A run, told event by event.

use serde_json::{Value, json};
use trainyard_api::names;
use trainyard_core::build::MAIN_CONTAINER;

use super::*;
use crate::run::keys::SizeKey;
use crate::run::outcome::Outcome;

/// A run of a job `mnist` with two workers, and the time since its start.
struct Run {
    view: View,
    now: Duration,
}

fn job(status: &Value) -> TrainingJob {
    serde_json::from_value(json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "mnist", "namespace": "default"},
        "spec": {
            "framework": {"name": "pytorch"},
            "roles": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": []}}}],
        },
        "status": status,
    }))
    .unwrap()
}

fn pod(index: i32, uid: &str, phase: &str, state: &Value) -> ObservedPod {
    let pod = json!({
        "metadata": {
            "name": format!("mnist-worker-{index}"),
            "uid": uid,
            "labels": {names::LABEL_ROLE: "worker", names::LABEL_INDEX: index.to_string()},
            "annotations": {MAIN_CONTAINER: "train"},
        },
        "status": {"phase": phase, "containerStatuses": [
            {"name": "train", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state},
        ]},
    });
    ObservedPod::of(&serde_json::from_value(pod).unwrap())
}

impl Run {
    fn new() -> Self {
        Self {
            view: View::new(&job(&Value::Null)),
            now: Duration::ZERO,
        }
    }

    /// Something happens a second later.
    fn then(&mut self, event: Event) -> Vec<Item> {
        self.now += Duration::from_secs(1);
        self.view.apply(self.now, event)
    }

    fn phase(&mut self, phase: &str) -> Vec<Item> {
        self.then(Event::Job(Box::new(job(&json!({"phase": phase})))))
    }

    fn running(&mut self, index: i32, uid: &str) -> Vec<Item> {
        self.then(Event::Pod(pod(index, uid, "Running", &json!({"running": {}}))))
    }

    fn ended(&mut self, index: i32, uid: &str, code: i32) -> Vec<Item> {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let state = json!({"terminated": {"exitCode": code, "reason": "Error"}});
        self.then(Event::Pod(pod(index, uid, phase, &state)))
    }

    fn says(&mut self, uid: &str, container: &str, line: &str) -> Vec<Item> {
        self.then(Event::Log {
            uid: uid.to_owned(),
            container: container.to_owned(),
            line: line.to_owned(),
        })
    }

    fn reports(&mut self, index: i32, line: &str) -> Vec<Item> {
        self.then(Event::Progress {
            pod: format!("mnist-worker-{index}"),
            line: line.to_owned(),
        })
    }

    fn dashboard(&self) -> Dashboard {
        self.view.dashboard(self.now)
    }
}

fn source(label: &str, number: usize) -> Source {
    Source {
        label: label.to_owned(),
        number,
    }
}

#[test]
fn who_speaks_before_the_training_is_named_and_is_not_its_end() {
    let mut run = Run::new();
    // Only its init container has been started.
    run.then(Event::Pod(pod(0, "a", "Pending", &json!({"waiting": {}}))));
    let said = run.says("a", "prep", "loading");
    let expected = Item::Log {
        source: source("worker-0/prep", 0),
        line: "loading".to_owned(),
    };
    assert_eq!(said, [expected]);
    run.ended(0, "a", 3);
    run.says("a", "train", "fire");
    let cause = json!({"role": "worker", "pod": "mnist-worker-0", "container": "train", "exitCode": 3});
    run.then(Event::Job(Box::new(job(
        &json!({"phase": "Failed", "rootCause": cause}),
    ))));
    let summary = run.view.summary(run.now, Outcome::Failed, None);
    assert_eq!(summary.root_cause.unwrap().last_lines, ["fire"]);
}

#[test]
fn phases_are_told_once_and_timed() {
    let mut run = Run::new();
    let starting = run.phase("Starting");
    assert_eq!(
        starting,
        [Item::Phase {
            phase: JobPhase::Starting,
            at: Duration::from_secs(1)
        }]
    );
    assert_eq!(run.phase("Starting"), []);
    assert_eq!(run.phase("Running").len(), 1);
    run.phase("Succeeded");
    let summary = run.view.summary(run.now, Outcome::Succeeded, None);
    let phases: Vec<_> = summary
        .phases
        .iter()
        .map(|span| {
            (
                span.phase,
                span.after_seconds.to_string(),
                span.seconds.to_string(),
            )
        })
        .collect();
    let span = |phase, after: &str, seconds: &str| (phase, after.to_owned(), seconds.to_owned());
    assert_eq!(
        phases,
        [
            span(JobPhase::Pending, "0", "1"),
            span(JobPhase::Starting, "1", "2"),
            span(JobPhase::Running, "3", "1"),
        ]
    );
    assert_eq!(summary.headline(), "mnist succeeded in 4.0 s (0 pods)");
}

#[test]
fn the_picture_counts_pods_by_role() {
    let mut run = Run::new();
    run.phase("Running");
    run.running(0, "a");
    assert_eq!(run.dashboard().roles, [("worker".to_owned(), 1, 2)]);
    run.ended(1, "b", 0);
    assert_eq!(run.dashboard().roles, [("worker".to_owned(), 2, 2)]);
    assert_eq!(run.dashboard().phase, (JobPhase::Running, Duration::from_secs(2)));
    run.then(Event::PodGone("a".to_owned()));
    assert_eq!(run.dashboard().roles, [("worker".to_owned(), 1, 2)]);
}

#[test]
fn lines_carry_the_short_name_of_their_pod() {
    let mut run = Run::new();
    run.running(0, "a");
    run.running(1, "b");
    let said = |label: &str, number, line: &str| {
        vec![Item::Log {
            source: source(label, number),
            line: line.to_owned(),
        }]
    };
    assert_eq!(run.says("b", "train", "hello"), said("worker-1", 1, "hello"));
    assert_eq!(run.says("a", "side", "I too"), said("worker-0/side", 0, "I too"));
    assert_eq!(run.says("stranger", "train", "?"), []);
}

#[test]
fn a_failure_is_told_and_explained_at_the_end() {
    let mut run = Run::new();
    run.running(0, "a");
    run.running(1, "b");
    for n in 0..20 {
        run.says("b", "train", &format!("line {n}"));
    }
    run.says("b", "side", "not mine");
    let told = run.ended(1, "b", 3);
    assert_eq!(
        told,
        [Item::Trouble {
            source: source("worker-1", 1),
            message: "exit code 3".to_owned()
        }]
    );
    assert_eq!(run.ended(1, "b", 3), [], "once");
    run.then(Event::Job(Box::new(job(&json!({
        "phase": "Failed",
        "conditions": [{"type": "Failed", "status": "True", "reason": "RolesFailed", "message": "worker failed",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "rootCause": {"role": "worker", "pod": "mnist-worker-1", "container": "train", "exitCode": 3,
            "reason": "Error", "message": "the last words"},
    })))));
    let summary = run.view.summary(run.now, Outcome::Failed, None);
    assert_eq!(summary.exit_code, 1);
    assert_eq!(summary.message.as_deref(), Some("RolesFailed: worker failed"));
    let cause = summary.root_cause.unwrap();
    assert_eq!(
        (cause.pod.as_str(), cause.ending()),
        ("mnist-worker-1", "exit code 3".to_owned())
    );
    assert_eq!(cause.last_lines.len(), MAX_TAIL_LINES);
    assert_eq!(cause.last_lines.last().map(String::as_str), Some("line 19"));
}

#[test]
fn without_a_log_the_operator_knows_the_last_words() {
    let mut run = Run::new();
    run.ended(0, "a", 1);
    run.then(Event::Job(Box::new(job(&json!({
        "phase": "Failed",
        "rootCause": {"role": "worker", "pod": "mnist-worker-0", "exitCode": 1, "message": "one\ntwo"},
    })))));
    let cause = run
        .view
        .summary(run.now, Outcome::Failed, None)
        .root_cause
        .unwrap();
    assert_eq!(cause.last_lines, ["one", "two"]);
}

#[test]
fn a_replaced_pod_keeps_its_name_and_colour_and_counts_once() {
    let mut run = Run::new();
    run.running(0, "z");
    run.running(1, "b");
    run.says("z", "train", "first life");
    run.ended(0, "z", 1);
    run.then(Event::PodGone("z".to_owned()));
    run.running(0, "c");
    let line = run.says("c", "train", "second life");
    assert_eq!(
        line,
        [Item::Log {
            source: source("worker-0", 0),
            line: "second life".to_owned()
        }]
    );
    run.ended(0, "c", 0);
    let summary = run.view.summary(run.now, Outcome::Succeeded, None);
    let pods: Vec<_> = summary
        .pods
        .iter()
        .map(|pod| (pod.name.as_str(), pod.phase, pod.exit_code))
        .collect();
    assert_eq!(
        pods,
        [
            ("mnist-worker-0", PodPhase::Succeeded, Some(0)),
            ("mnist-worker-1", PodPhase::Running, None)
        ]
    );
}

#[test]
fn pods_that_are_told_to_end_are_no_failures() {
    let mut run = Run::new();
    run.running(0, "a");
    assert_eq!(
        run.then(Event::Stopping(Stop::Interrupted)),
        [Item::Stopping(Stop::Interrupted)]
    );
    assert_eq!(run.dashboard().stopping, Some((Stop::Interrupted, 1)));
    assert_eq!(run.ended(0, "a", 143), []);
    assert_eq!(run.dashboard().stopping, Some((Stop::Interrupted, 0)));
    let summary = run.view.summary(run.now, Outcome::Interrupted, None);
    assert_eq!((summary.exit_code, summary.root_cause), (130, None));
}

#[test]
fn trouble_is_told_when_it_changes() {
    let mut run = Run::new();
    let stuck = |reason: &str| {
        let waiting = json!({"waiting": {"reason": reason}});
        Event::Pod(pod(0, "a", "Pending", &waiting))
    };
    assert_eq!(run.then(stuck("ContainerCreating")), []);
    assert_eq!(run.then(stuck("ErrImagePull")).len(), 1);
    assert_eq!(run.then(stuck("ErrImagePull")).len(), 0);
    assert_eq!(run.dashboard().troubles[0].1, "ErrImagePull");
    run.running(0, "a");
    assert_eq!(run.dashboard().troubles, []);
}

#[test]
fn progress_is_that_of_the_first_pod_that_reports() {
    let mut run = Run::new();
    run.running(0, "a");
    run.running(1, "b");
    run.reports(1, "step=1 total=10 loss=9");
    assert_eq!(
        run.dashboard().progress.unwrap().facts,
        ["step 1/10", "loss 9.000"]
    );
    run.reports(0, r#"{"step": 2, "total": 10, "accuracy": 0.5, "loss": 2.5}"#);
    run.reports(1, "step=3 loss=8");
    let bar = run.dashboard().progress.unwrap();
    assert_eq!(bar.facts, ["step 2/10", "loss 2.500", "accuracy 0.5000"]);
    assert_eq!(bar.fraction, Some(0.2));
    let summary = run.view.summary(run.now, Outcome::Succeeded, None);
    assert_eq!(summary.progress.unwrap().step, Some(2));
}

#[test]
fn the_result_is_what_was_reported_last_by_a_job_that_has_ended() {
    let mut run = Run::new();
    run.running(0, "a");
    let told = run.reports(0, r#"{"artifacts": {"model": "/data/model.pt"}}"#);
    assert_eq!(told, [], "it is told at the end");
    assert_eq!(run.dashboard().progress, None);
    run.reports(0, "step=2 loss=0.5");
    run.reports(0, "step=3 loss=0.25");
    let summary = run.view.summary(run.now, Outcome::Interrupted, None);
    assert_eq!(summary.result, None, "it has not ended");
    run.phase("Succeeded");
    let result = run.view.summary(run.now, Outcome::Succeeded, None).result;
    let result = serde_json::to_value(result).unwrap();
    let expected = json!({"metrics": {"loss": "0.25"}, "artifacts": {"model": "/data/model.pt"}});
    assert_eq!(result, expected);
}

#[test]
fn progress_is_told_now_and_then() {
    let mut run = Run::new();
    run.running(0, "a");
    let told: Vec<usize> = (1..=25)
        .filter(|step| !run.reports(0, &format!("step={step} total=30")).is_empty())
        .collect();
    assert_eq!(told, [1, 11, 21]);
    let Some(Item::Progress(text)) = run.reports(0, "step=26").pop().or_else(|| {
        run.now += PROGRESS_INTERVAL;
        run.reports(0, "step=27").pop()
    }) else {
        panic!("it is told again");
    };
    assert!(text.starts_with("step 27/30  ETA "), "{text}");
}

#[test]
fn progress_that_the_operator_has_written_is_shown_as_if_it_were_heard() {
    let mut run = Run::new();
    run.phase("Running");
    run.running(0, "a");
    let written = |phase: &str, progress: &Value| {
        let status = json!({"phase": phase, "progress": progress});
        Event::Job(Box::new(job(&status)))
    };
    let first =
        json!({"step": 100, "total": 1000, "metrics": {"loss": "2.5"}, "time": "2026-01-01T00:00:00Z"});
    let told = run.then(written("Running", &first));
    assert_eq!(told, [Item::Progress("step 100/1000  loss 2.500".to_owned())]);
    assert_eq!(run.then(written("Running", &first)), [], "it is no news");
    run.now += Duration::from_secs(58);
    let second =
        json!({"step": 160, "total": 1000, "metrics": {"accuracy": "NaN"}, "time": "2026-01-01T00:01:00Z"});
    let told = run.then(written("Running", &second));
    let expected = "step 160/1000  accuracy nan  ETA 14 min 0 s";
    assert_eq!(told, [Item::Progress(expected.to_owned())]);
    let bar = run.dashboard().progress.unwrap();
    assert_eq!(
        (bar.fraction, bar.eta),
        (Some(0.16), Some(Duration::from_mins(14)))
    );
    let last = json!({"step": 1000, "total": 1000});
    let items = run.then(written("Succeeded", &last));
    assert!(
        matches!(items[..], [Item::Phase { .. }]),
        "it was told a moment ago: {items:?}"
    );
    let summary = run.view.summary(run.now, Outcome::Succeeded, None);
    let progress = summary.progress.unwrap();
    assert_eq!((progress.step, progress.metrics.len()), (Some(1000), 0));
    run.then(written("Starting", &Value::Null));
    assert_eq!(run.dashboard().progress, None, "it has begun anew");
}

#[test]
fn programs_that_are_heard_themselves_know_it_best() {
    let mut run = Run::new();
    run.running(0, "a");
    run.reports(0, "step=5 total=10");
    run.now += PROGRESS_INTERVAL;
    let status = json!({"phase": "Pending", "progress": {"step": 1, "total": 10}});
    assert_eq!(run.then(Event::Job(Box::new(job(&status)))), []);
    assert_eq!(run.dashboard().progress.unwrap().facts, ["step 5/10"]);
}

#[test]
fn progress_that_cannot_be_read_is_told_once() {
    let mut run = Run::new();
    run.running(0, "a");
    let told = run.reports(0, "epoch two");
    let Some(Item::Note(note)) = told.first() else {
        panic!("a note: {told:?}");
    };
    assert!(
        note.starts_with("worker-0 wrote progress that can't be read: "),
        "{note}"
    );
    assert_eq!(run.reports(0, "epoch three"), []);
    assert_eq!(run.dashboard().progress, None);
}

#[test]
fn the_summary_is_a_document() {
    let mut run = Run::new();
    run.then(Event::Note("something".to_owned()));
    run.then(Event::Note("something".to_owned()));
    run.running(0, "a");
    run.reports(0, "step=1 loss=nan");
    run.ended(0, "a", 0);
    let summary = run
        .view
        .summary(run.now, Outcome::TimedOut, Some("not in time".to_owned()));
    assert_eq!(
        serde_json::to_value(summary).unwrap(),
        json!({
            "job": "mnist",
            "namespace": "default",
            "framework": "pytorch",
            "outcome": "TimedOut",
            "exitCode": 3,
            "message": "not in time",
            "seconds": 5.0,
            "phases": [{"phase": "Pending", "afterSeconds": 0.0, "seconds": 5.0}],
            "pods": [{"name": "mnist-worker-0", "role": "worker", "phase": "Succeeded", "exitCode": 0}],
            "restarts": 0,
            "disruptions": 0,
            "progress": {"step": 1, "metrics": {"loss": null}},
            "notes": ["something"],
        })
    );
}

fn elastic_job(replicas: i32, status: &Value) -> Event {
    let mut job = job(status);
    job.spec.elastic =
        serde_json::from_value(json!({"replicas": replicas, "minReplicas": 2, "maxReplicas": 6})).unwrap();
    job.spec.roles[0].replicas = None;
    job.metadata.generation = Some(i64::from(replicas));
    Event::Job(Box::new(job))
}

#[test]
fn an_elastic_job_shows_how_large_it_is_and_will_be() {
    let mut run = Run::new();
    assert_eq!(run.dashboard().size, None);
    run.then(elastic_job(4, &json!({"phase": "Running", "replicas": 4})));
    let size = run.dashboard().size.unwrap();
    assert_eq!((size.now, size.target, size.min, size.max), (4, 4, 2, Some(6)));
    assert_eq!((size.change, size.has_keys), (None, false));

    run.view.offer_keys();
    let scaling = json!({"from": 4, "to": 5, "step": "Joining", "joining": "4"});
    run.then(elastic_job(
        5,
        &json!({"phase": "Scaling", "replicas": 5, "scaling": scaling}),
    ));
    let size = run.dashboard().size.unwrap();
    assert_eq!((size.now, size.target, size.has_keys), (5, 5, true));
    let change = size.change.unwrap();
    assert_eq!((&*change.pods, change.leaving), ("4", None));
    assert_eq!(run.dashboard().roles[0].2, 5);

    // A watch that is late does not undo what a key has done.
    let scaling = json!({"from": 4, "to": 3, "step": "Requested", "victims": "3"});
    run.then(elastic_job(
        3,
        &json!({"phase": "Scaling", "replicas": 4, "scaling": scaling}),
    ));
    let size = run.dashboard().size.unwrap();
    assert_eq!((size.now, size.target), (4, 5));
    assert_eq!(
        size.change.unwrap().leaving,
        Some(trainyard_api::ScalingStep::Requested)
    );
    assert_eq!(run.view.next_size(SizeKey::More), Ok(6));
    assert_eq!(run.view.next_size(SizeKey::Fewer), Ok(4));

    run.then(Event::Stopping(Stop::Interrupted));
    assert!(!run.dashboard().size.unwrap().has_keys);
}
