//! A quota that refuses a job's pods, which only a real cluster has.

use serde_json::json;
use trainyard_testkit::lab::{Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!("quota", &[], [a_quota_delays_a_job_says_why_and_fails_nothing,]);

fn a_quota_delays_a_job_says_why_and_fails_nothing() {
    let (lab, _operator) = Lab::with_operator("quota");
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    });
    lab.apply(&quota.to_string()).unwrap();
    lab.until("the quota counts", || {
        let quota = lab.get("resourcequota small");
        let counted = quota["status"]["used"]["pods"] == "0";
        counted.then_some(()).ok_or_else(|| quota["status"].to_string())
    });
    lab.apply(&job("greedy", "custom", &[Role::worker(2, "sleep 600")], ""))
        .unwrap();
    let told = lab.until("the user is told", || {
        let events = lab.events("greedy");
        events
            .contains("exceeded quota")
            .then(|| events.clone())
            .ok_or(events)
    });
    assert_eq!(told.matches("exceeded quota").count(), 1, "said once: {told}");
    assert_eq!(lab.pods("greedy").len(), 1);
    lab.delete("resourcequota small");
    let job = lab.wait_for_phase("greedy", "Running");
    assert_eq!(job["status"]["ready"], "2/2");
    assert_eq!(
        job["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
}
