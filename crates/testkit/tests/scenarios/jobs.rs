//! Jobs on real nodes: pods that run in containerd, find each other by name, end, and are replaced.
//!
//! Every test has its own namespace and its own operator, which watches that namespace only.

use serde_json::{Value, json};
use trainyard_testkit::lab::{Change, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "jobs",
    &[],
    [
        roles_find_each_other_by_name_and_the_job_succeeds,
        a_failure_is_replaced_until_the_budget_is_spent_and_its_last_words_are_kept,
        exit_codes_decide_under_exit_code_policy,
        a_pod_that_is_deleted_before_its_program_began_is_made_again,
        one_pod_per_node_where_spread_is_required,
        the_masters_address_survives_the_master,
        suspending_removes_the_pods_and_resuming_starts_afresh,
        deadline_and_time_to_live_come_by_timer,
        commands_run_in_a_pod_and_its_events_tell_what_became_of_it,
    ]
);

fn roles_find_each_other_by_name_and_the_job_succeeds() {
    let (lab, _operator) = Lab::with_operator("names");
    // Each worker asks the server for a word, until it gets one: a connection that ends before it
    // does is lost.
    let server = "while true; do echo ready-$MODULE-$INDEX | nc -l -p 7000; done";
    let client = "until nc $server 7000 </dev/null | grep ready-server-0; do sleep 1; done";
    let roles = [
        Role {
            name: "server",
            replicas: 1,
            script: server,
            more: "",
        },
        Role::worker(2, client),
    ];
    let rule = r#"{"completion": {"succeededWhen": [{"allOf": ["worker"]}]}}"#;
    lab.apply(&job("pair", "custom", &roles, rule)).unwrap();
    let done = lab.wait_for_phase("pair", "Succeeded");
    assert_eq!(done["status"]["roles"][1]["succeeded"], 2);
    assert_eq!(done["status"]["roles"][0]["phase"], "Stopped");
    assert_eq!(
        done["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    assert!(lab.logs("pair-worker-1").contains("ready-server-0"));
    let service = lab.get("service pair");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    lab.wait_for_event("pair", "RolesSucceeded");
}

fn a_failure_is_replaced_until_the_budget_is_spent_and_its_last_words_are_kept() {
    let (lab, _operator) = Lab::with_operator("budget");
    let roles = [Role::worker(
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
    let status = lab.wait_for_phase("doomed", "Failed")["status"].clone();
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

fn exit_codes_decide_under_exit_code_policy() {
    let (lab, _operator) = Lab::with_operator("codes");
    let policy = r#"{"restartPolicy": "ExitCode"}"#;
    let permanent = [Role {
        more: policy,
        ..Role::worker(1, "exit 2")
    }];
    let killed = [Role {
        more: policy,
        ..Role::worker(1, "exit 137")
    }];
    let mut late: Value = serde_json::from_str(&job(
        "late",
        "custom",
        &[Role {
            more: policy,
            ..Role::worker(1, "exec sleep 600")
        }],
        "",
    ))
    .unwrap();
    // Ended by a signal, as the user wanted.
    late["spec"]["roles"][0]["template"]["spec"]["activeDeadlineSeconds"] = 1.into();
    lab.apply(&late.to_string()).unwrap();
    lab.apply(&job("permanent", "custom", &permanent, "")).unwrap();
    lab.apply(&job(
        "killed",
        "custom",
        &killed,
        r#"{"runPolicy": {"backoffLimit": 1}}"#,
    ))
    .unwrap();
    let status = lab.wait_for_phase("permanent", "Failed")["status"].clone();
    assert!(
        status["restarts"]["failures"].as_i64().unwrap_or(0) == 0,
        "{status:#}"
    );
    let status = lab.wait_for_phase("killed", "Failed")["status"].clone();
    assert_eq!(status["restarts"]["failures"], 1, "{status:#}");
    assert_eq!(status["rootCause"]["exitCode"], 137, "{status:#}");
    let status = lab.wait_for_phase("late", "Failed")["status"].clone();
    assert_eq!(status["rootCause"]["reason"], "DeadlineExceeded", "{status:#}");
}

fn a_pod_that_is_deleted_before_its_program_began_is_made_again() {
    let (lab, _operator) = Lab::with_operator("unbegun");
    let once = Role {
        more: r#"{"restartPolicy": "Never"}"#,
        ..Role::worker(1, "true")
    };
    let mut manifest: Value = serde_json::from_str(&job("early", "custom", &[once], "")).unwrap();
    let pod = &mut manifest["spec"]["roles"][0]["template"]["spec"];
    pod["volumes"] = json!([{"name": "data", "secret": {"secretName": "later"}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    lab.apply(&manifest.to_string()).unwrap();
    let first = lab.until("its node has begun with it", || {
        let pod = lab.try_get("pod early-worker-0")?;
        let container = &pod["status"]["containerStatuses"][0];
        match container["state"]["waiting"]["reason"].as_str() {
            Some("ContainerCreating") => Ok(pod["metadata"]["uid"].clone()),
            other => Err(format!("{other:?}")),
        }
    });
    lab.delete("pod early-worker-0");
    lab.until("it is made again", || match lab.try_get("pod early-worker-0") {
        Ok(pod) if pod["metadata"]["uid"] != first => Ok(()),
        other => Err(format!("{other:?}")),
    });
    lab.apply(r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}}"#)
        .unwrap();
    let status = lab.wait_for_phase("early", "Succeeded")["status"].clone();
    let counts = json!({"failures": 0, "disruptions": 0});
    assert_eq!(status["restarts"], counts, "{status:#}");
}

fn one_pod_per_node_where_spread_is_required() {
    let (lab, _operator) = Lab::with_operator("spread");
    let spread = Role {
        more: r#"{"placement": {"spread": "Required"}}"#,
        ..Role::worker(3, "sleep 600")
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

fn the_masters_address_survives_the_master() {
    let (lab, _operator) = Lab::with_operator("master");
    // The worker resolves the address once, and must meet two masters behind it.
    let master =
        "id=$(cat /proc/sys/kernel/random/uuid); while true; do echo master-$id | nc -l -p 29500; done";
    let worker = "ip=; until [ -n \"$ip\" ]; do \
        ip=$(nslookup $MASTER_ADDR | awk '/^Address/ {a=$NF} END {print a}' | grep -v :53); sleep 1; done; \
        echo address $ip; first=; while true; do m=$(nc -w 2 $ip 29500 </dev/null | grep master); \
        [ -z \"$m\" ] || [ -n \"$first\" ] || { first=$m; echo met $m; }; \
        [ -n \"$m\" ] && [ \"$m\" != \"$first\" ] && { echo again $m; exit 0; }; sleep 1; done";
    let roles = [
        Role {
            name: "master",
            replicas: 1,
            script: master,
            more: r#"{"restartScope": "Pod"}"#,
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
    lab.wait_for_phase("stable", "Running");
    lab.until("the worker has met the master", || {
        let log = lab.logs("stable-worker-0");
        if log.contains("met master") {
            Ok(())
        } else {
            Err(log)
        }
    });
    let before = lab.get("service stable-master")["spec"]["clusterIP"].clone();
    let uid = lab.get("pod stable-master-0")["metadata"]["uid"].clone();
    lab.delete("pod stable-master-0");
    lab.until("the master is replaced", || {
        let pod = lab.try_get("pod stable-master-0")?;
        let new = pod["metadata"]["uid"] != uid && pod["status"]["phase"] == "Running";
        if new {
            Ok(())
        } else {
            Err(pod["status"]["phase"].to_string())
        }
    });
    let status = lab.wait_for_phase("stable", "Succeeded")["status"].clone();
    assert_eq!(lab.get("service stable-master")["spec"]["clusterIP"], before);
    assert_eq!(status["restarts"]["disruptions"], 1, "{status:#}");
    assert_eq!(
        status["restarts"]["failures"], 0,
        "a pod that was removed did not fail: {status:#}"
    );
    let log = lab.logs("stable-worker-0");
    assert!(
        log.contains(&format!("address {}", before.as_str().unwrap())),
        "{log}"
    );
}

fn suspending_removes_the_pods_and_resuming_starts_afresh() {
    let (lab, _operator) = Lab::with_operator("suspend");
    lab.apply(&job(
        "nap",
        "custom",
        &[Role::worker(2, "sleep 600")],
        r#"{"suspend": true}"#,
    ))
    .unwrap();
    lab.wait_for_phase("nap", "Suspended");
    assert!(
        lab.pods("nap").is_empty(),
        "a job that is created suspended has no pods"
    );
    lab.merge("tj nap", &json!({"spec": {"suspend": false}}));
    let first = lab.wait_for_phase("nap", "Running")["status"]["startTime"].clone();
    lab.merge("tj nap", &json!({"spec": {"suspend": true}}));
    let status = lab.wait_for_phase("nap", "Suspended")["status"].clone();
    assert_eq!(status["startTime"], serde_json::Value::Null, "{status:#}");
    assert!(lab.pods("nap").is_empty(), "it is suspended when they are gone");
    lab.merge("tj nap", &json!({"spec": {"suspend": false}}));
    let again = lab.wait_for_phase("nap", "Running")["status"].clone();
    assert_ne!(again["startTime"], first);
    assert_eq!(
        again["restarts"],
        json!({"failures": 0, "disruptions": 0}),
        "suspending is no disruption: {again:#}"
    );
}

fn deadline_and_time_to_live_come_by_timer() {
    let (lab, _operator) = Lab::with_operator("timers");
    let run = r#"{"runPolicy": {"activeDeadlineSeconds": 3, "ttlSecondsAfterFinished": 2, "cleanPodPolicy": "None"}}"#;
    // Every version is looked at: between its failure and its end there are two seconds, in which
    // nobody need look.
    let mut jobs = lab.follow("tj");
    lab.apply(&job("late", "custom", &[Role::worker(1, "sleep 600")], run))
        .unwrap();
    let mut reason = None;
    jobs.until("the job has failed and is gone", |change| {
        let (Change::Applied(job) | Change::Deleted(job)) = change;
        let conditions = job["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let failed = conditions.find(|condition| condition["type"] == "Failed");
        if let Some(failed) = failed {
            reason = Some(failed["reason"].clone());
        }
        matches!(change, Change::Deleted(_)).then_some(())
    });
    assert_eq!(reason, Some("DeadlineExceeded".into()));
    lab.wait_until_gone("pods");
}

fn commands_run_in_a_pod_and_its_events_tell_what_became_of_it() {
    let (lab, _operator) = Lab::with_operator("commands");
    let script = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    lab.apply(&job("busy", "custom", &[Role::worker(1, script)], ""))
        .unwrap();
    lab.wait_for_phase("busy", "Running");
    let pod = "busy-worker-0";
    let words = "read word; echo $word from $HOSTNAME, $INDEX, $(id -u); echo doubt >&2; exit 3";
    let outcome = lab.exec(pod, None, &["sh", "-c", words], "hello\n").unwrap();
    assert_eq!(
        (outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()),
        (3, "hello from busy-worker-0, 0, 1000\n", "doubt\n")
    );
    for (container, command, expected) in [
        (
            Some("nobody"),
            "true",
            "container nobody is not valid for pod busy-worker-0",
        ),
        (
            Some("main"),
            "no-such-command",
            "exec: \"no-such-command\": executable file not found in $PATH",
        ),
    ] {
        let refusal = lab.exec(pod, container, &[command], "").unwrap_err();
        assert!(refusal.contains(expected), "{refusal}");
    }
    let events = lab.until("the pod has its events", || {
        let events = lab.events(pod);
        let has = |reason| events.lines().any(|line| line.starts_with(reason));
        let all = ["Scheduled ", "Pulled ", "Created ", "Started "]
            .into_iter()
            .all(has);
        if all { Ok(events) } else { Err(events) }
    });
    for words in [
        "Container created",
        "Container started",
        "Successfully assigned commands-",
    ] {
        assert!(events.contains(words), "{events}");
    }
    // The end of the first process may overtake that of the one that told it to go.
    let killed = lab.exec(pod, None, &["kill", "1"], "").unwrap().code;
    assert!([0, 137].contains(&killed), "{killed}");
    lab.wait_for_phase("busy", "Succeeded");
    lab.until("the container is gone", || {
        match lab.exec(pod, None, &["true"], "") {
            Err(refusal) if refusal.contains("container not found (\"main\")") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
