//! `mxnet`: a scheduler, servers and workers, over MXNet's parameter server or BytePS.
//!
//! Every pod finds the scheduler by its stable name. Scheduler and servers end by themselves once
//! the workers have; the job has succeeded when the workers have.

use serde_json::{Map, Value, json};
use trainyard_api::{FieldError, RestartPolicy, TrainingJob};

use super::one_port::OnePort;
use crate::job::{Env, Environment, Framework, Job, Replica, Role, RoleRule, Validation};

const PORT: OnePort = OnePort {
    framework: "mxnet",
    default: 9091,
    given: |job| job.spec.framework.mxnet.as_ref()?.port,
    is_served_by: |replica| replica.role.name == SCHEDULER,
};

const SCHEDULER: &str = "scheduler";
const SERVER: &str = "server";
const WORKER: &str = "worker";

/// Lists of host names grow with the square of the job: beyond so many pods they are left out. No
/// version of MXNet reads them.
const MAX_LISTED: i32 = 256;

pub(super) fn framework() -> Framework {
    let serves = |name| RoleRule {
        serves: true,
        ..RoleRule::required(name)
    };
    Framework {
        roles: vec![
            serves(SCHEDULER).single(),
            serves(SERVER),
            RoleRule::required(WORKER),
        ],
        // A parameter server takes no worker back, and the others would wait for it for ever.
        restart_policy: RestartPolicy::Never,
        trains_as_one: true,
        // The scheduler waits for as many servers and workers as it was told of.
        resizes: false,
        ports: Some(Box::new(PORT)),
        validation: Some(Box::new(Mxnet)),
        ..Framework::new("mxnet", Mxnet)
    }
}

struct Mxnet;

/// How much the parameter server logs, if the user says so.
fn verbosity(job: &TrainingJob) -> Option<i32> {
    job.spec.framework.mxnet.as_ref()?.verbosity
}

fn replicas(job: &Job<'_>, role: &str) -> i32 {
    job.role(role).map_or(0, |(_, role)| role.replicas())
}

fn scheduler(replica: &Replica<'_>) -> String {
    replica.host(replica.job.first_of(SCHEDULER))
}

/// Where all pods are, and who this one is, as programs of Kubeflow's MXJobs read it.
fn config(replica: &Replica<'_>) -> String {
    let port = PORT.number(replica.job.object);
    let address = |pod| json!({"port": port, "url": replica.host(pod)});
    let addresses = |(position, role): (usize, &Role<'_>)| {
        let all = replica.job.keys_of(position).map(address).collect();
        (role.name.to_owned(), Value::Array(all))
    };
    let cluster = || {
        let roles: Map<String, Value> = replica.job.roles.iter().enumerate().map(addresses).collect();
        Value::Object(roles).to_string()
    };
    let (role, index) = (replica.role.name, replica.key.index);
    format!(
        r#"{{"cluster":{},"labels":{{}},"task":{{"index":{index},"type":"{role}"}}}}"#,
        replica.job.common(cluster)
    )
}

impl Environment for Mxnet {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("DMLC_ROLE", replica.role.name.to_owned()),
            ("DMLC_PS_ROOT_URI", scheduler(replica)),
            ("DMLC_PS_ROOT_PORT", PORT.number(job.object).to_string()),
            ("DMLC_NUM_SERVER", replicas(job, SERVER).to_string()),
            ("DMLC_NUM_WORKER", replicas(job, WORKER).to_string()),
            ("DMLC_USE_KUBERNETES", "1".to_owned()),
            ("PS_VERBOSE", verbosity(job.object).unwrap_or(0).to_string()),
        ]);
        // A pod with several addresses would otherwise tell the scheduler any of them.
        env.set_field("DMLC_NODE_HOST", "status.podIP");
        if replica.role.name == WORKER {
            env.set("DMLC_WORKER_ID", replica.key.index);
        }
        if job.total() <= MAX_LISTED {
            env.set("MX_CONFIG", config(replica));
        }
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "DMLC_ROLE",
            "DMLC_PS_ROOT_URI",
            "DMLC_PS_ROOT_PORT",
            "DMLC_NUM_SERVER",
            "DMLC_NUM_WORKER",
            "DMLC_WORKER_ID",
            "MX_CONFIG",
        ]
    }
}

impl Validation for Mxnet {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = PORT.check(job);
        let unknown = verbosity(job).filter(|level| !(0..=2).contains(level));
        errors.extend(unknown.map(|level| {
            FieldError::new(
                "spec.framework.mxnet.verbosity",
                format!("{level} is no level: give 0, 1 or 2, or leave it out"),
            )
        }));
        errors
    }
}
