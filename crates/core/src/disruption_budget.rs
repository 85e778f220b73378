//! The disruption budget of a job: no pod is evicted of which the operator itself frees a node that
//! is about to go, so that the pod has time for a checkpoint.
//!
//! `kubectl drain` cordons a node before it evicts pods. The operator sees that, has the pods leave
//! in order, and deletes them; meanwhile evictions are refused, and `kubectl drain` tries again.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use trainyard_api::names::{self, LABEL_JOB, LABEL_ROLE};
use trainyard_api::{JobPhase, TrainingJob};

use crate::agent;
use crate::job::{Job, Role};
use crate::metadata::{child_labels, child_metadata, pod_labels};
use crate::model::PodKey;
use crate::notice::{Notice, NoticeCause};
use crate::restart::{self, End};
use crate::view::{BudgetRow, Settings};

/// More pods than any job has, so that none of them is ever too many. It stays the same however the
/// size of the job changes. A number that may be unavailable would not do: for that, the cluster
/// asks the job how many pods it wants, and only elastic jobs answer.
const MIN_AVAILABLE: i32 = i32::MAX;

/// Returns true if a job in its phase may have a budget. What is known of budgets and nodes does
/// not concern others.
pub fn may_need(job: &TrainingJob) -> bool {
    let phase = job.status.as_ref().and_then(|status| status.phase);
    let goes_on = phase.is_some_and(|phase| {
        matches!(
            phase,
            JobPhase::Running | JobPhase::Scaling | JobPhase::Paused | JobPhase::Restarting
        )
    });
    goes_on && job.metadata.deletion_timestamp.is_none()
}

/// Builds the budget of a job. `None` if the operator frees no node of its pods.
pub fn budget(job: &Job<'_>, settings: &Settings) -> Option<PodDisruptionBudget> {
    Some(PodDisruptionBudget {
        metadata: ObjectMeta {
            labels: Some(child_labels(job)),
            ..child_metadata(job, names::disruption_budget(job.name))
        },
        spec: Some(spec(job, settings)?),
        status: None,
    })
}

pub(crate) fn spec(job: &Job<'_>, settings: &Settings) -> Option<PodDisruptionBudgetSpec> {
    let roles: Vec<String> = covered(job, settings)
        .map(|(_, role)| role.name.to_owned())
        .collect();
    (!roles.is_empty()).then(|| PodDisruptionBudgetSpec {
        min_available: Some(IntOrString::Int(MIN_AVAILABLE)),
        selector: Some(LabelSelector {
            match_labels: Some([(LABEL_JOB.to_owned(), job.name.to_owned())].into()),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: LABEL_ROLE.to_owned(),
                operator: "In".to_owned(),
                values: Some(roles),
            }]),
        }),
        ..PodDisruptionBudgetSpec::default()
    })
}

/// Returns true if a budget says what is wanted of it. Policies of a cluster may add to it.
pub(crate) fn fulfils(spec: &PodDisruptionBudgetSpec, wanted: &PodDisruptionBudgetSpec) -> bool {
    let Some((selector, ours)) = spec.selector.as_ref().zip(wanted.selector.as_ref()) else {
        return false;
    };
    let labels = selector.match_labels.as_ref();
    let has_label = |(label, value)| labels.and_then(|labels| labels.get(label)) == Some(value);
    let has_expression = |one| {
        selector
            .match_expressions
            .iter()
            .flatten()
            .any(|known| known == one)
    };
    spec.min_available == wanted.min_available
        && spec.max_unavailable == wanted.max_unavailable
        && ours.match_labels.iter().flatten().all(has_label)
        && ours.match_expressions.iter().flatten().all(has_expression)
}

/// Returns true if a budget was made for a former job of the same name, and has stayed without it.
/// Nobody else would ever delete it.
pub(crate) fn is_left_by_namesake(row: &BudgetRow, job: &str) -> bool {
    let labels = row.spec.selector.as_ref();
    let labels = labels.and_then(|selector| selector.match_labels.as_ref());
    let selects_job = labels
        .and_then(|labels| labels.get(LABEL_JOB))
        .is_some_and(|of| of == job);
    row.is_orphan
        && *row.name == *names::disruption_budget(job)
        && row.spec.min_available == Some(IntOrString::Int(MIN_AVAILABLE))
        && selects_job
}

/// How many labels and values of others' selectors are compared with labels of pods, for one job.
/// Anybody may make budgets in their namespace, and a job may have thousands of pods: all other
/// jobs would wait meanwhile.
const MAX_COMPARISONS: usize = 1 << 20;

/// Returns true if one of some budgets selects a pod that the budget of the job would select too.
/// Pods with two budgets can't be evicted at all. True also if that would take too long to find
/// out: then the job goes on without a budget.
pub(crate) fn overlap(rows: &[BudgetRow], job: &Job<'_>, settings: &Settings) -> bool {
    if rows.is_empty() {
        return false;
    }
    let mut left = MAX_COMPARISONS;
    covered(job, settings).any(|(position, role)| select_any(rows, job, (position, role), &mut left))
}

/// `kubectl drain` asks every 5 s for the eviction of a pod, by its name alone, until there is none
/// or it is about to go. A new pod that had the name sooner would be asked for instead, on
/// whichever node it is, and be refused for ever.
pub(crate) const EVICTION_INTERVAL: SignedDuration = SignedDuration::from_secs(6);

/// The roles whose pods leave in order when somebody cordons their node, by position.
fn covered<'j>(job: &'j Job<'_>, settings: &Settings) -> impl Iterator<Item = (usize, &'j Role<'j>)> {
    // Without a time for it, pods leave nodes in no order, and evictions need not wait.
    let has_time = job.drain_timeout_seconds.is_some();
    let is_told = has_time && settings.agent_and_observer().is_some();
    let cordon = Notice::of(NoticeCause::Cordon);
    let status = job.object.status.as_ref();
    let has_ended = move |position: usize| {
        let role = status.and_then(|status| status.roles.get(position));
        role.is_some_and(|role| role.phase.is_terminal())
    };
    let leaves = move |(position, role): &(usize, &Role<'_>)| {
        let joins = !job.is_rigid() && job.elastic.is_some_and(|elastic| elastic.role == *position);
        is_told
            && !has_ended(*position)
            && job.may_leave(*position)
            && (joins || restart::replacement(role.restart_policy, End::Disruption).is_some())
            && agent::can_be_reached(role.pod)
            && !cordon.spares(role.pod)
    };
    job.roles.iter().enumerate().filter(leaves)
}

/// How many labels and values a selector has.
pub fn size(selector: &LabelSelector) -> usize {
    let expressions = selector.match_expressions.iter().flatten();
    let values = expressions.map(|one| 1 + one.values.as_ref().map_or(0, Vec::len));
    selector.match_labels.iter().flatten().count() + values.sum::<usize>()
}

/// Compares selectors with the pods of a role. `left` is how much more may be compared.
fn select_any(
    rows: &[BudgetRow],
    job: &Job<'_>,
    (position, role): (usize, &Role<'_>),
    left: &mut usize,
) -> bool {
    let template = role.template.metadata.as_ref();
    let labels = |index| {
        let given = template.and_then(|metadata| metadata.labels.clone());
        let mut labels = given.unwrap_or_default();
        labels.extend(pod_labels(
            job,
            PodKey {
                role: position,
                index,
            },
        ));
        labels
    };
    let ends = (role.members.iter().next(), role.members.iter().last());
    let (Some(first), Some(last)) = (ends.0.map(labels), ends.1.map(labels)) else {
        return false;
    };
    // A job may have thousands of pods. Few selectors tell one from another.
    let differ = |label: &String| first.get(label) != last.get(label);
    let mut selects_one = |selector: &LabelSelector| {
        let equal = selector.match_labels.iter().flatten().map(|(label, _)| label);
        let expressions = selector.match_expressions.iter().flatten();
        let mut named = equal.chain(expressions.map(|expression| &expression.key));
        let differs = named.any(differ);
        let pods = if differs { role.members.iter().count() } else { 1 };
        let Some(rest) = left.checked_sub(pods.saturating_mul(1 + size(selector))) else {
            return true;
        };
        *left = rest;
        if differs {
            role.members.iter().any(|index| selects(selector, &labels(index)))
        } else {
            selects(selector, &first)
        }
    };
    let mut selectors = rows.iter().filter_map(|row| row.spec.selector.as_ref());
    selectors.any(&mut selects_one)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(label, value)| labels.get(label) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(&expression.key);
            let is_one = || {
                let mut values = expression.values.iter().flatten();
                values.any(|one| Some(one) == value)
            };
            match &*expression.operator {
                "In" => is_one(),
                "NotIn" => !is_one(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("{}", true)]
    #[case(r#"{"matchLabels": {"app": "x"}}"#, true)]
    #[case(r#"{"matchLabels": {"app": "y"}}"#, false)]
    #[case(r#"{"matchLabels": {"app": "x", "tier": "a"}}"#, false)]
    #[case(
        r#"{"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}"#,
        true
    )]
    #[case(
        r#"{"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}"#,
        false
    )]
    #[case(
        r#"{"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}"#,
        true
    )]
    #[case(r#"{"matchExpressions": [{"key": "tier", "operator": "Exists"}]}"#, false)]
    #[case(
        r#"{"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}"#,
        true
    )]
    #[case(
        r#"{"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}"#,
        false
    )]
    fn a_selector_selects_as_in_kubernetes(#[case] selector: &str, #[case] expected: bool) {
        let selector = serde_json::from_str(selector).unwrap();
        let labels = BTreeMap::from([("app".to_owned(), "x".to_owned())]);
        assert_eq!(selects(&selector, &labels), expected);
    }
}
