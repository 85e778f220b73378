//! What each framework's pods are promised, kept on real nodes and on the embedded cluster: a
//! stand-in for the framework's programs (`contract/stand_in.py`) checks every variable, serves
//! where such programs serve, and reaches every pod that it was told of.

use std::path::Path;

use serde_json::{Value, json};
use trainyard_testkit::framework_table::{self, Proof};
use trainyard_testkit::lab::{Image, Lab, Scenarios, template};
use trainyard_testkit::{images, scenarios};

pub const SCENARIOS: Scenarios = scenarios!(
    "contract",
    &[Image::PYTHON],
    [
        pytorch, tensorflow, deepspeed, mxnet, jax, xgboost, paddle, bagua, dask, standalone, custom,
    ]
);

const STAND_IN: &str = include_str!("contract/stand_in.py");

/// Itself, in a list of pods that a pod is told of.
const SELF: &str = "itself";

/// A role of a job, and what its pods are told.
struct Role {
    name: &'static str,
    replicas: u32,
    /// The pods whose addresses its pods find, as `role-index`, or [`SELF`].
    told_of: &'static [&'static str],
    /// Whether its pods serve until they are ended.
    stays: bool,
}

fn role(name: &'static str, replicas: u32, told_of: &'static [&'static str]) -> Role {
    Role {
        name,
        replicas,
        told_of,
        stays: false,
    }
}

/// A role whose pods serve until they are ended.
fn server(name: &'static str, replicas: u32, told_of: &'static [&'static str]) -> Role {
    Role {
        stays: true,
        ..role(name, replicas, told_of)
    }
}

impl Role {
    fn pods(&self) -> impl Iterator<Item = String> {
        (0..self.replicas).map(|index| format!("{}-{index}", self.name))
    }

    /// The pods that one of its pods is told of, in the order of their names.
    fn known_to(&self, pod: &str) -> Vec<String> {
        let named = |other: &&str| if *other == SELF { pod } else { other }.to_owned();
        let mut known: Vec<String> = self.told_of.iter().map(named).collect();
        known.sort();
        known
    }
}

/// How many other pods are told of each pod of a role, by index and with commas.
fn callers(roles: &[Role], of: &Role) -> String {
    let count = |pod: String| {
        let knows = |role: &Role, other: &str| other != pod && role.known_to(other).contains(&pod);
        let counts = roles
            .iter()
            .map(|role| role.pods().filter(|other| knows(role, other)).count());
        counts.sum::<usize>().to_string()
    };
    of.pods().map(count).collect::<Vec<_>>().join(",")
}

/// A job of stand-ins.
fn job(name: &str, framework: &Value, roles: &[Role]) -> Value {
    let of_role = |role: &Role| {
        let mut template = template(
            images::PYTHON,
            &json!({
                "command": ["python3", "/stand-in/stand_in.py", framework["name"]],
                "env": [
                    {"name": "CALLERS", "value": callers(roles, role)},
                    {"name": "STAYS", "value": if role.stays { "1" } else { "0" }},
                ],
                "volumeMounts": [{"name": "stand-in", "mountPath": "/stand-in"}],
            }),
        );
        template["spec"]["volumes"] = json!([{"name": "stand-in", "configMap": {"name": "stand-in"}}]);
        json!({
            "name": role.name,
            "replicas": role.replicas,
            "restartPolicy": "Never",
            "placement": {"spread": "Preferred"},
            "template": template,
        })
    };
    json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": framework,
            "roles": roles.iter().map(of_role).collect::<Vec<_>>(),
            // Pods stay when all is over, to be asked what they have reached.
            "runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 0},
        },
    })
}

/// Runs jobs of one framework, each with its name, the options of the framework and its roles, and
/// checks what every pod has reached. Returns where they ran.
fn check_contract(framework: &str, jobs: &[(&str, Value, Vec<Role>)]) -> Lab {
    let (lab, _operator) = Lab::with_operator(framework);
    let program = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stand-in"},
        "data": {"stand_in.py": STAND_IN},
    });
    lab.apply(&program.to_string()).unwrap();
    for (name, options, roles) in jobs {
        let mut spec = json!({"name": framework});
        if !options.is_null() {
            spec[framework] = options.clone();
        }
        lab.apply(&job(name, &spec, roles).to_string()).unwrap();
    }
    for (name, _, roles) in jobs {
        let ended = wait_until_ended(&lab, name, roles);
        assert_eq!(
            ended["status"]["phase"],
            "Succeeded",
            "{}",
            all_logs(&lab, name, roles)
        );
        for role in roles {
            role.pods()
                .for_each(|pod| wait_until_reached(&lab, name, role, &pod));
        }
    }
    let results = Path::new(env!("CARGO_TARGET_TMPDIR"));
    framework_table::record(results, framework, Proof::Contract, lab.is_embedded());
    lab
}

/// What all pods of a job have printed.
fn all_logs(lab: &Lab, job: &str, roles: &[Role]) -> String {
    let pods = roles.iter().flat_map(Role::pods);
    let logs = pods.map(|pod| {
        let log = lab.try_logs(&format!("{job}-{pod}"));
        format!("{pod}:\n{}\n", log.unwrap_or_else(|error| error))
    });
    logs.collect()
}

/// Waits until a job has ended. Stand-ins that can't reach each other wait for ever and say why.
fn wait_until_ended(lab: &Lab, job: &str, roles: &[Role]) -> Value {
    lab.until(&format!("{job} ends"), || {
        let found = lab.get(&format!("tj {job}"));
        match found["status"]["phase"].as_str() {
            Some("Succeeded" | "Failed") => Ok(found),
            _ => Err(format!("{:#}\n{}", found["status"], all_logs(lab, job, roles))),
        }
    })
}

/// Waits until a pod has reached all that it was told of, and those that were told of it, it.
fn wait_until_reached(lab: &Lab, job: &str, role: &Role, pod: &str) {
    let name = format!("{job}-{pod}");
    let log = lab.until(&format!("{name} has reached all"), || {
        let log = lab.try_logs(&name)?;
        let is_done = log
            .lines()
            .any(|line| line == "all who know this pod have reached it");
        if is_done { Ok(log) } else { Err(log) }
    });
    let reached = log.lines().find_map(|line| line.strip_prefix("reached"));
    let reached: Vec<&str> = reached.unwrap_or_default().split_whitespace().collect();
    assert_eq!(reached, role.known_to(pod), "{name}: {log}");
}

fn pytorch() {
    let master = &["master-0"];
    let first = &["worker-0"];
    check_contract(
        "pytorch",
        &[
            (
                "master",
                json!({"procsPerNode": 2}),
                vec![role("master", 1, master), role("worker", 2, master)],
            ),
            ("workers", json!({"port": 12345}), vec![role("worker", 2, first)]),
        ],
    );
}

/// Without a launcher. With one, real trainings check the contract.
fn deepspeed() {
    let workers = vec![role("worker", 2, &["worker-0"])];
    check_contract(
        "deepspeed",
        &[("torchrun", json!({"slotsPerWorker": 2}), workers)],
    );
}

fn tensorflow() {
    let all = &["chief-0", "ps-0", "ps-1", "worker-0", "worker-1"];
    let of_all = vec![
        role("chief", 1, all),
        server("ps", 2, all),
        role("worker", 2, all),
        server("evaluator", 1, all),
    ];
    // The chief knows all, the others only whom they need.
    let dynamic = vec![
        role("chief", 1, all),
        server("ps", 2, &[SELF]),
        role("worker", 2, &["chief-0", "ps-0", "ps-1", SELF]),
    ];
    let workers = vec![role("worker", 2, &["worker-0", "worker-1"])];
    check_contract(
        "tensorflow",
        &[
            ("all", Value::Null, of_all),
            ("dynamic", json!({"dynamicWorkers": true}), dynamic),
            ("workers", Value::Null, workers),
        ],
    );
}

fn mxnet() {
    let all = &["scheduler-0", "server-0", "server-1", "worker-0", "worker-1"];
    let roles = vec![
        server("scheduler", 1, all),
        server("server", 2, all),
        role("worker", 2, all),
    ];
    check_contract("mxnet", &[("sync", Value::Null, roles)]);
}

fn jax() {
    check_contract(
        "jax",
        &[("mesh", Value::Null, vec![role("worker", 3, &["worker-0"])])],
    );
}

fn xgboost() {
    let all = &["master-0", "worker-0", "worker-1"];
    let workers = &["worker-0", "worker-1"];
    check_contract(
        "xgboost",
        &[
            (
                "master",
                Value::Null,
                vec![role("master", 1, all), role("worker", 2, all)],
            ),
            ("workers", Value::Null, vec![role("worker", 2, workers)]),
        ],
    );
}

fn paddle() {
    let servers = &["master-0"];
    check_contract(
        "paddle",
        &[
            ("collective", Value::Null, vec![role("worker", 2, &["worker-0"])]),
            (
                "servers",
                Value::Null,
                vec![server("master", 2, servers), role("worker", 2, servers)],
            ),
        ],
    );
}

fn bagua() {
    let all = &["master-0", "worker-0", "worker-1"];
    let of_all = vec![role("master", 1, all), role("worker", 2, all)];
    let elastic = vec![server("etcd", 1, &[]), role("worker", 2, &["etcd-0"])];
    check_contract(
        "bagua",
        &[
            ("static", Value::Null, of_all),
            ("elastic", json!({"minReplicas": 1}), elastic),
        ],
    );
}

fn dask() {
    let with_lead = &["leadworker-0", "scheduler-0"];
    let without = &["scheduler-0", "worker-0"];
    check_contract(
        "dask",
        &[
            (
                "led",
                Value::Null,
                vec![
                    server("scheduler", 1, &[SELF]),
                    server("leadworker", 1, with_lead),
                    server("worker", 1, with_lead),
                    role("launcher", 1, with_lead),
                ],
            ),
            (
                "plain",
                Value::Null,
                vec![
                    server("scheduler", 1, &[SELF]),
                    server("worker", 2, without),
                    role("launcher", 1, without),
                ],
            ),
        ],
    );
}

fn standalone() {
    let lab = check_contract(
        "standalone",
        &[("alone", Value::Null, vec![role("worker", 2, &[])])],
    );
    assert_eq!(lab.get("services")["items"], json!([]));
}

fn custom() {
    let all = &["server-0", "worker-0", "worker-1"];
    let roles = vec![role("server", 1, all), role("worker", 2, all)];
    check_contract("custom", &[("any", Value::Null, roles)]);
}
