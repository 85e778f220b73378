//! Which ends are forgiven: the restart policies as a table, and how long a replacement waits.

use jiff::{SignedDuration, Timestamp};
use trainyard_api::{NodeDownPolicy, RestartCause, RestartPolicy, RestartRecord};

use crate::view::{NodeState, PodPhase, PodRow};

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its program ended well.
    Success,
    /// Its program ended badly, with this exit code.
    Failure(i32),
    /// The system took it away, or somebody removed it.
    Disruption,
    /// Its node is down, and the role counts that as lost.
    NodeDown,
    /// It can't start: the role of this position, which it waits for, can't come to what it should any more.
    Unmet(usize),
}

/// The signals by which Kubernetes ends a pod that is being removed: 128 + SIGKILL and 128 + SIGTERM.
const REMOVAL_CODES: [i32; 2] = [137, 143];

/// Exit codes from here on mean a signal: the machine's doing rather than the program's.
const FIRST_RETRYABLE_CODE: i32 = 128;

/// How a pod ended, if it has.
pub fn end(row: &PodRow, node: NodeState, policy: NodeDownPolicy) -> Option<End> {
    match row.phase {
        PodPhase::Succeeded => Some(End::Success),
        PodPhase::Failed => Some(failure(row)),
        _ if node != NodeState::Up && policy == NodeDownPolicy::Fail => Some(End::NodeDown),
        _ => None,
    }
}

fn failure(row: &PodRow) -> End {
    let code = row.end.as_ref().and_then(|end| end.exit_code);
    let disrupted = row.end.as_ref().is_some_and(|end| end.disrupted);
    match code {
        Some(code) if row.terminating && REMOVAL_CODES.contains(&code) => End::Disruption,
        Some(code) if !disrupted => End::Failure(code),
        _ => End::Disruption,
    }
}

/// What a restart policy says of an end: the cause under which a replacement is counted, or `None` for an end that
/// stands.
pub fn replacement(policy: RestartPolicy, end: End) -> Option<RestartCause> {
    use RestartCause::{Completion, Disruption, Failure};
    match (policy, end) {
        (RestartPolicy::Never, _) | (_, End::Unmet(_)) => None,
        (RestartPolicy::Always, End::Success) => Some(Completion),
        (_, End::Success) => None,
        (_, End::Disruption | End::NodeDown) => Some(Disruption),
        (RestartPolicy::ExitCode, End::Failure(code)) if code < FIRST_RETRYABLE_CODE => None,
        (_, End::Failure(_)) => Some(Failure),
    }
}

/// The first replacement of a pod comes at once; from the second on it waits, doubling, up to five minutes.
pub fn not_before(history: &[RestartRecord], pod: &str, now: Timestamp) -> Option<Timestamp> {
    const FIRST: i64 = 10;
    const LONGEST: i64 = 300;
    let earlier = history.iter().filter(|record| record.pod == pod).count();
    let doublings = u32::try_from(earlier.checked_sub(1)?).unwrap_or(u32::MAX);
    let seconds = FIRST.saturating_mul(2_i64.saturating_pow(doublings)).min(LONGEST);
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}
