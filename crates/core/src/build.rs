//! The children of a job: what a pod or a Service of a given key must look like.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, Pod, PodAffinityTerm, PodAntiAffinity, PodSpec, Secret, Service, ServicePort,
    ServiceSpec, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trainyard_api::names::{LABEL_INDEX, LABEL_JOB, LABEL_ROLE};
use trainyard_api::{Placement, Spread, default::TOPOLOGY_KEY, names};
use trainyard_contract::environment;

use crate::container::{add_env, add_port};
use crate::job::Job;
use crate::job::{Env, ExtraService};
use crate::metadata::{child_labels, child_metadata};
use crate::model::Identity;
use crate::model::{PodKey, ServiceKey};
use crate::view::Settings;
use crate::{agent, depends, exec, remote_shell};

pub use crate::metadata::pod_labels;

/// The annotation that tells which container trains. It is ours alone: what the user wants to see by default may be
/// another one.
pub const MAIN_CONTAINER: &str = names::ANNOTATION_CONTAINER;

/// The annotation that tells `kubectl logs` which container to show.
const SHOWN_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The most domains that the server takes in which names are looked for.
const MOST_SEARCHED: usize = 32;

/// The pod of a key. `None` if the job has no such pod, or if it takes an agent and there is none.
pub fn pod(job: &Job<'_>, settings: &Settings, key: PodKey) -> Option<Pod> {
    let role = job
        .roles
        .get(key.role)
        .filter(|role| (0..role.replicas).contains(&key.index))?;
    let name = job.pod_name(key);
    let contribution = job.framework.contribution(job, settings, key);

    let template = role.template.metadata.as_ref();
    let mut labels = template.and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.extend(pod_labels(job, key));
    let mut annotations = template
        .and_then(|meta| meta.annotations.clone())
        .unwrap_or_default();
    annotations
        .entry(SHOWN_CONTAINER.to_owned())
        .or_insert_with(|| role.main.name.clone());
    annotations.insert(MAIN_CONTAINER.to_owned(), role.main.name.clone());
    if let Some(hash) = role.rolls_to {
        annotations.insert(names::ANNOTATION_TEMPLATE.to_owned(), format!("{hash:016x}"));
    }

    let mut spec = role.pod.clone();
    spec.hostname = Some(name.clone());
    spec.subdomain = Some(names::service(job.name));
    // The operator replaces pods, so that every restart is counted once and can move to another node.
    spec.restart_policy = Some("Never".to_owned());
    // Variables for every Service of the namespace slow the start of a pod where there are thousands of jobs.
    spec.enable_service_links.get_or_insert(false);
    if let Some(placement) = role.placement {
        spread(job, placement, &mut spec);
    }
    let env = pod_env(job, role.name, key.index, contribution.env);
    for container in spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers)
    {
        add_env(container, &env);
        // The end of the log becomes the root cause in the job's status, without a right to read logs.
        container
            .termination_message_policy
            .get_or_insert_with(|| "FallbackToLogsOnError".to_owned());
    }
    if let Some(main) = spec
        .containers
        .iter_mut()
        .find(|container| container.name == role.main.name)
    {
        let is_empty = |words: &Option<Vec<String>>| words.as_ref().is_none_or(Vec::is_empty);
        if is_empty(&main.command) && is_empty(&main.args) && contribution.command.is_some() {
            main.command.clone_from(&contribution.command);
        }
        for port in &contribution.ports {
            add_port(main, &port.name, port.number);
        }
    }

    let credentials = job.framework.credentials(job.object);
    if let Some(credentials) = &credentials {
        remote_shell::identify(job, role, credentials, &mut spec);
    }
    exec::allow(job, key.role, role, &mut spec);
    if credentials.is_some() || job.framework.exec(job).is_some() {
        find_each_other(job, settings, &mut spec);
    }

    let mut first = Vec::new();
    let shell = job.framework.remote_shell(job, settings, key);
    if let Some(shell) = &shell {
        let agent = settings.agent.as_ref()?;
        first.push(remote_shell::add(role, agent, shell, &mut spec));
    }
    if let Some((agent, observer)) = settings.told_agent()
        && depends::waits_inside(role, settings)
    {
        first.push(agent::add_wait(job, role, agent, observer, &mut spec));
    }
    let told = settings.told_agent().filter(|_| agent::can_be_reached(&spec));
    if let Some(told) = told
        && let Some(shell) = shell.as_ref().filter(|shell| shell.follows)
    {
        first.push(remote_shell::follow(job, told, shell, &mut spec));
    }
    if let Some(told) = told.filter(|_| job.object.reports_progress()) {
        first.push(agent::add_progress(job, role, told, &mut spec));
    }
    if !first.is_empty() {
        spec.init_containers.get_or_insert_default().splice(0..0, first);
    }

    let metadata = ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations),
        ..child_metadata(job, name)
    };
    Some(Pod {
        metadata,
        spec: Some(spec),
        status: None,
    })
}

/// Has a pod find others by the names that programs started in pods have for each other.
fn find_each_other(job: &Job<'_>, settings: &Settings, spec: &mut PodSpec) {
    if spec.host_network == Some(true) {
        // Hosts are listed by names that the DNS of the node does not know.
        spec.dns_policy
            .get_or_insert_with(|| "ClusterFirstWithHostNet".to_owned());
    }
    // Hydra tells its proxies to call back at the name that the launcher has for itself, which is without a domain.
    let domain = format!(
        "{}.{}.svc.{}",
        names::service(job.name),
        job.namespace,
        settings.cluster_domain
    );
    let config = spec.dns_config.get_or_insert_default();
    let searched = config.searches.get_or_insert_default();
    if searched.len() < MOST_SEARCHED {
        searched.push(domain);
    }
}

/// The Service of a key. `None` if the job has no such Service.
pub fn service(job: &Job<'_>, key: ServiceKey) -> Option<Service> {
    let mut selector = BTreeMap::from([(LABEL_JOB.to_owned(), job.name.to_owned())]);
    let spec = match key {
        ServiceKey::Headless => ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ..ServiceSpec::default()
        },
        ServiceKey::Master => {
            let extra = job
                .framework
                .services(job)
                .into_iter()
                .find(|extra| extra.key == key)?;
            let ExtraService { pod, port, .. } = extra;
            selector.insert(LABEL_ROLE.to_owned(), job.roles.get(pod.role)?.name.to_owned());
            selector.insert(LABEL_INDEX.to_owned(), pod.index.to_string());
            let port = ServicePort {
                name: Some(port.name.into_owned()),
                port: port.number,
                target_port: Some(IntOrString::Int(port.number)),
                ..ServicePort::default()
            };
            ServiceSpec {
                ports: Some(vec![port]),
                ..ServiceSpec::default()
            }
        }
    };
    Some(Service {
        metadata: ObjectMeta {
            labels: Some(child_labels(job)),
            ..child_metadata(job, service_name(job.name, key))
        },
        spec: Some(ServiceSpec {
            selector: Some(selector),
            // Pods must find each other before they are ready: most become ready only once they have.
            publish_not_ready_addresses: Some(true),
            ..spec
        }),
        status: None,
    })
}

/// The Secret by which the pods of a job know each other, with content that somebody else makes. It is never changed: kubelets
/// need not ask for it again, and nobody can give one half of a job another identity than the other.
pub fn secret(job: &Job<'_>, identity: Identity, content: BTreeMap<String, ByteString>) -> Secret {
    let type_ = match identity {
        Identity::Certificate => "kubernetes.io/tls",
        Identity::SshKey => "kubernetes.io/ssh-auth",
    };
    Secret {
        metadata: ObjectMeta {
            labels: Some(child_labels(job)),
            ..child_metadata(job, identity.secret_name(job.name))
        },
        type_: Some(type_.to_owned()),
        immutable: Some(true),
        data: Some(content),
        string_data: None,
    }
}

/// The name of a Service.
pub fn service_name(job: &str, key: ServiceKey) -> String {
    match key {
        ServiceKey::Headless => names::service(job),
        ServiceKey::Master => names::master_service(job),
    }
}

/// The Services a job needs.
pub fn service_keys(job: &Job<'_>) -> Vec<ServiceKey> {
    let extra = job.framework.services(job).into_iter().map(|extra| extra.key);
    std::iter::once(ServiceKey::Headless).chain(extra).collect()
}

fn pod_env(job: &Job<'_>, role: &str, index: i32, of_framework: Env) -> Vec<EnvVar> {
    let own = [
        (environment::JOB, job.name.to_owned()),
        (environment::ROLE, role.to_owned()),
    ];
    let index = ("TRAINYARD_INDEX", index.to_string());
    let own = own
        .into_iter()
        .chain([index])
        .map(|(name, value)| (name.to_owned(), value));
    let all = own.chain(of_framework);
    all.map(|(name, value)| EnvVar {
        name,
        value: Some(value),
        value_from: None,
    })
    .collect()
}

/// Keeps the pods of all roles that are spread alike away from each other, besides what the user's affinity says.
fn spread(job: &Job<'_>, placement: &Placement, spec: &mut PodSpec) {
    let topology_key = placement.topology_key.as_deref().unwrap_or(TOPOLOGY_KEY);
    let alike = |other: &Placement| other.topology_key.as_deref().unwrap_or(TOPOLOGY_KEY) == topology_key;
    let roles = job.roles.iter().filter(|role| role.placement.is_some_and(alike));
    let term = PodAffinityTerm {
        topology_key: topology_key.to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some([(LABEL_JOB.to_owned(), job.name.to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: LABEL_ROLE.to_owned(),
                operator: "In".to_owned(),
                values: Some(roles.map(|role| role.name.to_owned()).collect()),
            }]),
        }),
        ..PodAffinityTerm::default()
    };
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let apart = affinity
        .pod_anti_affinity
        .get_or_insert_with(PodAntiAffinity::default);
    match placement.spread {
        Spread::Required => {
            apart
                .required_during_scheduling_ignored_during_execution
                .get_or_insert_default()
                .push(term);
        }
        Spread::Preferred => {
            let term = WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: term,
            };
            apart
                .preferred_during_scheduling_ignored_during_execution
                .get_or_insert_default()
                .push(term);
        }
    }
}
