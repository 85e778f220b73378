//! AresJobs, applied as their users write them.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Lab};

use crate::order::ASK;

const ARES: &str = "aresjob.ares.io";

/// AresOperator's samples, and a job of each type.
const MANIFESTS: [&str; 14] = [
    include_str!("../../../../compat/tests/manifests/ares/bagua.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/bagua-elastic.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/custom.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/dask.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/mpi.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/pytorch.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/sample-bagua.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/sample-custom.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/sample-mpi.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/sample-pytorch.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/sample-standalone.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/sample-tensorflow.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/standalone.yaml"),
    include_str!("../../../../compat/tests/manifests/ares/tensorflow.yaml"),
];

/// A job as a cluster of tests can run it: with an image that is there, without accelerators, and
/// with pods that go when they are told to.
fn runnable(text: &str) -> Value {
    let mut job: Value = serde_saphyr::from_str(text).unwrap();
    job["metadata"].as_object_mut().unwrap().remove("namespace");
    for role in job["spec"]["roleSpecs"].as_object_mut().unwrap().values_mut() {
        let pod = &mut role["template"]["spec"];
        pod["terminationGracePeriodSeconds"] = 1.into();
        // The agent's image has no user of its own here.
        pod["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000});
        for container in pod["containers"].as_array_mut().unwrap() {
            container["image"] = images::BUSYBOX.into();
            container.as_object_mut().unwrap().remove("resources");
        }
    }
    job
}

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

/// Ends well, with the status that AresOperator documents, and holds nothing then.
pub fn ares_jobs_of_all_types_come_to_their_end() {
    let (lab, _operator) = Lab::with_kinds_and_profile("ares", "privileged");
    for text in MANIFESTS {
        lab.apply_one(runnable(text)).unwrap();
    }
    for text in MANIFESTS {
        let job = runnable(text);
        let name = job["metadata"]["name"].as_str().unwrap();
        let object = phase(&lab, name, "Succeeded");
        let status = &object["status"];
        let roles: Vec<&String> = job["spec"]["roleSpecs"].as_object().unwrap().keys().collect();
        for role in roles {
            let role = &status["roleStatuses"][role];
            assert!(
                role["phase"].is_string() && role["lastTransitionTime"].is_string(),
                "{status:#}"
            );
        }
        assert!(status["completionTime"].is_string(), "{status:#}");
        let last = status["conditions"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["type"], &last["status"]),
            (&json!("Succeeded"), &json!("True"))
        );
    }
    let log = lab.logs("waves-launcher-0");
    let namespace = &lab.namespace;
    let host = format!("waves-worker-1.waves-worker.{namespace}.svc.cluster.local:2");
    assert_eq!(log.matches(&host).count(), 2, "in both places: {log}");
    lab.until("nothing runs any more", || {
        let pods = lab.get("pods");
        let mut phases = pods["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pod| &pod["status"]["phase"]);
        if phases.all(|phase| phase == "Succeeded" || phase == "Failed") {
            Ok(())
        } else {
            Err(format!("{pods:#}"))
        }
    });
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

/// AresOperator crashed on these, for everybody.
pub fn a_bad_ares_job_is_told_so_and_harms_nobody() {
    let (lab, _operator) = Lab::with_kinds_and_profile("ares-bad", "privileged");
    let good = MANIFESTS.last().unwrap();
    let mut bad = runnable(good);
    bad["metadata"]["name"] = "bad".into();
    bad["spec"]["jobPhasePolicy"] = json!({"failed": [["ghost"]]});
    lab.apply_one(bad).unwrap();
    let bad = phase(&lab, "bad", "Failed");
    let condition = &bad["status"]["conditions"][0];
    assert_eq!(condition["reason"], "InvalidDefinition");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.jobPhasePolicy.failed[0][0]: there is no role \"ghost\""),
        "{message}"
    );
    lab.apply_one(runnable(good)).unwrap();
    phase(&lab, "boats", "Succeeded");
    lab.merge(&format!("{ARES} bad"), &json!({"spec": {"jobPhasePolicy": null}}));
    phase(&lab, "bad", "Succeeded");
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
    let heard: Value = serde_json::from_str(&lab.logs("asks-launcher-0")).unwrap();
    assert_eq!(
        heard["worker"],
        json!({"phase": "Running", "running": true, "ips": [address("asks-worker-0"), address("asks-worker-1")]})
    );
    assert_eq!(heard["launcher"], json!({"phase": "Starting", "running": false}));
}
