//! Decides what a request does whose turn it is: the new target, and who joins or leaves.

use std::collections::BTreeSet;

use trainyard_api::{Elastic, FieldError, JobPhase, ScalePhase, ScalePolicy, ScaleReason, TrainingJobStatus};

use super::{Case, Change, Next, Removal, RequestSpec, RequestStep, script};
use crate::indices;
use crate::job::Job;
use crate::members::Members;
use crate::model::PodKey;
use crate::scaling::{self, has_started};
use crate::status::{sentences, time};
use crate::view::View;

/// Why a request ends before it has begun.
type EarlyEnd = (ScalePhase, ScaleReason, String);

/// What a request does.
struct Decision {
    to: i32,
    victims: BTreeSet<i32>,
    joining: BTreeSet<i32>,
    message: String,
}

impl Case<'_> {
    /// Decides what the request does, once the job runs and has the size that it should have. The
    /// decision is written into the status before anything is done.
    pub(super) fn begin(&self, spec: &RequestSpec, view: &View<'_>, job: &Job<'_>) -> Next {
        let Some(elastic) = job.elastic else {
            let message = format!("The job {} can't change its size.", spec.job);
            return self.fail(ScaleReason::NotElastic, message);
        };
        let phase = view.job.status.as_ref().and_then(|status| status.phase);
        if let Some(refusal) = scaling::refusal(job, view).filter(|_| phase.is_some_and(has_started)) {
            let has = members(job).map_or(0, Members::count);
            let message = format!("The job keeps its {has} pods: {refusal}.");
            return self.fail(ScaleReason::SizeRefused, message);
        }
        if let Some(why) = script::obstacle(spec, view, job) {
            return self.fail(ScaleReason::ScriptRefused, why);
        }
        if let Some(what) = unsettled(view, elastic.spec) {
            return self.wait(what, None);
        }
        let decision = match &spec.change {
            Change::Add(count) => grow(spec, view, job, *count),
            Change::Remove(removal) => shrink(spec, view, job, removal),
        };
        let Decision {
            to,
            victims,
            joining,
            message,
        } = match decision {
            Ok(decision) => decision,
            Err((phase, reason, message)) => return self.end(phase, reason, message),
        };
        let names = |set: BTreeSet<i32>| -> Vec<String> {
            let role = elastic.role;
            set.into_iter()
                .map(|index| job.pod_name(PodKey { role, index }))
                .collect()
        };
        let mut status = self.request.status.clone();
        status.phase = Some(ScalePhase::Scaling);
        status.from = Some(elastic.spec.replicas);
        status.to = Some(to);
        status.victims = names(victims);
        status.joining = names(joining);
        let changed = [&*status.victims, &*status.joining].concat();
        if self.is_too_long(spec, view, job, &changed) {
            let message = "The script can't be run: its variables and the names of the pods are too long. Change fewer pods \
                           at once.";
            return self.fail(ScaleReason::ScriptRefused, message);
        }
        status.start_time = Some(time(self.now));
        self.acknowledge(&mut status);
        self.set_condition(
            &mut status,
            ScalePhase::Scaling,
            true,
            ScaleReason::Decided,
            &message,
        );
        status.message = Some(message);
        Next::step(RequestStep::WriteStatus(Box::new(status)))
    }
}

/// What a job has to come to before its size is changed once more.
fn unsettled(view: &View<'_>, elastic: &Elastic) -> Option<&'static str> {
    let status = view.job.status.as_ref();
    let phase = status.and_then(|status| status.phase);
    let is_up = |phase: JobPhase| has_started(phase) && phase != JobPhase::Starting;
    if !phase.is_some_and(is_up) {
        return Some("It waits until the job runs.");
    }
    let is_fitted = |status: &TrainingJobStatus| {
        status.scaling.is_none() && status.target_replicas == Some(elastic.replicas)
    };
    if !status.is_some_and(is_fitted) {
        return Some("It waits until the change of size that is under way is done.");
    }
    None
}

fn members<'b>(job: &'b Job<'_>) -> Option<&'b Members> {
    Some(&job.roles.get(job.elastic?.role)?.members)
}

fn grow(spec: &RequestSpec, view: &View<'_>, job: &Job<'_>, count: i32) -> Result<Decision, EarlyEnd> {
    let (Some(elastic), Some(members)) = (job.elastic, members(job)) else {
        return Err(not_elastic());
    };
    let (elastic, has) = (elastic.spec, members.count());
    let wanted = has.saturating_add(count);
    let to = match spec.policy {
        _ if elastic.is_valid_size(wanted) => wanted,
        ScalePolicy::Refuse => return Err(size_refused(elastic, has, wanted)),
        ScalePolicy::Clamp => elastic
            .largest_size_within(wanted)
            .filter(|size| *size > has)
            .ok_or_else(|| unchanged(elastic, has, wanted))?,
    };
    let more = usize::try_from(to - has).unwrap_or_default();
    let joining = scaling::choose_joining(job, view, more).ok_or_else(not_elastic)?;
    let message = format!("From {has} to {to} pods: {} join.", listed(&joining));
    Ok(Decision {
        to,
        victims: BTreeSet::new(),
        joining,
        message,
    })
}

fn shrink(
    spec: &RequestSpec,
    view: &View<'_>,
    job: &Job<'_>,
    removal: &Removal,
) -> Result<Decision, EarlyEnd> {
    let (Some(elastic), Some(members)) = (job.elastic, members(job)) else {
        return Err(not_elastic());
    };
    let (elastic, has) = (elastic.spec, members.count());
    if job.is_rigid() && !matches!(removal, Removal::Count(_)) {
        return Err(nobody_is_chosen(job));
    }
    let named = match removal {
        Removal::Count(_) => Vec::new(),
        Removal::Pods(names) => find_pods(job, names)?,
        Removal::Nodes(names) => find_pods_on(job, view, names)?,
    };
    let count = match removal {
        Removal::Count(count) => *count,
        _ => i32::try_from(named.len()).unwrap_or(i32::MAX),
    };
    let wanted = has.saturating_sub(count);
    let to = match spec.policy {
        _ if elastic.is_valid_size(wanted) => wanted,
        ScalePolicy::Refuse => return Err(size_refused(elastic, has, wanted)),
        ScalePolicy::Clamp => (wanted.max(elastic.min())..has)
            .find(|size| elastic.is_valid_size(*size))
            .ok_or_else(|| unchanged(elastic, has, wanted))?,
    };
    let fewer = usize::try_from(has - to).unwrap_or_default();
    let asked_for: BTreeSet<i32> = named.into_iter().take(fewer).collect();
    let chosen = scaling::choose_victims(job, view, fewer, &asked_for);
    let (victims, why) = chosen.ok_or_else(not_elastic)?;
    let message = format!("From {has} to {to} pods: {} leave ({why}).", listed(&victims));
    Ok(Decision {
        to,
        victims,
        joining: BTreeSet::new(),
        message,
    })
}

/// The indices of the pods of some names, in the order of the names. Every name must be one of the
/// elastic role's, letter by letter.
fn find_pods(job: &Job<'_>, names: &[String]) -> Result<Vec<i32>, EarlyEnd> {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for (position, name) in names.iter().enumerate() {
        let path = || format!("spec.toDelete.podNames[{position}]");
        let role = job.elastic.map(|elastic| elastic.role);
        let key = job.key(name).filter(|key| job.pod_name(*key) == *name);
        match key {
            Some(key) if Some(key.role) == role || job.is_rank_zero(key) => match job.why_it_stays(key) {
                Some(why) => errors.push(FieldError::new(path(), format!("{name:?} {why}: it can't leave"))),
                None => found.push(key.index),
            },
            Some(key) => {
                let other = job.roles.get(key.role).map_or("", |role| role.name);
                let message = format!("{name:?} is a pod of the role {other}, whose size does not change");
                errors.push(FieldError::new(path(), message));
            }
            None => {
                let message = format!("{name:?} is not a pod of the job {}: nobody leaves", job.name);
                errors.push(FieldError::new(path(), message));
            }
        }
    }
    refuse(&errors)?;
    Ok(found)
}

/// The indices of the pods of the elastic role on some nodes, node by node.
fn find_pods_on(job: &Job<'_>, view: &View<'_>, nodes: &[String]) -> Result<Vec<i32>, EarlyEnd> {
    let role = job.elastic.map(|elastic| elastic.role);
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for (position, node) in nodes.iter().enumerate() {
        let path = || format!("spec.toDelete.nodeNames[{position}]");
        let rows = view.pods.iter().filter(|row| row.node.as_deref() == Some(node));
        let here: BTreeSet<PodKey> = rows
            .filter_map(|row| job.key(&row.name))
            .filter(|key| Some(key.role) == role)
            .collect();
        let staying = here.iter().find_map(|key| Some((*key, job.why_it_stays(*key)?)));
        if let Some((key, why)) = staying {
            let message = format!("{node:?}: {:?} {why}: it can't leave", job.pod_name(key));
            errors.push(FieldError::new(path(), message));
        } else if here.is_empty() {
            let message = format!(
                "no pod of the job {} that can leave is on the node {node:?}: nobody leaves",
                job.name
            );
            errors.push(FieldError::new(path(), message));
        }
        found.extend(here.into_iter().map(|key| key.index));
    }
    refuse(&errors)?;
    Ok(found)
}

fn refuse(errors: &[FieldError]) -> Result<(), EarlyEnd> {
    if errors.is_empty() {
        return Ok(());
    }
    Err((
        ScalePhase::ScaleFailed,
        ScaleReason::PodsRefused,
        sentences(errors),
    ))
}

/// Nobody can be named where all start anew.
fn nobody_is_chosen(job: &Job<'_>) -> EarlyEnd {
    let message = format!(
        "All pods of {} jobs start anew with another size, so that nobody is chosen to leave: give toDelete.count. Nothing \
         was changed.",
        job.framework.name()
    );
    (ScalePhase::ScaleFailed, ScaleReason::PodsRefused, message)
}

fn not_elastic() -> EarlyEnd {
    let message = "The job can't change its size: it has no spec.elastic.".to_owned();
    (ScalePhase::ScaleFailed, ScaleReason::NotElastic, message)
}

fn size_refused(elastic: &Elastic, has: i32, wanted: i32) -> EarlyEnd {
    let message = format!(
        "The job has {has} pods and would have {wanted}, but {}. Nothing was changed. With policy: Clamp it comes as \
         near to it as it can.",
        limit(elastic, wanted)
    );
    (ScalePhase::ScaleFailed, ScaleReason::SizeRefused, message)
}

fn unchanged(elastic: &Elastic, has: i32, wanted: i32) -> EarlyEnd {
    let message = format!("The job keeps its {has} pods: {}.", limit(elastic, wanted));
    (ScalePhase::ScaleSucceeded, ScaleReason::Unchanged, message)
}

/// Why a job can't have a size.
pub(super) fn limit(elastic: &Elastic, wanted: i32) -> String {
    if wanted < elastic.min() {
        format!("its minReplicas is {}", elastic.min())
    } else if wanted > elastic.max() {
        format!("its maxReplicas is {}", elastic.max())
    } else {
        format!("{wanted} is none of its validSizes")
    }
}

fn listed(set: &BTreeSet<i32>) -> String {
    indices::format(set).unwrap_or_default()
}
