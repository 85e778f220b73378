//! Real trainings with Horovod and `DeepSpeed` between pods, on real nodes and on the embedded
//! cluster.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use trainyard_testkit::framework_table::{self, Proof};
use trainyard_testkit::images;
use trainyard_testkit::lab::{self, Image, Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

use super::trainings;

pub const SCENARIOS: Scenarios = scenarios!(
    "horovod",
    &[Image::AGENT, Image::HOROVOD],
    [
        horovod_over_gloo,
        horovod_over_mpi,
        deepspeed_by_pdsh_and_by_mpirun,
        examples_with_launchers,
    ]
);

/// A job whose launcher runs a script, with three workers that do nothing by themselves.
fn launch(framework: &str, options: &Value, script: &str) -> Value {
    let launcher = Role {
        name: "launcher",
        replicas: 1,
        script,
        more: r#"{"restartPolicy": "Never"}"#,
    };
    let worker = Role {
        more: r#"{"restartPolicy": "Never", "placement": {"spread": "Preferred"}}"#,
        ..Role::worker(3, "")
    };
    // Workers stay when all is over, to be looked at.
    let keep = r#"{"runPolicy": {"cleanPodPolicy": "None"}}"#;
    let mut manifest: Value =
        serde_json::from_str(&job("fit", framework, &[launcher, worker], keep)).unwrap();
    let spec = &mut manifest["spec"];
    spec["framework"][framework] = options.clone();
    for role in spec["roles"].as_array_mut().unwrap() {
        let is_worker = role["name"] == "worker";
        let template = &mut role["template"];
        let container = &mut template["spec"]["containers"][0];
        container["image"] = images::HOROVOD.into();
        container["env"] = json!([
            {"name": "HOME", "value": "/tmp"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            // Two small processors are shared by everything in a test.
            {"name": "OMP_NUM_THREADS", "value": "1"},
            {"name": "DS_ACCELERATOR", "value": "cpu"},
            // A rank that waits leaves its core to one that does not.
            {"name": "OMPI_MCA_mpi_yield_when_idle", "value": "1"},
        ]);
        if is_worker {
            container.as_object_mut().unwrap().remove("command");
        }
        lab::tolerate_silence(template);
    }
    manifest
}

/// Where the processes that have learnt it have run, in the order of ranks. Each says so in one
/// sentence, after whatever its launcher puts before it; mpirun may put what another says after it.
fn hosts(log: &str, of: usize, how: &str) -> Vec<String> {
    let said = |rank: usize| {
        let begin = format!("rank {rank} of {of} on ");
        let (_, rest) = log.split_once(&*begin)?;
        let (host, rest) = rest.split_once(&format!("{how}: loss "))?;
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit());
        let loss = rest.get(..end.unwrap_or(rest.len()))?;
        (loss.parse::<f64>().ok()? < 0.001).then(|| host.to_owned())
    };
    (0..of).map_while(said).collect()
}

/// Runs the job to its end. Returns what the launcher has logged.
fn run(lab: &Lab, manifest: &Value) -> String {
    lab.apply(&manifest.to_string()).unwrap();
    let job = lab.wait_until_ended("fit", "Succeeded");
    let log = lab.logs("fit-launcher-0");
    let nodes: BTreeSet<String> = lab.get("pods")["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["spec"]["nodeName"].to_string())
        .collect();
    assert_eq!(nodes.len(), 2, "{nodes:?} {job:#}");
    log
}

/// Records that every worker of the host lists was reached, and that all have learnt together.
fn record(lab: &Lab, framework: &str) {
    let results = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for proof in [Proof::Contract, Proof::Training] {
        framework_table::record(results, framework, proof, lab.is_embedded());
    }
}

const WORKERS: [&str; 3] = ["fit-worker-0", "fit-worker-1", "fit-worker-2"];

fn horovod_over_gloo() {
    let (lab, _operator) = Lab::with_agent("gloo");
    let script = "horovodrun --gloo -np $TRAINYARD_PROCESSES --hostfile /etc/mpi/hostfile python3 /usr/local/train-horovod.py";
    let log = run(&lab, &launch("horovod", &json!({"controller": "Gloo"}), script));
    assert_eq!(hosts(&log, 3, " over gloo"), WORKERS, "{log}");
    record(&lab, "horovod");
}

/// By horovodrun, with fewer processes than there is room for, and by mpirun itself.
fn horovod_over_mpi() {
    let (lab, _operator) = Lab::with_agent("hvd-mpi");
    let script = "horovodrun -np 4 --hostfile /etc/mpi/hostfile python3 /usr/local/train-horovod.py
        echo and by mpirun
        mpirun -np 3 --map-by node -bind-to none -mca pml ob1 python3 /usr/local/train-horovod.py";
    let script = format!("set -e; {script}");
    let options = json!({"slotsPerWorker": 2});
    let log = run(&lab, &launch("horovod", &options, &script));
    let (by_horovodrun, by_mpirun) = log.split_once("and by mpirun").unwrap();
    assert_eq!(
        hosts(by_horovodrun, 4, " over mpi"),
        ["fit-worker-0", "fit-worker-0", "fit-worker-1", "fit-worker-1"],
        "{log}"
    );
    assert_eq!(hosts(by_mpirun, 3, " over mpi"), WORKERS, "{log}");
}

fn deepspeed_by_pdsh_and_by_mpirun() {
    let (lab, _operator) = Lab::with_agent("deepspeed");
    let script = "set -e; deepspeed /usr/local/train-deepspeed.py
        echo and by mpirun
        deepspeed --launcher openmpi --launcher_args='--bind-to none' /usr/local/train-deepspeed.py";
    let log = run(&lab, &launch("deepspeed", &json!({}), script));
    let (by_pdsh, by_mpirun) = log.split_once("and by mpirun").unwrap();
    assert_eq!(hosts(by_pdsh, 3, ""), WORKERS, "{log}");
    assert!(
        by_pdsh.lines().any(|line| line.starts_with("fit-worker-2: ")),
        "{log}"
    );
    assert_eq!(hosts(by_mpirun, 3, ""), WORKERS, "{log}");
}

/// The examples as they are, but for their images.
fn examples_with_launchers() {
    let (lab, _operator) = Lab::with_agent("launchers");
    for (example, how, processes) in [("horovod", " over gloo", 3), ("deepspeed", "", 4)] {
        trainings::start(&lab, example, images::HOROVOD, lab::tolerate_silence);
        lab.wait_until_ended(example, "Succeeded");
        let log = lab.logs(&format!("{example}-launcher-0"));
        let ran_on = hosts(&log, processes, how);
        assert_eq!(ran_on.len(), processes, "{log}");
        let last = format!("{example}-worker-{}", if example == "horovod" { 2 } else { 1 });
        assert_eq!(ran_on.last(), Some(&last), "{log}");
    }
}
