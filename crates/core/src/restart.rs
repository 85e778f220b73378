//! Which ends are retried: the restart policies as a table, and how long a replacement waits.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{NodeDownPolicy, RestartCause, RestartPolicy, RestartRecord};

use crate::view::{NodeState, PodPhase, PodRow};

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program succeeded.
    Success,
    /// The program failed with this exit code; `None` if the pod's own deadline ended it.
    Failure(Option<i32>),
    /// The system or a person deleted or evicted the pod.
    Disruption,
    /// Its node is down, and the role's policy counts the pod as lost.
    NodeDown,
    /// The pod can't start: it waits for the role at this position, which can't reach the awaited
    /// state any more.
    DependencyFailed(usize),
    /// It was created from another template than its role has now.
    TemplateChanged,
    /// The Secret that identifies it to the other pods is deleted, and new pods have another one.
    SecretMissing,
}

/// The exit codes with which containers end when Kubernetes deletes a pod: 128 + SIGKILL and 128 +
/// SIGTERM.
const REMOVAL_CODES: [i32; 2] = [137, 143];

/// What runtimes and kubelets report for a container that ran before its machine was restarted, and
/// of which they know nothing.
const LOST_CONTAINERS: [(i32, &str); 2] = [(255, "Unknown"), (137, "ContainerStatusUnknown")];

/// Exit codes from here on mean a signal, which the system sent rather than the program.
const FIRST_RETRYABLE_CODE: i32 = 128;

/// How a pod ended. `None` if it has not.
pub fn end(row: &PodRow, node: NodeState, policy: NodeDownPolicy) -> Option<End> {
    match row.phase {
        PodPhase::Succeeded | PodPhase::Failed if was_disrupted(row) => Some(End::Disruption),
        PodPhase::Succeeded => Some(End::Success),
        PodPhase::Failed => Some(End::Failure(row.end.as_deref().and_then(|end| end.exit_code))),
        _ if node != NodeState::Up && policy == NodeDownPolicy::Fail => Some(End::NodeDown),
        _ => None,
    }
}

/// Returns true if a pod ended because it was asked to terminate or was evicted. The exit code of
/// such a program says nothing about its work: many write a checkpoint and exit with 0.
fn was_disrupted(row: &PodRow) -> bool {
    let Some(end) = row.end.as_deref() else {
        // Nobody asked a pod that succeeded. Nothing else is known about one that failed, so it was
        // taken away.
        return row.phase == PodPhase::Failed;
    };
    let is_lost = |(code, reason)| end.exit_code == Some(code) && end.reason.as_deref() == Some(reason);
    if LOST_CONTAINERS.into_iter().any(is_lost) {
        return true;
    }
    match (end.finished_at, end.asked_at) {
        // Times are in whole seconds. Within the same second, the request came first.
        (Some(finished), Some(asked)) => asked <= finished,
        _ if row.phase == PodPhase::Succeeded => true,
        _ => {
            let by_signal = end.exit_code.is_some_and(|code| REMOVAL_CODES.contains(&code));
            end.disrupted || row.terminating && by_signal
        }
    }
}

/// What a restart policy makes of an end: the cause under which a replacement is counted, or `None`
/// if the end is final.
pub fn replacement(policy: RestartPolicy, end: End) -> Option<RestartCause> {
    use RestartCause::{Completion, Disruption, Failure, Update};
    match (policy, end) {
        (_, End::TemplateChanged) => Some(Update),
        (RestartPolicy::Never, _) | (_, End::DependencyFailed(_)) => None,
        (RestartPolicy::Always, End::Success) => Some(Completion),
        (_, End::Success) => None,
        (_, End::Disruption | End::NodeDown | End::SecretMissing) => Some(Disruption),
        (RestartPolicy::ExitCode, End::Failure(code))
            if code.is_none_or(|code| code < FIRST_RETRYABLE_CODE) =>
        {
            None
        }
        (_, End::Failure(_)) => Some(Failure),
    }
}

/// Returns true if replacements for this cause are normal and not a sign of trouble.
pub(crate) fn is_expected(cause: RestartCause) -> bool {
    matches!(cause, RestartCause::Completion | RestartCause::Update)
}

/// The pause before the second replacement of a pod, in seconds.
const FIRST_PAUSE: i64 = 10;
/// The longest pause before a replacement, in seconds.
const MAX_PAUSE: i64 = 300;
/// A job in which nothing was replaced for so long is calm, and earlier replacements are forgotten.
/// It is longer than any pause, so a pod that fails after every replacement does not become calm by
/// waiting.
const CALM: SignedDuration = SignedDuration::from_secs(2 * MAX_PAUSE);

/// When a pod is replaced. `None`: at once, the first time. Later replacements wait, each twice as
/// long as the one before, up to five minutes.
pub fn not_before(earlier: u32, now: Timestamp) -> Option<Timestamp> {
    let doublings = earlier.checked_sub(1)?;
    let seconds = FIRST_PAUSE
        .saturating_mul(2_i64.saturating_pow(doublings))
        .min(MAX_PAUSE);
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Returns true if a replacement that waits until a moment need not wait any more: it has come, or
/// is farther away than any pause, because the clock went back since.
pub(crate) fn is_due(not_before: Timestamp, now: Timestamp) -> bool {
    let left = not_before.duration_since(now);
    left <= SignedDuration::ZERO || left > SignedDuration::from_secs(MAX_PAUSE)
}

/// The records since the job started or was last calm. Empty if it is calm now.
pub fn recent(history: &[RestartRecord], start: Option<Timestamp>, now: Timestamp) -> &[RestartRecord] {
    let mut next = now;
    let counts = |record: &&RestartRecord| {
        let at = record.time.0;
        let near = next.duration_since(at) <= CALM && start.is_none_or(|start| start <= at);
        next = at;
        near
    };
    let count = history.iter().rev().take_while(counts).count();
    history.split_at(history.len().saturating_sub(count)).1
}
