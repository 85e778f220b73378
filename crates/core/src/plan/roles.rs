//! Deduces the phase of every role, and explains it in the status.

use jiff::Timestamp;
use std::collections::BTreeSet;

use trainyard_api::{CleanPodPolicy, Reason, RestartCause, RolePhase, RoleStatus, TrainingJobStatus};

use super::describe::describe;
use crate::assess::{Assessment, Ended, RoleAssessment};
use crate::deduce::{self, FirstPod, RoleFacts, RoleWhy};
use crate::depends::{self, Outlook};
use crate::indices;
use crate::job::{Job, Role};
use crate::model::Awaited;
use crate::model::{Action, PodKey};
use crate::restart::End;
use crate::status::{MAX_REASON, truncate};
use crate::view::View;

/// Writes the status of every role. Returns the ends that made roles fail.
pub(super) fn deduce<'a>(
    job: &Job<'a>,
    view: &View<'_>,
    assessment: &Assessment<'a>,
    withheld: bool,
    status: &mut TrainingJobStatus,
) -> Vec<Ended<'a>> {
    let mut roles = Vec::with_capacity(job.roles.len());
    let mut ends = Vec::new();
    let phases = phases(job, assessment, status);
    let all = job
        .roles
        .iter()
        .zip(&assessment.roles)
        .zip(phases.iter().copied());
    for (position, ((role, this), (phase, why))) in all.enumerate() {
        let before = status.roles.iter().find(|r| r.name == role.name);
        let phase_before = before.map(|r| r.phase).unwrap_or_default();
        if phase == RolePhase::Failed {
            ends.extend(fatal_ends(position, this));
        }
        let (reason, message) = if let Some(before) = before.filter(|_| phase_before.is_terminal()) {
            // Its pods may be deleted by now, and the reason can't be deduced again.
            (before.reason.clone(), before.message.clone())
        } else {
            let phase_of = |role| phases.get(role).map(|(phase, _)| *phase);
            let waits =
                unmet_dependency(assessment, role, phase_of).filter(|_| this.waiting + this.to_create > 0);
            match explain(job, view, role, this, phase, why, waits.is_some()) {
                (None, None) => match explain_restarts(job, this, phase, withheld) {
                    (None, None) => match explain_group(role, phase, status) {
                        (None, None) => explain_waiting(job, phase, waits),
                        explained => explained,
                    },
                    explained => explained,
                },
                explained => explained,
            }
        };
        roles.push(RoleStatus {
            name: role.name.to_owned(),
            reason,
            message,
            replacements: before.and_then(|before| before.replacements.clone()),
            ..counted(this, phase)
        });
    }
    let ready: i32 = roles.iter().map(|role| role.ready).sum();
    status.ready = Some(format!("{ready}/{}", job.total()));
    status.roles = roles;
    ends
}

/// The ends for which a role at a position has failed.
fn fatal_ends<'a>(position: usize, role: &RoleAssessment<'a>) -> impl Iterator<Item = Ended<'a>> {
    let lost = role.lost.iter().map(move |index| PodKey {
        role: position,
        index: *index,
    });
    role.final_ends.iter().copied().chain(lost.map(Ended::absent))
}

/// The part of a role's status that counts its pods.
fn counted(role: &RoleAssessment<'_>, phase: RolePhase) -> RoleStatus {
    let tally = role.tally;
    // A role that has ended gets no more pods.
    let (awaited, lost) = if phase.is_terminal() {
        (0, 0)
    } else {
        (tally.replacing + tally.to_create, tally.lost)
    };
    RoleStatus {
        phase,
        active: tally.active,
        ready: tally.ready,
        succeeded: tally.succeeded,
        failed: tally.failed + lost,
        pending: tally.pending + awaited,
        terminating: tally.terminating,
        succeeded_indices: indices::format(&role.done),
        failed_indices: indices::format(&failed_indices(role)),
        ..RoleStatus::default()
    }
}

/// The indices of pods that have failed for good.
fn failed_indices(role: &RoleAssessment<'_>) -> BTreeSet<i32> {
    let ended = role.final_ends.iter().map(|ended| ended.key.index);
    ended.chain(role.lost.iter().copied()).collect()
}

fn first_pod(role: &RoleAssessment<'_>) -> FirstPod {
    if role.done.contains(&0) {
        FirstPod::Succeeded
    } else if role.final_ends.iter().any(|ended| ended.key.index == 0) {
        FirstPod::Failed
    } else if role.lost.contains(&0) {
        FirstPod::Lost
    } else {
        FirstPod::GoesOn
    }
}

/// The phase of every role, and why.
pub(crate) fn phases(
    job: &Job<'_>,
    assessment: &Assessment<'_>,
    status: &TrainingJobStatus,
) -> Vec<(RolePhase, RoleWhy)> {
    let phase = |(role, this): (&Role<'_>, &RoleAssessment<'_>)| {
        let before = status.roles.iter().find(|r| r.name == role.name);
        let (phase, why) = deduce::role(&RoleFacts {
            tally: this.tally,
            first: first_pod(this),
            succeeded_when: role.succeeded_when,
            failed_when: role.failed_when,
            restart_policy: role.restart_policy,
            phase: before.map(|r| r.phase).unwrap_or_default(),
        });
        // The pods of such a role are deleted with all others, and its policy forbids to replace
        // them.
        let secret_missing = this
            .final_ends
            .iter()
            .any(|ended| ended.end == End::SecretMissing);
        if secret_missing && !phase.is_terminal() {
            (RolePhase::Failed, RoleWhy::PodFailed)
        } else {
            (phase, why)
        }
    };
    job.roles.iter().zip(&assessment.roles).map(phase).collect()
}

/// What a role still waits for. `None` if all its dependencies are met.
pub(super) fn unmet_dependency(
    assessment: &Assessment<'_>,
    role: &Role<'_>,
    phase: impl Fn(usize) -> Option<RolePhase>,
) -> Option<Awaited> {
    let outlook = |awaited: &Awaited| {
        let other = assessment.roles.get(awaited.role);
        let (Some(other), Some(phase)) = (other, phase(awaited.role)) else {
            return Outlook::Open;
        };
        depends::outlook(awaited.state, phase, &other.tally)
    };
    depends::first_unmet(role, outlook).map(|(awaited, _)| awaited)
}

/// Says what a role waits for, if there is nothing more important to say.
fn explain_waiting(
    job: &Job<'_>,
    phase: RolePhase,
    waits: Option<Awaited>,
) -> (Option<String>, Option<String>) {
    match waits {
        Some(awaited) if matches!(phase, RolePhase::Pending | RolePhase::Starting) => explanation(
            Reason::WaitingForRoles.as_str(),
            format!("waits for {}", depends::describe(job, awaited)),
        ),
        _ => (None, None),
    }
}

fn explanation(reason: &str, mut message: String) -> (Option<String>, Option<String>) {
    let mut reason = reason.to_owned();
    truncate(&mut reason, MAX_REASON);
    truncate(&mut message, 2000);
    (Some(reason), Some(message))
}

/// Adds that a sentence about one pod holds for more pods.
pub(super) fn and_others(pods: usize) -> String {
    match pods.saturating_sub(1) {
        0 => String::new(),
        1 => " (and 1 more pod)".to_owned(),
        more => format!(" (and {more} more pods)"),
    }
}

fn explain(
    job: &Job<'_>,
    view: &View<'_>,
    role: &Role<'_>,
    this: &RoleAssessment<'_>,
    phase: RolePhase,
    why: RoleWhy,
    waits: bool,
) -> (Option<String>, Option<String>) {
    if why == RoleWhy::PodMissing {
        let missing = this.tally.lost;
        let which = indices::format(&this.lost).unwrap_or_default();
        return explanation(
            Reason::PodMissing.as_str(),
            format!(
                "{missing} of {} pods that had been running {} gone: {which}",
                role.replicas(),
                if missing == 1 { "is" } else { "are" }
            ),
        );
    }
    if let (RolePhase::Failed, Some(first)) = (phase, first_end(&this.final_ends)) {
        let reason = match first.end {
            End::NodeDown => Reason::PossibleNodeDown,
            End::Disruption => Reason::PodDisrupted,
            End::DependencyFailed(_) => Reason::DependencyFailed,
            End::SecretMissing => Reason::SecretMissing,
            _ => Reason::PodFailed,
        };
        return explanation(
            reason.as_str(),
            format!("{}{}", describe(job, &first), and_others(this.final_ends.len())),
        );
    }
    let starts = matches!(phase, RolePhase::Pending | RolePhase::Starting);
    let tried = !waits || !depends::is_created_late(role, view.settings);
    if starts && this.to_create > 0 && tried {
        // If the server refuses one child, the operator does not try the others.
        if let Some(refusal) = view.refusal {
            return explanation(Reason::CreateFailed.as_str(), refusal.to_string());
        }
    }
    if let (RolePhase::Pending | RolePhase::Starting, Some((row, trouble, pods))) = (phase, this.trouble) {
        return explanation(
            &trouble.reason,
            format!("{}: {}{}", row.name, trouble.message, and_others(pods)),
        );
    }
    if let (RolePhase::Running | RolePhase::Starting, Some(row)) = (phase, this.on_down_node) {
        let node = row.node.as_deref().unwrap_or("?");
        return explanation(
            Reason::PossibleNodeDown.as_str(),
            format!("{} is on {node}, which is down", row.name),
        );
    }
    (None, None)
}

/// Says what is being replaced, if there is nothing more important to say.
fn explain_restarts(
    job: &Job<'_>,
    this: &RoleAssessment<'_>,
    phase: RolePhase,
    withheld: bool,
) -> (Option<String>, Option<String>) {
    match this.retried {
        Some((ended, due, pods)) if phase == RolePhase::Starting => explanation(
            Reason::Restarting.as_str(),
            format!(
                "{}{}: {}",
                describe(job, &ended),
                and_others(pods),
                describe_replacement(due, withheld)
            ),
        ),
        _ => (None, None),
    }
}

/// Says that all pods of a role start anew, if there is nothing more important to say.
fn explain_group(
    role: &Role<'_>,
    phase: RolePhase,
    status: &TrainingJobStatus,
) -> (Option<String>, Option<String>) {
    let group = status
        .restarts
        .as_ref()
        .and_then(|restarts| restarts.group.as_ref());
    match group {
        Some(group) if phase == RolePhase::Starting && group.roles.iter().any(|name| name == role.name) => {
            let due = group.not_before.as_ref();
            let due = due.map(|due| format!(", not before {}", due.0));
            explanation(
                Reason::Restarting.as_str(),
                format!(
                    "all its pods start anew, because {} ended{}",
                    group.pod,
                    due.unwrap_or_default()
                ),
            )
        }
        _ => (None, None),
    }
}

/// Says when a pod that ended is replaced.
pub(super) fn describe_replacement(due: Option<Timestamp>, withheld: bool) -> String {
    match due {
        _ if withheld => "to be replaced when the job is accepted again".to_owned(),
        Some(due) => format!("to be replaced at {due}"),
        None => "replaced".to_owned(),
    }
}

/// Ends the roles that have not ended when the job ends.
pub(super) fn end(
    job: &Job<'_>,
    assessment: &Assessment<'_>,
    status: &mut TrainingJobStatus,
    reason: Reason,
) {
    for (position, role) in status.roles.iter_mut().enumerate() {
        if role.phase.is_terminal() {
            continue;
        }
        let failures = assessment
            .new_restarts
            .iter()
            .filter(|end| end.cause == RestartCause::Failure && end.ended.key.role == position);
        let failures: Vec<Ended<'_>> = failures.map(|end| end.ended).collect();
        let (phase, why, message) = match (reason, first_end(&failures)) {
            (Reason::DeadlineExceeded, _) => {
                let message = role.message.take();
                let message =
                    message.unwrap_or_else(|| "The deadline came before the role's end.".to_owned());
                (RolePhase::Failed, reason, message)
            }
            (Reason::BackoffLimitExceeded, Some(first)) => {
                let message = format!("{}{}", describe(job, &first), and_others(failures.len()));
                (RolePhase::Failed, reason, message)
            }
            _ if job.clean_pod_policy != CleanPodPolicy::None => {
                let message = "The job ended before the role did.";
                (RolePhase::Stopped, Reason::Finished, message.to_owned())
            }
            // Its pods go on running.
            _ => continue,
        };
        role.phase = phase;
        (role.reason, role.message) = explanation(why.as_str(), message);
    }
}

/// Leaves roles that have ended alone, even if the job goes on: their pods are not created again,
/// and further ends cost nothing.
pub(super) fn ignore_ended_roles(job: &Job<'_>, status: &TrainingJobStatus, assessment: &mut Assessment<'_>) {
    let goes_on = |role: usize| {
        status
            .roles
            .get(role)
            .is_none_or(|role| !role.phase.is_terminal())
    };
    let goes_on_with = |pod: &str| job.key(pod).is_none_or(|key| goes_on(key.role));
    assessment.actions.retain(|action| match action {
        Action::CreatePod(key) | Action::LabelPod { key, .. } => goes_on(key.role),
        Action::DeletePod { name, .. } => goes_on_with(name),
        _ => true,
    });
    assessment.new_restarts.retain(|end| goes_on(end.ended.key.role));
    assessment.replacing.retain(|entry| goes_on_with(&entry.pod));
}

/// The end that came first. Of several within a second it is the one that was seen first, and if no
/// times are known, that of the first pod.
pub(super) fn first_end<'a>(ends: &[Ended<'a>]) -> Option<Ended<'a>> {
    let time = |ended: &&Ended<'_>| {
        let end = ended.row.and_then(|row| row.end.as_ref());
        let at = ended.time();
        (at.is_none(), at, end.map_or(0, |end| end.seen_version))
    };
    ends.iter().min_by_key(time).copied()
}
