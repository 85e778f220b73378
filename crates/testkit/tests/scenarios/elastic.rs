//! Jobs that grow and shrink while they train, on real nodes and on the embedded cluster.

use std::time::Instant;

use serde_json::{Value, json};
use trainyard_testkit::lab::{Change, Image, Lab, Role, Scenarios, job};
use trainyard_testkit::{images, scenarios};

use crate::trainings::{documents, nodes, redirect, result};

pub const SCENARIOS: Scenarios = scenarios!(
    "elastic",
    &[Image::AGENT],
    [
        pods_hear_from_the_observer_that_they_leave_and_write_their_checkpoints,
        all_pods_of_a_rigid_job_start_anew_after_a_checkpoint,
        workers_of_tensorflow_that_the_observer_tells_to_leave_are_missed_by_nobody,
    ]
);

/// Real trainings that grow and shrink.
pub const TRAININGS: Scenarios = scenarios!(
    "elastic_trainings",
    &[Image::AGENT, Image::HOROVOD],
    [
        horovod_trains_on_while_the_observer_tells_pods_to_leave,
        plain_python_trains_on_while_the_observer_tells_pods_to_leave,
        torchrun_trains_on_while_the_observer_tells_pods_to_leave,
    ]
);

/// Counts until it is told to leave. It takes longer to say that it knows and to write its
/// checkpoint than an operator in a hurry would wait.
pub const WORKER: &str = "\
trap 'echo a signal came first; exit 9' TERM
step=0
until [ -e $TRAINYARD_DRAIN/leave ]; do step=$((step + 1)); sleep 0.1; done
touch $TRAINYARD_DRAIN/acknowledged
sleep 3
echo $step >$TRAINYARD_DRAIN/checkpoint
sleep 3
";

/// Asks for another size of a job by a ScaleOut or a ScaleIn.
pub fn request(lab: &Lab, kind: &str, job: &str, mut spec: Value) {
    spec["jobRef"] = json!({"name": job});
    // Pods of trainings may take long to run, where many tests share a processor.
    spec["timeoutSeconds"] = 600.into();
    let name = format!("{}-of-{job}", kind.to_lowercase());
    let request = json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    lab.apply(&request.to_string()).unwrap();
}

/// The exit code of a container of a pod, once it has ended.
pub fn exit_code(pod: &Value, container: &str) -> Option<i64> {
    let containers = pod["status"]["containerStatuses"].as_array()?;
    let found = containers.iter().find(|status| status["name"] == container)?;
    found["state"]["terminated"]["exitCode"].as_i64()
}

fn worker_status(status: &Value) -> Value {
    let mut roles = status["roles"].as_array().into_iter().flatten();
    roles
        .find(|role| role["name"] == "worker")
        .cloned()
        .unwrap_or_default()
}

/// Waits until the job has that many pods and nothing changes about that.
pub fn wait_for_size(lab: &Lab, job: &str, replicas: i32) -> Value {
    lab.until(&format!("{replicas} pods run"), || {
        let status = lab.get(&format!("tj {job}"))["status"].clone();
        let is_so = status["phase"] == "Running"
            && status["replicas"] == replicas
            && status["scaling"].is_null()
            && worker_status(&status)["ready"] == replicas;
        if is_so {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    })
}

fn pods_hear_from_the_observer_that_they_leave_and_write_their_checkpoints() {
    let (lab, _operator, aliases) = Lab::with_observer("elastic");
    let workers = [Role::worker(1, WORKER)];
    let more = r#"{"elastic": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}}"#;
    let mut manifest: Value = serde_json::from_str(&job("elastic", "custom", &workers, more)).unwrap();
    let role = &mut manifest["spec"]["roles"][0];
    role.as_object_mut().unwrap().remove("replicas");
    role["template"]["spec"]["hostAliases"] = aliases;
    lab.apply(&manifest.to_string()).unwrap();
    wait_for_size(&lab, "elastic", 2);

    lab.scale("elastic", 4);
    let status = wait_for_size(&lab, "elastic", 4);
    assert_eq!(status["restarts"], json!({"failures": 0, "disruptions": 0}));
    assert_eq!(
        lab.pods("elastic"),
        [
            "elastic-worker-0",
            "elastic-worker-1",
            "elastic-worker-2",
            "elastic-worker-3"
        ]
    );

    let (mut pods, mut jobs) = (lab.follow("pods"), lab.follow("tj"));
    lab.scale("elastic", 2);
    let mut steps: Vec<String> = Vec::new();
    jobs.until("the job has shrunk", |change| {
        let Change::Applied(job) = change else {
            panic!("the job is gone");
        };
        let step = job["status"]["scaling"]["step"].as_str();
        steps.extend(
            step.filter(|step| steps.last().is_none_or(|last| last != step))
                .map(str::to_owned),
        );
        (job["status"]["replicas"] == 2 && job["status"]["scaling"].is_null()).then_some(())
    });
    assert_eq!(steps.first().map(String::as_str), Some("Requested"), "{steps:?}");
    assert_eq!(
        steps.last().map(String::as_str),
        Some("CheckpointDone"),
        "{steps:?}"
    );
    let mut left = 0;
    pods.until("both pods have left", |change| {
        let (pod, is_deleted) = match change {
            Change::Applied(pod) => (pod, pod["metadata"]["deletionTimestamp"].is_string()),
            Change::Deleted(pod) => (pod, true),
        };
        if is_deleted {
            assert_eq!(
                exit_code(pod, "main"),
                Some(0),
                "it had left before it was deleted: {pod:#}"
            );
        }
        left += usize::from(matches!(change, Change::Deleted(_)));
        (left == 2).then_some(())
    });
    let status = wait_for_size(&lab, "elastic", 2);
    assert_eq!(lab.pods("elastic"), ["elastic-worker-0", "elastic-worker-1"]);
    assert_eq!(status["restarts"], json!({"failures": 0, "disruptions": 0}));
}

/// Rank 0 saves for all when it is told to leave. The others know nothing, and are in no hurry.
const RIGID_WORKER: &str = "\
echo one of $JAX_NUM_PROCESSES
if [ $JAX_PROCESS_ID != 0 ]; then exec sleep 1000; fi
trap 'echo a signal came first; exit 9' TERM
until [ -e $TRAINYARD_DRAIN/leave ]; do sleep 0.1; done
touch $TRAINYARD_DRAIN/acknowledged
sleep 3
echo 7 >$TRAINYARD_DRAIN/checkpoint
sleep 3
";

/// The pods of a job, by their names and UIDs.
fn uids(lab: &Lab, job: &str) -> Vec<(String, String)> {
    let names = lab.pods(job);
    let uid = |name: &String| lab.get(&format!("pod {name}"))["metadata"]["uid"].to_string();
    names.iter().map(|name| (name.clone(), uid(name))).collect()
}

/// A job of two workers whose launcher reads the list that deepspeed reads.
fn launched(aliases: &Value) -> Value {
    let launcher = Role {
        name: "launcher",
        script: "cat /job/hostfile; exec sleep 1000",
        ..Role::worker(1, "")
    };
    let more = r#"{"elastic": {"replicas": 2, "maxReplicas": 4}}"#;
    let text = job("launched", "deepspeed", &[launcher, Role::worker(1, "")], more);
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    let roles = manifest["spec"]["roles"].as_array_mut().unwrap();
    for role in &mut *roles {
        role["template"]["spec"]["hostAliases"] = aliases.clone();
    }
    roles[1].as_object_mut().unwrap().remove("replicas");
    let worker = &mut roles[1]["template"]["spec"]["containers"][0];
    worker.as_object_mut().unwrap().remove("command");
    manifest
}

/// Waits until the launcher has read a list of so many workers.
fn wait_for_hosts(lab: &Lab, workers: usize) {
    let domain = format!("launched.{}.svc.cluster.local", lab.namespace);
    let host = |index| format!("launched-worker-{index}.{domain} slots=1\n");
    let hosts: String = (0..workers).map(host).collect();
    lab.until(&format!("the launcher has a list of {workers}"), || {
        let log = lab.try_logs("launched-launcher-0")?;
        (log == hosts).then_some(()).ok_or(log)
    });
}

/// All of them hear the new number, and a launcher has a new list of hosts.
fn all_pods_of_a_rigid_job_start_anew_after_a_checkpoint() {
    let (lab, _operator, aliases) = Lab::with_observer("rigid");
    lab.apply(&launched(&aliases).to_string()).unwrap();
    let workers = [Role::worker(1, RIGID_WORKER)];
    let more = r#"{"elastic": {"replicas": 2, "maxReplicas": 4}}"#;
    let mut manifest: Value = serde_json::from_str(&job("rigid", "jax", &workers, more)).unwrap();
    let role = &mut manifest["spec"]["roles"][0];
    role.as_object_mut().unwrap().remove("replicas");
    role["restartPolicy"] = "OnFailure".into();
    role["template"]["spec"]["hostAliases"] = aliases;
    role["template"]["spec"]["terminationGracePeriodSeconds"] = 1.into();
    lab.apply(&manifest.to_string()).unwrap();
    wait_for_size(&lab, "rigid", 2);
    wait_for_hosts(&lab, 2);
    let before = uids(&lab, "rigid");

    lab.scale("launched", 3);
    let (mut pods, mut jobs) = (lab.follow("pods"), lab.follow("tj"));
    lab.scale("rigid", 3);
    let mut steps: Vec<String> = Vec::new();
    jobs.until("the job has grown", |change| {
        let Change::Applied(job) = change else {
            panic!("the job is gone");
        };
        if job["metadata"]["name"] != "rigid" {
            return None;
        }
        let step = job["status"]["scaling"]["step"].as_str();
        steps.extend(
            step.filter(|step| steps.last().is_none_or(|last| last != step))
                .map(str::to_owned),
        );
        (job["status"]["replicas"] == 3 && job["status"]["scaling"].is_null()).then_some(())
    });
    let order = [
        "Requested",
        "Acknowledged",
        "CheckpointDone",
        "Restarting",
        "Joining",
    ];
    let mut rest = order.iter();
    assert!(
        steps.iter().all(|step| rest.any(|next| next == step)) && steps.contains(&"Restarting".to_owned()),
        "{steps:?}"
    );
    assert!(steps.contains(&"CheckpointDone".to_owned()), "{steps:?}");
    let mut left = 0;
    pods.until("both pods have gone", |change| {
        let Change::Deleted(pod) = change else { return None };
        let name = pod["metadata"]["name"].as_str()?;
        if !name.starts_with("rigid-") {
            return None;
        }
        if name == "rigid-worker-0" {
            assert_eq!(exit_code(pod, "main"), Some(0), "it had left before: {pod:#}");
        }
        left += 1;
        (left == 2).then_some(())
    });
    let status = wait_for_size(&lab, "rigid", 3);
    assert_eq!(
        status["restarts"],
        json!({"failures": 0, "disruptions": 0, "attempts": [{"role": "worker", "attempt": 1}]})
    );
    let after = uids(&lab, "rigid");
    assert_eq!(after.len(), 3);
    for (name, uid) in &after {
        assert!(before.iter().all(|(_, old)| old != uid), "{name} is new");
        lab.until("it was told the new number", || {
            let log = lab.try_logs(name)?;
            if log.contains("one of 3") {
                Ok(())
            } else {
                Err(log)
            }
        });
    }
    wait_for_size(&lab, "launched", 3);
    wait_for_hosts(&lab, 3);
}

/// Serves as a task of TensorFlow does.
const TASK: &str = "exec httpd -f -p 2222 -h /etc";

/// Serves, reaches all tasks that it was told of, and goes when it is told to.
const DYNAMIC_WORKER: &str = r#"
httpd -p 2222 -h /etc
tasks=$(echo "$TF_CONFIG" | grep -o '[a-z0-9.-]*:2222' | sort -u)
for task in $tasks; do
    until wget -q -O /dev/null "http://$task/passwd"; do sleep 0.2; done
    echo "reached ${task%%.*}"
done
echo that is all
until [ -e $TRAINYARD_DRAIN/leave ]; do sleep 0.1; done
"#;

/// Workers that join find the chief and the servers, and nobody else starts anew.
fn workers_of_tensorflow_that_the_observer_tells_to_leave_are_missed_by_nobody() {
    let (lab, _operator, aliases) = Lab::with_observer("tensorflow");
    let servers = |name, replicas| Role {
        name,
        ..Role::worker(replicas, TASK)
    };
    let roles = [
        servers("chief", 1),
        servers("ps", 2),
        Role::worker(1, DYNAMIC_WORKER),
    ];
    let more = r#"{"elastic": {"replicas": 1, "maxReplicas": 4}}"#;
    let mut manifest: Value = serde_json::from_str(&job("tf", "tensorflow", &roles, more)).unwrap();
    manifest["spec"]["framework"]["tensorflow"] = json!({"dynamicWorkers": true});
    let role = &mut manifest["spec"]["roles"][2];
    role.as_object_mut().unwrap().remove("replicas");
    role["template"]["spec"]["hostAliases"] = aliases;
    lab.apply(&manifest.to_string()).unwrap();
    wait_for_size(&lab, "tf", 1);
    let first = uids(&lab, "tf");

    lab.scale("tf", 3);
    wait_for_size(&lab, "tf", 3);
    for index in 1..3 {
        let worker = format!("tf-worker-{index}");
        let log = lab.until("a new worker has reached all", || {
            let log = lab.try_logs(&worker)?;
            log.contains("that is all").then(|| log.clone()).ok_or(log)
        });
        let reached: Vec<&str> = log
            .lines()
            .filter_map(|line| line.strip_prefix("reached "))
            .collect();
        assert_eq!(reached, ["tf-chief-0", "tf-ps-0", "tf-ps-1", &worker]);
    }
    request(
        &lab,
        "ScaleIn",
        "tf",
        json!({"toDelete": {"podNames": ["tf-worker-1"]}}),
    );
    wait_for_size(&lab, "tf", 2);
    lab.until("the worker is gone", || match lab.try_get("pod tf-worker-1") {
        Ok(pod) => Err(pod["status"].to_string()),
        Err(_) => Ok(()),
    });
    let last = uids(&lab, "tf");
    assert!(first.iter().all(|pod| last.contains(pod)), "{first:?} {last:?}");
    assert_eq!(last.len(), first.len() + 1);
    let names: Vec<&str> = last.iter().map(|(name, _)| &**name).collect();
    assert!(names.contains(&"tf-worker-2"), "{names:?}");
}

/// An example of an elastic job, with an image of tests, whose pods find the observer.
pub fn elastic_example(example: &str, image: &str, aliases: &Value) -> Vec<Value> {
    let mut documents = documents(example);
    let spec = &mut documents[0]["spec"];
    // Pods stay when all is over, for their logs.
    spec["runPolicy"]["cleanPodPolicy"] = "None".into();
    for role in spec["roles"].as_array_mut().unwrap() {
        let pod = &mut role["template"]["spec"];
        pod["hostAliases"] = aliases.clone();
        pod["containers"][0]["image"] = image.into();
        if image == images::HOROVOD {
            redirect(&mut pod["containers"][0]);
        }
    }
    documents
}

/// Waits until a training goes on with that many processes, as the pod of rank 0 says.
pub fn wait_until_trained_by(lab: &Lab, pod: &str, processes: i32) {
    let says = format!("{processes} goes on after step ");
    lab.until(&format!("{processes} processes train"), || {
        let log = lab.try_logs(pod)?;
        let (_, last) = log.rsplit_once("rank 0 of ").ok_or_else(|| log.clone())?;
        // It has done a step.
        let is_so = last.starts_with(&says) && last.contains("saved step ");
        is_so.then_some(()).ok_or(log)
    });
}

/// A training goes on from the step that was saved last, or a later one.
pub fn assert_no_step_is_lost(log: &str) {
    let number = |line: &str, before: &str| line.split_once(before)?.1.trim().parse::<u64>().ok();
    let mut saved = 0;
    for line in log.lines() {
        if let Some(first) = number(line, "goes on after step ") {
            assert!(first >= saved, "{saved} was saved: {line}\n{log}");
        } else if let Some(step) = number(line, "saved step ") {
            assert!(step > saved, "{saved} was saved: {line}\n{log}");
            saved = step;
        }
    }
    assert!(saved > 0, "{log}");
}

fn torchrun_trains_on_while_the_observer_tells_pods_to_leave() {
    let (lab, _operator, aliases) = Lab::with_observer("torchrun");
    let (name, rank_zero) = ("pytorch-elastic", "pytorch-elastic-worker-0");
    for document in elastic_example(name, images::HOROVOD, &aliases).iter().rev() {
        lab.apply(&document.to_string()).unwrap();
    }
    wait_until_trained_by(&lab, rank_zero, 1);
    lab.scale(name, 3);
    wait_until_trained_by(&lab, rank_zero, 3);
    wait_for_size(&lab, name, 3);
    assert_eq!(nodes(&lab).len(), 2);

    let mut pods = lab.follow("pods");
    let asked_at = Instant::now();
    request(&lab, "ScaleIn", name, json!({"toDelete": {"count": 1}}));
    pods.until("the last worker has left by itself", |change| {
        let (Change::Applied(pod) | Change::Deleted(pod)) = change;
        let is_deleted = pod["metadata"]["deletionTimestamp"].is_string();
        let leaves = pod["metadata"]["name"] == "pytorch-elastic-worker-2" && is_deleted;
        // torchrun was ended by its program, and had not been asked by the kubelet.
        leaves.then(|| assert_eq!(exit_code(pod, "pytorch"), Some(1), "{pod:#}"))
    });
    wait_until_trained_by(&lab, rank_zero, 2);
    println!(
        "torchrun trained on {:.1?} after one of three pods was asked to leave",
        asked_at.elapsed()
    );

    let ended = lab.wait_until_ended(name, "Succeeded");
    assert_eq!(
        ended["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    let log = lab.logs(rank_zero);
    assert_no_step_is_lost(&log);
    let counted = log.lines().filter(|line| line.contains("torchrun has counted"));
    let counted: Vec<&str> = counted.collect();
    // One line for each size. Nothing of torchrun's own budget is spent.
    assert!(
        counted.len() >= 3 && counted.iter().all(|line| line.ends_with("counted 0 failures")),
        "{log}"
    );
    assert!(result(&log, "final loss ") <= 1e-2, "{log}");
}

/// The processes in a worker are gone before its pod is, and its name is used again. Both
/// by requests and by `kubectl scale`.
fn horovod_trains_on_while_the_observer_tells_pods_to_leave() {
    let (lab, _operator, aliases) = Lab::with_observer("horovod");
    let (name, launcher) = ("horovod-elastic", "horovod-elastic-launcher-0");
    let mut documents = elastic_example(name, images::HOROVOD, &aliases);
    for role in documents[0]["spec"]["roles"].as_array_mut().unwrap() {
        let env = &mut role["template"]["spec"]["containers"][0]["env"];
        let mut variables = env.as_array_mut().unwrap().iter_mut();
        variables.find(|variable| variable["name"] == "SIZES").unwrap()["value"] = "2 4 2 4 2".into();
    }
    for document in documents.iter().rev() {
        lab.apply(&document.to_string()).unwrap();
    }
    wait_until_trained_by(&lab, launcher, 2);
    for by_request in [true, false] {
        if by_request {
            request(&lab, "ScaleOut", name, json!({"toAdd": {"count": 2}}));
        } else {
            lab.scale(name, 4);
        }
        wait_until_trained_by(&lab, launcher, 4);
        wait_for_size(&lab, name, 4);
        assert_eq!(nodes(&lab).len(), 2);

        let mut pods = lab.follow("pods");
        if by_request {
            request(&lab, "ScaleIn", name, json!({"toDelete": {"count": 2}}));
        } else {
            lab.scale(name, 2);
        }
        let mut left = 0;
        pods.until("both workers have left by themselves", |change| {
            let (Change::Applied(pod) | Change::Deleted(pod)) = change;
            if pod["metadata"]["deletionTimestamp"].is_string() {
                // The agent ends when nothing runs in the pod. A kubelet was not there yet.
                assert_eq!(exit_code(pod, "main"), Some(143), "{pod:#}");
                assert!(
                    pod["metadata"]["name"]
                        .as_str()
                        .is_some_and(|name| name.ends_with("-2") || name.ends_with("-3"))
                );
            }
            left += usize::from(matches!(change, Change::Deleted(_)));
            (left == 2).then_some(())
        });
        wait_until_trained_by(&lab, launcher, 2);
    }
    let ended = lab.wait_until_ended(name, "Succeeded");
    assert_eq!(
        ended["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    let log = lab.logs(launcher);
    // The lines of one process are in order. Those of others come whenever the launcher has them.
    let of_rank_zero: Vec<&str> = log.lines().filter(|line| line.starts_with("[0]")).collect();
    assert_no_step_is_lost(&of_rank_zero.join("\n"));
    assert!(result(&log, "final loss ") <= 1e-2, "{log}");
}

/// A program without a framework, which finds the files of its drain.
fn plain_python_trains_on_while_the_observer_tells_pods_to_leave() {
    let (lab, _operator, aliases) = Lab::with_observer("python");
    let (name, rank_zero) = ("elastic", "elastic-worker-0");
    let mut documents = elastic_example(name, images::HOROVOD, &aliases);
    let main = &mut documents[0]["spec"]["roles"][0]["template"]["spec"]["containers"][0];
    let sizes = json!({"name": "SIZES", "value": "3 5 4"});
    main["env"].as_array_mut().unwrap().push(sizes);
    for document in documents.iter().rev() {
        lab.apply(&document.to_string()).unwrap();
    }
    wait_until_trained_by(&lab, rank_zero, 3);
    lab.scale(name, 5);
    wait_until_trained_by(&lab, rank_zero, 5);
    wait_for_size(&lab, name, 5);

    let mut pods = lab.follow("pods");
    lab.scale(name, 4);
    pods.until("the last worker has left by itself", |change| {
        let (Change::Applied(pod) | Change::Deleted(pod)) = change;
        let is_deleted = pod["metadata"]["deletionTimestamp"].is_string();
        let leaves = pod["metadata"]["name"] == "elastic-worker-4" && is_deleted;
        leaves.then(|| assert_eq!(exit_code(pod, "main"), Some(0), "{pod:#}"))
    });
    let ended = lab.wait_until_ended(name, "Succeeded");
    assert_eq!(
        ended["status"]["restarts"],
        json!({"failures": 0, "disruptions": 0})
    );
    let log = lab.logs(rank_zero);
    assert_no_step_is_lost(&log);
    assert!(result(&log, "final loss ") <= 1e-3, "{log}");
}
