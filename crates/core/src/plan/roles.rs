//! The state of every role, written down and explained.

use trainyard_api::{Reason, RolePhase, RoleStatus, TrainingJobStatus};

use crate::assess::{Assessment, Ended, RoleAssessment};
use crate::deduce::{self, RoleFacts, RoleWhy};
use crate::indices;
use crate::job::{Job, Role};
use crate::plan::Action;
use crate::restart::End;
use crate::status::{MAX_REASON, describe, truncate};

/// Writes the state of every role; returns the ends that made roles fail.
pub(super) fn deduce<'a>(
    job: &Job<'a>,
    seen: &Assessment<'a>,
    status: &mut TrainingJobStatus,
) -> Vec<Ended<'a>> {
    let mut roles = Vec::with_capacity(job.roles.len());
    let mut ends = Vec::new();
    for (role, this) in job.roles.iter().zip(&seen.roles) {
        let before = status.roles.iter().find(|r| r.name == role.name);
        let was = before.map(|r| r.phase).unwrap_or_default();
        let facts = RoleFacts {
            tally: this.tally,
            succeeded_when: role.succeeded_when,
            failed_when: role.failed_when,
            restart_policy: role.restart_policy,
            was,
        };
        let (phase, why) = deduce::role(&facts);
        if phase == RolePhase::Failed {
            ends.extend(this.final_ends.iter().copied());
        }
        let (reason, message) = match before.filter(|_| was.is_terminal()) {
            // Its pods may be gone by now, and with them the reason.
            Some(before) => (before.reason.clone(), before.message.clone()),
            None => explain(job, role, this, phase, why),
        };
        let tally = this.tally;
        // Nothing more comes to a role that has ended.
        let awaited = if phase.is_terminal() {
            0
        } else {
            tally.replacing + tally.missing
        };
        roles.push(RoleStatus {
            name: role.name.to_owned(),
            phase,
            reason,
            message,
            active: tally.active,
            ready: tally.ready,
            succeeded: tally.succeeded,
            failed: tally.failed,
            pending: tally.pending + awaited,
            terminating: tally.terminating,
            succeeded_indices: indices::format(&this.done),
        });
    }
    let ready: i32 = roles.iter().map(|role| role.ready).sum();
    status.ready = Some(format!("{ready}/{}", job.total()));
    status.roles = roles;
    ends
}

fn explain(
    job: &Job<'_>,
    role: &Role<'_>,
    this: &RoleAssessment<'_>,
    phase: RolePhase,
    why: RoleWhy,
) -> (Option<String>, Option<String>) {
    let said = |reason: &str, mut message: String| {
        let mut reason = reason.to_owned();
        truncate(&mut reason, MAX_REASON);
        truncate(&mut message, 2000);
        (Some(reason), Some(message))
    };
    let others = |pods: usize| {
        if pods > 1 {
            format!(" (and {} more pods)", pods - 1)
        } else {
            String::new()
        }
    };
    if why == RoleWhy::PodMissing {
        let missing = this.tally.missing;
        let which = indices::format(&this.lost).unwrap_or_default();
        return said(
            Reason::PodMissing.as_str(),
            format!(
                "{missing} of {} pods that had been running are gone: {which}",
                role.replicas
            ),
        );
    }
    if let (RolePhase::Failed, Some(first)) = (phase, first(&this.final_ends)) {
        let reason = match first.end {
            End::NodeDown => Reason::PossibleNodeDown,
            End::Disruption => Reason::PodDisrupted,
            _ => Reason::PodFailed,
        };
        return said(
            reason.as_str(),
            format!("{}{}", describe(job, &first), others(this.final_ends.len())),
        );
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
        Action::CreatePod(key) => goes_on(key.role),
        Action::DeletePod { name, .. } => awaited(name),
        _ => true,
    });
    seen.uncounted.retain(|(ended, _)| goes_on(ended.key.role));
    seen.replacing.retain(|entry| awaited(&entry.pod));
}

/// The end that came first; where times are not known, the one of the first pod.
pub(super) fn first<'a>(ends: &[Ended<'a>]) -> Option<Ended<'a>> {
    let time = |ended: &&Ended<'_>| {
        let at = ended
            .row
            .and_then(|row| row.end.as_ref())
            .and_then(|end| end.finished_at);
        (at.is_none(), at)
    };
    ends.iter().min_by_key(time).copied()
}
