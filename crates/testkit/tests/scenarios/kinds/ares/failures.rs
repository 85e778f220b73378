//! AresJobs that fail, or can't be run at all.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::Lab;

use super::{ARES, phase};

/// A role whose pods run a script.
fn role(container: &str, script: &str) -> Value {
    json!({"template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{
        "name": container, "image": images::BUSYBOX, "command": ["sh", "-c", script],
    }]}}})
}

fn job(name: &str, framework: &str, roles: &Value) -> Value {
    json!({
        "apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name},
        "spec": {"frameworkType": framework, "roleSpecs": roles},
    })
}

/// A job of one worker that runs a script.
fn worker(name: &str, script: &str) -> Value {
    job(name, "standalone", &json!({"worker": role("main", script)}))
}

/// AresOperator crashed on these, for everybody.
pub fn a_bad_ares_job_is_told_so_and_harms_nobody() {
    let (lab, _operator) = Lab::with_kinds_and_profile("ares-bad", "privileged");
    let mut ghost = worker("ghost", "true");
    ghost["spec"]["jobPhasePolicy"] = json!({"failed": [["ghost"]]});
    let mut hosts = worker("hosts", "true");
    hosts["spec"]["roleSpecs"]["worker"]["dependence"] = json!({"mpiHostFile": "/hosts"});
    let dask = job("dask", "dask", &json!({"launcher": role("dask", "true")}));
    let roles = json!({"master": role("bagua", "true"), "worker": role("bagua", "true")});
    let mut bagua = job("bagua", "bagua", &roles);
    bagua["spec"]["availablePorts"] = json!([7001]);
    let bad = [
        (
            ghost,
            "spec.jobPhasePolicy.failed[0][0]: there is no role \"ghost\"",
        ),
        (
            hosts,
            "spec.roleSpecs.worker.dependence.mpiHostFile: only the launcher of a job of mpi",
        ),
        (
            dask,
            "spec.roleSpecs.scheduler: is missing: a job of dask needs this role",
        ),
        (
            bagua,
            "spec.availablePorts: 1 port is not enough: give at least 2",
        ),
    ];
    for (job, _) in &bad {
        lab.apply_one(job.clone()).unwrap();
    }
    for (job, wanted) in &bad {
        let found = phase(&lab, job["metadata"]["name"].as_str().unwrap(), "Failed");
        let conditions = found["status"]["conditions"].as_array().unwrap();
        let [failed] = conditions.as_slice() else {
            panic!("{found:#}")
        };
        assert_eq!(
            (&failed["type"], &failed["reason"]),
            (&json!("Failed"), &json!("InvalidDefinition"))
        );
        let message = failed["message"].as_str().unwrap();
        assert!(message.starts_with(wanted), "{message}");
    }
    lab.wait_until_gone("tj");
    lab.apply_one(worker("good", "true")).unwrap();
    phase(&lab, "good", "Succeeded");
    lab.merge(
        &format!("{ARES} ghost"),
        &json!({"spec": {"jobPhasePolicy": null}}),
    );
    phase(&lab, "ghost", "Succeeded");
}

/// Its limits did nothing. What a job leaves when it fails is deleted when its time is over, and
/// the job itself only if that was asked for.
pub fn ares_jobs_that_fail_say_why_and_are_cleared_away() {
    let (lab, _operator) = Lab::with_kinds_and_profile("ares-fails", "privileged");
    let fail = "echo the disk is on fire >/dev/termination-log; exit 3";
    let mut cleared = job("cleared", "custom", &json!({"worker": role("main", fail)}));
    cleared["spec"]["ttlSecondsAfterFailed"] = 0.into();
    let mut restarted = worker("restarted", fail);
    restarted["spec"]["roleSpecs"]["worker"]["restartPolicy"] = "OnFailure".into();
    restarted["spec"]["runPolicy"] = json!({"backoffLimit": 1});
    let mut late = worker("late", "exec sleep 3600");
    late["spec"]["runPolicy"] = json!({"activeDeadlineSeconds": 1});
    let mut removed = worker("removed", "true");
    removed["spec"]["runPolicy"] = json!({"ttlSecondsAfterFinished": 0});
    for job in [worker("broken", fail), cleared, restarted, late, removed] {
        lab.apply_one(job).unwrap();
    }

    let ended = |name: &str, reason: &str| {
        let status = phase(&lab, name, "Failed")["status"].clone();
        let last = status["conditions"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["type"], &last["reason"]),
            (&json!("Failed"), &json!(reason))
        );
        assert!(status["completionTime"].is_string(), "{status:#}");
        status
    };
    for name in ["broken", "cleared"] {
        let status = ended(name, "Failed");
        let worker = &status["roleStatuses"]["worker"];
        assert_eq!(worker["phase"], "Failed", "{status:#}");
        assert_eq!(worker["reason"], "PodFailed", "{status:#}");
        let message = worker["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("pod={name}-worker-0; nodeName=")),
            "{message}"
        );
        let (_, info) = message.split_once("; info=").unwrap();
        let info: Value = serde_json::from_str(info).unwrap();
        assert_eq!((&info["exitCode"], &info["reason"]), (&json!(3), &json!("Error")));
        assert_eq!(info["message"].as_str().unwrap().trim(), "the disk is on fire");
    }
    let status = ended("restarted", "BackoffLimitExceeded");
    let restarts = lab.get("tj restarted")["status"]["restarts"].clone();
    assert_eq!(restarts["failures"], 1, "{status:#}: {restarts:#}");
    ended("late", "DeadlineExceeded");
    let gone = |what: &str| {
        lab.until(&format!("no {what}"), || match lab.try_get(what) {
            Err(error) if error.contains("not found") => Ok(()),
            found => Err(format!("{found:?}")),
        });
    };
    gone(&format!("{ARES} removed"));
    gone("tj removed");
    gone("pod cleared-worker-0");
    gone("service cleared-worker");
    assert_eq!(lab.get(&format!("{ARES} cleared"))["status"]["phase"], "Failed");
    assert_eq!(
        lab.get("pod broken-worker-0")["status"]["phase"],
        "Failed",
        "it stays"
    );
}
