//! Jobs on real nodes: pods that run in containerd, find each other by name, end, and are replaced.
//!
//! Every test has its own namespace and its own operator, which watches that namespace only.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

use trainyard_testkit::lab::{Lab, Role, job};
use trainyard_testkit::operator::Operator;

fn lab(name: &str) -> (Lab, Operator) {
    let lab = Lab::new(name);
    trainyard_testkit::operator::install_crds(&lab.cluster);
    let operator = Operator::start(&lab.namespace);
    (lab, operator)
}

fn worker(replicas: u32, script: &str) -> Role<'_> {
    Role {
        name: "worker",
        replicas,
        script,
        more: "",
    }
}

#[test]
fn roles_find_each_other_by_name_and_the_job_succeeds() {
    let (lab, _operator) = lab("names");
    // Each worker asks the server for a word; the server ends when both have come.
    let server = "for i in 1 2; do echo ready-$MODULE-$INDEX | nc -l -p 7000; done";
    let client = "until nc $server 7000 </dev/null | grep ready-server-0; do sleep 1; done";
    let roles = [
        Role {
            name: "server",
            replicas: 1,
            script: server,
            more: "",
        },
        worker(2, client),
    ];
    lab.apply(&job("pair", "custom", &roles, "")).unwrap();
    let done = lab.phase("pair", "Succeeded");
    assert_eq!(done["status"]["roles"][1]["succeeded"], 2);
    assert_eq!(done["status"]["restarts"], serde_json::Value::Null);
    assert!(lab.kubectl("logs pair-worker-1").contains("ready-server-0"));
    let service = lab.get("service pair");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let events = lab.kubectl("get events --field-selector involvedObject.name=pair");
    assert!(events.contains("RolesSucceeded"), "{events}");
}

#[test]
fn a_failure_is_replaced_until_the_budget_is_spent_and_its_last_words_are_kept() {
    let (lab, _operator) = lab("budget");
    let roles = [worker(
        2,
        "if [ $RANK = 1 ]; then echo the disk is on fire; exit 3; fi; sleep 600",
    )];
    lab.apply(&job(
        "doomed",
        "pytorch",
        &roles,
        r#"{"runPolicy": {"backoffLimit": 1}}"#,
    ))
    .unwrap();
    let status = lab.phase("doomed", "Failed")["status"].clone();
    assert_eq!(status["restarts"]["failures"], 1, "{status:#}");
    assert_eq!(status["rootCause"]["pod"], "doomed-worker-1");
    assert_eq!(status["rootCause"]["exitCode"], 3);
    assert!(
        status["rootCause"]["message"]
            .as_str()
            .unwrap()
            .contains("the disk is on fire"),
        "{status:#}"
    );
    let failed = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Failed")
        .unwrap()
        .clone();
    assert_eq!(failed["reason"], "BackoffLimitExceeded");
    // cleanPodPolicy Running: the survivor is gone, the one that failed stays for its logs.
    lab.until("the survivor is removed", || {
        let pods = lab.pods("doomed");
        if pods == ["doomed-worker-1"] {
            Ok(())
        } else {
            Err(format!("{pods:?}"))
        }
    });
}

#[test]
fn exit_codes_decide_under_exit_code_policy() {
    let (lab, _operator) = lab("codes");
    let policy = r#"{"restartPolicy": "ExitCode"}"#;
    let permanent = [Role {
        more: policy,
        ..worker(1, "exit 2")
    }];
    let killed = [Role {
        more: policy,
        ..worker(1, "exit 137")
    }];
    lab.apply(&job("permanent", "custom", &permanent, "")).unwrap();
    lab.apply(&job(
        "killed",
        "custom",
        &killed,
        r#"{"runPolicy": {"backoffLimit": 1}}"#,
    ))
    .unwrap();
    let status = lab.phase("permanent", "Failed")["status"].clone();
    assert!(
        status["restarts"]["failures"].as_i64().unwrap_or(0) == 0,
        "{status:#}"
    );
    let status = lab.phase("killed", "Failed")["status"].clone();
    assert_eq!(status["restarts"]["failures"], 1, "{status:#}");
    assert_eq!(status["rootCause"]["exitCode"], 137, "{status:#}");
}

#[test]
fn one_pod_per_node_where_spread_is_required() {
    let (lab, _operator) = lab("spread");
    let spread = Role {
        more: r#"{"placement": {"spread": "Required"}}"#,
        ..worker(3, "sleep 600")
    };
    lab.apply(&job("apart", "custom", &[spread], "")).unwrap();
    // Two nodes, three pods: the third has no place, and the job says why.
    let status = lab.until("the role says what it waits for", || {
        let status = lab.get("tj apart")["status"].clone();
        let role = &status["roles"][0];
        let waits = role["active"] == 2 && role["reason"] == "Unschedulable";
        if waits {
            Ok(status)
        } else {
            Err(format!("{status:#}"))
        }
    });
    assert_eq!(status["phase"], "Starting");
    let pods = lab.get("pods");
    let nodes: std::collections::BTreeSet<&str> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    assert_eq!(nodes.len(), 2);
}

#[test]
fn the_masters_address_survives_the_master() {
    let (lab, _operator) = lab("master");
    // The worker resolves the address once, and must meet two masters behind it.
    let master = "while true; do echo master-$(cat /proc/sys/kernel/random/uuid) | nc -l -p 29500; done";
    let worker = "ip=; until [ -n \"$ip\" ]; do \
        ip=$(nslookup $MASTER_ADDR | awk '/^Address/ {a=$NF} END {print a}' | grep -v :53); sleep 1; done; \
        echo address $ip; first=; while true; do m=$(nc -w 2 $ip 29500 </dev/null | grep master); \
        [ -z \"$m\" ] || [ -n \"$first\" ] || { first=$m; touch /tmp/met; echo met $m; }; \
        [ -e /tmp/next ] && [ -n \"$m\" ] && { echo again $m; exit 0; }; sleep 1; done";
    let roles = [
        Role {
            name: "master",
            replicas: 1,
            script: master,
            more: "",
        },
        Role {
            name: "worker",
            replicas: 1,
            script: worker,
            more: "",
        },
    ];
    let more = r#"{"framework": {"name": "pytorch", "pytorch": {"masterService": "ClusterIP"}},
        "completion": {"succeededWhen": [{"allOf": ["worker"]}]}}"#;
    lab.apply(&job("stable", "pytorch", &roles, more)).unwrap();
    lab.until("the worker has met the master", || {
        lab.try_kubectl("exec stable-worker-0 -- ls /tmp/met").map(drop)
    });
    let before = lab.get("service stable-master")["spec"]["clusterIP"].clone();
    let uid = lab.get("pod stable-master-0")["metadata"]["uid"].clone();
    lab.kubectl("delete pod stable-master-0 --wait=false");
    lab.until("the master is replaced", || {
        let pod = lab.try_kubectl("get pod stable-master-0 -o json")?;
        let pod: serde_json::Value = serde_json::from_str(&pod).unwrap();
        let new = pod["metadata"]["uid"] != uid && pod["status"]["phase"] == "Running";
        if new {
            Ok(())
        } else {
            Err(pod["status"]["phase"].to_string())
        }
    });
    lab.kubectl("exec stable-worker-0 -- touch /tmp/next");
    let status = lab.phase("stable", "Succeeded")["status"].clone();
    assert_eq!(lab.get("service stable-master")["spec"]["clusterIP"], before);
    assert_eq!(status["restarts"]["disruptions"], 1, "{status:#}");
    assert_eq!(
        status["restarts"]["failures"], 0,
        "a pod that was removed did not fail: {status:#}"
    );
    let log = lab.kubectl("logs stable-worker-0");
    assert!(
        log.contains(&format!("address {}", before.as_str().unwrap())),
        "{log}"
    );
}

#[test]
fn suspending_removes_the_pods_and_resuming_starts_afresh() {
    let (lab, _operator) = lab("suspend");
    lab.apply(&job(
        "nap",
        "custom",
        &[worker(2, "sleep 600")],
        r#"{"suspend": true}"#,
    ))
    .unwrap();
    lab.phase("nap", "Suspended");
    assert!(
        lab.pods("nap").is_empty(),
        "a job that is created suspended has no pods"
    );
    lab.kubectl("patch tj nap --type merge -p {\"spec\":{\"suspend\":false}}");
    let first = lab.phase("nap", "Running")["status"]["startTime"].clone();
    lab.kubectl("patch tj nap --type merge -p {\"spec\":{\"suspend\":true}}");
    let status = lab.phase("nap", "Suspended")["status"].clone();
    assert_eq!(status["startTime"], serde_json::Value::Null, "{status:#}");
    lab.none("pods");
    lab.kubectl("patch tj nap --type merge -p {\"spec\":{\"suspend\":false}}");
    let again = lab.phase("nap", "Running")["status"].clone();
    assert_ne!(again["startTime"], first);
    assert_eq!(
        again["restarts"],
        serde_json::Value::Null,
        "suspending is no disruption: {again:#}"
    );
}

#[test]
fn deadline_and_time_to_live_come_by_timer() {
    let (lab, _operator) = lab("timers");
    let run = r#"{"runPolicy": {"activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 2, "cleanPodPolicy": "None"}}"#;
    lab.apply(&job("late", "custom", &[worker(1, "sleep 600")], run))
        .unwrap();
    let mut reason = None;
    lab.until("the job has failed and is gone", || {
        let found = lab.get("tj");
        let Some(job) = found["items"].as_array().unwrap().first().cloned() else {
            return Ok(());
        };
        let conditions = job["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        reason = conditions
            .iter()
            .find(|c| c["type"] == "Failed")
            .map(|c| c["reason"].clone())
            .or(reason.take());
        Err(format!("{:#}", job["status"]))
    });
    assert_eq!(reason, Some("DeadlineExceeded".into()));
    lab.none("pods");
}

#[test]
fn what_is_not_ours_is_not_touched() {
    let (lab, _operator) = lab("owner");
    lab.apply(r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": [{"port": 1}]}}"#)
        .unwrap();
    let before = lab.get("service taken");
    lab.apply(&job("taken", "custom", &[worker(1, "sleep 600")], ""))
        .unwrap();
    lab.until("the job says whose the name is", || {
        let status = lab.get("tj taken")["status"].clone();
        let accepted = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|c| c["type"] == "Accepted")
            .cloned();
        let told = accepted.is_some_and(|c| c["status"] == "False" && c["reason"] == "OwnershipConflict");
        if told { Ok(()) } else { Err(format!("{status:#}")) }
    });
    assert_eq!(lab.get("service taken"), before);
    let events = lab.kubectl("get events --field-selector involvedObject.name=taken");
    assert!(events.contains("OwnershipConflict"), "{events}");
    // The way out that the message names works.
    lab.kubectl("delete service taken");
    lab.phase("taken", "Running");
}

#[test]
fn thirty_malformed_jobs_keep_nobody_from_running() {
    let (lab, _operator) = lab("mixed");
    // What the schema lets through and only we can see; there is no webhook here.
    let broken: [(&str, &str, &str, &str); 5] = [
        ("tensorfly", "worker", "{}", "spec.framework.name"),
        ("pytorch", "chief", "{}", "spec.roles[0].name"),
        (
            "custom",
            "worker",
            r#"{"container": "absent"}"#,
            "spec.roles[0].container",
        ),
        (
            "custom",
            "worker",
            r#"{"template": {"spec": {"containers": []}}}"#,
            "spec.roles[0].template.spec.containers",
        ),
        (
            "pytorch",
            "worker",
            r#"{"template": {"spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "RANK", "value": "7"}]}]}}}"#,
            "env[0].name",
        ),
    ];
    let mut manifests = Vec::new();
    for i in 0..30 {
        manifests.push(job(&format!("good-{i}"), "custom", &[worker(1, "true")], ""));
        let (framework, role, more, _) = broken[i % broken.len()];
        let role = Role {
            name: role,
            replicas: 1,
            script: "true",
            more,
        };
        manifests.push(job(&format!("bad-{i}"), framework, &[role], ""));
    }
    lab.apply(&manifests.join("\n---\n")).unwrap();
    lab.until("all good jobs succeed and all bad ones say why", || {
        let jobs = lab.get("tj");
        let mut open = Vec::new();
        for job in jobs["items"].as_array().unwrap() {
            let name = job["metadata"]["name"].as_str().unwrap();
            let settled = if let Some(i) = name.strip_prefix("bad-") {
                let conditions = job["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let path = broken[i.parse::<usize>().unwrap() % broken.len()].3;
                conditions.iter().any(|c| {
                    c["type"] == "Accepted"
                        && c["status"] == "False"
                        && c["reason"] == "Invalid"
                        && c["message"]
                            .as_str()
                            .is_some_and(|message| message.contains(path))
                })
            } else {
                job["status"]["phase"] == "Succeeded"
            };
            if !settled {
                open.push(format!("{name}: {}", job["status"]));
            }
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(open.join("\n"))
        }
    });
    assert!(
        lab.kubectl("get pods -o name")
            .lines()
            .all(|pod| pod.contains("good-"))
    );
}

#[test]
fn a_change_that_admission_did_not_see_is_reported_and_healed() {
    let (lab, _operator) = lab("change");
    lab.apply(&job("edited", "custom", &[worker(1, "sleep 600")], ""))
        .unwrap();
    lab.phase("edited", "Running");
    lab.apply(&job("edited", "custom", &[worker(1, "sleep 700")], ""))
        .unwrap();
    let accepted = |wanted: &str| {
        lab.until(&format!("Accepted is {wanted}"), || {
            let status = lab.get("tj edited")["status"].clone();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions
                .iter()
                .find(|c| c["type"] == "Accepted")
                .cloned()
                .unwrap_or_default();
            if found["status"] == wanted {
                Ok(found)
            } else {
                Err(format!("{status:#}"))
            }
        })
    };
    assert!(
        accepted("False")["message"]
            .as_str()
            .unwrap()
            .contains("spec.roles[worker]")
    );
    lab.apply(&job("edited", "custom", &[worker(1, "sleep 600")], ""))
        .unwrap();
    accepted("True");
}
