//! How many pods of an MPIJob its status says there are.

use serde_json::{Value, json};
use trainyard_api::JobPhase;
use trainyard_core::foreign::Child;
use trainyard_core::view::{PodPhase, PodRow};

use super::common::{of_job, pod};
use super::{PI, at, child, object, plan};

fn replicas(status: &Value) -> &Value {
    &status["replicaStatuses"]
}

/// The engine tells the counters of a job that starts every ten seconds; users see them sooner.
#[test]
fn while_a_job_starts_its_pods_themselves_are_counted() {
    let object = object(PI);
    let job = child(&object);
    let counted = |pods: &[PodRow]| {
        let plan = plan(&object, Child::Job { job: &job, pods });
        assert!(plan.status_can_wait);
        replicas(&plan.status.unwrap()).clone()
    };
    assert_eq!(counted(&[]), Value::Null);
    let worker = |index: u8, phase| pod(&format!("dice-worker-{index}"), phase);
    let mut pods = vec![worker(0, PodPhase::Running), worker(1, PodPhase::Pending)];
    assert_eq!(
        counted(&pods),
        json!({"Worker": {"active": 1}}),
        "there is no launcher"
    );
    pods[1].phase = PodPhase::Running;
    pods.push(pod("dice-launcher", PodPhase::Failed));
    assert_eq!(
        counted(&pods),
        json!({"Launcher": {"failed": 1}, "Worker": {"active": 2}})
    );
    pods[2].terminating = true;
    pods[0].name = "dice-stranger-0".into();
    assert_eq!(counted(&pods), json!({"Launcher": {}, "Worker": {"active": 1}}));
}

#[test]
fn a_launcher_that_was_replaced_has_failed() {
    let object = object(PI);
    let mut job = at(&object, JobPhase::Running);
    let end = |pod: &str, cause: &str| json!({"time": "2026-02-03T04:02:00Z", "pod": pod, "cause": cause, "reason": "Error"});
    let restarts = json!({"failures": 2, "history": [
        end("dice-launcher", "Failure"),
        end("dice-launcher", "Disruption"),
        end("dice-worker-0", "Failure"),
        end("dice-launcher", "Failure"),
    ]});
    job.status.as_mut().unwrap().restarts = Some(serde_json::from_value(restarts).unwrap());
    assert_eq!(
        replicas(&plan(&object, of_job(&job)).status.unwrap()),
        &json!({"Launcher": {"active": 1, "failed": 2}, "Worker": {"active": 2, "failed": 1}})
    );
}
