//! Jobs that grow and shrink while they train, on real nodes and on the embedded cluster.

use serde_json::{Value, json};
use trainyard_testkit::lab::{Change, Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "elastic",
    &[Image::AGENT],
    [pods_hear_from_the_observer_that_they_leave_and_write_their_checkpoints]
);

/// Counts until it is told to leave. It takes longer to say that it knows and to write its
/// checkpoint than an operator in a hurry would wait.
const WORKER: &str = "\
trap 'echo a signal came first; exit 9' TERM
step=0
until [ -e $TRAINYARD_DRAIN/leave ]; do step=$((step + 1)); sleep 0.1; done
touch $TRAINYARD_DRAIN/acknowledged
sleep 3
echo $step >$TRAINYARD_DRAIN/checkpoint
sleep 3
";

fn scale(lab: &Lab, replicas: i32) {
    lab.merge(
        "tj elastic",
        &json!({"spec": {"elastic": {"replicas": replicas}}}),
    );
}

/// The exit code of the main container of a pod, once it has ended.
fn exit_code(pod: &Value) -> Option<i64> {
    let containers = pod["status"]["containerStatuses"].as_array()?;
    let main = containers.iter().find(|container| container["name"] == "main")?;
    main["state"]["terminated"]["exitCode"].as_i64()
}

/// Waits until the job has that many pods and nothing changes about that.
fn wait_for_size(lab: &Lab, replicas: i32) -> Value {
    lab.until(&format!("{replicas} pods run"), || {
        let status = lab.get("tj elastic")["status"].clone();
        let is_so = status["phase"] == "Running"
            && status["replicas"] == replicas
            && status["scaling"].is_null()
            && status["roles"][0]["ready"] == replicas;
        if is_so {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    })
}

fn pods_hear_from_the_observer_that_they_leave_and_write_their_checkpoints() {
    let (lab, _operator, aliases) = Lab::with_observer("elastic");
    let workers = [Role::worker(1, WORKER)];
    let more = r#"{"elastic": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}}"#;
    let mut manifest: Value = serde_json::from_str(&job("elastic", "custom", &workers, more)).unwrap();
    let role = &mut manifest["spec"]["roles"][0];
    role.as_object_mut().unwrap().remove("replicas");
    role["template"]["spec"]["hostAliases"] = aliases;
    lab.apply(&manifest.to_string()).unwrap();
    wait_for_size(&lab, 2);

    scale(&lab, 4);
    let status = wait_for_size(&lab, 4);
    assert_eq!(status["restarts"], json!({"failures": 0, "disruptions": 0}));
    assert_eq!(
        lab.pods("elastic"),
        [
            "elastic-worker-0",
            "elastic-worker-1",
            "elastic-worker-2",
            "elastic-worker-3"
        ]
    );

    let (mut pods, mut jobs) = (lab.follow("pods"), lab.follow("tj"));
    scale(&lab, 2);
    let mut steps: Vec<String> = Vec::new();
    jobs.until("the job has shrunk", |change| {
        let Change::Applied(job) = change else {
            panic!("the job is gone");
        };
        let step = job["status"]["scaling"]["step"].as_str();
        steps.extend(
            step.filter(|step| steps.last().is_none_or(|last| last != step))
                .map(str::to_owned),
        );
        (job["status"]["replicas"] == 2 && job["status"]["scaling"].is_null()).then_some(())
    });
    assert_eq!(steps.first().map(String::as_str), Some("Requested"), "{steps:?}");
    assert_eq!(
        steps.last().map(String::as_str),
        Some("CheckpointDone"),
        "{steps:?}"
    );
    let mut left = 0;
    pods.until("both pods have left", |change| {
        let (pod, is_deleted) = match change {
            Change::Applied(pod) => (pod, pod["metadata"]["deletionTimestamp"].is_string()),
            Change::Deleted(pod) => (pod, true),
        };
        if is_deleted {
            assert_eq!(
                exit_code(pod),
                Some(0),
                "it had left before it was deleted: {pod:#}"
            );
        }
        left += usize::from(matches!(change, Change::Deleted(_)));
        (left == 2).then_some(())
    });
    let status = wait_for_size(&lab, 2);
    assert_eq!(lab.pods("elastic"), ["elastic-worker-0", "elastic-worker-1"]);
    assert_eq!(status["restarts"], json!({"failures": 0, "disruptions": 0}));
}
