//! `jax`: workers that are processes of one `jax.distributed` run. Worker 0 coordinates.

use trainyard_api::{FieldError, JaxOptions, TrainingJob};

use super::ports;
use crate::job::{Env, Environment, Framework, Port, Ports, Replica, RoleRule, Validation};

const DEFAULT_PORT: i32 = 6666;

pub(super) fn framework() -> Framework {
    Framework {
        roles: vec![RoleRule::required("worker")],
        trains_as_one: true,
        // Every process was told how many there are.
        resizes: false,
        ports: Some(Box::new(Jax)),
        validation: Some(Box::new(Jax)),
        ..Framework::new("jax", Jax)
    }
}

struct Jax;

fn options(job: &TrainingJob) -> JaxOptions {
    job.spec.framework.jax.clone().unwrap_or_default()
}

fn port(job: &TrainingJob) -> i32 {
    options(job).port.unwrap_or(DEFAULT_PORT)
}

impl Environment for Jax {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let (host, port) = (replica.host(job.rank_zero()), port(job.object));
        let (processes, process) = (job.total().to_string(), replica.rank().to_string());
        Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("JAX_COORDINATOR_ADDRESS", format!("{host}:{port}")),
            ("JAX_NUM_PROCESSES", processes.clone()),
            ("JAX_PROCESS_ID", process.clone()),
            // What programs of Kubeflow's JAXJobs read.
            ("COORDINATOR_ADDRESS", host),
            ("COORDINATOR_PORT", port.to_string()),
            ("NUM_PROCESSES", processes),
            ("PROCESS_ID", process),
        ])
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "JAX_COORDINATOR_ADDRESS",
            "JAX_NUM_PROCESSES",
            "JAX_PROCESS_ID",
            "COORDINATOR_ADDRESS",
            "COORDINATOR_PORT",
            "NUM_PROCESSES",
            "PROCESS_ID",
        ]
    }
}

impl Ports for Jax {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let port = Port {
            name: "jax".into(),
            number: port(replica.job.object),
        };
        Vec::from_iter((replica.rank() == 0).then_some(port))
    }
}

impl Validation for Jax {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        Vec::from_iter(ports::check("spec.framework.jax.port", options(job).port))
    }
}
