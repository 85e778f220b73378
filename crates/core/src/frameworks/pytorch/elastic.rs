//! Jobs whose pods are nodes of torchrun's elastic rendezvous: they come and go while others train.
//!
//! torchrun finds out by itself who is there, in a store that the pod of rank 0 holds, and gives
//! each process its rank. So no pod may be told a rank or a world size.

use trainyard_api::{PodQuorum, TrainingJob};

use super::{PORT, Pytorch, master_address, procs_per_node};
use crate::job::{Elasticity, Env, Environment, Framework, Job, Replica, RoleRule};

/// Seconds that pods wait for the pod of rank 0, and for each other: images may have to be pulled.
const JOIN_TIMEOUT: i32 = 600;
/// Seconds that torchrun waits for more pods when there are enough to train. Pods that are told of
/// a change at the same time are ready for it within about two seconds.
const LAST_CALL_TIMEOUT: i32 = 3;
/// Seconds between two looks of torchrun at who is there.
const MONITOR_INTERVAL: i32 = 1;
/// How often torchrun starts its processes again before its pod fails. Changes of size cost none of
/// these, and a pod that is lost costs one in each of the others.
const MAX_RESTARTS: i32 = 100;
/// The grace period of a pod that gives none.
const GRACE_SECONDS: i64 = 30;
/// Seconds of the grace period that are left to torchrun itself when its processes are killed.
const SHUTDOWN_MARGIN: i64 = 5;

/// What `pytorch` is for jobs that grow and shrink.
pub(super) fn framework() -> Framework {
    let worker = RoleRule {
        // torchrun ends with success only when the processes of all pods have ended so.
        succeeded_when: PodQuorum::AnyPod,
        ..RoleRule::optional("worker")
    };
    Framework {
        roles: vec![RoleRule::optional("master").single(), worker],
        trains_as_one: true,
        resizes: false,
        elasticity: Elasticity::Live,
        tells_bounds: true,
        ports: Some(Box::new(Pytorch)),
        validation: Some(Box::new(Pytorch)),
        ..Framework::new("pytorch", ElasticPytorch)
    }
}

struct ElasticPytorch;

/// The fewest and the most pods that may train, as torchrun wants it.
fn bounds(job: &Job<'_>) -> String {
    let elastic = job.elastic.map(|elastic| (elastic.role, elastic.spec));
    let roles = job.roles.iter().enumerate();
    let (min, max) = roles.fold((0_i32, 0_i32), |(min, max), (position, role)| {
        let (least, most) = match elastic {
            Some((elastic, spec)) if elastic == position => (spec.min(), spec.max()),
            _ => (role.replicas(), role.replicas()),
        };
        (min.saturating_add(least), max.saturating_add(most))
    });
    format!("{min}:{max}")
}

/// How torchrun meets the others. Whether a pod holds the store is said here: torchrun would find
/// it out by the names of its host, which may not resolve yet.
fn rendezvous(replica: &Replica<'_>) -> String {
    let is_host = u8::from(replica.key == replica.job.rank_zero());
    format!(
        "is_host={is_host},join_timeout={JOIN_TIMEOUT},last_call_timeout={LAST_CALL_TIMEOUT},read_timeout={JOIN_TIMEOUT}"
    )
}

/// Seconds that torchrun gives its processes to end before it kills them.
fn shutdown_timeout(replica: &Replica<'_>) -> i64 {
    let grace = replica.role.pod.termination_grace_period_seconds;
    (grace.unwrap_or(GRACE_SECONDS) - SHUTDOWN_MARGIN).max(1)
}

impl Environment for ElasticPytorch {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let endpoint = format!("{}:{}", master_address(replica), PORT.number(job.object));
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("PET_NNODES", bounds(job)),
            ("PET_RDZV_BACKEND", "c10d".to_owned()),
            ("PET_RDZV_ENDPOINT", endpoint),
            ("PET_RDZV_ID", job.name.to_owned()),
            ("PET_RDZV_CONF", rendezvous(replica)),
        ]);
        env.set("PET_MAX_RESTARTS", MAX_RESTARTS);
        env.set("PET_MONITOR_INTERVAL", MONITOR_INTERVAL);
        env.set("PET_NPROC_PER_NODE", procs_per_node(job, replica.role));
        // PyTorch 2 would otherwise have the store of the rendezvous serve the processes too, and
        // pods that join wait for an address that rank 0 published before they came.
        env.set("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", 1);
        env.set("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", shutdown_timeout(replica));
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "MASTER_ADDR",
            "MASTER_PORT",
            "WORLD_SIZE",
            "RANK",
            "PET_MASTER_ADDR",
            "PET_MASTER_PORT",
            "PET_NODE_RANK",
            "PET_NNODES",
            "PET_RDZV_BACKEND",
            "PET_RDZV_ENDPOINT",
            "PET_RDZV_ID",
        ]
    }
}
