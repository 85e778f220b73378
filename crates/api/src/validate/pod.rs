//! The rules for the pods of a role: what the operator sets itself, and what the API server would refuse anyway, once
//! for each pod and long after the job was accepted.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec, Volume};

use super::at::At;
use super::{FieldError, container, label_key_problem, metadata, object_name_problem, resources};
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
    let volumes = volumes(
        &at.field("volumes"),
        pod.volumes.as_deref().unwrap_or_default(),
        errors,
    );
    let lists = [
        ("containers", Some(&pod.containers)),
        ("initContainers", pod.init_containers.as_ref()),
    ];
    let mut seen = BTreeSet::new();
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
            reserved(&at, "container", &container.name, errors);
            container::check(&at, container, &volumes, errors);
            container::restarts(role, &at, container, list == "initContainers", errors);
        }
    }
    ours(role, at, pod, errors);
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

/// What begins like this is for what the operator puts into pods.
const OURS: &str = "trainyard-";

fn reserved(at: &At<'_>, what: &str, name: &str, errors: &mut Vec<FieldError>) {
    if name.starts_with(OURS) {
        errors.push(at.field("name").error(format!(
            "names that begin with {OURS:?} are for what the operator adds to pods: give the {what} another name"
        )));
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

/// The names of the volumes, after a look at each.
fn volumes<'a>(at: &At<'_>, volumes: &'a [Volume], errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let at = at.index(i);
        if let Some(problem) = object_name_problem(&volume.name) {
            errors.push(at.field("name").error(format!("the volume's name {problem}")));
        } else if !seen.insert(volume.name.as_str()) {
            errors.push(at.field("name").error(format!(
                "there is a volume {:?} already: give each its own name",
                volume.name
            )));
        }
        reserved(&at, "volume", &volume.name, errors);
        if let Some(limit) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
            resources::amount(&at.field("emptyDir").field("sizeLimit"), limit, errors);
        }
    }
    seen
}

/// The rule for a label of nodes by which places are told apart.
pub(super) fn topology_key(at: &At<'_>, key: &str, errors: &mut Vec<FieldError>) {
    if key.is_empty() {
        errors.push(at.error("name a label of nodes, or leave it out"));
    } else if let Some(problem) = label_key_problem(key) {
        errors.push(at.error(format!("{key:?} {problem}")));
    }
}
