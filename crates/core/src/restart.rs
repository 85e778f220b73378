//! Which ends are retried: the restart policies as a table, and how long a replacement waits.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{NodeDownPolicy, RestartCause, RestartPolicy, RestartRecord};

use crate::view::{NodeState, PodPhase, PodRow};

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its program ended well.
    Success,
    /// Its program ended badly, with this exit code; `None` where it was ended by a deadline of its own.
    Failure(Option<i32>),
    /// The system took it away, or somebody removed it.
    Disruption,
    /// Its node is down, and the role counts that as lost.
    NodeDown,
    /// It can't start: the role of this position, which it waits for, can't come to what it should any more.
    DependencyFailed(usize),
    /// It was made from another template than its role has.
    TemplateChanged,
    /// The Secret by which it knows the others is gone, and pods that are made now have another.
    SecretMissing,
}

/// The signals by which Kubernetes ends a pod that is being removed: 128 + SIGKILL and 128 + SIGTERM.
const REMOVAL_CODES: [i32; 2] = [137, 143];

/// What runtimes and kubelets say of a container that was there before its machine was started again, and of which nothing is
/// known.
const LOST_CONTAINERS: [(i32, &str); 2] = [(255, "Unknown"), (137, "ContainerStatusUnknown")];

/// Exit codes from here on mean a signal: the machine's doing rather than the program's.
const FIRST_RETRYABLE_CODE: i32 = 128;

/// How a pod ended, if it has.
pub fn end(row: &PodRow, node: NodeState, policy: NodeDownPolicy) -> Option<End> {
    match row.phase {
        PodPhase::Succeeded | PodPhase::Failed if was_taken(row) => Some(End::Disruption),
        PodPhase::Succeeded => Some(End::Success),
        PodPhase::Failed => Some(End::Failure(row.end.as_deref().and_then(|end| end.exit_code))),
        _ if node != NodeState::Up && policy == NodeDownPolicy::Fail => Some(End::NodeDown),
        _ => None,
    }
}

/// Whether a pod that has ended did so because it was asked to go or taken away. How a program ends that was told to says nothing
/// of its work: many write a checkpoint and exit with 0.
fn was_taken(row: &PodRow) -> bool {
    let Some(end) = row.end.as_deref() else {
        // Nobody asked one that succeeded; of one that failed, nothing is known but that.
        return row.phase == PodPhase::Failed;
    };
    let is_lost = |(code, reason)| end.exit_code == Some(code) && end.reason.as_deref() == Some(reason);
    if LOST_CONTAINERS.into_iter().any(is_lost) {
        return true;
    }
    match (end.finished_at, end.asked_at) {
        // In whole seconds. Of what is in the same one, the request came first.
        (Some(finished), Some(asked)) => asked <= finished,
        _ if row.phase == PodPhase::Succeeded => true,
        _ => {
            let by_signal = end.exit_code.is_some_and(|code| REMOVAL_CODES.contains(&code));
            end.disrupted || row.terminating && by_signal
        }
    }
}

/// What a restart policy says of an end: the cause under which a replacement is counted, or `None` for an end that
/// stands.
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

/// Whether a pod is replaced because it should be, so that nothing is wrong.
pub(crate) fn is_expected(cause: RestartCause) -> bool {
    matches!(cause, RestartCause::Completion | RestartCause::Update)
}

/// The pause before the second replacement of a pod, in seconds.
const FIRST_PAUSE: i64 = 10;
/// The longest pause before a replacement, in seconds.
const LONGEST_PAUSE: i64 = 300;
/// A job in which nothing was replaced for so long is calm, and what was before is forgotten. Longer than any pause, so
/// that a pod which fails whenever it is replaced does not become calm by waiting.
const CALM: SignedDuration = SignedDuration::from_secs(2 * LONGEST_PAUSE);

/// The first replacement of a pod comes at once; from the second on it waits, doubling, up to five minutes.
pub fn not_before(earlier: u32, now: Timestamp) -> Option<Timestamp> {
    let doublings = earlier.checked_sub(1)?;
    let seconds = FIRST_PAUSE
        .saturating_mul(2_i64.saturating_pow(doublings))
        .min(LONGEST_PAUSE);
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// The records since the job was last calm, or started; none if it is calm now.
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
