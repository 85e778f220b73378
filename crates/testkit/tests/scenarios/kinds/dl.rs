//! Jobs of dl-operator's kinds: pods that are named role first, and find each other by these names.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Lab};

use super::{condition, names};

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

pub fn an_mxjob_runs_as_it_is() {
    let (lab, _operator) = Lab::with_kinds("mxjob");
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
    lab.delete(&what);
    for kind in [MXJOB, "tj", "pods", "services"] {
        lab.wait_until_gone(kind);
    }
}

pub fn a_tfjob_runs_as_it_is_and_its_failure_is_told() {
    let (lab, _operator) = Lab::with_kinds("tfjob");
    let worker = call("ps-digits-0", "2222") + "echo $TF_CONFIG";
    let spec = json!([
        replicas("ps", 1, "2222", SERVE),
        replicas("worker", 2, "2222", &worker),
    ]);
    lab.apply_one(object("TFJob", "digits", &spec)).unwrap();
    let mut bad = replicas("WORKER", 1, "0", "echo the disk is on fire; exit 3");
    bad["template"]["spec"]["restartPolicy"] = "Never".into();
    lab.apply_one(object("TFJob", "doomed", &json!([bad]))).unwrap();

    condition(&lab, &format!("{TFJOB} digits"), "Succeeded", "True");
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
