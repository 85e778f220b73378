//! Jobs whose workers come and go while the scheduler and the launcher go on. A worker that leaves
//! gives what it has computed to others first.
//!
//! Dask can run a program in each worker, a preload. Ours looks for the file by which workers are
//! told to leave, and has the scheduler retire its own worker: that needs no port of the scheduler
//! that anybody could call.

use super::{Dask, LAUNCHER, RANKS, SCHEDULER, roles};
use crate::job::{Elasticity, Env, Environment, Framework, Replica};
use trainyard_api::TrainingJob;

/// The variable of the preload.
const PROGRAM: &str = "TRAINYARD_DASK_LEAVE";
/// Dask's own variable for preloads. Dask logs it, so the program is in another one.
const PRELOAD: &str = "DASK_DISTRIBUTED__WORKER__PRELOAD";
const RUN_PROGRAM: &str = r#"import os; exec(os.environ["TRAINYARD_DASK_LEAVE"])"#;

/// What `dask` is for jobs that grow and shrink.
pub(super) fn framework() -> Framework {
    Framework {
        roles: roles(),
        elasticity: Elasticity::Live,
        ports: Some(Box::new(Dask)),
        validation: Some(Box::new(Dask)),
        ..Framework::new("dask", ElasticDask)
    }
}

struct ElasticDask;

impl Environment for ElasticDask {
    /// No pod is told a rank or how many there are: that changes while it runs.
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let mut env = Dask.variables(replica);
        env.retain(|name| !RANKS.contains(&name));
        if ![SCHEDULER, LAUNCHER].contains(&replica.role.name) {
            env.set(PRELOAD, RUN_PROGRAM);
            env.set(PROGRAM, include_str!("leave.py"));
        }
        env
    }

    fn reserved(&self, job: &TrainingJob) -> Vec<&str> {
        Dask.reserved(job)
    }
}
