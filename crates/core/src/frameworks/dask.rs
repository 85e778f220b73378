//! `dask`: a scheduler, workers, and a launcher whose program computes with them.
//!
//! The lead worker is the first of the workers and has a template of its own. The launcher starts
//! last, and decides how the job ends. Launcher and workers also have ranks, for programs that
//! train with another framework inside of Dask's tasks.

mod elastic;

use trainyard_api::{DaskOptions, FieldError, RestartPolicy, TrainingJob};

use super::ports;
use crate::job::{Env, Environment, Framework, Port, Ports, Replica, RoleRule, Validation, Variant};

const DEFAULT_PORT: i32 = 8786;
const DEFAULT_DASHBOARD_PORT: i32 = 8787;
const DEFAULT_MASTER_PORT: i32 = 29500;

const LAUNCHER: &str = "launcher";
const SCHEDULER: &str = "scheduler";
const LEAD_WORKER: &str = "leadworker";
const WORKER: &str = "worker";

/// What tells programs of a rank among a number of pods.
const RANKS: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

pub(super) fn framework() -> Framework {
    let elastic = Variant {
        applies: |job| job.spec.elastic.is_some(),
        framework: elastic::framework(),
    };
    Framework {
        roles: roles(),
        ports: Some(Box::new(Dask)),
        validation: Some(Box::new(Dask)),
        variants: vec![elastic],
        ..Framework::new("dask", Dask)
    }
}

fn roles() -> Vec<RoleRule> {
    // A worker that loses its scheduler exits with 0, and is needed as before.
    let works = |name| RoleRule {
        restart_policy: Some(RestartPolicy::Always),
        ..RoleRule::optional(name).after(SCHEDULER)
    };
    let lead_worker = works(LEAD_WORKER).single();
    let worker = works(WORKER).after(LEAD_WORKER);
    let launcher = RoleRule {
        decides: true,
        ..RoleRule::required(LAUNCHER).single()
    };
    let launcher = launcher.after(SCHEDULER).after(LEAD_WORKER).after(WORKER);
    let scheduler = RoleRule {
        serves: true,
        restart_policy: Some(RestartPolicy::Always),
        ..RoleRule::required(SCHEDULER).single()
    };
    vec![lead_worker, worker, launcher, scheduler]
}

struct Dask;

fn options(job: &TrainingJob) -> DaskOptions {
    job.spec.framework.dask.clone().unwrap_or_default()
}

fn port(job: &TrainingJob) -> i32 {
    options(job).port.unwrap_or(DEFAULT_PORT)
}

fn master_port(job: &TrainingJob) -> i32 {
    options(job).master_port.unwrap_or(DEFAULT_MASTER_PORT)
}

/// The host of rank 0, as a pod finds it.
fn master_host(replica: &Replica<'_>) -> String {
    let master = replica.job.rank_zero();
    let role = replica.job.roles.get(master.role);
    let is_single = role.is_some_and(|role| role.name == LEAD_WORKER);
    if is_single && master != replica.key {
        replica.single_host(master)
    } else {
        replica.leader_host(master)
    }
}

impl Environment for Dask {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let (host, port) = (replica.single_host(job.first_of(SCHEDULER)), port(job.object));
        let address = format!("tcp://{host}:{port}");
        let mut env = Env::from([("PYTHONUNBUFFERED", "1"), ("SCHEDULER", &address)]);
        if replica.role.name == SCHEDULER {
            env.set_field("MY_IP", "status.podIP");
            return env;
        }
        env.set("DASK_SCHEDULER_ADDRESS", address);
        env.set("SchedulerAddress", host);
        env.set("SchedulerPort", port);
        env.set("RANK", replica.rank());
        // The scheduler has no rank.
        env.set("WORLD_SIZE", job.total() - 1);
        env.set("MASTER_ADDR", master_host(replica));
        env.set("MASTER_PORT", master_port(job.object));
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        let addresses = [
            "SCHEDULER",
            "DASK_SCHEDULER_ADDRESS",
            "SchedulerAddress",
            "SchedulerPort",
        ];
        [addresses, RANKS].concat()
    }
}

impl Ports for Dask {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let job = replica.job.object;
        let port = |name: &'static str, number| Port {
            name: name.into(),
            number,
        };
        if replica.role.name == SCHEDULER {
            let dashboard = options(job).dashboard_port.unwrap_or(DEFAULT_DASHBOARD_PORT);
            return vec![port("dask", self::port(job)), port("dashboard", dashboard)];
        }
        Vec::from_iter((replica.rank() == 0).then(|| port("master", master_port(job))))
    }
}

impl Validation for Dask {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let options = options(job);
        let given = [
            ("port", options.port),
            ("dashboardPort", options.dashboard_port),
            ("masterPort", options.master_port),
        ];
        let checks = given.map(|(name, port)| ports::check(&format!("spec.framework.dask.{name}"), port));
        let dashboard = options.dashboard_port.unwrap_or(DEFAULT_DASHBOARD_PORT);
        let clash = (port(job) == dashboard).then(|| {
            FieldError::new(
                "spec.framework.dask.dashboardPort",
                format!("{dashboard} is the port of the scheduler, too: give another number"),
            )
        });
        let fixed = (options.adaptive == Some(true) && job.spec.elastic.is_none()).then(|| {
            FieldError::new(
                "spec.framework.dask.adaptive",
                "the number of workers does not change in this job: add spec.elastic, or remove this",
            )
        });
        checks.into_iter().flatten().chain(clash).chain(fixed).collect()
    }
}
