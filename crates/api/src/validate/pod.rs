//! The rules for the pods of a role: what the operator sets itself, and what the API server would
//! refuse anyway, once for each pod and long after the job was accepted.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::at::At;
use super::{FieldError, container, label_key_problem, metadata, reserved, resources, volume};
use crate::{GROUP, names};

/// The rules for the template of a role, whose main container is given.
pub(super) fn check(
    role: &At<'_>,
    template: &PodTemplateSpec,
    main: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    let at = role.field("template");
    if let Some(meta) = &template.metadata {
        let at = at.field("metadata");
        metadata::check(&at, meta, errors);
        let labels = at.field("labels");
        let ours = |key: &str| key.split_once('/').is_some_and(|(domain, _)| domain == GROUP);
        let reserved = meta.labels.iter().flatten().map(|(key, _)| key);
        let reserved = reserved.filter(|key| ours(key) || *key == names::LABEL_MANAGED_BY);
        errors.extend(reserved.map(|key| {
            labels
                .key(key)
                .error("this label is set by the operator: remove it")
        }));
        let annotations = at.field("annotations");
        let reserved = meta.annotations.iter().flatten().map(|(key, _)| key);
        let reserved = reserved.filter(|key| ours(key) && *key != names::ANNOTATION_START);
        errors.extend(reserved.map(|key| {
            annotations
                .key(key)
                .error("this annotation is set by the operator: remove it")
        }));
        grouped(&at, meta, errors);
    }
    let at = at.field("spec");
    match &template.spec {
        Some(pod) if !pod.containers.is_empty() => {
            self::main(role, pod, main, errors);
            pod_spec(role, &at, pod, errors);
        }
        pod => {
            let message = "the template has no containers: add at least one";
            errors.push(at.field("containers").error(message));
            if let Some(pod) = pod {
                pod_spec(role, &at, pod, errors);
            }
        }
    }
}

/// By this Kueue knows the pods that it admits together.
const KUEUE_GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// The rule for groups of pods that Kueue admits together. It holds a pod that failed or was
/// deleted by a finalizer until it sees another in its place or all have succeeded, and a pod of
/// ours that is replaced has its name until it is gone. One that is not replaced, as with `Never`,
/// is held as well.
fn grouped(at: &At<'_>, metadata: &ObjectMeta, errors: &mut Vec<FieldError>) {
    let lists = [
        ("labels", &metadata.labels),
        ("annotations", &metadata.annotations),
    ];
    for (list, given) in lists {
        if given.iter().flatten().any(|(key, _)| key == KUEUE_GROUP) {
            errors.push(at.field(list).key(KUEUE_GROUP).error(
                "Kueue lets a pod of a group that failed or was deleted go only when it sees another in its place, which the \
                 operator makes, under the same name, only when the first is gone, and not at all when the job fails or is \
                 suspended, so that the pod would stay for ever: remove it; with the label kueue.x-k8s.io/queue-name alone \
                 Kueue admits each pod by itself",
            ));
        }
    }
}

fn main(role: &At<'_>, pod: &PodSpec, main: Option<&str>, errors: &mut Vec<FieldError>) {
    if let Some(main) = main
        && !pod.containers.iter().any(|container| container.name == main)
    {
        errors.push(role.field("container").error(format!(
            "the template has no container named {main:?}: name one of its containers, or leave this out"
        )));
    }
}

fn pod_spec(role: &At<'_>, at: &At<'_>, pod: &PodSpec, errors: &mut Vec<FieldError>) {
    let volumes = volume::check(
        &at.field("volumes"),
        pod.volumes.as_deref().unwrap_or_default(),
        errors,
    );
    let lists = [
        ("containers", Some(&pod.containers)),
        ("initContainers", pod.init_containers.as_ref()),
    ];
    let (mut seen, mut ports) = (BTreeSet::new(), BTreeMap::new());
    for (list, containers) in lists {
        let at = at.field(list);
        for (i, container) in containers.into_iter().flatten().enumerate() {
            let at = at.index(i);
            if !container.name.is_empty() && !seen.insert(container.name.as_str()) {
                errors.push(at.field("name").error(format!(
                    "there is a container {:?} already: give each its own name",
                    container.name
                )));
            }
            reserved::check_name(&at, "container", &container.name, errors);
            container::check(&at, container, &volumes, errors);
            let is_init = list == "initContainers";
            container::restarts(role, &at, container, is_init, errors);
            // The others end before those that train begin.
            if !is_init || container.restart_policy.as_deref() == Some("Always") {
                container::shared_ports(&at, container, &mut ports, errors);
            }
        }
    }
    ours(role, at, pod, errors);
    dns(at, pod, errors);
    priority_and_deadline(at, pod, errors);
    if let Some(selector) = &pod.node_selector {
        metadata::labels(&at.field("nodeSelector"), selector, errors);
    }
    let constraints = at.field("topologySpreadConstraints");
    for (i, constraint) in pod.topology_spread_constraints.iter().flatten().enumerate() {
        topology_key(
            &constraints.index(i).field("topologyKey"),
            &constraint.topology_key,
            errors,
        );
    }
    if let Some(resources) = &pod.resources {
        resources::check(&at.field("resources"), resources, errors);
    }
    let overhead = at.field("overhead");
    for (name, quantity) in pod.overhead.iter().flatten() {
        resources::amount(&overhead.key(name), quantity, errors);
    }
}

/// What the operator sets, or what can't be in a pod that is to be created.
fn ours(role: &At<'_>, at: &At<'_>, pod: &PodSpec, errors: &mut Vec<FieldError>) {
    if pod.restart_policy.is_some() {
        let message =
            format!("the role decides when its pods are replaced: remove this and set {role}.restartPolicy");
        errors.push(at.field("restartPolicy").error(message));
    }
    for (field, value) in [("hostname", &pod.hostname), ("subdomain", &pod.subdomain)] {
        if value.is_some() {
            let message = "pods find each other by names that the operator sets: remove it";
            errors.push(at.field(field).error(message));
        }
    }
    if pod
        .ephemeral_containers
        .as_ref()
        .is_some_and(|list| !list.is_empty())
    {
        let message = "can only be added to a pod that runs, with kubectl debug: remove them";
        errors.push(at.field("ephemeralContainers").error(message));
    }
}

const DNS_POLICIES: &[&str] = &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];

/// The rules for how names are looked up.
fn dns(at: &At<'_>, pod: &PodSpec, errors: &mut Vec<FieldError>) {
    let Some(policy) = pod.dns_policy.as_deref().filter(|policy| !policy.is_empty()) else {
        return;
    };
    container::one_of(&at.field("dnsPolicy"), policy, DNS_POLICIES, errors);
    let servers = pod.dns_config.as_ref().and_then(|dns| dns.nameservers.as_ref());
    if policy == "None" && servers.is_none_or(Vec::is_empty) {
        errors.push(at.field("dnsConfig").field("nameservers").error(
            "must provide at least one DNS nameserver when `dnsPolicy` is None: name one, or give another dnsPolicy",
        ));
    }
}

/// The rules for numbers that the API server takes in no pod, or only from itself.
fn priority_and_deadline(at: &At<'_>, pod: &PodSpec, errors: &mut Vec<FieldError>) {
    let has_class = pod
        .priority_class_name
        .as_ref()
        .is_some_and(|class| !class.is_empty());
    // What a pod without a class is given, unless the cluster has one for all, may be said as well.
    if let Some(priority) = pod.priority.filter(|priority| has_class || *priority != 0) {
        errors.push(at.field("priority").error(format!(
            "the integer value of priority ({priority}) must not be provided in pod spec, because the API server computes it: \
             remove it and name a PriorityClass in priorityClassName"
        )));
    }
    let possible = 1..=i64::from(i32::MAX);
    if let Some(seconds) = pod
        .active_deadline_seconds
        .filter(|seconds| !possible.contains(seconds))
    {
        errors.push(at.field("activeDeadlineSeconds").error(format!(
            "{seconds} must be between 1 and {}, inclusive: give another number, or leave it out",
            possible.end()
        )));
    }
}

/// The rule for a label of nodes by which places are told apart.
pub(super) fn topology_key(at: &At<'_>, key: &str, errors: &mut Vec<FieldError>) {
    if key.is_empty() {
        errors.push(at.error("name a label of nodes, or leave it out"));
    } else if let Some(problem) = label_key_problem(key) {
        errors.push(at.error(format!("{key:?} {problem}")));
    }
}
