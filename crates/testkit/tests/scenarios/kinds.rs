//! Jobs of other operators' kinds, applied as their users write them, on real nodes and on the
//! embedded cluster.

mod ares;
mod dl;
mod edits;
mod et;

use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Image, Lab, Scenarios};
use trainyard_testkit::scenarios;

use self::ares::{
    a_bad_ares_job_is_told_so_and_harms_nobody, ares_jobs_of_all_types_come_to_their_end,
    ares_jobs_that_fail_say_why_and_are_cleared_away, its_observer_answers_for_an_ares_job,
    pods_of_an_ares_job_are_found_and_follow_its_annotations,
};
use self::dl::{
    a_tfjob_runs_as_it_is_and_its_failure_is_told, an_mxjob_runs_as_it_is,
    what_the_observer_hears_last_is_the_result,
};
use self::edits::{
    editing_num_workers_changes_workers_and_the_host_file, editing_the_worker_template_rolls_workers,
};
use self::et::{
    et_jobs_start_anew_and_are_suspended_as_a_whole, et_operators_own_manifests_train_with_horovod,
    et_operators_samples_run_their_scripts, et_operators_walk_through,
    et_requests_that_cannot_be_carried_out_remove_nobody,
};

pub const SCENARIOS: Scenarios = scenarios!(
    "kinds",
    &[Image::AGENT, Image::MPI, Image::SCALER],
    [
        np_is_honoured_and_a_finished_job_keeps_no_workers,
        a_kubeflow_job_runs_as_it_is,
        editing_num_workers_changes_workers_and_the_host_file,
        editing_the_worker_template_rolls_workers,
        an_mxjob_runs_as_it_is,
        a_tfjob_runs_as_it_is_and_its_failure_is_told,
        what_the_observer_hears_last_is_the_result,
        what_can_not_be_served_says_why,
        ares_jobs_of_all_types_come_to_their_end,
        pods_of_an_ares_job_are_found_and_follow_its_annotations,
        a_bad_ares_job_is_told_so_and_harms_nobody,
        ares_jobs_that_fail_say_why_and_are_cleared_away,
        its_observer_answers_for_an_ares_job,
        et_operators_walk_through,
        et_requests_that_cannot_be_carried_out_remove_nobody,
        et_operators_samples_run_their_scripts,
        et_jobs_start_anew_and_are_suspended_as_a_whole,
    ]
);

/// Real trainings by kinds of other operators.
pub const TRAININGS: Scenarios = scenarios!(
    "elastic_trainings",
    &[Image::AGENT, Image::HOROVOD],
    [et_operators_own_manifests_train_with_horovod]
);

const BDAP: &str = "mpijob.batch.test.bdap.com";
const KUBEFLOW: &str = "mpijob.kubeflow.org";

fn template(container: &Value) -> Value {
    let mut template = lab::template(images::MPI, container);
    lab::own_tmp(&mut template);
    lab::tolerate_silence(&mut template);
    template
}

/// A job of a launcher that runs two ranks and says which hosts it was given.
fn bdap(name: &str, workers: u32) -> Value {
    let script = "cat $OMPI_MCA_orte_default_hostfile && exec mpirun.openmpi -np 2 --hostfile \
                  $OMPI_MCA_orte_default_hostfile /usr/local/bin/allreduce-openmpi4";
    let mut launcher = template(&json!({"command": ["/bin/sh", "-c"], "args": [script]}));
    launcher["spec"]["restartPolicy"] = "Never".into();
    launcher["metadata"] = json!({"labels": {"course": "ml"}});
    let worker = template(&json!({
        "command": ["/bin/sh", "-c"],
        "args": ["touch /tmp/ready.txt && exec sleep infinity"],
        "readinessProbe": {"exec": {"command": ["cat", "/tmp/ready.txt"]}, "periodSeconds": 1},
    }));
    json!({
        "apiVersion": "batch.test.bdap.com/v1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"numWorkers": workers, "launcherTemplate": launcher, "workerTemplate": worker},
    })
}

/// A job whose image has an SSH server, which workers run where nothing is said.
fn kubeflow(name: &str, run_policy: &Value) -> Value {
    let command = ["mpirun.openmpi", "-n", "2", "/usr/local/bin/allreduce-openmpi4"];
    let mut launcher = template(&json!({"command": command}));
    let mut worker = template(&json!({}));
    lab::over_ssh(&mut launcher, false);
    lab::over_ssh(&mut worker, true);
    json!({
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": run_policy,
            "sshAuthMountPath": images::SSH_KEYS,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher},
                "Worker": {"replicas": 2, "template": worker},
            },
        },
    })
}

/// Waits until a condition of an object is as wanted; the object.
fn condition(lab: &Lab, what: &str, kind: &str, wanted: &str) -> Value {
    lab.until(&format!("{what}: {kind} is {wanted}"), || {
        let object = lab.get(what);
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|condition| condition["type"] == kind);
        if conditions
            .next()
            .is_some_and(|condition| condition["status"] == wanted)
        {
            return Ok(object.clone());
        }
        let pods = lab.get("pods");
        let pods = pods["items"].as_array().into_iter().flatten();
        let names = pods.filter_map(|pod| pod["metadata"]["name"].as_str());
        let logs = names.map(|pod| format!("{pod}: {}", lab.try_logs(pod).unwrap_or_default()));
        let logs = logs.collect::<Vec<_>>().join("\n");
        let child = lab.get("tj");
        Err(format!(
            "{:#}\n{:#}\n{logs}",
            object["status"], child["items"][0]["status"]
        ))
    })
}

/// Kills the sleep of a container, whose script goes on then, until the container has ended.
fn wake(lab: &Lab, pod: &str, container: &str) {
    lab.until(&format!("{pod} ends"), || {
        // It may be deleted with its job as soon as it ends.
        let Ok(found) = lab.try_get(&format!("pod {pod}")) else {
            return Ok(());
        };
        let mut statuses = found["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten();
        let is_over =
            |status: &Value| status["name"] == container && status["state"]["terminated"].is_object();
        if statuses.any(is_over) {
            return Ok(());
        }
        // Too early, or the container ends meanwhile.
        let done = lab.exec(pod, Some(container), &["killall", "-KILL", "sleep"], "");
        Err(format!("{done:?}"))
    });
}

/// The hosts of the ranks that have said something.
fn ranks(log: &str, of: usize) -> Vec<&str> {
    let said = |rank: usize| {
        let begin = format!("rank {rank} of {of} on ");
        let line = log.lines().find_map(|line| line.strip_prefix(&*begin))?;
        line.split_once(": ").map(|(host, _)| host)
    };
    let mut hosts: Vec<&str> = (0..of).map_while(said).collect();
    hosts.sort_unstable();
    hosts
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = items
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    names.sort_unstable();
    names
}

/// Bugs of its operator: all workers were used, whatever was asked for, and stayed at the end.
/// Workers here say themselves when they are ready.
fn np_is_honoured_and_a_finished_job_keeps_no_workers() {
    let (lab, _operator) = Lab::with_kinds("bdap");
    lab.apply_one(bdap("sum", 3)).unwrap();
    let what = format!("{BDAP} sum");
    let object = condition(&lab, &what, "Succeeded", "True");
    assert_eq!(object["status"]["phase"], "Succeeded", "{object:#}");
    assert!(object["status"]["completionTime"].is_string(), "{object:#}");
    let log = lab.logs("sum-launcher");
    for host in [
        "sum-worker-0 slots=1",
        "sum-worker-1 slots=1",
        "sum-worker-2 slots=1",
    ] {
        assert!(log.lines().any(|line| line == host), "{log}");
    }
    assert_eq!(ranks(&log, 2), ["sum-worker-0", "sum-worker-1"], "{log}");
    let launcher = lab.get("pod sum-launcher");
    assert_eq!(launcher["metadata"]["labels"]["course"], "ml");
    lab.until("the workers are gone", || match &*names(&lab.get("pods")) {
        ["sum-launcher"] => Ok(()),
        others => Err(others.join(", ")),
    });
    let child = lab.get("tj sum");
    let owner = &child["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"]),
        (&object["metadata"]["uid"], &json!(true))
    );
    assert_eq!(child["spec"]["dialect"], "BdapMpi");

    lab.delete(&what);
    for kind in ["pods", "tj", "services"] {
        lab.wait_until_gone(kind);
    }
    lab.until("no Secret of the job", || match lab.try_get("secret sum-mpi") {
        Err(error) if error.contains("not found") => Ok(()),
        found => Err(format!("{found:?}")),
    });
}

/// Created suspended, resumed, done over the SSH of its image, and deleted when its time is over,
/// with the words that its users know.
fn a_kubeflow_job_runs_as_it_is() {
    let (lab, _operator) = Lab::with_kinds("kubeflow");
    lab.apply_one(kubeflow(
        "pi",
        &json!({"cleanPodPolicy": "Running", "suspend": true, "schedulingPolicy": {"minAvailable": 3}}),
    ))
    .unwrap();
    let what = format!("{KUBEFLOW} pi");
    condition(&lab, &what, "Suspended", "True");
    lab.wait_until_gone("pods");
    lab.merge(&what, &json!({"spec": {"runPolicy": {"suspend": false}}}));
    let labels = "pods -l training.kubeflow.org/job-name=pi,training.kubeflow.org/job-role=worker,\
                  training.kubeflow.org/replica-index=1,training.kubeflow.org/operator-name=mpi-operator";
    lab.until("a worker has the labels", || match &*names(&lab.get(labels)) {
        ["pi-worker-1"] => Ok(()),
        others => Err(others.join(", ")),
    });
    let worker = lab.get("pod pi-worker-1")["spec"].clone();
    assert_eq!(
        worker["containers"][0]["command"],
        json!(["/usr/sbin/sshd", "-De"]),
        "{worker:#}"
    );
    let key = lab.get("secret pi-ssh");
    assert_eq!(key["type"], "kubernetes.io/ssh-auth");
    assert!(key["data"]["ssh-privatekey"].is_string() && key["data"]["ssh-publickey"].is_string());
    let hosts = lab.get("configmap pi-config")["data"]["hostfile"].clone();
    let domain = format!("pi.{}.svc.cluster.local", lab.namespace);
    assert_eq!(
        hosts,
        format!("pi-worker-0.{domain} slots=1\npi-worker-1.{domain} slots=1\n")
    );
    let object = condition(&lab, &what, "Succeeded", "True");
    let status = &object["status"];
    let conditions = status["conditions"].as_array().unwrap();
    let said = |kind: &str| {
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.map(|condition| {
            (
                condition["status"].as_str().unwrap(),
                condition["reason"].as_str().unwrap(),
            )
        })
    };
    assert_eq!(said("Created"), Some(("True", "MPIJobCreated")), "{status:#}");
    assert_eq!(said("Suspended"), Some(("False", "MPIJobResumed")), "{status:#}");
    assert_eq!(said("Succeeded"), Some(("True", "MPIJobSucceeded")), "{status:#}");
    assert_eq!(conditions.last().unwrap()["type"], "Succeeded", "{status:#}");
    assert_eq!(
        status["replicaStatuses"]["Launcher"],
        json!({"succeeded": 1}),
        "{status:#}"
    );
    assert!(
        status["startTime"].is_string() && status["completionTime"].is_string(),
        "{status:#}"
    );
    for reason in [
        "MPIJobCreated",
        "MPIJobSuspended",
        "MPIJobResumed",
        "MPIJobSucceeded",
        "Differs",
    ] {
        lab.wait_for_event("pi", reason);
    }
    let events = lab.events("pi");
    let mut differs = events.lines().filter(|line| line.starts_with("Differs "));
    let said = differs.next().unwrap();
    assert!(
        said.starts_with("Differs spec.runPolicy.schedulingPolicy: "),
        "{events}"
    );
    assert_eq!(
        differs.next(),
        None,
        "resuming it changes nothing of that: {events}"
    );
    let log = lab.logs("pi-launcher");
    assert_eq!(ranks(&log, 2), ["pi-worker-0", "pi-worker-1"], "{log}");

    lab.merge(
        &what,
        &json!({"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}}),
    );
    for kind in [KUBEFLOW, "tj", "pods", "services"] {
        lab.wait_until_gone(kind);
    }
    lab.until("nothing of the job is left", || {
        let left = ["secret pi-ssh", "configmap pi-config"].map(|what| lab.try_get(what));
        let gone = |found: &Result<Value, String>| matches!(found, Err(error) if error.contains("not found"));
        if left.iter().all(gone) {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
}

fn what_can_not_be_served_says_why() {
    let (lab, _operator) = Lab::with_kinds("unserved");
    let message = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let told = |condition: &&Value| condition["type"] == "Accepted" || condition["type"] == "Refused";
        let found = conditions.iter().find(told).unwrap();
        (found["reason"].to_string(), found["message"].to_string())
    };

    // A field that can't be translated, and another job that is none the worse for it.
    let mut bad = bdap("bad", 1);
    bad["spec"]["workerTemplate"]["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("command");
    lab.apply_one(bad).unwrap();
    let (reason, said) = message(&condition(&lab, &format!("{BDAP} bad"), "Accepted", "False"));
    assert!(reason.contains("Invalid"), "{reason}");
    assert!(
        said.contains("spec.workerTemplate.spec.containers[0].args: "),
        "{said}"
    );

    lab.wait_for_event("bad", "Invalid");

    // Names of pods are host names.
    let long = "a".repeat(55);
    lab.apply_one(kubeflow(&long, &json!({}))).unwrap();
    let (_, said) = message(&condition(&lab, &format!("{KUBEFLOW} {long}"), "Refused", "True"));
    assert!(said.contains("metadata.name: the pod name"), "{said}");
    lab.wait_for_event(&long, "ValidationError");

    // A job of somebody else is not touched.
    let theirs = lab::job(
        "taken",
        "custom",
        &[lab::Role::worker(1, "sleep 1")],
        r#"{"suspend": true}"#,
    );
    lab.apply(&theirs).unwrap();
    let before = lab.wait_for_phase("taken", "Suspended");
    lab.apply_one(bdap("taken", 1)).unwrap();
    let (reason, _) = message(&condition(&lab, &format!("{BDAP} taken"), "Accepted", "False"));
    assert!(reason.contains("OwnershipConflict"), "{reason}");
    assert_eq!(
        lab.get("tj taken")["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );

    // What another operator runs is not ours.
    lab.apply_one(kubeflow(
        "elsewhere",
        &json!({"managedBy": "kueue.x-k8s.io/multikueue"}),
    ))
    .unwrap();
    assert_eq!(names(&lab.get("tj")), ["taken"], "the bad ones have no jobs");
    lab.wait_until_gone("pods");
    assert!(lab.get(&format!("{KUBEFLOW} elsewhere"))["status"].is_null());

    // A definition that is there is not overwritten.
    let definition = "customresourcedefinition mpijobs.kubeflow.org";
    let before = lab.get(definition)["metadata"]["resourceVersion"].clone();
    for kind in trainyard_compat::served() {
        assert!(!lab.define(kind.definition()));
    }
    assert_eq!(lab.get(definition)["metadata"]["resourceVersion"], before);
}
