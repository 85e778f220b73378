//! Defaults that do not depend on the framework.

use crate::job::{CleanPodPolicy, NodeDownPolicy, PodQuorum, TrainingJobSpec};

/// The default of `runPolicy.backoffLimit`.
pub const BACKOFF_LIMIT: i32 = 6;
/// The default of `placement.topologyKey`.
pub const TOPOLOGY_KEY: &str = "kubernetes.io/hostname";

/// Writes into the spec what the user left out, where the answer is the same for every framework.
///
/// Idempotent. Nothing that the user wrote is changed.
pub fn default(spec: &mut TrainingJobSpec) {
    for role in &mut spec.roles {
        role.replicas.get_or_insert(1);
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
