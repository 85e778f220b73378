//! `bagua`: a master and workers; or, with an etcd, workers of which some may be missing.
//!
//! Bagua's nodes talk on ports that they are told of: `spec.framework.bagua.ports` is divided among
//! them.

use std::collections::BTreeSet;

use trainyard_api::{BaguaOptions, FieldError, TrainingJob};

use super::{lists, ports};
use crate::job::{Env, Environment, Framework, Port, Ports, Replica, RoleRule, Validation, Variant};
use crate::model::PodKey;

const ETCD: &str = "etcd";
const MASTER: &str = "master";
const WORKER: &str = "worker";

/// The ports of a job whose user names none.
const FIRST_PORT: i32 = 29500;
const DEFAULT_PORTS: i32 = 10;
const ETCD_PORTS: [i32; 2] = [2379, 2380];
const PORTS_PER_WORKER: i32 = 4;

pub(super) fn framework() -> Framework {
    let elastic = Variant {
        applies: |job| job.spec.roles.iter().any(|role| role.name == ETCD),
        framework: elastic(),
    };
    Framework {
        roles: vec![
            RoleRule::optional(MASTER).single(),
            RoleRule::optional(WORKER).after(MASTER),
        ],
        trains_as_one: true,
        // Every node was told WORLD_SIZE, and waits for so many.
        resizes: false,
        ports: Some(Box::new(Bagua)),
        validation: Some(Box::new(Bagua)),
        variants: vec![elastic],
        ..Framework::new("bagua", Bagua)
    }
}

fn elastic() -> Framework {
    let etcd = RoleRule {
        serves: true,
        ..RoleRule::required(ETCD).single()
    };
    Framework {
        roles: vec![RoleRule::required(WORKER).after(ETCD), etcd],
        trains_as_one: true,
        // The ports are divided by the number of workers.
        resizes: false,
        ports: Some(Box::new(Elastic)),
        validation: Some(Box::new(Elastic)),
        ..Framework::new("bagua", Elastic)
    }
}

struct Bagua;
struct Elastic;

fn options(job: &TrainingJob) -> BaguaOptions {
    job.spec.framework.bagua.clone().unwrap_or_default()
}

fn workers(job: &TrainingJob) -> i32 {
    let role = job.spec.roles.iter().find(|role| role.name == WORKER);
    role.map_or(0, |role| role.replicas.unwrap_or(1))
}

/// The ports that the user gave, or the default.
fn ports_or(job: &TrainingJob, default: impl FnOnce() -> Vec<i32>) -> Vec<i32> {
    let given = options(job).ports;
    if given.is_empty() { default() } else { given }
}

/// The port of SSH, that of the master, then Bagua's own.
fn static_ports(job: &TrainingJob) -> Vec<i32> {
    ports_or(job, || (FIRST_PORT..FIRST_PORT + DEFAULT_PORTS).collect())
}

/// The two ports of etcd, then those of the workers.
fn elastic_ports(job: &TrainingJob) -> Vec<i32> {
    ports_or(job, || {
        let of_workers = FIRST_PORT..FIRST_PORT + PORTS_PER_WORKER * workers(job);
        ETCD_PORTS.into_iter().chain(of_workers).collect()
    })
}

/// The ports of one worker: an equal share of those that are not etcd's.
fn share(job: &TrainingJob, index: i32) -> Vec<i32> {
    let all = elastic_ports(job);
    let of_workers = all.get(2..).unwrap_or_default();
    let workers = usize::try_from(workers(job)).unwrap_or(0).max(1);
    let size = of_workers.len() / workers;
    let first = size.saturating_mul(usize::try_from(index).unwrap_or(0));
    of_workers.get(first..first + size).unwrap_or_default().to_vec()
}

/// The number of one of these ports, as the value of a variable.
fn number(ports: &[i32], position: usize) -> String {
    ports.get(position).copied().unwrap_or_default().to_string()
}

fn joined(ports: &[i32]) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.join(",")
}

/// The domains of the pods of some roles, each once.
fn domains(replica: &Replica<'_>, roles: &[&str]) -> String {
    let roles = roles.iter().filter_map(|role| replica.job.role(role));
    let mut domains: Vec<String> = roles
        .map(|(_, role)| replica.job.domain(role, replica.cluster_domain))
        .collect();
    domains.dedup();
    domains.join(" ")
}

/// The names of all nodes, by rank.
fn node_names(replica: &Replica<'_>) -> String {
    let job = replica.job;
    let mut keys: Vec<PodKey> = job.keys().collect();
    keys.sort_by_key(|key| job.rank(*key));
    let hosts: Vec<String> = keys.into_iter().map(|key| replica.host(key)).collect();
    hosts.join(",")
}

impl Environment for Bagua {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let ports = static_ports(job.object);
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("BAGUA_SSH_PORT", number(&ports, 0)),
            ("SERVICE_DOMAIN_NAME", domains(replica, &[WORKER, MASTER])),
            ("WORLD_SIZE", job.total().to_string()),
            ("MASTER_ADDR", replica.host(job.rank_zero())),
            ("MASTER_PORT", number(&ports, 1)),
            ("RANK", replica.rank().to_string()),
            (
                "BAGUA_AVAILABLE_PORTS",
                joined(ports.get(2..).unwrap_or_default()),
            ),
        ]);
        env.set("BAGUA_NODE_DOMAIN_NAMES", job.common(|| node_names(replica)));
        env.set_field("LOCAL_IP", "status.podIP");
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "BAGUA_SSH_PORT",
            "BAGUA_AVAILABLE_PORTS",
            "BAGUA_NODE_DOMAIN_NAMES",
            "WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
            "RANK",
        ]
    }
}

impl Environment for Elastic {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let ports = elastic_ports(job.object);
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("ETCD_CLIENT_PORT", number(&ports, 0)),
            ("ETCD_SERVER_PORT", number(&ports, 1)),
        ]);
        if replica.role.name == ETCD {
            return env;
        }
        let (options, all) = (options(job.object), workers(job.object));
        let share = share(job.object, replica.key.index);
        env.extend([
            ("SERVICE_DOMAIN_NAME", domains(replica, &[WORKER])),
            ("MIN_SIZE", options.min_replicas.unwrap_or(all).to_string()),
            ("MAX_SIZE", options.max_replicas.unwrap_or(all).to_string()),
            ("JOB_ID", job.name.to_owned()),
            ("ETCD_HOST", replica.host(job.first_of(ETCD))),
            ("BAGUA_SSH_PORT", joined(share.get(..1).unwrap_or_default())),
            (
                "BAGUA_AVAILABLE_PORTS",
                joined(share.get(1..).unwrap_or_default()),
            ),
        ]);
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "ETCD_CLIENT_PORT",
            "ETCD_SERVER_PORT",
            "ETCD_HOST",
            "MIN_SIZE",
            "MAX_SIZE",
            "JOB_ID",
            "BAGUA_SSH_PORT",
            "BAGUA_AVAILABLE_PORTS",
        ]
    }
}

/// Ports by their own numbers: Bagua gives them no meaning that they could be named after.
fn numbered(ports: &[i32]) -> Vec<Port> {
    let port = |number: &i32| Port {
        name: format!("bagua-{number}").into(),
        number: *number,
    };
    ports.iter().map(port).collect()
}

impl Ports for Bagua {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        numbered(&static_ports(replica.job.object))
    }
}

impl Ports for Elastic {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let job = replica.job.object;
        if replica.role.name == ETCD {
            numbered(elastic_ports(job).get(..2).unwrap_or_default())
        } else {
            numbered(&share(job, replica.key.index))
        }
    }
}

const PORTS: &str = "spec.framework.bagua.ports";

/// Errors of the ports that the user gave: too few, no ports at all, or one twice.
fn check_ports(job: &TrainingJob, least: usize, why: &str) -> Vec<FieldError> {
    let given = options(job).ports;
    let mut errors = Vec::new();
    if !given.is_empty() && given.len() < least {
        errors.push(FieldError::new(
            PORTS,
            format!(
                "{} not enough: give at least {least}, {why}, or leave it out",
                match given.len() {
                    1 => "1 port is".to_owned(),
                    more => format!("{more} ports are"),
                }
            ),
        ));
    }
    let mut seen = BTreeSet::new();
    for (i, port) in given.iter().enumerate() {
        let path = format!("{PORTS}[{i}]");
        errors.extend(ports::check(&path, Some(*port)));
        if !seen.insert(port) {
            errors.push(FieldError::new(
                path,
                format!("{port} is there twice: remove one"),
            ));
        }
    }
    errors
}

impl Validation for Bagua {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = check_ports(job, 2, "one for SSH and one for the master");
        let sizes = job.spec.roles.iter().map(|role| lists::size(job, role));
        let size = sizes.fold(0, usize::saturating_add);
        let advice = "use fewer pods, or a shorter name";
        errors.extend(lists::check("BAGUA_NODE_DOMAIN_NAMES", size, advice));
        let options = options(job);
        let sizes = [
            ("minReplicas", options.min_replicas),
            ("maxReplicas", options.max_replicas),
        ];
        for (name, _) in sizes.iter().filter(|(_, size)| size.is_some()) {
            errors.push(FieldError::new(
                format!("spec.framework.bagua.{name}"),
                "is for jobs with a role \"etcd\", which decides who trains: add that role, or remove this",
            ));
        }
        errors
    }
}

impl Validation for Elastic {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let all = workers(job);
        let fewest = usize::try_from(all).unwrap_or(0).saturating_add(2);
        let mut errors = check_ports(job, fewest, "two for etcd and one for each worker");
        if job.spec.elastic.is_some() {
            errors.push(FieldError::new(
                "spec.elastic",
                "with a role \"etcd\" Bagua itself decides who trains, and the ports are divided by the number of workers: \
                 remove this, and give replicas in the roles",
            ));
        }
        let options = options(job);
        let last = FIRST_PORT.saturating_add(PORTS_PER_WORKER.saturating_mul(all));
        if options.ports.is_empty() && last > 65536 {
            errors.push(FieldError::new(
                PORTS,
                format!("there are not four ports for each of {all} workers: name those to use"),
            ));
        }
        if let Some(min) = options.min_replicas
            && (min < 1 || min > all)
        {
            errors.push(FieldError::new(
                "spec.framework.bagua.minReplicas",
                match all {
                    1 => "there is 1 worker: give 1, or leave it out".to_owned(),
                    all => format!("there are {all} workers: give a number from 1 to {all}, or leave it out"),
                },
            ));
        }
        let min = options.min_replicas.unwrap_or(all);
        if options.max_replicas.is_some_and(|max| max < min) {
            errors.push(FieldError::new(
                "spec.framework.bagua.maxReplicas",
                format!("is less than minReplicas ({min}): give at least that, or leave it out"),
            ));
        }
        errors
    }
}
