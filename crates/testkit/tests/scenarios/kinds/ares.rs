//! AresJobs, applied as their users write them.

mod ends;
mod failures;

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Lab};

use crate::order::ASK;

pub use self::ends::ares_jobs_of_all_types_come_to_their_end;
pub use self::failures::{
    a_bad_ares_job_is_told_so_and_harms_nobody, ares_jobs_that_fail_say_why_and_are_cleared_away,
};

const ARES: &str = "aresjob.ares.io";

/// Waits until an object has come to a phase.
fn phase(lab: &Lab, name: &str, wanted: &str) -> Value {
    lab.until(&format!("{name} is {wanted}"), || {
        let object = lab.get(&format!("{ARES} {name}"));
        if object["status"]["phase"] == wanted {
            Ok(object)
        } else {
            Err(format!("{:#}", object["status"]))
        }
    })
}

/// Roles find each other by the Services of their roles. What the job tells the scheduler is on its
/// pods, also when that changes while they run.
pub fn pods_of_an_ares_job_are_found_and_follow_its_annotations() {
    let (lab, _operator) = Lab::with_kinds_and_profile("ares-live", "privileged");
    let role = |script: &str| {
        json!({"template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": images::BUSYBOX, "command": ["sh", "-c", script],
        }]}}})
    };
    let job = json!({
        "apiVersion": "ares.io/v1", "kind": "AresJob",
        "metadata": {"name": "talk", "annotations": {"ares.io/ares-queue": "nightly"}},
        "spec": {"frameworkType": "custom", "roleSpecs": {
            "caller": role(r#"until nslookup "$listener"; do sleep 0.2; done; echo found; exec sleep 3600"#),
            "listener": role("exec sleep 3600"),
        }},
    });
    lab.apply_one(job).unwrap();
    phase(&lab, "talk", "Running");
    lab.until("the other role is found", || {
        match lab.try_logs("talk-caller-0")? {
            log if log.contains("found") => Ok(()),
            log => Err(log),
        }
    });
    let before = lab.get("pod talk-listener-0");
    assert_eq!(before["metadata"]["labels"]["ares.io/ares-queue"], "nightly");
    let annotations = json!({"ares.io/ares-queue": null, "ares.io/job-priority": "9"});
    lab.merge(
        &format!("{ARES} talk"),
        &json!({"metadata": {"annotations": annotations}}),
    );
    let after = lab.until("its pods follow", || {
        let pod = lab.get("pod talk-listener-0");
        if pod["metadata"]["labels"]["ares.io/job-priority"] == "9" {
            Ok(pod)
        } else {
            Err(format!("{:#}", pod["metadata"]))
        }
    });
    assert!(
        after["metadata"]["labels"]["ares.io/ares-queue"].is_null(),
        "{after:#}"
    );
    assert_eq!(after["metadata"]["annotations"]["ares.io/job-priority"], "9");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "it runs on");
}

/// Also for the jobs that its clients know: an init container of the user's own asks it, by its two
/// paths, until the workers run.
pub fn its_observer_answers_for_an_ares_job() {
    let (lab, _operator, observers) = Lab::with_kinds_and_ares_observer("ares-asks");
    let template = |script: &str| lab::template(images::BUSYBOX, &json!({"command": ["sh", "-c", script]}));
    let mut launcher = template("cat /heard/roles");
    let pod = &mut launcher["spec"];
    pod["volumes"] = json!([{"name": "heard", "emptyDir": {}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "heard", "mountPath": "/heard"}]);
    let mut initializer = pod["containers"][0].clone();
    let script = ASK
        .replace("OBSERVERS", &observers.join(" "))
        .replace("NAMESPACE", &lab.namespace);
    initializer["name"] = "initializer".into();
    initializer["command"] = json!(["sh", "-c", script]);
    pod["initContainers"] = json!([initializer]);
    let job = json!({
        "apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "asks"},
        "spec": {
            "frameworkType": "custom",
            "jobPhasePolicy": {"succeeded": [["launcher"]], "failed": [["launcher"]]},
            "runPolicy": {"cleanPodPolicy": "None"},
            "roleSpecs": {
                "launcher": {"template": launcher},
                "worker": {"replicas": 2, "template": template("exec sleep 3600")},
            },
        },
    });
    lab.apply_one(job).unwrap();
    phase(&lab, "asks", "Succeeded");
    let address = |pod: &str| lab.get(&format!("pod {pod}"))["status"]["podIP"].clone();
    // The kubelet tells that a container has ended, and its log may still be on its way.
    let heard: Value = lab.until("what it heard is in its log", || {
        let log = lab.logs("asks-launcher-0");
        serde_json::from_str(&log).map_err(|error| format!("{error}: {log:?}"))
    });
    assert_eq!(
        heard["worker"],
        json!({"phase": "Running", "running": true, "ips": [address("asks-worker-0"), address("asks-worker-1")]})
    );
    assert_eq!(heard["launcher"], json!({"phase": "Starting", "running": false}));
}
