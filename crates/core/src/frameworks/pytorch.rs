//! `pytorch`: an optional master and workers, over `torch.distributed` or torchrun.
//!
//! Rank 0 is the master, or the first worker where there is no master. Every pod is one node to torchrun.

use trainyard_api::{FieldError, MasterService, PytorchOptions, RestartPolicy, TrainingJob, names};

use super::accelerators;
use crate::job::{Contribution, ExtraService, Framework, Job, Role, RoleRule};
use crate::model::{PodKey, ServiceKey};
use crate::view::Settings;

const MASTER: &str = "master";
const WORKER: &str = "worker";
const DEFAULT_PORT: i32 = 29500;
const PORT_NAME: &str = "pytorch";

pub(super) struct Pytorch;

fn options(job: &TrainingJob) -> PytorchOptions {
    job.spec.framework.pytorch.clone().unwrap_or_default()
}

fn port(job: &TrainingJob) -> i32 {
    options(job).port.unwrap_or(DEFAULT_PORT)
}

/// The pod that serves the rendezvous.
fn rank_zero(job: &Job<'_>) -> PodKey {
    let role = job
        .role(MASTER)
        .or_else(|| job.role(WORKER))
        .map_or(0, |(position, _)| position);
    PodKey { role, index: 0 }
}

fn rank(job: &Job<'_>, pod: PodKey) -> i32 {
    match job.role(MASTER) {
        Some((master, _)) if master == pod.role => 0,
        Some(_) => pod.index + 1,
        None => pod.index,
    }
}

/// Training processes in each pod of a role: the user's number, else one per accelerator, else one.
fn procs_per_node(job: &Job<'_>, role: &Role<'_>) -> i32 {
    options(job.object)
        .procs_per_node
        .unwrap_or_else(|| accelerators(role.main).max(1))
}

fn world_size(job: &Job<'_>) -> i32 {
    let procs = job
        .roles
        .iter()
        .map(|role| role.replicas.saturating_mul(procs_per_node(job, role)));
    procs.fold(0, i32::saturating_add)
}

impl Framework for Pytorch {
    fn name(&self) -> &'static str {
        "pytorch"
    }

    fn roles(&self) -> Option<&'static [RoleRule]> {
        Some(&[
            RoleRule {
                name: MASTER,
                max: Some(1),
                required: false,
            },
            RoleRule {
                name: WORKER,
                max: None,
                required: false,
            },
        ])
    }

    fn restart_policy(&self, _: &str) -> RestartPolicy {
        RestartPolicy::OnFailure
    }

    fn trains_as_one(&self) -> bool {
        true
    }

    fn reserved_env(&self, _: &TrainingJob) -> Vec<&'static str> {
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

    fn resizes(&self) -> bool {
        // Every process was told WORLD_SIZE, and waits for so many.
        false
    }

    fn contribution(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Contribution {
        let zero = rank_zero(job);
        let stable = options(job.object).master_service == Some(MasterService::ClusterIP);
        // Rank 0 finds itself in its own hosts file, before any Service has an endpoint.
        let address = if stable && pod != zero {
            format!(
                "{}.{}.svc.{}",
                names::master_service(job.name),
                job.namespace,
                settings.cluster_domain
            )
        } else {
            job.host(zero, &settings.cluster_domain)
        };
        let port = port(job.object).to_string();
        let rank = rank(job, pod).to_string();
        let procs = job
            .roles
            .get(pod.role)
            .map_or(1, |role| procs_per_node(job, role));
        let env = [
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("MASTER_ADDR", address.clone()),
            ("MASTER_PORT", port.clone()),
            ("WORLD_SIZE", world_size(job).to_string()),
            ("RANK", rank.clone()),
            ("PET_MASTER_ADDR", address),
            ("PET_MASTER_PORT", port),
            ("PET_NODE_RANK", rank),
            ("PET_NNODES", job.total().to_string()),
            ("PET_NPROC_PER_NODE", procs.to_string()),
        ];
        let ports = if pod == zero {
            vec![(PORT_NAME, self::port(job.object))]
        } else {
            Vec::new()
        };
        Contribution {
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            ports,
            command: None,
        }
    }

    fn services(&self, job: &Job<'_>) -> Vec<ExtraService> {
        if options(job.object).master_service != Some(MasterService::ClusterIP) {
            return Vec::new();
        }
        vec![ExtraService {
            key: ServiceKey::Master,
            pod: rank_zero(job),
            port_name: PORT_NAME,
            port: port(job.object),
        }]
    }

    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let options = options(job);
        if let Some(procs) = options.procs_per_node.filter(|procs| *procs < 1) {
            errors.push(FieldError::new(
                "spec.framework.pytorch.procsPerNode",
                format!("{procs} processes can't train: give at least 1, or leave it out"),
            ));
        }
        if let Some(port) = options.port.filter(|port| !(1..=65535).contains(port)) {
            errors.push(FieldError::new(
                "spec.framework.pytorch.port",
                format!("{port} is no port: give a number from 1 to 65535, or leave it out"),
            ));
        }
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
