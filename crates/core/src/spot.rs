//! Keeps pods that others need off nodes that may be taken away at any time.

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm,
};

use crate::job::Job;
use crate::model::PodKey;
use crate::settings::SpotLabel;

/// Prefers nodes without any of these labels, in addition to what the user wants. Where there are
/// no others, pods still start.
pub(crate) fn avoid(labels: &[SpotLabel], spec: &mut PodSpec) {
    let mut requirements: Vec<NodeSelectorRequirement> = Vec::new();
    for SpotLabel { key, value } in labels {
        match requirements.iter_mut().find(|known| known.key == *key) {
            Some(known) => known.values.get_or_insert_default().push(value.clone()),
            None => requirements.push(NodeSelectorRequirement {
                key: key.clone(),
                operator: "NotIn".to_owned(),
                values: Some(vec![value.clone()]),
            }),
        }
    }
    let affinity = spec.affinity.get_or_insert_default();
    let affinity = affinity.node_affinity.get_or_insert_default();
    let preferred = affinity
        .preferred_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    preferred.push(PreferredSchedulingTerm {
        weight: 100,
        preference: NodeSelectorTerm {
            match_expressions: Some(requirements),
            match_fields: None,
        },
    });
}

/// Returns true if others can't go on without a pod: it has rank 0, serves the others, or decides
/// alone how the job ends.
pub(crate) fn is_needed(job: &Job<'_>, pod: PodKey) -> bool {
    let name = job.roles.get(pod.role).map_or("", |role| role.name);
    let mut rules = job.framework.roles.iter();
    let serves = rules.any(|rule| {
        let decides_alone = rule.decides && rule.max == Some(1);
        rule.name == name && (rule.serves || decides_alone)
    });
    serves || job.is_rank_zero(pod)
}
