//! `xgboost`: an optional master and workers. Rank 0 runs XGBoost's tracker and trains; LightGBM,
//! which has no tracker, finds the list of all machines.

use trainyard_api::{FieldError, TrainingJob, XgboostOptions};

use super::{lists, ports};
use crate::job::{Env, Environment, Framework, Port, Ports, Replica, RoleRule, Validation};
use crate::model::PodKey;

const DEFAULT_PORT: i32 = 9999;
const WORKER: &str = "worker";

pub(super) fn framework() -> Framework {
    Framework {
        roles: vec![RoleRule::optional("master").single(), RoleRule::optional(WORKER)],
        trains_as_one: true,
        // The tracker waits for as many as it was told of.
        resizes: false,
        ports: Some(Box::new(Xgboost)),
        validation: Some(Box::new(Xgboost)),
        ..Framework::new("xgboost", Xgboost)
    }
}

struct Xgboost;

fn options(job: &TrainingJob) -> XgboostOptions {
    job.spec.framework.xgboost.clone().unwrap_or_default()
}

fn port(job: &TrainingJob) -> i32 {
    options(job).port.unwrap_or(DEFAULT_PORT)
}

/// All machines but rank 0.
fn worker_addresses(replica: &Replica<'_>) -> String {
    let job = replica.job;
    let workers = job.role(WORKER).into_iter().flat_map(|(role, workers)| {
        let keys = workers.members.iter().map(move |index| PodKey { role, index });
        keys.filter(|key| job.rank(*key) != 0)
    });
    let hosts: Vec<String> = workers.map(|key| replica.host(key)).collect();
    hosts.join(",")
}

impl Environment for Xgboost {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let (host, port) = (replica.host(job.rank_zero()), port(job.object).to_string());
        let (world, rank) = (job.total().to_string(), replica.rank().to_string());
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("DMLC_TRACKER_URI", host.clone()),
            ("DMLC_TRACKER_PORT", port.clone()),
            ("DMLC_TASK_ID", rank.clone()),
            ("DMLC_NUM_WORKER", world.clone()),
            // What programs of Kubeflow's XGBoostJobs read.
            ("MASTER_ADDR", host),
            ("MASTER_PORT", port.clone()),
            ("WORLD_SIZE", world),
            ("RANK", rank),
        ]);
        if job.total() > 1 {
            env.set("WORKER_PORT", port);
            // XGBoost does not need them, and LightGBM trains with far fewer machines.
            let addresses = job.common(|| worker_addresses(replica));
            if addresses.len() <= lists::MAX_VARIABLE {
                env.set("WORKER_ADDRS", addresses);
            }
        }
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "DMLC_TRACKER_URI",
            "DMLC_TRACKER_PORT",
            "DMLC_TASK_ID",
            "DMLC_NUM_WORKER",
            "MASTER_ADDR",
            "MASTER_PORT",
            "WORLD_SIZE",
            "RANK",
            "WORKER_PORT",
            "WORKER_ADDRS",
        ]
    }
}

impl Ports for Xgboost {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        vec![Port {
            name: "xgboost".into(),
            number: port(replica.job.object),
        }]
    }
}

impl Validation for Xgboost {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        Vec::from_iter(ports::check("spec.framework.xgboost.port", options(job).port))
    }
}
