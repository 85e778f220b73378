//! The kinds of et-operator: a job whose launcher asks who is there, and requests that change it.

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Change, Lab};

use super::{condition, names};

mod manifests;
mod samples;
mod training;

pub use samples::et_operators_samples_run_their_scripts;
pub use training::et_operators_own_manifests_train_with_horovod;

const JOB: &str = "trainingjob.kai.alibabacloud.com";
const SCALE_IN: &str = "scalein.kai.alibabacloud.com";
const SCALE_OUT: &str = "scaleout.kai.alibabacloud.com";

/// Waits until the job has had these numbers of workers one after the other, as horovodrun would
/// ask, and prints what both files have been.
const LAUNCHER: &str = "\
files() { echo edl: $(cat /etc/edl/hostfile) job: $(cat /job/hostfile); }
(while sleep 0.1; do now=$(files); [ \"$now\" = \"$last\" ] || echo \"$now\"; last=$now; done) &
for wanted in $SIZES; do
  until [ \"$(/etc/edl/discover_hosts.sh | wc -l)\" = $wanted ]; do sleep 0.2; done
  echo $wanted: $(/etc/edl/discover_hosts.sh)
done
";

fn template(container: &Value, aliases: &Value) -> Value {
    let mut template = lab::template(images::BUSYBOX, container);
    template["spec"]["hostAliases"] = aliases.clone();
    template
}

/// A job with two workers, of which none says what it runs, whose launcher waits for some sizes.
fn job(name: &str, sizes: &str, aliases: &Value) -> Value {
    let launcher = json!({
        "command": ["sh", "-c"], "args": [LAUNCHER], "env": [{"name": "SIZES", "value": sizes}],
    });
    json!({
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"etReplicaSpecs": {
            "launcher": {"replicas": 1, "template": template(&launcher, aliases)},
            "worker": {
                "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "template": template(&json!({}), aliases),
            },
        }},
    })
}

fn ask(lab: &Lab, kind: &str, name: &str, job: &str, mut spec: Value) {
    spec["selector"] = json!({"name": job});
    lab.apply_one(json!({
        "apiVersion": "kai.alibabacloud.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
}

/// Waits until a request has ended. Returns it.
fn end(lab: &Lab, request: &str) -> Value {
    lab.until(&format!("{request} ends"), || {
        let object = lab.get(request);
        if object["status"]["completionTime"].is_string() {
            Ok(object)
        } else {
            Err(format!(
                "{} {:#}",
                object["status"],
                lab.get("tj")["items"][0]["status"]
            ))
        }
    })
}

/// The types of the conditions that hold, in their order.
fn holding(object: &Value) -> Vec<&str> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let true_ones = conditions.filter(|condition| condition["status"] == "True");
    true_ones
        .filter_map(|condition| condition["type"].as_str())
        .collect()
}

/// The types of all conditions, in their order.
fn types(object: &Value) -> Vec<&str> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .filter_map(|condition| condition["type"].as_str())
        .collect()
}

fn wait_until_gone(lab: &Lab, what: &str) {
    lab.until(&format!("{what} is deleted"), || match lab.try_get(what) {
        Ok(object) => Err(object.to_string()),
        Err(_) => Ok(()),
    });
}

const STARTED: [&str; 5] = [
    "Created",
    "WorkersCreated",
    "WorkersReady",
    "LauncherCreated",
    "Running",
];

/// Its walk-through: a job, more workers, fewer by name and by number, the end, and all is gone
/// with the job.
pub fn et_operators_walk_through() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_observer("et");
    lab.apply_one(job("train", "2 4 3 2", &aliases)).unwrap();
    let what = format!("{JOB} train");
    let object = condition(&lab, &what, "Running", "True");
    assert_eq!(holding(&object), STARTED, "{object:#}");
    let workers = lab.get("pods -l training-job-name=train,training-job-role=worker");
    assert_eq!(names(&workers), ["train-worker-0", "train-worker-1"]);

    wait_until_seen(&lab, 2);
    ask(
        &lab,
        "ScaleOut",
        "more",
        "train",
        json!({"toAdd": {"count": 2}, "timeout": 300}),
    );
    let more = end(&lab, &format!("{SCALE_OUT} more"));
    assert_eq!(
        holding(&more),
        ["Created", "ScriptExecuted", "ScaleSucceeded"],
        "{more:#}"
    );
    assert_eq!(
        more["status"]["addPods"],
        json!(["train-worker-2", "train-worker-3"])
    );
    assert_eq!(
        more["metadata"]["ownerReferences"][0]["uid"], object["metadata"]["uid"],
        "it goes with its job"
    );

    wait_until_seen(&lab, 4);
    ask(
        &lab,
        "ScaleIn",
        "named",
        "train",
        json!({"toDelete": {"podNames": ["train-worker-1"]}}),
    );
    let named = end(&lab, &format!("{SCALE_IN} named"));
    assert_eq!(named["status"]["phase"], "ScaleSucceeded", "{named:#}");
    assert_eq!(named["status"]["toDeletePods"], json!(["train-worker-1"]));
    lab.until("the job lists who is left", || {
        let status = lab.get(&what)["status"].clone();
        let expected = json!(["train-worker-0", "train-worker-2", "train-worker-3"]);
        if status["targetWorkers"] == expected && status["currentWorkers"] == expected {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    wait_until_seen(&lab, 3);
    ask(
        &lab,
        "ScaleIn",
        "counted",
        "train",
        json!({"toDelete": {"count": 1}}),
    );
    let counted = end(&lab, &format!("{SCALE_IN} counted"));
    assert_eq!(
        counted["status"]["toDeletePods"],
        json!(["train-worker-3"]),
        "{counted:#}"
    );

    let ended = condition(&lab, &what, "Succeeded", "True");
    assert_eq!(ended["status"]["phase"], "Succeeded");
    let mut expected = STARTED[..4].to_vec();
    expected.extend(["ScaleSucceeded", "Succeeded"]);
    assert_eq!(holding(&ended), expected, "{ended:#}");
    let log = lab.logs("train-launcher");
    assert!(log.contains("4: train-worker-0:1 train-worker-1:1"), "{log}");
    assert!(log.contains("\n2: train-worker-0:1 train-worker-2:1\n"), "{log}");
    // One has left between the others, and no list has it.
    for line in [
        "3: train-worker-0:1 train-worker-2:1 train-worker-3:1",
        "edl: train-worker-0:1 train-worker-2:1 train-worker-3:1 \
         job: train-worker-0 slots=1 train-worker-2 slots=1 train-worker-3 slots=1",
    ] {
        assert!(log.lines().any(|known| known == line), "{line}\n{log}");
    }
    assert_eq!(
        ended["spec"]["etReplicaSpecs"]["worker"]["replicas"], 2,
        "what requests do is not written back"
    );

    // The job has ended, and so does a request that comes too late.
    ask(&lab, "ScaleOut", "late", "train", json!({"toAdd": {"count": 1}}));
    let late = end(&lab, &format!("{SCALE_OUT} late"));
    assert_eq!(holding(&late), ["Created", "ScaleFailed"], "{late:#}");

    lab.delete(&what);
    for request in ["more", "late"] {
        wait_until_gone(&lab, &format!("{SCALE_OUT} {request}"));
        wait_until_gone(&lab, &format!("scaleout {request}"));
    }
    wait_until_gone(&lab, &format!("{SCALE_IN} named"));
    lab.wait_until_gone("pods");
}

/// Bugs of et-operator: names that matched nothing removed everybody, and nobody looked at bounds.
pub fn et_requests_that_cannot_be_carried_out_remove_nobody() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_observer("et-refused");
    lab.apply_one(job("train", "9", &aliases)).unwrap();
    condition(&lab, &format!("{JOB} train"), "Running", "True");
    let refused = |kind: &str, request: &str, name: &str, spec: Value| -> String {
        ask(&lab, kind, name, "train", spec);
        let object = end(&lab, &format!("{request} {name}"));
        assert_eq!(holding(&object), ["Created", "ScaleFailed"], "{object:#}");
        let conditions = object["status"]["conditions"].as_array().unwrap();
        conditions.last().unwrap()["message"].as_str().unwrap().to_owned()
    };
    let said = refused(
        "ScaleIn",
        SCALE_IN,
        "nobody",
        json!({"toDelete": {"podNames": ["train-worker-10"]}}),
    );
    assert!(
        said.contains("is not a pod of the job train: nobody leaves"),
        "{said}"
    );
    let said = refused("ScaleIn", SCALE_IN, "empty", json!({}));
    assert!(said.contains("give count or podNames"), "{said}");
    let said = refused("ScaleIn", SCALE_IN, "all", json!({"toDelete": {"count": 2}}));
    assert!(said.contains("its minReplicas is 1"), "{said}");
    let said = refused("ScaleOut", SCALE_OUT, "much", json!({"toAdd": {"count": 3}}));
    assert!(said.contains("its maxReplicas is 4"), "{said}");
    let said = refused(
        "ScaleOut",
        SCALE_OUT,
        "script",
        json!({"toAdd": {"count": 1}, "script": "/bin/scaler.sh"}),
    );
    assert!(said.contains("scripts are off in this cluster"), "{said}");
    let workers = lab.get("pods -l training-job-role=worker");
    assert_eq!(names(&workers), ["train-worker-0", "train-worker-1"]);
}

/// Fails the first time.
const FAILS_ONCE: &str = "\
[ $TRAINYARD_ATTEMPT = 1 ] || exit 3
trap 'exit 0' TERM
while true; do sleep 0.2; done
";

/// Waits until the launcher has seen that the job has so many workers. The next change would hide
/// it.
fn wait_until_seen(lab: &Lab, workers: u32) {
    let line = format!("{workers}: ");
    lab.until(&format!("the launcher sees {workers} workers"), || {
        let log = lab.logs("train-launcher");
        let is_so = log.lines().any(|known| known.starts_with(&line));
        is_so.then_some(()).ok_or(log)
    });
}

/// The names and UIDs of the pods of the job.
fn uids(lab: &Lab) -> Vec<(String, String)> {
    let pods = lab.get("pods -l training-job-name=train");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = pods["items"].as_array().into_iter().flatten();
    let mut uids: Vec<_> = items
        .map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"])))
        .collect();
    uids.sort();
    uids
}

/// The restart policy is that of the whole job, and so is the annotation that suspends it.
pub fn et_jobs_start_anew_and_are_suspended_as_a_whole() {
    let (lab, _operator, aliases) = Lab::with_kinds_and_observer("et-anew");
    let mut manifest = job("train", "", &aliases);
    manifest["spec"]["restartPolicy"] = "OnFailure".into();
    manifest["spec"]["backoffLimit"] = 1.into();
    let launcher = &mut manifest["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]["containers"][0];
    launcher["args"] = json!([FAILS_ONCE]);
    let what = format!("{JOB} train");
    let mut pods = lab.follow("pods");
    lab.apply_one(manifest).unwrap();
    let mut first = std::collections::BTreeSet::new();
    pods.until("the launcher has failed", |change| {
        let (Change::Applied(pod) | Change::Deleted(pod)) = change;
        first.insert(pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        (pod["metadata"]["name"] == "train-launcher" && pod["status"]["phase"] == "Failed").then_some(())
    });
    assert_eq!(first.len(), 3);
    let again = lab.until("it runs again", || {
        let object = lab.get(&what);
        let status = &object["status"];
        let is_so = status["restartCount"] == 1 && holding(&object) == STARTED;
        is_so.then(|| object.clone()).ok_or_else(|| status.to_string())
    });
    assert_eq!(again["status"]["phase"], "Running");
    let second = uids(&lab);
    let names: Vec<&str> = second.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["train-launcher", "train-worker-0", "train-worker-1"]);
    assert!(second.iter().all(|(_, uid)| !first.contains(uid)), "all are new");

    let suspend = |value: Value| {
        let annotations = json!({"job-supervisor.kube-ai.io/job-suspended": value});
        lab.merge(&what, &json!({"metadata": {"annotations": annotations}}));
    };
    suspend("true".into());
    let suspended = condition(&lab, &what, "Suspended", "True");
    assert_eq!(holding(&suspended), ["Created", "Suspended"], "{suspended:#}");
    lab.wait_until_gone("pods");
    suspend(Value::Null);
    let resumed = condition(&lab, &what, "Running", "True");
    assert_eq!(holding(&resumed), STARTED, "{resumed:#}");
}
