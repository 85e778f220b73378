//! Defaults that do not depend on the framework.

use crate::job::TrainingJobSpec;
use crate::role::{NodeDownPolicy, PodQuorum, RoleSpec};
use crate::run_policy::CleanPodPolicy;

/// The default of `runPolicy.backoffLimit`.
pub const BACKOFF_LIMIT: i32 = 6;
/// The default of `placement.topologyKey`.
pub const TOPOLOGY_KEY: &str = "kubernetes.io/hostname";

/// Whether all that [`default`] would write is there.
pub fn is_defaulted(spec: &TrainingJobSpec) -> bool {
    let has_run = spec
        .run_policy
        .as_ref()
        .is_some_and(|run| run.clean_pod_policy.is_some() && run.backoff_limit.is_some());
    let elastic = spec.elastic_role();
    let has_role = |(position, role): (usize, &RoleSpec)| {
        let pod = role.template.spec.as_ref();
        let has_container = role.container.is_some() || pod.is_none_or(|pod| pod.containers.is_empty());
        let placement = role.placement.as_ref();
        let has_key = placement.is_none_or(|placement| placement.topology_key.is_some());
        (role.replicas.is_some() || elastic == Some(position))
            && role.succeeded_when.is_some()
            && role.failed_when.is_some()
            && role.node_down_policy.is_some()
            && has_container
            && has_key
    };
    has_run && spec.roles.iter().enumerate().all(has_role)
}

/// Writes into the spec what the user left out, where the answer is the same for every framework.
///
/// Idempotent. Nothing that the user wrote is changed.
pub fn default(spec: &mut TrainingJobSpec) {
    let elastic = spec.elastic_role();
    for (position, role) in spec.roles.iter_mut().enumerate() {
        if elastic != Some(position) {
            role.replicas.get_or_insert(1);
        }
        role.succeeded_when.get_or_insert(PodQuorum::AllPods);
        role.failed_when.get_or_insert(PodQuorum::AnyPod);
        role.node_down_policy.get_or_insert(NodeDownPolicy::Wait);
        if role.container.is_none() {
            let containers = role.template.spec.as_ref().map(|pod| pod.containers.as_slice());
            role.container = containers.and_then(<[_]>::first).map(|first| first.name.clone());
        }
        if let Some(placement) = &mut role.placement {
            placement
                .topology_key
                .get_or_insert_with(|| TOPOLOGY_KEY.to_owned());
        }
    }
    let run = spec.run_policy.get_or_insert_default();
    run.clean_pod_policy.get_or_insert(CleanPodPolicy::Running);
    run.backoff_limit.get_or_insert(BACKOFF_LIMIT);
}
