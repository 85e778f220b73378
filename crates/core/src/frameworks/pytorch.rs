//! `pytorch`: an optional master and workers, over `torch.distributed` or torchrun.
//!
//! Rank 0 is the master, or the first worker where there is no master. Every pod is one node to
//! torchrun. Jobs with `spec.elastic` are a variant of their own.

mod elastic;

use trainyard_api::{FieldError, MasterService, PytorchOptions, TrainingJob, names};

use super::accelerators::processes;
use super::one_port::OnePort;
use crate::job::{
    Env, Environment, ExtraService, Framework, Job, Port, Ports, Replica, Role, RoleRule, Validation, Variant,
};
use crate::model::ServiceKey;

const PORT: OnePort = OnePort {
    framework: "pytorch",
    default: 29500,
    given: |job| job.spec.framework.pytorch.as_ref()?.port,
    is_served_by: |replica| replica.rank() == 0,
};

pub(super) fn framework() -> Framework {
    let roles = vec![
        RoleRule::optional("master").single(),
        RoleRule::optional("worker"),
    ];
    let elastic = Variant {
        applies: |job| job.spec.elastic.is_some(),
        framework: elastic::framework(),
    };
    Framework {
        variants: vec![elastic],
        ..torchrun("pytorch", roles)
    }
}

/// A framework whose pods are nodes of torchrun.
pub(super) fn torchrun(name: &'static str, roles: Vec<RoleRule>) -> Framework {
    Framework {
        roles,
        trains_as_one: true,
        // Every process was told WORLD_SIZE, and waits for so many.
        resizes: false,
        ports: Some(Box::new(Pytorch)),
        validation: Some(Box::new(Pytorch)),
        ..Framework::new(name, Pytorch)
    }
}

struct Pytorch;

fn options(job: &TrainingJob) -> PytorchOptions {
    let mut options = job.spec.framework.pytorch.clone().unwrap_or_default();
    let of_launcher = job.spec.framework.launcher();
    let slots = of_launcher.and_then(|options| options.slots_per_worker);
    options.procs_per_node = options.procs_per_node.or(slots);
    options
}

fn procs_per_node(job: &Job<'_>, role: &Role<'_>) -> i32 {
    processes(options(job.object).procs_per_node, role.main)
}

fn world_size(job: &Job<'_>) -> i32 {
    let roles = job.roles.iter();
    let procs = roles.map(|role| role.replicas().saturating_mul(procs_per_node(job, role)));
    procs.fold(0, i32::saturating_add)
}

/// Where a pod finds rank 0. Rank 0 finds itself in its own hosts file, before any Service has an
/// endpoint.
fn master_address(replica: &Replica<'_>) -> String {
    let Replica {
        job, cluster_domain, ..
    } = replica;
    let stable = options(job.object).master_service == Some(MasterService::ClusterIP);
    if stable && replica.rank() != 0 {
        let service = names::master_service(job.name);
        format!("{service}.{}.svc.{cluster_domain}", job.namespace)
    } else {
        replica.leader_host(job.rank_zero())
    }
}

impl Environment for Pytorch {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let address = master_address(replica);
        let port = PORT.number(job.object).to_string();
        let rank = replica.rank().to_string();
        Env::from([
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("MASTER_ADDR", address.clone()),
            ("MASTER_PORT", port.clone()),
            ("WORLD_SIZE", world_size(job).to_string()),
            ("RANK", rank.clone()),
            ("PET_MASTER_ADDR", address),
            ("PET_MASTER_PORT", port),
            ("PET_NODE_RANK", rank),
            ("PET_NNODES", job.total().to_string()),
            (
                "PET_NPROC_PER_NODE",
                procs_per_node(job, replica.role).to_string(),
            ),
        ])
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
        ]
    }
}

impl Ports for Pytorch {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        PORT.ports(replica)
    }

    fn services(&self, job: &Job<'_>) -> Vec<ExtraService> {
        if options(job.object).master_service != Some(MasterService::ClusterIP) {
            return Vec::new();
        }
        vec![ExtraService {
            key: ServiceKey::Master,
            pod: job.rank_zero(),
            port: PORT.port(job.object),
        }]
    }
}

impl Validation for Pytorch {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let options = options(job);
        if let Some(procs) = options.procs_per_node.filter(|procs| *procs < 1) {
            errors.push(FieldError::new(
                "spec.framework.pytorch.procsPerNode",
                format!("{procs} processes can't train: give at least 1, or leave it out"),
            ));
        }
        errors.extend(PORT.check(job));
        let service = names::master_service(job.metadata.name.as_deref().unwrap_or_default());
        if options.master_service == Some(MasterService::ClusterIP) && service.len() > names::MAX_NAME {
            errors.push(FieldError::new(
                "metadata.name",
                format!(
                    "the Service name {service:?} is longer than {} characters: shorten it",
                    names::MAX_NAME
                ),
            ));
        }
        errors
    }
}
