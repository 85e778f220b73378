//! `xgboost`: an optional master and workers. Rank 0 runs XGBoost's tracker and trains; LightGBM,
//! which has no tracker, finds the list of all machines.

use trainyard_api::TrainingJob;

use super::lists;
use super::one_port::OnePort;
use crate::job::{Env, Environment, Framework, Replica, RoleRule};

const PORT: OnePort = OnePort {
    framework: "xgboost",
    default: 9999,
    given: |job| job.spec.framework.xgboost.as_ref()?.port,
    is_served_by: |_| true,
};
const WORKER: &str = "worker";

pub(super) fn framework() -> Framework {
    Framework {
        roles: vec![RoleRule::optional("master").single(), RoleRule::optional(WORKER)],
        trains_as_one: true,
        // The tracker waits for as many as it was told of.
        resizes: false,
        ports: Some(Box::new(PORT)),
        validation: Some(Box::new(PORT)),
        ..Framework::new("xgboost", Xgboost)
    }
}

struct Xgboost;

/// All machines but rank 0.
fn worker_addresses(replica: &Replica<'_>) -> String {
    let job = replica.job;
    let workers = job.role(WORKER).into_iter();
    let pods = workers.flat_map(|(position, _)| job.keys_of(position));
    let others = pods.filter(|pod| job.rank(*pod) != 0);
    let hosts: Vec<String> = others.map(|pod| replica.host(pod)).collect();
    hosts.join(",")
}

impl Environment for Xgboost {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let (host, port) = (replica.host(job.rank_zero()), PORT.number(job.object).to_string());
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
