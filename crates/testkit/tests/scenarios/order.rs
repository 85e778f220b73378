//! Roles that wait for each other, on real nodes and on the embedded cluster.

use serde_json::{Value, json};
use trainyard_testkit::lab::{Change, Follower, Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "order",
    &[Image::AGENT],
    [
        a_role_waits_until_another_is_ready_and_then_starts,
        what_can_never_come_fails_who_waits_and_names_who_failed_first,
        the_order_is_kept_when_a_job_is_resumed,
        an_init_container_that_asks_ares_observer_hears_all_addresses_at_once,
        who_hears_the_observer_is_let_go_by_it_and_who_can_not_starts_all_the_same,
    ]
);

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

/// The first pod of a role waits, and the role says for what.
fn waits(lab: &Lab, job: &str, role: &str, said: &str) {
    lab.until(&format!("{role} says what it waits for"), || {
        assert_waits(lab, &format!("{job}-{role}-0"));
        let status = role_status(lab, job, role);
        if status["reason"] == "WaitingForRoles" && status["message"] == said {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
}

/// Whether the program of a pod runs, or has run.
fn has_started(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    containers.any(|container| {
        let state = &container["state"];
        container["name"] == "main" && (state["running"].is_object() || state["terminated"].is_object())
    })
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A kubelet may tell that the program has ended before it tells that the pod has.
fn has_succeeded(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    containers
        .any(|container| container["name"] == "main" && container["state"]["terminated"]["exitCode"] == 0)
}

/// Goes from change to change until the program of a pod has started; the other, which it waits
/// for, must have come so far before. Changes come in the order in which they were made, however
/// late they are looked at.
fn starts_after(pods: &mut Follower<'_>, pod: &str, other: &str, so_far: fn(&Value) -> bool) {
    let mut has_come = false;
    pods.until(&format!("{pod} starts"), |change| {
        match change {
            Change::Applied(is) if is["metadata"]["name"] == other => has_come |= so_far(is),
            Change::Applied(is) if is["metadata"]["name"] == pod && has_started(is) => {
                assert!(has_come, "{pod} has started before {other} was so far: {is:#}");
                return Some(());
            }
            _ => {}
        }
        None
    });
}

/// The program of a pod has not started.
fn assert_waits(lab: &Lab, pod: &str) {
    if let Ok(pod) = lab.try_get(&format!("pod {pod}")) {
        assert!(!has_started(&pod), "{pod:#}");
    }
    let said = lab.try_logs_of(pod, "main");
    assert!(said.as_deref().unwrap_or_default().is_empty(), "{said:?}");
}

/// A server that is ready only once it is told so.
const SERVER: &str = "trap 'exit 0' TERM; while true; do sleep 0.1; done";

/// A job whose client starts when its server is ready.
fn pair(name: &str) -> Value {
    let after = r#"{"dependsOn": [{"role": "server", "state": "Ready"}]}"#;
    let roles = [role("client", "echo started", after), role("server", SERVER, "")];
    let completion = r#"{"completion": {"succeededWhen": [{"allOf": ["client"]}]}, "runPolicy": {"cleanPodPolicy": "None"}}"#;
    let mut manifest: Value = serde_json::from_str(&job(name, "custom", &roles, completion)).unwrap();
    let server = &mut manifest["spec"]["roles"][1]["template"]["spec"];
    server["volumes"] = json!([{"name": "signs", "emptyDir": {}}]);
    server["containers"][0]["volumeMounts"] = json!([{"name": "signs", "mountPath": "/signs"}]);
    server["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["test", "-e", "/signs/ready"]}, "periodSeconds": 1});
    manifest
}

/// Tells the server of such a job, which runs, that it is ready.
fn server_is_ready(lab: &Lab, job: &str) {
    let told = lab.exec(&format!("{job}-server-0"), None, &["touch", "/signs/ready"], "");
    let told = told.unwrap();
    assert_eq!(told.code, 0, "{}", told.stderr);
}

fn a_role_waits_until_another_is_ready_and_then_starts() {
    let (lab, _operator) = Lab::with_operator("order");
    let mut pods = lab.follow("pods");
    lab.apply(&pair("pair").to_string()).unwrap();
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
    server_is_ready(&lab, "pair");
    lab.wait_for_phase("pair", "Succeeded");
    starts_after(&mut pods, "pair-client-0", "pair-server-0", is_ready);
    assert!(lab.logs("pair-client-0").contains("started"));
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
    let status = lab.wait_for_phase("vain", "Failed")["status"].clone();
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
    let run = |mut pods: Follower<'_>| {
        waits(&lab, "again", "train", "waits for the role data to succeed");
        lab.until("the data can be told", || {
            match lab.exec("again-data-0", None, &["touch", "/signs/go"], "") {
                Ok(outcome) if outcome.code == 0 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        lab.wait_for_phase("again", "Running");
        starts_after(&mut pods, "again-train-0", "again-data-0", has_succeeded);
    };
    let pods = lab.follow("pods");
    lab.apply(&manifest.to_string()).unwrap();
    run(pods);
    lab.merge("tj again", &json!({"spec": {"suspend": true}}));
    lab.wait_for_phase("again", "Suspended");
    lab.wait_until_gone("pods");
    let pods = lab.follow("pods");
    lab.merge("tj again", &json!({"spec": {"suspend": false}}));
    run(pods);
}

/// Whether the agent in a pod waits for other roles.
fn waits_inside(pod: &Value) -> bool {
    let containers = pod["status"]["initContainerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    containers
        .any(|container| container["name"] == "trainyard-wait" && container["state"]["running"].is_object())
}

/// The deaf one is as under a network policy that denies by default. The operator tells it by an
/// annotation, once it has waited in vain for some ten seconds.
fn who_hears_the_observer_is_let_go_by_it_and_who_can_not_starts_all_the_same() {
    let (lab, _operator, aliases) = Lab::with_observer("hears");
    let mut pods = lab.follow("pods");
    // In the pod itself nobody listens.
    let nobody = json!([{"ip": "127.0.0.1", "hostnames": aliases[0]["hostnames"]}]);
    for (name, aliases) in [("hears", aliases), ("deaf", nobody)] {
        let mut manifest = pair(name);
        manifest["spec"]["roles"][0]["template"]["spec"]["hostAliases"] = aliases;
        lab.apply(&manifest.to_string()).unwrap();
    }
    let told = |pod: &Value| pod["metadata"]["annotations"]["trainyard.dev/start"].clone();
    for name in ["hears", "deaf"] {
        lab.until("the client waits inside, and the server runs", || {
            let (client, server) = (
                lab.try_get(&format!("pod {name}-client-0"))?,
                lab.try_get(&format!("pod {name}-server-0"))?,
            );
            if waits_inside(&client) && server["status"]["phase"] == "Running" {
                assert_eq!(told(&client), Value::Null);
                Ok(())
            } else {
                Err(format!("{} {}", client["status"], server["status"]))
            }
        });
    }
    let agent_says = |name: &str| lab.try_logs_of(&format!("{name}-client-0"), "trainyard-wait");
    lab.until("the client hears what it waits for", || {
        let said = agent_says("hears")?;
        if said.contains("waits for the role server to be ready") {
            Ok(())
        } else {
            Err(said)
        }
    });
    for name in ["hears", "deaf"] {
        assert_waits(&lab, &format!("{name}-client-0"));
        server_is_ready(&lab, name);
    }
    for name in ["hears", "deaf"] {
        lab.wait_until_ended(name, "Succeeded");
        assert!(lab.logs(&format!("{name}-client-0")).contains("started"));
    }
    starts_after(&mut pods, "hears-client-0", "hears-server-0", is_ready);
    // The agent's own words, and not the annotation: on a busy machine a pod that was let go in
    // time may still get that, because it takes its programs more than ten seconds to start.
    let by_annotation = "told to start now, by the annotation trainyard.dev/start";
    let said = agent_says("hears").unwrap();
    assert!(!said.contains(by_annotation), "{said}");
    let said = agent_says("deaf").unwrap();
    assert!(said.contains(by_annotation), "{said}");
    let client = lab.get("pod deaf-client-0");
    assert_eq!(told(&client), "now", "{client:#}");
}

/// As the init containers of AresOperator do: it asks until the role runs, and writes what it heard
/// for the program. The input of `nc` ends late, because it tells the server of that, which takes
/// it for the end of the connection.
pub const ASK: &str = r#"
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
    lab.wait_until_ended("asks", "Succeeded");
    let address = |pod: &str| lab.get(&format!("pod {pod}"))["status"]["podIP"].clone();
    let heard: Value = serde_json::from_str(&lab.logs("asks-launcher-0")).unwrap();
    assert_eq!(
        heard["worker"],
        json!({"phase": "Running", "running": true, "ips": [address("asks-worker-0"), address("asks-worker-1")]})
    );
    assert_eq!(heard["launcher"], json!({"phase": "Starting", "running": false}));
}
