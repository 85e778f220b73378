//! `jax`: workers that are processes of one `jax.distributed` run. Worker 0 coordinates.

use trainyard_api::TrainingJob;

use super::one_port::OnePort;
use crate::job::{Env, Environment, Framework, Replica, RoleRule};

const PORT: OnePort = OnePort {
    framework: "jax",
    default: 6666,
    given: |job| job.spec.framework.jax.as_ref()?.port,
    is_served_by: |replica| replica.rank() == 0,
};

pub(super) fn framework() -> Framework {
    Framework {
        roles: vec![RoleRule::required("worker")],
        trains_as_one: true,
        // Every process was told how many there are.
        resizes: false,
        ports: Some(Box::new(PORT)),
        validation: Some(Box::new(PORT)),
        ..Framework::new("jax", Jax)
    }
}

struct Jax;

impl Environment for Jax {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let (host, port) = (replica.host(job.rank_zero()), PORT.number(job.object));
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
