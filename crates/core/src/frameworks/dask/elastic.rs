//! Jobs whose workers come and go while the scheduler and the launcher go on. A worker that leaves
//! gives what it has computed to others first.
//!
//! Dask can run a program in each worker, a preload. Ours looks for the file by which workers are
//! told to leave, and has the scheduler retire its own worker: that needs no port of the scheduler
//! that anybody could call.
//!
//! Where the job is adaptive the scheduler has a preload, too, which writes the target of the job
//! as any client of the API may. The operator has no part in that.

use super::{Dask, LAUNCHER, RANKS, SCHEDULER, options, roles};
use crate::job::{Elasticity, Env, Environment, Framework, Replica};
use trainyard_api::{GROUP, TrainingJob, VERSION};

/// The variable of the preload.
const PROGRAM: &str = "TRAINYARD_DASK_LEAVE";
/// Dask's own variable for preloads. Dask logs it, so the program is in another one.
const PRELOAD: &str = "DASK_DISTRIBUTED__WORKER__PRELOAD";
const RUN_PROGRAM: &str = r#"import os; exec(os.environ["TRAINYARD_DASK_LEAVE"])"#;

/// The same, of the scheduler of an adaptive job.
const SCHEDULER_PROGRAM: &str = "TRAINYARD_DASK_ADAPT";
const SCHEDULER_PRELOAD: &str = "DASK_DISTRIBUTED__SCHEDULER__PRELOAD";
const RUN_SCHEDULER_PROGRAM: &str = r#"import os; exec(os.environ["TRAINYARD_DASK_ADAPT"])"#;
/// Where the API has the job.
const JOB: &str = "TRAINYARD_DASK_JOB";

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
        if replica.role.name == SCHEDULER && options(replica.job.object).adaptive == Some(true) {
            let (namespace, name) = (replica.job.namespace, replica.job.name);
            let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/trainingjobs/{name}");
            env.set(JOB, path);
            env.set(SCHEDULER_PRELOAD, RUN_SCHEDULER_PROGRAM);
            env.set(SCHEDULER_PROGRAM, include_str!("adapt.py"));
        }
        env
    }

    fn reserved(&self, job: &TrainingJob) -> Vec<&str> {
        Dask.reserved(job)
    }
}
