//! `mxnet`: a scheduler, servers and workers, over MXNet's parameter server or BytePS.
//!
//! Every pod finds the scheduler by its stable name. Scheduler and servers end by themselves once
//! the workers have; the job has succeeded when the workers have.

use serde_json::{Map, Value, json};
use trainyard_api::{FieldError, MxnetOptions, RestartPolicy, TrainingJob};

use super::ports;
use crate::job::{Env, Environment, Framework, Job, Port, Ports, Replica, RoleRule, Validation};
use crate::model::PodKey;

const DEFAULT_PORT: i32 = 9091;

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
        ports: Some(Box::new(Mxnet)),
        validation: Some(Box::new(Mxnet)),
        ..Framework::new("mxnet", Mxnet)
    }
}

struct Mxnet;

fn options(job: &TrainingJob) -> MxnetOptions {
    job.spec.framework.mxnet.clone().unwrap_or_default()
}

fn port(job: &TrainingJob) -> i32 {
    options(job).port.unwrap_or(DEFAULT_PORT)
}

fn replicas(job: &Job<'_>, role: &str) -> i32 {
    job.role(role).map_or(0, |(_, role)| role.replicas())
}

fn scheduler(replica: &Replica<'_>) -> String {
    let role = replica.job.role(SCHEDULER).map_or(0, |(role, _)| role);
    replica.host(PodKey { role, index: 0 })
}

/// Where all pods are, and who this one is, as programs of Kubeflow's MXJobs read it.
fn config(replica: &Replica<'_>) -> String {
    let port = port(replica.job.object);
    let hosts = |(role, of): (usize, &crate::job::Role<'_>)| {
        let all = of
            .members
            .iter()
            .map(|index| replica.host(PodKey { role, index }));
        let all: Vec<Value> = all.map(|url| json!({"port": port, "url": url})).collect();
        (of.name.to_owned(), Value::Array(all))
    };
    let cluster = || {
        let roles: Map<String, Value> = replica.job.roles.iter().enumerate().map(hosts).collect();
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
        let options = options(job.object);
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("DMLC_ROLE", replica.role.name.to_owned()),
            ("DMLC_PS_ROOT_URI", scheduler(replica)),
            ("DMLC_PS_ROOT_PORT", port(job.object).to_string()),
            ("DMLC_NUM_SERVER", replicas(job, SERVER).to_string()),
            ("DMLC_NUM_WORKER", replicas(job, WORKER).to_string()),
            ("DMLC_USE_KUBERNETES", "1".to_owned()),
            ("PS_VERBOSE", options.verbosity.unwrap_or(0).to_string()),
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

impl Ports for Mxnet {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let port = Port {
            name: "mxnet".into(),
            number: port(replica.job.object),
        };
        Vec::from_iter((replica.role.name == SCHEDULER).then_some(port))
    }
}

impl Validation for Mxnet {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let options = options(job);
        let verbosity = options.verbosity.filter(|level| !(0..=2).contains(level));
        let verbosity = verbosity.map(|level| {
            FieldError::new(
                "spec.framework.mxnet.verbosity",
                format!("{level} is no level: give 0, 1 or 2, or leave it out"),
            )
        });
        let port = ports::check("spec.framework.mxnet.port", options.port);
        port.into_iter().chain(verbosity).collect()
    }
}
