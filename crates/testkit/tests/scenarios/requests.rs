//! ScaleOut and ScaleIn: requests to change the size of a job, on real nodes and on the embedded
//! cluster.

use serde_json::{Value, json};
use trainyard_testkit::lab::{Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "requests",
    &[Image::AGENT],
    [
        a_job_grows_and_shrinks_by_requests,
        requests_that_cannot_be_carried_out_say_why_and_remove_nobody,
        a_launcher_runs_the_scripts_that_the_observer_tells_it_of,
    ]
);

/// Trains until it is asked to go.
const WORKER: &str = "trap 'exit 0' TERM; while true; do sleep 0.2; done";

/// A job with two workers, which runs.
fn running(lab: &Lab) {
    let workers = [Role::worker(1, WORKER)];
    let more = r#"{"elastic": {"replicas": 2, "minReplicas": 2, "maxReplicas": 4}}"#;
    let mut manifest: Value = serde_json::from_str(&job("job", "custom", &workers, more)).unwrap();
    let role = &mut manifest["spec"]["roles"][0];
    role.as_object_mut().unwrap().remove("replicas");
    lab.apply(&manifest.to_string()).unwrap();
    lab.wait_for_phase("job", "Running");
}

fn ask(lab: &Lab, kind: &str, name: &str, mut spec: Value) {
    spec["jobRef"] = json!({"name": "job"});
    let request = json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    lab.apply(&request.to_string()).unwrap();
}

/// Waits until a request has ended. Returns its status.
fn end(lab: &Lab, kind: &str, name: &str) -> Value {
    lab.until(&format!("{name} ends"), || {
        let status = lab.get(&format!("{kind} {name}"))["status"].clone();
        if status["completionTime"].is_string() {
            Ok(status)
        } else {
            Err(format!("{status} {}", lab.get("tj job")["status"]))
        }
    })
}

fn wait_until_gone(lab: &Lab, request: &str) {
    lab.until(&format!("{request} is deleted"), || match lab.try_get(request) {
        Ok(request) => Err(request.to_string()),
        Err(_) => Ok(()),
    });
}

fn pods(lab: &Lab) -> Vec<String> {
    let pods = lab.get("pods");
    let items = pods["items"].as_array().unwrap().iter();
    let staying = items.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut names: Vec<String> = staying
        .filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

fn a_job_grows_and_shrinks_by_requests() {
    let (lab, _operator) = Lab::with_operator("requests");
    running(&lab);
    ask(&lab, "ScaleOut", "more", json!({"toAdd": {"count": 2}}));
    let status = end(&lab, "scaleout", "more");
    assert_eq!(status["phase"], "ScaleSucceeded", "{status}");
    assert_eq!((&status["from"], &status["to"]), (&json!(2), &json!(4)));
    assert_eq!(status["joining"], json!(["job-worker-2", "job-worker-3"]));
    assert_eq!(
        pods(&lab),
        ["job-worker-0", "job-worker-1", "job-worker-2", "job-worker-3"]
    );
    let job = lab.get("tj job");
    let request = lab.get("scaleout more");
    let owner = &request["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], job["metadata"]["uid"]);

    // Both at once: one after the other.
    ask(
        &lab,
        "ScaleIn",
        "one",
        json!({"toDelete": {"podNames": ["job-worker-1"]}}),
    );
    ask(&lab, "ScaleIn", "two", json!({"toDelete": {"count": 1}}));
    for (name, victims) in [("one", ["job-worker-1"]), ("two", ["job-worker-3"])] {
        let status = end(&lab, "scalein", name);
        assert_eq!(status["phase"], "ScaleSucceeded", "{status}");
        assert_eq!(status["victims"], json!(victims));
    }
    assert_eq!(pods(&lab), ["job-worker-0", "job-worker-2"]);
    let job = lab.get("tj job");
    assert_eq!(job["spec"]["elastic"]["replicas"], 2);
    assert_eq!(
        job["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    lab.wait_for_event("two", "ScaleSucceeded");

    // The requests go with their job.
    lab.delete("tj job");
    for request in ["scaleout more", "scalein one", "scalein two"] {
        wait_until_gone(&lab, request);
    }
}

fn requests_that_cannot_be_carried_out_say_why_and_remove_nobody() {
    let (lab, _operator) = Lab::with_operator("refused");
    running(&lab);
    ask(
        &lab,
        "ScaleIn",
        "nobody",
        json!({"toDelete": {"podNames": ["job-worker-9"]}, "policy": "Clamp"}),
    );
    let status = end(&lab, "scalein", "nobody");
    assert_eq!(status["phase"], "ScaleFailed");
    let message = "spec.toDelete.podNames[0]: \"job-worker-9\" is not a pod of the job job: nobody leaves";
    assert_eq!(status["message"], message);
    ask(&lab, "ScaleOut", "much", json!({"toAdd": {"count": 3}}));
    let status = end(&lab, "scaleout", "much");
    assert_eq!(status["phase"], "ScaleFailed");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("would have 5, but its maxReplicas is 4"),
        "{message}"
    );

    // The API server itself refuses what no request may say.
    let refused = |kind: &str, name: &str, spec: Value| -> String {
        let request = json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        lab.apply(&request.to_string()).unwrap_err()
    };
    let job = json!({"name": "job"});
    let said = refused("ScaleIn", "empty", json!({"jobRef": job, "toDelete": {}}));
    assert!(
        said.contains("give one of count, podNames and nodeNames"),
        "{said}"
    );
    let said = refused("ScaleOut", "much", json!({"jobRef": job, "toAdd": {"count": 1}}));
    assert!(
        said.contains("can't be changed: create another request instead"),
        "{said}"
    );

    // One that has ended is deleted after its time.
    ask(
        &lab,
        "ScaleIn",
        "short",
        json!({"toDelete": {"nodeNames": ["no-such-node"]}, "ttlSecondsAfterFinished": 1}),
    );
    wait_until_gone(&lab, "scalein short");
    assert_eq!(pods(&lab), ["job-worker-0", "job-worker-1"]);
    let job = lab.get("tj job");
    assert_eq!(job["spec"]["elastic"]["replicas"], 2, "{job}");
}

/// Makes the scripts, shows what they have written, and trains until it is asked to go. The first
/// has no executable bit. A script sees the variables of the container, and none of the agent's.
const LAUNCHER: &str = r#"
cat >/scripts/resize <<'END'
echo "resize $1 because of <$WHY> on $TRAINYARD_ROLE, asked at <$TRAINYARD_OBSERVER>" >>/scripts/said
END
cat >/scripts/fails <<'END'
#!/bin/sh
echo "fails $1" >>/scripts/said
echo "there is no room" >&2
exit 7
END
cat >/scripts/hangs <<'END'
#!/bin/sh
sleep 1000 & echo $! >/scripts/child
wait
END
chmod +x /scripts/fails /scripts/hangs
touch /scripts/said
tail -f /scripts/said &
trap 'exit 0' TERM
while true; do sleep 0.2; done
"#;

/// An elastic job with a launcher, whose pods find the observer.
fn running_with_launcher(lab: &Lab, aliases: &Value) {
    let launcher = Role {
        name: "launcher",
        replicas: 1,
        script: LAUNCHER,
        more: "",
    };
    let more =
        r#"{"elastic": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4, "drainTimeoutSeconds": 5}}"#;
    let roles = [launcher, Role::worker(1, WORKER)];
    let mut manifest: Value = serde_json::from_str(&job("job", "horovod", &roles, more)).unwrap();
    let spec = &mut manifest["spec"];
    spec["framework"]["horovod"] = json!({"controller": "Gloo", "slotsPerWorker": 2});
    for role in spec["roles"].as_array_mut().unwrap() {
        role["template"]["spec"]["hostAliases"] = aliases.clone();
    }
    let pod = &mut spec["roles"][0]["template"]["spec"];
    pod["volumes"] = json!([{"name": "scripts", "emptyDir": {}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "scripts", "mountPath": "/scripts"}]);
    spec["roles"][1].as_object_mut().unwrap().remove("replicas");
    lab.apply(&manifest.to_string()).unwrap();
    lab.wait_for_phase("job", "Running");
}

fn a_launcher_runs_the_scripts_that_the_observer_tells_it_of() {
    let (lab, _operator, aliases) = Lab::with_scripts("scripts");
    running_with_launcher(&lab, &aliases);
    let said = || lab.logs("job-launcher-0");

    let why = r#"it's "$(late)" & $HOME"#;
    let env = json!([{"name": "WHY", "value": why}]);
    let script = json!({"toAdd": {"count": 1}, "script": "/scripts/resize", "env": env});
    ask(&lab, "ScaleOut", "more", script);
    let status = end(&lab, "scaleout", "more");
    assert_eq!(status["phase"], "ScaleSucceeded", "{status}");
    assert_eq!(
        (&status["script"]["attempt"], &status["script"]["exitCode"]),
        (&json!(1), &json!(0))
    );
    let line = format!("resize job-worker-2:2 because of <{why}> on launcher, asked at <>");
    lab.until("the script has said so", || {
        let said = said();
        if said.lines().any(|known| known == line) {
            Ok(())
        } else {
            Err(said)
        }
    });

    // Nobody leaves if the script fails, and those who have joined are removed.
    let fails =
        json!({"toDelete": {"podNames": ["job-worker-1"]}, "script": "/scripts/fails", "backoffLimit": 1});
    ask(&lab, "ScaleIn", "fails", fails);
    let status = end(&lab, "scalein", "fails");
    let message = "Nobody leaves. Attempt 2 of 2 has ended with exit code 7: there is no room";
    assert_eq!(
        (&status["phase"], &status["message"]),
        (&json!("ScaleFailed"), &json!(message))
    );
    lab.until("it was tried twice", || {
        let said = said();
        let times = said
            .lines()
            .filter(|line| *line == "fails job-worker-1:2")
            .count();
        if times == 2 { Ok(()) } else { Err(said) }
    });
    let hangs = json!({"toAdd": {"count": 1}, "script": "/scripts/hangs", "timeoutSeconds": 20});
    ask(&lab, "ScaleOut", "hangs", hangs);
    let status = end(&lab, "scaleout", "hangs");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("The new pods were removed again. Attempt 1 of 1 has taken"),
        "{status}"
    );
    let workers = ["job-launcher-0", "job-worker-0", "job-worker-1", "job-worker-2"];
    lab.until("nobody has left, and nobody has joined", || {
        let pods = pods(&lab);
        if pods == workers {
            Ok(())
        } else {
            Err(format!("{pods:?}"))
        }
    });
    let job = lab.get("tj job");
    assert_eq!(job["spec"]["elastic"]["replicas"], 3);
    assert_eq!(
        job["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
}
