//! Jobs of dl-operator's kinds: pods that are named role first, and find each other by these names.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Lab};

use super::{condition, names, wake};

const MXJOB: &str = "mxjob.mpba.fbk.eu";
const TFJOB: &str = "tfjob.mpba.fbk.eu";

/// Answers everybody who calls.
const SERVE: &str = "while true; do echo hello-from-$(hostname) | nc -l -p $PORT; done";

/// An entry of a spec, whose pods run a script with a port.
fn replicas(kind: &str, replicas: u32, port: &str, script: &str) -> Value {
    let script = format!("PORT={port}; {script}");
    let mut template = lab::template(
        images::BUSYBOX,
        &json!({"command": ["sh", "-c"], "args": [script]}),
    );
    template["spec"]["restartPolicy"] = "OnFailure".into();
    json!({"replicas": replicas, "replicaType": kind, "template": template})
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "mpba.fbk.eu/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Calls an address until there is an answer.
fn call(host: &str, port: &str) -> String {
    format!("until nc -w 2 {host} {port} </dev/null | grep hello; do sleep 1; done; ")
}

/// dl-operator's own sample.
const SAMPLE: &str = include_str!("../../../../compat/tests/manifests/dl-mxjob.yaml");

/// Does nothing until its sleep is killed, and ends when it is told to.
const WAIT: &str = "trap 'exit 143' TERM; sleep 86400 & wait; echo trained";

/// The sample with an image that is there, and a program in place of that of the image.
fn sample() -> Value {
    let mut sample: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    for replicas in sample["spec"].as_array_mut().unwrap() {
        let container = &mut replicas["template"]["spec"]["containers"][0];
        container["image"] = images::BUSYBOX.into();
        container["command"] = json!(["sh", "-c", WAIT]);
        // It says Always, and there is no registry.
        container["imagePullPolicy"] = "IfNotPresent".into();
    }
    sample
}

/// How many pods of a role have come to what, when its job has succeeded.
fn counts(replicas: u32, succeeded: u32) -> Value {
    json!({"replicas": replicas, "active": 0, "ready": 0, "succeeded": succeeded, "failed": 0})
}

/// Ends the sample, and compares its status.
fn sample_ends(lab: &Lab) {
    let what = format!("{MXJOB} test02");
    condition(lab, &what, "Running", "True");
    wake(lab, "worker-test02-0", "mxnet");
    let roles = json!({"scheduler": counts(1, 0), "server": counts(1, 0), "worker": counts(1, 1)});
    succeeds(lab, &what, "0/3", &roles);
    assert_eq!(lab.logs("worker-test02-0"), "trained\n");
    lab.delete(&what);
}

/// Waits until a job has succeeded, and compares all of the status, which no object of
/// dl-operator's ever had.
fn succeeds(lab: &Lab, what: &str, ready: &str, roles: &Value) {
    condition(lab, what, "Succeeded", "True");
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1});
    let rule = "The job's rule for success holds.";
    let expected = json!({
        "observedGeneration": 1,
        "phase": "Succeeded",
        "message": rule,
        "conditions": [
            condition("Accepted", "True", "Valid", "the job is valid"),
            condition("Running", "False", "Finished", "The job has ended."),
            condition("Succeeded", "True", "RolesSucceeded", rule),
        ],
        "ready": ready,
        "replicaStatuses": roles,
    });
    let times = lab.until("the status is complete", || {
        let mut status = lab.get(what)["status"].clone();
        for condition in status["conditions"].as_array_mut().unwrap() {
            assert!(
                condition
                    .as_object_mut()
                    .unwrap()
                    .remove("lastTransitionTime")
                    .is_some()
            );
        }
        let mut take = |name: &str| status.as_object_mut().unwrap().remove(name);
        let times = ["startTime", "completionTime"].map(&mut take);
        if status == expected {
            Ok(times)
        } else {
            Err(format!("{status:#}"))
        }
    });
    let times = times.map(|time| time.unwrap().as_str().unwrap().to_owned());
    assert!(times.is_sorted(), "{times:?}");
}

pub fn an_mxjob_runs_as_it_is() {
    // The sample does not say as whom it runs.
    let (lab, _operator) = Lab::with_kinds_and_profile("mxjob", "baseline");
    lab.apply_one(sample()).unwrap();
    let port = "$DMLC_PS_ROOT_PORT";
    // By the name that the operator tells, and by that which users of dl-operator know.
    let worker = call("$DMLC_PS_ROOT_URI", port) + &call("scheduler-linear-0", port) + "env | grep ^DMLC_NUM";
    let spec = json!([
        replicas("SCHEDULER", 1, port, SERVE),
        replicas("SERVER", 1, port, "exec sleep 600"),
        replicas("Worker", 2, port, &worker),
    ]);
    lab.apply_one(object("MXJob", "linear", &spec)).unwrap();
    let what = format!("{MXJOB} linear");
    let ended = condition(&lab, &what, "Succeeded", "True");
    let status = &ended["status"];
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!(status["replicaStatuses"]["worker"]["succeeded"], 2, "{status:#}");
    for pod in ["worker-linear-0", "worker-linear-1"] {
        let log = lab.logs(pod);
        let met = log
            .lines()
            .filter(|line| *line == "hello-from-scheduler-linear-0");
        assert_eq!(met.count(), 2, "{log}");
        assert!(
            log.contains("DMLC_NUM_SERVER=1") && log.contains("DMLC_NUM_WORKER=2"),
            "{log}"
        );
    }
    // Its users select pods by these labels. Who only served is gone.
    lab.until("the pods that served are gone", || {
        let pods = lab.get("pods -l job_name=linear");
        if names(&pods) == ["worker-linear-0", "worker-linear-1"] {
            Ok(())
        } else {
            Err(format!("{:?}", names(&pods)))
        }
    });
    assert_eq!(
        names(&lab.get("pods -l pod_name=worker-linear-1")),
        ["worker-linear-1"]
    );
    sample_ends(&lab);
    lab.delete(&what);
    for kind in [MXJOB, "tj", "pods", "services"] {
        lab.wait_until_gone(kind);
    }
}

pub fn a_tfjob_runs_as_it_is_and_its_failure_is_told() {
    let (lab, _operator) = Lab::with_kinds("tfjob");
    let worker = call("ps-digits-0", "2222") + "echo $TF_CONFIG; " + WAIT;
    let spec = json!([
        replicas("ps", 1, "2222", SERVE),
        replicas("worker", 2, "2222", &worker),
    ]);
    lab.apply_one(object("TFJob", "digits", &spec)).unwrap();
    let mut bad = replicas("WORKER", 1, "0", "echo the disk is on fire; exit 3");
    bad["template"]["spec"]["restartPolicy"] = "Never".into();
    lab.apply_one(object("TFJob", "doomed", &json!([bad]))).unwrap();

    let what = format!("{TFJOB} digits");
    condition(&lab, &what, "Running", "True");
    // The first worker decides, so it ends last.
    for worker in ["worker-digits-1", "worker-digits-0"] {
        wake(&lab, worker, "main");
    }
    let roles = json!({"ps": counts(1, 0), "worker": counts(2, 2)});
    succeeds(&lab, &what, "0/3", &roles);
    let log = lab.logs("worker-digits-0");
    let config = log.lines().find(|line| line.starts_with('{')).unwrap();
    let config: Value = serde_json::from_str(config).unwrap();
    assert_eq!(config["task"], json!({"type": "worker", "index": 0}));
    let host = format!("worker-digits-1.digits.{}.svc.cluster.local:2222", lab.namespace);
    assert_eq!(config["cluster"]["worker"][1], host);
    let failed = condition(&lab, &format!("{TFJOB} doomed"), "Failed", "True");
    let message = failed["status"]["message"].as_str().unwrap();
    assert!(message.contains("worker"), "{message}");
}

/// What programs reported last is in the status of a TrainingJob, and of a kind that has a place
/// for it.
pub fn what_the_observer_hears_last_is_the_result() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_observer("result");
    let last = r#"{"step": 3, "loss": 0.25, "artifacts": {"model": "s3://bucket/model.pt"}}"#;
    let report = format!("echo step=1 loss=7 >>$TRAINYARD_PROGRESS; echo '{last}' >>$TRAINYARD_PROGRESS");
    let mut mxjob = object(
        "MXJob",
        "linear",
        &json!([
            replicas("SCHEDULER", 1, "0", "exec sleep 600"),
            replicas("SERVER", 1, "0", "exec sleep 600"),
            replicas("WORKER", 1, "0", &report),
        ]),
    );
    let worker = mxjob["spec"][2]["template"].clone();
    let mut native = json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "native"},
        "spec": {
            "framework": {"name": "standalone"},
            "progress": "Report",
            "roles": [{"name": "worker", "template": worker}],
        },
    });
    native["spec"]["roles"][0]["template"]["spec"]
        .as_object_mut()
        .unwrap()
        .remove("restartPolicy");
    for pod in [
        &mut mxjob["spec"][2]["template"]["spec"],
        &mut native["spec"]["roles"][0]["template"]["spec"],
    ] {
        pod["hostAliases"] = aliases.clone();
        // The last values are told until then.
        pod["terminationGracePeriodSeconds"] = 20.into();
    }
    lab.apply_one(mxjob).unwrap();
    lab.apply_one(native).unwrap();
    let expected = json!({"metrics": {"loss": "0.25"}, "artifacts": {"model": "s3://bucket/model.pt"}});
    for what in ["tj native", "tj linear", &format!("{MXJOB} linear")] {
        condition(&lab, what, "Succeeded", "True");
        lab.until(&format!("{what} has its result"), || {
            let result = lab.get(what)["status"]["result"].clone();
            if result == expected {
                Ok(())
            } else {
                Err(result.to_string())
            }
        });
    }
}
