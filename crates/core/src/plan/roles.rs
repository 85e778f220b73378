//! The state of every role, written down and explained.

use jiff::Timestamp;
use std::collections::BTreeSet;

use trainyard_api::{CleanPodPolicy, Reason, RestartCause, RolePhase, RoleStatus, TrainingJobStatus};

use super::describe::describe;
use crate::assess::{Assessment, Ended, RoleAssessment};
use crate::deduce::{self, RoleFacts, RoleWhy};
use crate::depends::{self, Outlook};
use crate::indices;
use crate::job::{Job, Role};
use crate::model::Awaited;
use crate::model::{Action, PodKey};
use crate::restart::End;
use crate::status::{MAX_REASON, truncate};
use crate::view::View;

/// Writes the state of every role; returns the ends that made roles fail.
pub(super) fn deduce<'a>(
    job: &Job<'a>,
    view: &View<'_>,
    seen: &Assessment<'a>,
    withheld: bool,
    status: &mut TrainingJobStatus,
) -> Vec<Ended<'a>> {
    let mut roles = Vec::with_capacity(job.roles.len());
    let mut ends = Vec::new();
    let phases = phases(job, seen, status);
    let all = job.roles.iter().zip(&seen.roles).zip(phases.iter().copied());
    for (position, ((role, this), (phase, why))) in all.enumerate() {
        let before = status.roles.iter().find(|r| r.name == role.name);
        let was = before.map(|r| r.phase).unwrap_or_default();
        if phase == RolePhase::Failed {
            ends.extend(this.final_ends.iter().copied());
            let lost = this.lost.iter().map(|index| PodKey {
                role: position,
                index: *index,
            });
            ends.extend(lost.map(Ended::missing));
        }
        let (reason, message) = if let Some(before) = before.filter(|_| was.is_terminal()) {
            // Its pods may be gone by now, and with them the reason.
            (before.reason.clone(), before.message.clone())
        } else {
            let phase_of = |role| phases.get(role).map(|(phase, _)| *phase);
            let waits = waits(seen, role, phase_of).filter(|_| this.held + this.wanted > 0);
            match explain(job, view, role, this, phase, why, waits.is_some()) {
                (None, None) => match restarts(job, this, phase, withheld) {
                    (None, None) => waiting(job, phase, waits),
                    explained => explained,
                },
                explained => explained,
            }
        };
        let tally = this.tally;
        // Nothing more comes to a role that has ended.
        let (awaited, lost) = if phase.is_terminal() {
            (0, 0)
        } else {
            (tally.replacing + tally.missing, tally.lost)
        };
        roles.push(RoleStatus {
            name: role.name.to_owned(),
            phase,
            reason,
            message,
            active: tally.active,
            ready: tally.ready,
            succeeded: tally.succeeded,
            failed: tally.failed + lost,
            pending: tally.pending + awaited,
            terminating: tally.terminating,
            succeeded_indices: indices::format(&this.done),
            failed_indices: indices::format(&failed(this)),
            replacements: before.and_then(|before| before.replacements.clone()),
        });
    }
    let ready: i32 = roles.iter().map(|role| role.ready).sum();
    status.ready = Some(format!("{ready}/{}", job.total()));
    status.roles = roles;
    ends
}

/// The indices of pods that have failed for good.
fn failed(role: &RoleAssessment<'_>) -> BTreeSet<i32> {
    let ended = role.final_ends.iter().map(|ended| ended.key.index);
    ended.chain(role.lost.iter().copied()).collect()
}

/// The state of every role, and why.
pub(crate) fn phases(
    job: &Job<'_>,
    seen: &Assessment<'_>,
    status: &TrainingJobStatus,
) -> Vec<(RolePhase, RoleWhy)> {
    let phase = |(role, this): (&Role<'_>, &RoleAssessment<'_>)| {
        let before = status.roles.iter().find(|r| r.name == role.name);
        let (phase, why) = deduce::role(&RoleFacts {
            tally: this.tally,
            succeeded_when: role.succeeded_when,
            failed_when: role.failed_when,
            restart_policy: role.restart_policy,
            was: before.map(|r| r.phase).unwrap_or_default(),
        });
        // They go with all the others, and would be made again.
        let estranged = this
            .final_ends
            .iter()
            .any(|ended| ended.end == End::SecretMissing);
        if estranged && !phase.is_terminal() {
            (RolePhase::Failed, RoleWhy::PodFailed)
        } else {
            (phase, why)
        }
    };
    job.roles.iter().zip(&seen.roles).map(phase).collect()
}

/// What a role waits for, if it has not come.
pub(super) fn waits(
    seen: &Assessment<'_>,
    role: &Role<'_>,
    phase: impl Fn(usize) -> Option<RolePhase>,
) -> Option<Awaited> {
    let look = |awaited: &Awaited| {
        let other = seen.roles.get(awaited.role);
        let (Some(other), Some(phase)) = (other, phase(awaited.role)) else {
            return Outlook::Open;
        };
        depends::outlook(awaited.state, phase, &other.tally)
    };
    depends::first_unmet(role, look).map(|(awaited, _)| awaited)
}

/// Says what a role waits for, where there is nothing else to say.
fn waiting(job: &Job<'_>, phase: RolePhase, waits: Option<Awaited>) -> (Option<String>, Option<String>) {
    match waits {
        Some(awaited) if matches!(phase, RolePhase::Pending | RolePhase::Starting) => said(
            Reason::WaitingForRoles.as_str(),
            format!("waits for {}", depends::describe(job, awaited)),
        ),
        _ => (None, None),
    }
}

fn said(reason: &str, mut message: String) -> (Option<String>, Option<String>) {
    let mut reason = reason.to_owned();
    truncate(&mut reason, MAX_REASON);
    truncate(&mut message, 2000);
    (Some(reason), Some(message))
}

/// That a sentence about one pod holds for others, too.
pub(super) fn others(pods: usize) -> String {
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
        return said(
            Reason::PodMissing.as_str(),
            format!(
                "{missing} of {} pods that had been running {} gone: {which}",
                role.replicas,
                if missing == 1 { "is" } else { "are" }
            ),
        );
    }
    if let (RolePhase::Failed, Some(first)) = (phase, first(&this.final_ends)) {
        let reason = match first.end {
            End::NodeDown => Reason::PossibleNodeDown,
            End::Disruption => Reason::PodDisrupted,
            End::DependencyFailed(_) => Reason::DependencyFailed,
            End::SecretMissing => Reason::SecretMissing,
            _ => Reason::PodFailed,
        };
        return said(
            reason.as_str(),
            format!("{}{}", describe(job, &first), others(this.final_ends.len())),
        );
    }
    let starts = matches!(phase, RolePhase::Pending | RolePhase::Starting);
    let tried = !waits || !depends::is_created_late(role, view.settings);
    if starts && this.wanted > 0 && tried {
        // Where the server does not take one child, the others are not tried.
        if let Some(refusal) = view.refusal {
            return said(Reason::CreateFailed.as_str(), refusal.to_string());
        }
    }
    if let (RolePhase::Pending | RolePhase::Starting, Some((row, trouble, pods))) = (phase, this.trouble) {
        return said(
            &trouble.reason,
            format!("{}: {}{}", row.name, trouble.message, others(pods)),
        );
    }
    if let (RolePhase::Running | RolePhase::Starting, Some(row)) = (phase, this.on_down_node) {
        let node = row.node.as_deref().unwrap_or("?");
        return said(
            Reason::PossibleNodeDown.as_str(),
            format!("{} is on {node}, which is down", row.name),
        );
    }
    (None, None)
}

/// Says what is being replaced, where there is nothing more urgent to say.
fn restarts(
    job: &Job<'_>,
    this: &RoleAssessment<'_>,
    phase: RolePhase,
    withheld: bool,
) -> (Option<String>, Option<String>) {
    match this.retried {
        Some((ended, due, pods)) if phase == RolePhase::Starting => said(
            Reason::Restarting.as_str(),
            format!(
                "{}{}: {}",
                describe(job, &ended),
                others(pods),
                replacement(due, withheld)
            ),
        ),
        _ => (None, None),
    }
}

/// When a pod that ended is replaced.
pub(super) fn replacement(due: Option<Timestamp>, withheld: bool) -> String {
    match due {
        _ if withheld => "to be replaced when the job is accepted again".to_owned(),
        Some(due) => format!("to be replaced at {due}"),
        None => "replaced".to_owned(),
    }
}

/// The job ends for a reason: roles that have not ended do so with it.
pub(super) fn end(job: &Job<'_>, seen: &Assessment<'_>, status: &mut TrainingJobStatus, reason: Reason) {
    for (position, role) in status.roles.iter_mut().enumerate() {
        if role.phase.is_terminal() {
            continue;
        }
        let failures = seen
            .new_restarts
            .iter()
            .filter(|end| end.cause == RestartCause::Failure && end.ended.key.role == position);
        let failures: Vec<Ended<'_>> = failures.map(|end| end.ended).collect();
        let (phase, why, message) = match (reason, first(&failures)) {
            (Reason::DeadlineExceeded, _) => {
                let message = role.message.take();
                let message =
                    message.unwrap_or_else(|| "The deadline came before the role's end.".to_owned());
                (RolePhase::Failed, reason, message)
            }
            (Reason::BackoffLimitExceeded, Some(first)) => {
                let message = format!("{}{}", describe(job, &first), others(failures.len()));
                (RolePhase::Failed, reason, message)
            }
            _ if job.clean_pod_policy != CleanPodPolicy::None => {
                let message = "The job ended before the role did.";
                (RolePhase::Stopped, Reason::Finished, message.to_owned())
            }
            // Its pods run on.
            _ => continue,
        };
        role.phase = phase;
        (role.reason, role.message) = said(why.as_str(), message);
    }
}

/// A role that has ended is left as it is, even if the job goes on: its pods are not made again, and what becomes of
/// them spends no budget.
pub(super) fn leave_ended(job: &Job<'_>, status: &TrainingJobStatus, seen: &mut Assessment<'_>) {
    let goes_on = |role: usize| {
        status
            .roles
            .get(role)
            .is_none_or(|role| !role.phase.is_terminal())
    };
    let awaited = |pod: &str| job.key(pod).is_none_or(|key| goes_on(key.role));
    seen.actions.retain(|action| match action {
        Action::CreatePod(key) | Action::LabelPod { key, .. } => goes_on(key.role),
        Action::DeletePod { name, .. } => awaited(name),
        _ => true,
    });
    seen.new_restarts.retain(|end| goes_on(end.ended.key.role));
    seen.replacing.retain(|entry| awaited(&entry.pod));
}

/// The end that came first; of several in one second the one that was told first, and where nothing is known the one of
/// the first pod.
pub(super) fn first<'a>(ends: &[Ended<'a>]) -> Option<Ended<'a>> {
    let time = |ended: &&Ended<'_>| {
        let end = ended.row.and_then(|row| row.end.as_ref());
        let at = ended.time();
        (at.is_none(), at, end.map_or(0, |end| end.seen_version))
    };
    ends.iter().min_by_key(time).copied()
}
