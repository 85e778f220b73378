//! `tensorflow`: a chief, a master, workers, parameter servers and evaluators, told of each other
//! by `TF_CONFIG`.
//!
//! The chief decides how the job ends, or the master; without either it is worker 0, which saves
//! what the others have trained. Parameter servers and evaluators never end by themselves.

use serde_json::{Map, Value, json};
use trainyard_api::{FieldError, PodQuorum, TensorflowOptions, TrainingJob};

use super::ports;
use crate::job::{
    Env, Environment, Framework, Job, Port, Ports, Replica, Role, RoleRule, Validation, Variant,
};
use crate::model::PodKey;

const DEFAULT_PORT: i32 = 2222;
/// The name by which peers know the port, and by which a container may have another one.
const PORT_NAME: &str = "tfjob-port";

const EVALUATOR: &str = "evaluator";
const PS: &str = "ps";
const WORKER: &str = "worker";

/// A single variable can't be longer, Linux says.
const MAX_VARIABLE: usize = 131_071;

pub(super) fn framework() -> Framework {
    let dynamic = Variant {
        applies: |job| options(job).dynamic_workers == Some(true),
        framework: Framework {
            resizes: true,
            ..of_tasks(Told::OfServers)
        },
    };
    Framework {
        variants: vec![dynamic],
        ..of_tasks(Told::OfAll)
    }
}

fn of_tasks(told: Told) -> Framework {
    let decides = |name| RoleRule {
        decides: true,
        ..RoleRule::optional(name).single()
    };
    let worker = RoleRule {
        succeeded_when: PodQuorum::FirstPod,
        ..RoleRule::optional(WORKER)
    };
    let serves = |name| RoleRule {
        serves: true,
        ..RoleRule::optional(name)
    };
    Framework {
        roles: vec![
            decides("chief"),
            decides("master"),
            worker,
            serves(PS),
            serves(EVALUATOR),
        ],
        trains_as_one: true,
        resizes: false,
        ports: Some(Box::new(Tensorflow(told))),
        validation: Some(Box::new(Tensorflow(told))),
        ..Framework::new("tensorflow", Tensorflow(told))
    }
}

/// What workers and parameter servers are told of.
#[derive(Clone, Copy)]
enum Told {
    OfAll,
    /// A worker of the parameter servers and itself, a parameter server of itself alone.
    OfServers,
}

struct Tensorflow(Told);

fn options(job: &TrainingJob) -> TensorflowOptions {
    job.spec.framework.tensorflow.clone().unwrap_or_default()
}

/// The port of the pods of a role.
fn port(job: &Job<'_>, role: &Role<'_>) -> i32 {
    let default = options(job.object).port.unwrap_or(DEFAULT_PORT);
    ports::named(role.main, PORT_NAME).unwrap_or(default)
}

fn address(replica: &Replica<'_>, role: usize, index: i32) -> String {
    let roles = &replica.job.roles;
    let port = roles
        .get(role)
        .map_or(DEFAULT_PORT, |role| port(replica.job, role));
    format!("{}:{port}", replica.host(PodKey { role, index }))
}

fn addresses(replica: &Replica<'_>, role: usize) -> Vec<String> {
    let replicas = replica.job.roles.get(role).map_or(0, |role| role.replicas);
    (0..replicas).map(|index| address(replica, role, index)).collect()
}

/// All tasks but evaluators, which no other task may know of.
fn cluster(replica: &Replica<'_>) -> String {
    let roles = replica.job.roles.iter().enumerate();
    let tasks = roles.filter(|(_, role)| role.name != EVALUATOR);
    let cluster: Map<String, Value> = tasks
        .map(|(position, role)| (role.name.to_owned(), json!(addresses(replica, position))))
        .collect();
    Value::Object(cluster).to_string()
}

/// The part of the cluster that a task needs where workers come and go.
fn sparse_cluster(replica: &Replica<'_>) -> Value {
    let PodKey { role, index } = replica.key;
    let own = address(replica, role, index);
    if replica.role.name == PS {
        json!({"worker": {}, "ps": [own]})
    } else {
        let servers = replica.job.role(PS).map(|(ps, _)| addresses(replica, ps));
        json!({"worker": {index.to_string(): own}, "ps": servers.unwrap_or_default()})
    }
}

fn config(told: Told, replica: &Replica<'_>) -> String {
    let task = json!({"type": replica.role.name, "index": replica.key.index});
    let is_told_part = matches!(replica.role.name, WORKER | PS);
    match told {
        Told::OfServers if is_told_part => {
            json!({"sparseCluster": sparse_cluster(replica), "task": task}).to_string()
        }
        // The cluster is the longest part and the same for all.
        _ => format!(
            r#"{{"cluster":{},"task":{task},"environment":"cloud"}}"#,
            replica.job.common(|| cluster(replica))
        ),
    }
}

impl Environment for Tensorflow {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let mut env = Env::from([("PYTHONUNBUFFERED", "1")]);
        // A program that trains alone must not look for others.
        if replica.job.total() > 1 {
            env.set("TF_CONFIG", config(self.0, replica));
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
        port.into_iter().chain(check_size(self.0, job)).collect()
    }
}

/// Linux starts no program with a longer variable.
fn check_size(told: Told, job: &TrainingJob) -> Option<FieldError> {
    let (name, namespace) = (job.metadata.name.as_deref(), job.metadata.namespace.as_deref());
    let (name, namespace) = (
        name.unwrap_or_default().len(),
        namespace.unwrap_or_default().len(),
    );
    let listed = |role: &&trainyard_api::RoleSpec| match told {
        Told::OfAll => role.name != EVALUATOR,
        Told::OfServers => role.name == PS,
    };
    let roles = job.spec.roles.iter().filter(listed);
    // `"<job>-<role>-<index>.<job>.<namespace>.svc.<domain>:<port>",` with a usual domain.
    let length = |role: &trainyard_api::RoleSpec| 2 * name + namespace + role.name.len() + 40;
    let sizes = roles.map(|role| {
        let pods = usize::try_from(role.replicas.unwrap_or(1)).unwrap_or(0);
        pods.saturating_mul(length(role))
    });
    let size = sizes.fold(0, usize::saturating_add);
    (size > MAX_VARIABLE).then(|| {
        FieldError::new(
            "spec.roles",
            format!(
                "TF_CONFIG would have some {size} characters, and Linux starts no program with a variable of more than \
                 {MAX_VARIABLE}: use fewer pods, a shorter name, or spec.framework.tensorflow.dynamicWorkers"
            ),
        )
    })
}
