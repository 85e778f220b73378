//! Roles that wait for each other, on real nodes and on the embedded cluster.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is a test, which Clippy can not see without the usual harness"
)]

use std::process::ExitCode;

use serde_json::{Value, json};
use trainyard_testkit::lab::{self, Lab, Role, job};

fn main() -> ExitCode {
    lab::main(&[
        (
            "a_role_waits_until_another_is_ready_and_then_starts",
            a_role_waits_until_another_is_ready_and_then_starts,
        ),
        (
            "what_can_never_come_fails_who_waits_and_names_who_failed_first",
            what_can_never_come_fails_who_waits_and_names_who_failed_first,
        ),
        (
            "the_order_is_kept_when_a_job_is_resumed",
            the_order_is_kept_when_a_job_is_resumed,
        ),
        (
            "an_init_container_that_asks_ares_observer_hears_all_addresses_at_once",
            an_init_container_that_asks_ares_observer_hears_all_addresses_at_once,
        ),
    ])
}

fn role<'a>(name: &'a str, script: &'a str, more: &'a str) -> Role<'a> {
    Role {
        name,
        replicas: 1,
        script,
        more,
    }
}

fn role_status(lab: &Lab, job: &str, role: &str) -> Value {
    let status = lab.get(&format!("tj {job}"))["status"].clone();
    let roles = status["roles"].as_array().cloned().unwrap_or_default();
    roles
        .into_iter()
        .find(|known| known["name"] == role)
        .unwrap_or(Value::Null)
}

fn waits(lab: &Lab, job: &str, role: &str, said: &str) {
    lab.until(&format!("{role} says what it waits for"), || {
        let status = role_status(lab, job, role);
        if status["reason"] == "WaitingForRoles" && status["message"] == said {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
}

/// A server that is ready only once it is told so.
const SERVER: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

fn a_role_waits_until_another_is_ready_and_then_starts() {
    let (lab, _operator) = Lab::with_operator("order");
    let after = r#"{"dependsOn": [{"role": "server", "state": "Ready"}]}"#;
    let roles = [role("client", "echo started", after), role("server", SERVER, "")];
    let mut manifest: Value = serde_json::from_str(&job(
        "pair",
        "custom",
        &roles,
        r#"{"completion": {"succeededWhen": [{"allOf": ["client"]}]}}"#,
    ))
    .unwrap();
    let server = &mut manifest["spec"]["roles"][1]["template"]["spec"];
    server["volumes"] = json!([{"name": "signs", "emptyDir": {}}]);
    server["containers"][0]["volumeMounts"] = json!([{"name": "signs", "mountPath": "/signs"}]);
    server["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/signs/ready"]}, "periodSeconds": 1});
    lab.apply(&manifest.to_string()).unwrap();
    lab.until("the server runs", || {
        let phase = lab.try_get("pod pair-server-0")?["status"]["phase"].clone();
        if phase == "Running" {
            Ok(())
        } else {
            Err(phase.to_string())
        }
    });
    waits(&lab, "pair", "client", "waits for the role server to be ready");
    assert_eq!(lab.get("tj pair")["status"]["phase"], "Starting");
    let told = lab
        .exec("pair-server-0", None, &["touch", "/signs/ready"], "")
        .unwrap();
    assert_eq!(told.code, 0, "{}", told.stderr);
    lab.phase("pair", "Succeeded");
    assert!(lab.logs("pair-client-0").contains("started"));
    let ready = lab.get("pod pair-client-0")["status"]["startTime"].clone();
    assert!(ready.is_string(), "it ran: {ready}");
}

fn what_can_never_come_fails_who_waits_and_names_who_failed_first() {
    let (lab, _operator) = Lab::with_operator("vain");
    let after = r#"{"dependsOn": [{"role": "data", "state": "Succeeded"}]}"#;
    let roles = [
        role("train", "echo never", after),
        role("data", "echo no space left on device; exit 7", ""),
    ];
    let completion = r#"{"completion": {"failedWhen": [{"allOf": ["train"]}]}}"#;
    lab.apply(&job("vain", "custom", &roles, completion)).unwrap();
    let status = lab.phase("vain", "Failed")["status"].clone();
    assert_eq!(status["rootCause"]["pod"], "vain-data-0", "{status:#}");
    assert_eq!(status["rootCause"]["exitCode"], 7);
    let train = role_status(&lab, "vain", "train");
    assert_eq!(train["reason"], "DependencyFailed", "{train:#}");
    assert_eq!(
        train["message"],
        "vain-train-0 can't start: it waits for the role data, which has ended"
    );
}

fn the_order_is_kept_when_a_job_is_resumed() {
    let (lab, _operator) = Lab::with_operator("again");
    let after = r#"{"dependsOn": [{"role": "data", "state": "Succeeded"}]}"#;
    let go = "until [ -e /signs/go ]; do sleep 0.1; done";
    let roles = [role("train", SERVER, after), role("data", go, "")];
    let mut manifest: Value = serde_json::from_str(&job("again", "custom", &roles, "")).unwrap();
    let data = &mut manifest["spec"]["roles"][1]["template"]["spec"];
    data["volumes"] = json!([{"name": "signs", "emptyDir": {}}]);
    data["containers"][0]["volumeMounts"] = json!([{"name": "signs", "mountPath": "/signs"}]);
    lab.apply(&manifest.to_string()).unwrap();
    let run = || {
        waits(&lab, "again", "train", "waits for the role data to succeed");
        lab.until("the data can be told", || {
            match lab.exec("again-data-0", None, &["touch", "/signs/go"], "") {
                Ok(outcome) if outcome.code == 0 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        lab.phase("again", "Running");
    };
    run();
    lab.merge("tj again", &json!({"spec": {"suspend": true}}));
    lab.phase("again", "Suspended");
    lab.none("pods");
    lab.merge("tj again", &json!({"spec": {"suspend": false}}));
    run();
}

/// As the init containers of AresOperator do: it asks until the role runs, and writes what it heard for the program. The input of `nc`
/// ends late, because it tells the server of that, which takes it for the end of the connection.
const ASK: &str = r#"
ask() { (printf 'GET /cache/%s HTTP/1.0\r\n\r\n' $1; sleep 1) | nc -w 5 $2 8081 | tail -n 1; }
while true; do
    for observer in OBSERVERS; do
        [ "$(ask ping $observer)" = '"pong"' ] || continue
        heard=$(ask keys/NAMESPACE.asks $observer)
        echo "heard $heard"
        case $heard in *'"running":true'*) echo "$heard" >/heard/roles; exit 0 ;; esac
    done
done
"#;

fn an_init_container_that_asks_ares_observer_hears_all_addresses_at_once() {
    let (lab, _operator, observers) = Lab::with_ares_observer("ares");
    // Nothing but the init container holds the launcher back.
    let worker = Role {
        replicas: 2,
        ..role("worker", SERVER, "")
    };
    let roles = [role("launcher", "cat /heard/roles", ""), worker];
    let completion = r#"{"completion": {"succeededWhen": [{"allOf": ["launcher"]}]}, "runPolicy": {"cleanPodPolicy": "None"}}"#;
    let mut manifest: Value = serde_json::from_str(&job("asks", "custom", &roles, completion)).unwrap();
    let launcher = &mut manifest["spec"]["roles"][0]["template"]["spec"];
    launcher["volumes"] = json!([{"name": "heard", "emptyDir": {}}]);
    let mount = json!([{"name": "heard", "mountPath": "/heard"}]);
    launcher["containers"][0]["volumeMounts"] = mount;
    let mut initializer = launcher["containers"][0].clone();
    let script = ASK
        .replace("OBSERVERS", &observers.join(" "))
        .replace("NAMESPACE", &lab.namespace);
    initializer["name"] = "initializer".into();
    initializer["command"] = json!(["sh", "-c", script]);
    launcher["initContainers"] = json!([initializer]);
    lab.apply(&manifest.to_string()).unwrap();
    lab.ends("asks", "Succeeded");
    let address = |pod: &str| lab.get(&format!("pod {pod}"))["status"]["podIP"].clone();
    let heard: Value = serde_json::from_str(&lab.logs("asks-launcher-0")).unwrap();
    assert_eq!(
        heard["worker"],
        json!({"phase": "Running", "running": true, "ips": [address("asks-worker-0"), address("asks-worker-1")]})
    );
    assert_eq!(heard["launcher"], json!({"phase": "Starting", "running": false}));
}
