//! Builds the children of a job: the pod or the Service for a given key.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, Pod, PodAffinityTerm, PodAntiAffinity, PodSpec, Secret, Service,
    ServicePort, ServiceSpec, Volume, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trainyard_api::names::{LABEL_INDEX, LABEL_JOB, LABEL_ROLE};
use trainyard_api::{Placement, RestartScope, Spread, TrainingJob, default::TOPOLOGY_KEY, names};
use trainyard_contract::environment;

use crate::container::{add_env, add_port};
use crate::job::{Contribution, Env, ExtraService, Job, Role};
use crate::metadata::{child_labels, child_metadata};
use crate::model::Identity;
use crate::model::{PodKey, ServiceKey};
use crate::passed_on::PassedOn;
use crate::registry::Frameworks;
use crate::view::Settings;
use crate::{agent, depends, dialect, exec, files, immutable, remote_shell, scripts, spot};

pub use crate::metadata::pod_labels;

/// The annotation that names the container that trains. The annotation of kubectl can't serve for
/// that: users may want to see another container by default.
pub const MAIN_CONTAINER: &str = names::ANNOTATION_CONTAINER;

/// The annotation that tells `kubectl logs` which container to show.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The most search domains that the server allows in a pod.
const MAX_SEARCH_DOMAINS: usize = 32;

/// A hash of the spec that new pods are made from, for [`new_pod`]; `None` if the status of the job
/// records the spec.
pub fn unrecorded_spec(job: &TrainingJob, frameworks: &Frameworks) -> Option<NonZeroU64> {
    job.status.is_none().then(|| immutable::hash(job, frameworks))
}

/// Builds a pod that carries the hash of a spec that is not recorded elsewhere.
pub fn new_pod(job: &Job<'_>, settings: &Settings, key: PodKey, spec: Option<NonZeroU64>) -> Option<Pod> {
    let mut pod = pod(job, settings, key)?;
    if let Some(spec) = spec {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_SPEC.to_owned(), format!("{spec:016x}"));
    }
    Some(pod)
}

/// Builds a pod. `None` if the job has no such pod, or if the pod needs an agent and there is none.
pub fn pod(job: &Job<'_>, settings: &Settings, key: PodKey) -> Option<Pod> {
    let role = job
        .roles
        .get(key.role)
        .filter(|role| role.members.contains(key.index))?;
    let name = job.pod_name(key);
    let mut contribution = job.framework.contribution(job, settings, key);
    let mut metadata = pod_metadata(job, role, key, name.clone());

    let mut spec = role.pod.clone();
    spec.hostname = Some(name);
    if job.framework.has_service {
        spec.subdomain = Some(job.service(role));
    }
    // The operator replaces pods itself, so that every restart is counted once and the pod can move
    // to another node.
    spec.restart_policy = Some("Never".to_owned());
    // Variables for every Service of a namespace slow down the start of pods if there are thousands
    // of jobs.
    spec.enable_service_links.get_or_insert(false);
    if let Some(placement) = role.placement {
        spread(job, placement, &mut spec);
    }
    if !settings.spot_labels.is_empty() && spot::is_needed(job, key) {
        spot::avoid(&settings.spot_labels, &mut spec);
    }
    let env = pod_env(job, role, key.index, std::mem::take(&mut contribution.env));
    add_to_all(&mut spec, &env);
    if let Some(main) = spec
        .containers
        .iter_mut()
        .find(|container| container.name == role.main.name)
    {
        let files = add_to_main(main, contribution, &mut spec.volumes);
        metadata.annotations.get_or_insert_default().extend(files);
    }

    let credentials = job.framework.credentials(job.object);
    if let Some(credentials) = &credentials {
        remote_shell::identify(job, role, credentials, &mut spec);
    }
    exec::allow(job, key.role, role, &mut spec);
    let has_short_names = dialect::has_short_names(dialect::of(job.object));
    if has_short_names || credentials.is_some() || job.framework.exec(job).is_some() {
        configure_dns(job, settings, &mut spec);
    }

    let agents = add_agents(job, settings, key, role, &mut spec)?;
    if !agents.is_empty() {
        spec.init_containers.get_or_insert_default().splice(0..0, agents);
    }

    Some(Pod {
        metadata,
        spec: Some(spec),
        status: None,
    })
}

/// Gives all containers the variables of the pod.
fn add_to_all(spec: &mut PodSpec, env: &[EnvVar]) {
    let init_containers = spec.init_containers.iter_mut().flatten();
    for container in init_containers.chain(&mut spec.containers) {
        add_env(container, env);
        // The end of the log becomes the root cause in the job's status. The operator needs no
        // right to read logs.
        container
            .termination_message_policy
            .get_or_insert_with(|| "FallbackToLogsOnError".to_owned());
    }
}

/// Adds what the agents of a pod need, and returns their init containers. `None` if the pod can't
/// be made without an agent and there is none.
fn add_agents(
    job: &Job<'_>,
    settings: &Settings,
    key: PodKey,
    role: &Role<'_>,
    spec: &mut PodSpec,
) -> Option<Vec<Container>> {
    let mut agents = Vec::new();
    let shell = job.framework.remote_shell(job, settings, key);
    if let Some(shell) = &shell {
        let agent = settings.agent.as_ref()?;
        agents.push(remote_shell::add(role, agent, shell, spec));
    }
    if let Some((agent, observer)) = settings.agent_and_observer()
        && depends::waits_inside(role, settings)
    {
        agents.push(agent::add_wait(job, role, agent, observer, spec));
    }
    let reachable = settings
        .agent_and_observer()
        .filter(|_| agent::can_be_reached(spec));
    if let Some(observed) = reachable
        && let Some(shell) = shell.as_ref().filter(|shell| shell.follows)
    {
        agents.push(remote_shell::follow(job, observed, shell, spec));
    }
    if let Some((_, observer)) = reachable
        && let Some(shell) = &shell
        && scripts::are_run_in(job, role, shell, settings)
    {
        scripts::wrap(job, role, observer, spec);
    }
    if let Some(observed) = reachable.filter(|_| job.object.reports_progress()) {
        agents.push(agent::add_progress(job, role, observed, spec));
    }
    if let Some(observed) = reachable.filter(|_| job.may_leave(key.role)) {
        agents.push(agent::add_drain(job, role, observed, spec));
        if (job.is_rigid() || job.elastic.is_none()) && shell.as_ref().is_some_and(|shell| shell.serves) {
            // Nobody takes the programs away that were started there: they know when they leave.
            remote_shell::drain_silently(role, spec);
        }
    }
    Some(agents)
}

/// The metadata of a pod: that of its template, the labels by which it is found, and annotations
/// that describe it.
fn pod_metadata(job: &Job<'_>, role: &Role<'_>, key: PodKey, name: String) -> ObjectMeta {
    let template = role.template.metadata.as_ref();
    let mut labels = template.and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.extend(pod_labels(job, key));
    let mut annotations = template
        .and_then(|meta| meta.annotations.clone())
        .unwrap_or_default();
    annotations
        .entry(DEFAULT_CONTAINER.to_owned())
        .or_insert_with(|| role.main.name.clone());
    annotations.insert(MAIN_CONTAINER.to_owned(), role.main.name.clone());
    if let Some(passed) = PassedOn::of(job.object) {
        passed.write(&mut labels, &mut annotations);
    }
    if let Some(hash) = role.rolls_to {
        annotations.insert(names::ANNOTATION_TEMPLATE.to_owned(), format!("{hash:016x}"));
    }
    if has_attempts(role) {
        annotations.insert(names::ANNOTATION_ATTEMPT.to_owned(), role.attempt.to_string());
    }
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations),
        ..child_metadata(job, name)
    }
}

/// Gives the main container its command, ports, files and directories. Returns the annotations that
/// the pod needs for its files.
fn add_to_main(
    main: &mut Container,
    contribution: Contribution,
    volumes: &mut Option<Vec<Volume>>,
) -> Vec<(String, String)> {
    let is_empty = |words: &Option<Vec<String>>| words.as_ref().is_none_or(Vec::is_empty);
    if is_empty(&main.command) && is_empty(&main.args) && contribution.command.is_some() {
        main.command = contribution.command;
    }
    for port in &contribution.ports {
        add_port(main, &port.name, port.number);
    }
    let (added, annotations) = files::add(main, &contribution.files, contribution.directories);
    if !added.is_empty() {
        volumes.get_or_insert_default().extend(added);
    }
    annotations
}

/// Lets a pod resolve the names by which programs that are started in pods know each other.
fn configure_dns(job: &Job<'_>, settings: &Settings, spec: &mut PodSpec) {
    if spec.host_network == Some(true) {
        // Host lists have names that the DNS of the node does not know.
        spec.dns_policy
            .get_or_insert_with(|| "ClusterFirstWithHostNet".to_owned());
    }
    // Hydra tells its proxies to call back at the launcher's own host name, which has no domain.
    let config = spec.dns_config.get_or_insert_default();
    let domains = config.searches.get_or_insert_default();
    let room = MAX_SEARCH_DOMAINS.saturating_sub(domains.len());
    domains.extend(job.domains(&settings.cluster_domain).into_iter().take(room));
}

/// Builds a Service. `None` if the job has no such Service.
pub fn service(job: &Job<'_>, key: ServiceKey) -> Option<Service> {
    let mut selector = BTreeMap::from([(LABEL_JOB.to_owned(), job.name.to_owned())]);
    let mut labels = child_labels(job);
    let headless = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        ..ServiceSpec::default()
    };
    let spec = match key {
        ServiceKey::Headless => headless,
        ServiceKey::Role(role) => {
            let role = job.roles.get(role)?.name;
            selector.insert(LABEL_ROLE.to_owned(), role.to_owned());
            labels.insert(LABEL_ROLE.to_owned(), role.to_owned());
            let others = dialect::service_labels(job.object, role).into_iter();
            labels.extend(others.map(|(label, value)| (label.to_owned(), value)));
            headless
        }
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
            labels: Some(labels),
            ..child_metadata(job, service_name(job, key))
        },
        spec: Some(ServiceSpec {
            selector: Some(selector),
            // Pods must find each other before they are ready: most get ready only after they have.
            publish_not_ready_addresses: Some(true),
            ..spec
        }),
        status: None,
    })
}

/// Builds the Secret with the identity of a job's pods, from content that the caller has made. It
/// is immutable: kubelets need not ask for it again, and nobody can give one half of a job another
/// identity than the other half.
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
pub fn service_name(job: &Job<'_>, key: ServiceKey) -> String {
    match key {
        ServiceKey::Headless => names::service(job.name),
        ServiceKey::Role(role) => job
            .roles
            .get(role)
            .map(|role| job.service(role))
            .unwrap_or_default(),
        ServiceKey::Master => names::master_service(job.name),
    }
}

/// The Services that a job needs.
pub fn service_keys(job: &Job<'_>) -> Vec<ServiceKey> {
    let mut keys = match dialect::roles_with_services(job.object) {
        _ if !job.framework.has_service => Vec::new(),
        Some(roles) => roles.map(ServiceKey::Role).collect(),
        None => vec![ServiceKey::Headless],
    };
    keys.extend(job.framework.services(job).into_iter().map(|extra| extra.key));
    keys
}

/// Returns true if the pods of a role start anew together, or have.
fn has_attempts(role: &Role<'_>) -> bool {
    role.restart_scope != RestartScope::Pod || role.attempt > 0
}

fn pod_env(job: &Job<'_>, role: &Role<'_>, index: i32, of_framework: Env) -> Vec<EnvVar> {
    let mut own = Env::from([(environment::JOB, job.name), (environment::ROLE, role.name)]);
    own.set("TRAINYARD_INDEX", index);
    if has_attempts(role) {
        own.set(environment::ATTEMPT, role.attempt);
    }
    own.into_iter().chain(of_framework).collect()
}

/// Spreads the pods of all roles that have the same topology key, in addition to the user's
/// affinity.
fn spread(job: &Job<'_>, placement: &Placement, spec: &mut PodSpec) {
    let topology_key = placement.topology_key.as_deref().unwrap_or(TOPOLOGY_KEY);
    let has_same_key =
        |other: &Placement| other.topology_key.as_deref().unwrap_or(TOPOLOGY_KEY) == topology_key;
    let roles = job
        .roles
        .iter()
        .filter(|role| role.placement.is_some_and(has_same_key));
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
    let anti_affinity = affinity
        .pod_anti_affinity
        .get_or_insert_with(PodAntiAffinity::default);
    match placement.spread {
        Spread::Required => {
            anti_affinity
                .required_during_scheduling_ignored_during_execution
                .get_or_insert_default()
                .push(term);
        }
        Spread::Preferred => {
            let term = WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: term,
            };
            anti_affinity
                .preferred_during_scheduling_ignored_during_execution
                .get_or_insert_default()
                .push(term);
        }
    }
}
