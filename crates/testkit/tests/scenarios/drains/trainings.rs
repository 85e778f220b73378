//! An elastic Horovod job and rigid jobs of PyTorch, whose node is drained, is a spot node that is
//! reclaimed, and is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_testkit::images;
use trainyard_testkit::lab::{Change, Lab, template};

use super::{pods_on, wait_for_budgets};
use crate::elastic::{assert_no_step_is_lost, elastic_example, wait_for_size, wait_until_trained_by};
use crate::nodes::Lost;
use crate::trainings::result;

const PROGRAM: &str = include_str!("train.py");
/// The elastic job. Its state is in the memory of its processes alone.
const HOROVOD: &str = "horovod-elastic";
const LAUNCHER: &str = "horovod-elastic-launcher-0";
/// With this many workers it trains to its end.
const LAST_SIZE: i32 = 6;
const NOTICE: &str = "example.org/reclaimed";
const NOTICE_SECONDS: i64 = 30;
/// Of a job whose node is lost without a word. Those that are told save when they leave.
const SAVE_EVERY: u64 = 10;

/// A rigid job of two ranks, which train until somebody has had enough.
struct Ddp<'a> {
    lab: &'a Lab,
    name: &'static str,
    /// A directory of this machine, on which all nodes are.
    shared: PathBuf,
}

impl<'a> Ddp<'a> {
    fn start(lab: &'a Lab, name: &'static str, place: &Path, save_every: u64, aliases: &Value) -> Self {
        let shared = place.join(name);
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let mut template = template(
            images::HOROVOD,
            &json!({
                "command": ["python3", "/program/train.py"],
                "env": [
                    {"name": "OMP_NUM_THREADS", "value": "1"},
                    {"name": "SAVE_EVERY", "value": save_every.to_string()},
                ],
                "volumeMounts": [
                    {"name": "program", "mountPath": "/program"},
                    {"name": "shared", "mountPath": "/shared"},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }),
        );
        template["spec"]["hostAliases"] = aliases.clone();
        template["spec"]["volumes"] = json!([
            {"name": "program", "configMap": {"name": "program"}},
            {"name": "shared", "hostPath": {"path": shared, "type": "Directory"}},
            {"name": "tmp", "emptyDir": {}},
        ]);
        let worker = json!({
            "name": "worker", "replicas": 2, "nodeDownPolicy": "Fail",
            "placement": {"spread": "Preferred"}, "template": template,
        });
        let job = json!({
            "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {
                "framework": {"name": "pytorch"},
                "roles": [worker],
                // Pods stay when all is over, for their logs.
                "runPolicy": {"drainTimeoutSeconds": 300, "backoffLimit": 0, "cleanPodPolicy": "None"},
            },
        });
        lab.apply(&job.to_string()).unwrap();
        Self { lab, name, shared }
    }

    /// The steps that were done, in this order.
    fn steps(&self) -> Vec<u64> {
        let steps = fs::read_to_string(self.shared.join("steps")).unwrap_or_default();
        // The last line may be half written.
        let lines = steps.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| line.trim().parse().unwrap()).collect()
    }

    fn wait_for_more_steps(&self) {
        let before = self.steps().len();
        self.lab.until(&format!("{} trains", self.name), || {
            let now = self.steps().len();
            (now >= before + 15).then_some(()).ok_or_else(|| {
                let status = &self.lab.get(&format!("tj {}", self.name))["status"];
                format!("{now} steps: {status:#}")
            })
        });
    }

    /// Waits until it goes on after one disruption, which is no failure.
    fn wait_until_disrupted(&self, node: &str) -> Value {
        let what = format!("{} goes on elsewhere", self.name);
        let status = self.lab.until(&what, || {
            let status = self.lab.get(&format!("tj {}", self.name))["status"].clone();
            let is_so = status["phase"] == "Running" && status["restarts"]["disruptions"] == 1;
            if is_so {
                Ok(status)
            } else {
                Err(format!("{status:#}"))
            }
        });
        assert_eq!(status["restarts"]["failures"], 0, "{status:#}");
        assert_eq!(status["restarts"]["history"][0]["node"], node, "{status:#}");
        self.wait_for_more_steps();
        status
    }

    /// Has it end, and checks that it never went back by more steps than these.
    fn end(&self, at_most: u64) {
        fs::write(self.shared.join("enough"), "").unwrap();
        self.lab.wait_until_ended(self.name, "Succeeded");
        let mut done = 0;
        for step in self.steps() {
            assert!(
                (done + 1 - done.min(at_most)..=done + 1).contains(&step),
                "{}: {step} after {done}: {:?}",
                self.name,
                self.steps()
            );
            done = step;
        }
        let log = self.lab.logs(&format!("{}-worker-0", self.name));
        assert!(result(&log, "final loss ") <= 1e-2, "{log}");
    }
}

/// Starts the elastic job with its launcher and rank 0 on the node that stays.
fn start_horovod(lab: &Lab, goes: &str, aliases: &Value) {
    let mut documents = elastic_example(HOROVOD, images::HOROVOD, aliases);
    let spec = &mut documents[0]["spec"];
    spec["elastic"] = json!({
        "replicas": 2, "minReplicas": 1, "maxReplicas": LAST_SIZE + 1, "drainTimeoutSeconds": 300,
    });
    for role in spec["roles"].as_array_mut().unwrap() {
        role["nodeDownPolicy"] = "Fail".into();
        let env = &mut role["template"]["spec"]["containers"][0]["env"];
        let mut variables = env.as_array_mut().unwrap().iter_mut();
        variables.find(|variable| variable["name"] == "SIZES").unwrap()["value"] =
            format!("2 {LAST_SIZE}").into();
    }
    let elsewhere = lab.cordon(goes);
    for document in documents.iter().rev() {
        lab.apply(&document.to_string()).unwrap();
    }
    wait_until_trained_by(lab, LAUNCHER, 2);
    drop(elsewhere);
}

/// Has the elastic job grow onto the node that goes, on which the rigid one has a rank, too.
fn spread(lab: &Lab, ddp: &Ddp<'_>, size: i32, goes: &str) {
    lab.scale(HOROVOD, size);
    wait_for_size(lab, HOROVOD, size);
    wait_until_trained_by(lab, LAUNCHER, size);
    ddp.wait_for_more_steps();
    wait_for_budgets(lab, &[HOROVOD, ddp.name]);
    let there = pods_on(lab, goes);
    let has = |begin: &str| there.iter().any(|pod| pod.starts_with(begin));
    assert!(has("horovod-elastic-worker-") && has(ddp.name), "{there:?}");
}

/// Waits until both jobs train on elsewhere.
fn wait_until_both_go_on(lab: &Lab, ddp: &Ddp<'_>, size: i32, goes: &str) {
    let status = ddp.wait_until_disrupted(goes);
    assert_eq!(
        status["restarts"]["history"][0]["reason"], "NodeDrained",
        "{status:#}"
    );
    let status = wait_for_size(lab, HOROVOD, size);
    assert_eq!(status["restarts"], json!({"failures": 0, "disruptions": 0}));
    wait_until_trained_by(lab, LAUNCHER, size);
    let there = pods_on(lab, goes);
    assert!(there.iter().all(|pod| !is_of(pod, ddp)), "{there:?}");
}

/// Whether a pod is of the elastic job or of this one.
fn is_of(pod: &str, ddp: &Ddp<'_>) -> bool {
    pod.starts_with(HOROVOD) || pod.starts_with(ddp.name)
}

/// Waits until both jobs have said until when their pods may stay, which is soon enough.
fn assert_all_leave_in_time(jobs: &mut trainyard_testkit::lab::Follower<'_>, ddp: &Ddp<'_>) {
    let mut told = Vec::new();
    jobs.until("both jobs say until when pods may stay", |change| {
        let Change::Applied(job) = change else { return None };
        let (name, scaling) = (&job["metadata"]["name"], &job["status"]["scaling"]);
        let time = |field: &str| scaling[field].as_str()?.parse::<Timestamp>().ok();
        let (since, deadline) = (time("since")?, time("deadline")?);
        assert!(
            deadline.as_second() - since.as_second() <= NOTICE_SECONDS,
            "{scaling:#}"
        );
        told.push(name.clone());
        (told.contains(&json!(HOROVOD)) && told.contains(&json!(ddp.name))).then_some(())
    });
}

pub fn horovod_and_pytorch_go_on_elsewhere_without_losing_a_step() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let notice: &'static str = format!("--node-notice={NOTICE}={NOTICE_SECONDS}").leak();
    let (lab, _operator, aliases) = Lab::with_observer_and("trained", "privileged", &[notice]);
    let program = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"},
        "data": {"train.py": PROGRAM}});
    lab.apply(&program.to_string()).unwrap();
    let goes = lab.nodes().pop().unwrap();
    start_horovod(&lab, &goes, &aliases);
    let never = u64::MAX;

    let drained = Ddp::start(&lab, "drained", place.path(), never, &aliases);
    spread(&lab, &drained, 3, &goes);
    let cordoned = lab.drain(&goes, &[HOROVOD, drained.name]);
    wait_until_both_go_on(&lab, &drained, 3, &goes);
    drop(cordoned);
    drained.end(0);

    let reclaimed = Ddp::start(&lab, "reclaimed", place.path(), never, &aliases);
    spread(&lab, &reclaimed, 4, &goes);
    let mut jobs = lab.follow("tj");
    let tainted = lab.taint(&goes, NOTICE);
    assert_all_leave_in_time(&mut jobs, &reclaimed);
    wait_until_both_go_on(&lab, &reclaimed, 4, &goes);
    drop(tainted);
    reclaimed.end(0);

    if !lab.is_embedded() {
        let lost = Ddp::start(&lab, "lost", place.path(), SAVE_EVERY, &aliases);
        spread(&lab, &lost, 5, &goes);
        lose(&lab, &lost, 5, &goes);
        lost.end(SAVE_EVERY);
    }

    lab.scale(HOROVOD, LAST_SIZE);
    lab.wait_until_ended(HOROVOD, "Succeeded");
    let log = lab.logs(LAUNCHER);
    // The lines of one process are in order. Those of others come whenever the launcher has them.
    let of_rank_zero: Vec<&str> = log.lines().filter(|line| line.starts_with("[0]")).collect();
    assert_no_step_is_lost(&of_rank_zero.join("\n"));
    assert!(result(&log, "final loss ") <= 1e-2, "{log}");
}

/// The kubelet of the node is killed. What ran there runs on, until the administrator says that it
/// does not.
fn lose(lab: &Lab, ddp: &Ddp<'_>, size: i32, goes: &str) {
    let lost = Lost::node(lab.cluster(), goes);
    lab.until("the node is closed, and its pods are to go", || {
        let pods = lab.get("pods");
        let pods = pods["items"].as_array().into_iter().flatten();
        let mut there = pods.filter(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            pod["spec"]["nodeName"] == goes && is_of(name, ddp)
        });
        let stays = there.find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let taints = &lab.get(&format!("node {goes}"))["spec"]["taints"];
        let closed = |taint: &Value| taint["effect"] == "NoSchedule";
        let is_closed = taints.as_array().is_some_and(|taints| taints.iter().any(closed));
        match stays {
            None if is_closed => Ok(()),
            stays => Err(format!(
                "{taints} {:?}",
                stays.map(|pod| &pod["metadata"]["name"])
            )),
        }
    });
    lost.declare_out_of_service();
    ddp.wait_until_disrupted(goes);
    let status = wait_for_size(lab, HOROVOD, size);
    assert_eq!(status["restarts"]["failures"], 0, "{status:#}");
    wait_until_trained_by(lab, LAUNCHER, size);
}
