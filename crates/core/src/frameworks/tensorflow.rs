//! `tensorflow`: a chief, a master, workers, parameter servers and evaluators, told of each other
//! by `TF_CONFIG`.
//!
//! The chief decides how the job ends, or the master, whatever the workers do; without either it is
//! worker 0, which saves what the others have trained. Parameter servers and evaluators never end
//! by themselves.

use serde_json::{Map, Value, json};
use trainyard_api::{FieldError, PodQuorum, RoleSpec, TensorflowOptions, TrainingJob};

use super::{lists, ports};
use crate::job::{
    Elasticity, Env, Environment, Framework, Job, Port, Ports, Replica, Role, RoleRule, Validation, Variant,
};
use crate::model::PodKey;

const DEFAULT_PORT: i32 = 2222;
/// The name by which peers know the port, and by which a container may have another one.
const PORT_NAME: &str = "tfjob-port";

const CHIEF: &str = "chief";
const MASTER: &str = "master";
const EVALUATOR: &str = "evaluator";
const PS: &str = "ps";
const WORKER: &str = "worker";

pub(super) fn framework() -> Framework {
    let dynamic = || Framework {
        resizes: true,
        tolerates_loss: true,
        ..with_peers(Peers::Servers)
    };
    // Workers come and go as they know of no other. All know how many servers there are.
    let elastic = Variant {
        applies: |job| has_dynamic_workers(job) && has_elastic_workers(job),
        framework: Framework {
            elasticity: Elasticity::Live,
            ..dynamic()
        },
    };
    let dynamic = Variant {
        applies: has_dynamic_workers,
        framework: dynamic(),
    };
    // Workers talk to parameter servers, and not to each other.
    let served = Variant {
        applies: |job| job.spec.roles.iter().any(|role| role.name == PS),
        framework: Framework {
            tolerates_loss: true,
            ..with_peers(Peers::All)
        },
    };
    Framework {
        variants: vec![elastic, dynamic, served],
        ..with_peers(Peers::All)
    }
}

fn has_dynamic_workers(job: &TrainingJob) -> bool {
    options(job).dynamic_workers == Some(true)
}

fn has_elastic_workers(job: &TrainingJob) -> bool {
    let role = job.spec.elastic_role().and_then(|role| job.spec.roles.get(role));
    role.is_some_and(|role| role.name == WORKER)
}

fn with_peers(peers: Peers) -> Framework {
    let decides = |name| RoleRule {
        decides: true,
        ..RoleRule::optional(name).single()
    };
    let worker = RoleRule {
        succeeded_when: PodQuorum::FirstPod,
        is_expendable: true,
        ..RoleRule::optional(WORKER)
    };
    let serves = |name| RoleRule {
        serves: true,
        ..RoleRule::optional(name)
    };
    Framework {
        roles: vec![
            decides(CHIEF),
            decides(MASTER),
            worker,
            serves(PS),
            serves(EVALUATOR),
        ],
        trains_as_one: true,
        resizes: false,
        ports: Some(Box::new(Tensorflow(peers))),
        validation: Some(Box::new(Tensorflow(peers))),
        ..Framework::new("tensorflow", Tensorflow(peers))
    }
}

/// Which peers `TF_CONFIG` lists for workers and parameter servers.
#[derive(Clone, Copy, PartialEq)]
enum Peers {
    All,
    /// For a worker the chief, the parameter servers and itself; for a parameter server itself.
    Servers,
}

struct Tensorflow(Peers);

fn options(job: &TrainingJob) -> TensorflowOptions {
    job.spec.framework.tensorflow.clone().unwrap_or_default()
}

/// The port of the pods of a role.
fn port(job: &Job<'_>, role: &Role<'_>) -> i32 {
    let default = options(job.object).port.unwrap_or(DEFAULT_PORT);
    ports::named(role.main, PORT_NAME).unwrap_or(default)
}

fn address(replica: &Replica<'_>, pod: PodKey) -> String {
    let role = replica.job.roles.get(pod.role);
    let port = role.map_or(DEFAULT_PORT, |role| port(replica.job, role));
    format!("{}:{port}", replica.host(pod))
}

fn addresses(replica: &Replica<'_>, role: usize) -> Vec<String> {
    let pods = replica.job.keys_of(role);
    pods.map(|pod| address(replica, pod)).collect()
}

/// The tasks of a role: a list, or where it has gaps a map of indices, which TensorFlow reads too.
fn tasks_of(replica: &Replica<'_>, position: usize, role: &Role<'_>) -> Value {
    if role.members.gaps().is_none() {
        return json!(addresses(replica, position));
    }
    let tasks = replica.job.keys_of(position);
    let tasks: Map<String, Value> = tasks
        .map(|pod| (pod.index.to_string(), json!(address(replica, pod))))
        .collect();
    Value::Object(tasks)
}

/// All tasks but evaluators, which no other task may know of.
fn cluster(replica: &Replica<'_>) -> String {
    let roles = replica.job.roles.iter().enumerate();
    let tasks = roles.filter(|(_, role)| role.name != EVALUATOR);
    let cluster: Map<String, Value> = tasks
        .map(|(position, role)| (role.name.to_owned(), tasks_of(replica, position, role)))
        .collect();
    Value::Object(cluster).to_string()
}

/// The part of the cluster that a worker or a parameter server knows where workers come and go:
/// first as TensorFlow reads it, where a job that is listed in part is a map of indices; then as
/// Kubeflow and AresOperator write it, which some programs read.
fn partial_cluster(replica: &Replica<'_>) -> (String, String) {
    let index = replica.key.index;
    let own = json!(address(replica, replica.key));
    if replica.role.name == PS {
        return (
            format!(r#"{{"ps":{{"{index}":{own}}}}}"#),
            format!(r#"{{"ps":[{own}],"worker":{{}}}}"#),
        );
    }
    let job = replica.job;
    let of = |name| {
        let (position, _) = job.role(name)?;
        Some(addresses(replica, position))
    };
    // Every worker has the same list of servers, which may be long.
    let servers = job.common(|| json!(of(PS).unwrap_or_default()).to_string());
    let leaders = [CHIEF, MASTER].into_iter().filter_map(|name| {
        let addresses = of(name)?;
        Some(format!(r#""{name}":{},"#, json!(addresses)))
    });
    let has_servers = job.role(PS).is_some();
    let listed_servers = has_servers.then(|| format!(r#""ps":{servers},"#));
    let cluster: String = leaders.chain(listed_servers).collect();
    (
        format!(r#"{{{cluster}"worker":{{"{index}":{own}}}}}"#),
        format!(r#"{{"ps":{servers},"worker":{{"{index}":{own}}}}}"#),
    )
}

fn config(peers: Peers, replica: &Replica<'_>) -> String {
    let (role, index) = (replica.role.name, replica.key.index);
    let task = format!(r#""task":{{"type":"{role}","index":{index}}},"environment":"cloud""#);
    match (peers, role) {
        (Peers::Servers, WORKER | PS) => {
            let (cluster, sparse) = partial_cluster(replica);
            format!(r#"{{"cluster":{cluster},"sparseCluster":{sparse},{task}}}"#)
        }
        // The same for all evaluators, of which there may be many. The common text is another one.
        (Peers::Servers, _) => {
            let cluster = replica.job.common_value(|| cluster(replica));
            let cluster = cluster.map_or("{}", String::as_str);
            format!(r#"{{"cluster":{cluster},{task}}}"#)
        }
        // The cluster is the longest part and the same for all.
        (Peers::All, _) => {
            let cluster = replica.job.common(|| cluster(replica));
            format!(r#"{{"cluster":{cluster},{task}}}"#)
        }
    }
}

impl Environment for Tensorflow {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let mut env = Env::from([("PYTHONUNBUFFERED", "1")]);
        // A program that trains alone must not look for others.
        if replica.job.total() > 1 {
            env.set_text("TF_CONFIG", config(self.0, replica));
        }
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec!["TF_CONFIG"]
    }
}

impl Ports for Tensorflow {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        vec![Port {
            name: PORT_NAME.into(),
            number: port(replica.job, replica.role),
        }]
    }
}

impl Validation for Tensorflow {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let port = ports::check("spec.framework.tensorflow.port", options(job).port);
        let problems = port.into_iter().chain(check_leaders(job));
        problems.chain(check_size(self.0, job)).collect()
    }
}

/// To TensorFlow, chief and master are two words for the task that leads.
fn check_leaders(job: &TrainingJob) -> Option<FieldError> {
    let position = |name: &str| job.spec.roles.iter().position(|role| role.name == name);
    position(CHIEF).zip(position(MASTER)).map(|(_, master)| {
        let message = "chief and master are two words for the role that leads, and there is one leader: remove one of them";
        FieldError::new(format!("spec.roles[{master}].name"), message)
    })
}

fn check_size(peers: Peers, job: &TrainingJob) -> Option<FieldError> {
    let advice = match peers {
        Peers::All => "use fewer pods, a shorter name, or spec.framework.tensorflow.dynamicWorkers",
        Peers::Servers => "use fewer pods, or a shorter name",
    };
    lists::check("TF_CONFIG", config_size(peers, job), advice)
}

/// How long `TF_CONFIG` gets in the pod with the most peers.
fn config_size(peers: Peers, job: &TrainingJob) -> usize {
    let roles = &job.spec.roles;
    let lists_part = |role: &RoleSpec| matches!(&*role.name, WORKER | PS);
    let lists_all = peers == Peers::All || !roles.iter().all(lists_part);
    let sizes = roles.iter().map(|role| match &*role.name {
        EVALUATOR => 0,
        // They are listed in "cluster" and in "sparseCluster".
        PS if peers == Peers::Servers => lists::size(job, role).saturating_mul(2),
        _ if lists_all => lists::size(job, role),
        _ => 0,
    });
    sizes.fold(0, usize::saturating_add)
}
