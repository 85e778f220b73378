//! Children that the server does not take: told to the user, and tried again seldom.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::Reason;
use trainyard_core::model::JobEvent;
use trainyard_core::view::Refusal;

use super::Reconciler;
use super::fingerprint::{fingerprint, hash};
use super::pause::{LASTING, PASSING};
use crate::act::{Failure, Target};
use crate::index::{Hold, Memory};
use crate::queue::{Backoff, jitter};

/// The pause in creating children where some of a former job are still there.
const FORMER: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(10),
};
/// What may be over in a moment is told when it has happened so often in a row.
const WORTH_A_WORD: u32 = 4;
/// Servers keep events for an hour: what still holds is said again before it is forgotten.
const SAID_AGAIN: Duration = Duration::from_mins(30);

impl Reconciler {
    /// Notes that children could not be created, and tells the user unless that has been said lately. They are tried again
    /// after a pause; the failure comes back where it may be over in a moment, and the job is better looked at then.
    pub(super) fn hold(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        memory: Memory,
        failure: Failure,
        refusal: Option<Refusal>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        let failures = memory
            .hold
            .filter(|hold| hold.generation == job.generation)
            .map_or(1, |hold| hold.failures.saturating_add(1));
        let (backoff, asked) = match &failure {
            Failure::Refused(_) | Failure::NamespaceEnds => (LASTING, None),
            Failure::Former => (FORMER, None),
            Failure::Transient(_, asked) => (PASSING, *asked),
            _ => (PASSING, None),
        };
        let pause = backoff.pause(failures, jitter());
        let hold = Hold {
            until: now + pause.max(asked.unwrap_or_default()),
            failures,
            generation: job.generation,
            kind: refusal.as_ref().map(|refusal| refusal.kind),
        };
        self.index.remember(target.uid, |memory| memory.hold = Some(hold));
        let passing = !matches!(
            failure,
            Failure::Refused(_) | Failure::NamespaceEnds | Failure::Former
        );
        if passing && failures < WORTH_A_WORD {
            return Err(failure);
        }
        if let Some(refusal) = refusal.filter(|_| failure != Failure::NamespaceEnds) {
            self.say(target, job, memory, &failure, refusal);
        }
        Ok(())
    }

    fn say(&self, target: Target<'_>, job: &ObjectMeta, memory: Memory, failure: &Failure, refusal: Refusal) {
        let now = Instant::now();
        let message = refusal.to_string();
        let print = match failure {
            // Which of them it is makes a difference: they go one by one.
            Failure::Former => hash(&message),
            _ => fingerprint(&refusal.message),
        };
        let said = memory.told.filter(|(told, _)| *told == print);
        let lately = said.is_some_and(|(_, at)| now < at + SAID_AGAIN);
        if said.is_none() {
            // What says the same is not replaced, so that a status with it in it stays as it is.
            self.index.refuse(target.uid, Some(refusal));
        }
        if !lately {
            self.index
                .remember(target.uid, |memory| memory.told = Some((print, now)));
            tracing::warn!(job = %target.key, error = message, "children could not be created");
            let note = JobEvent {
                warning: true,
                reason: Reason::CreateFailed,
                message,
            };
            self.recorder.note(job, &note, self.clock.now());
        }
    }

    /// Notes that children of some kinds were taken.
    pub(super) fn taken(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        memory: Memory,
        kinds: &HashSet<&'static str>,
    ) {
        let holds = memory.hold.is_some() || memory.told.is_some();
        if holds && is_over(memory.hold, job.generation, kinds) {
            self.index
                .remember(target.uid, |memory| (memory.hold, memory.told) = (None, None));
            self.index.refuse(target.uid, None);
        }
    }
}

/// Whether a pause is over because children of some kinds were taken. A Secret is found before every try to create pods.
fn is_over(hold: Option<Hold>, generation: Option<i64>, kinds: &HashSet<&'static str>) -> bool {
    let says = |hold: Hold| hold.kind.is_none_or(|kind| kinds.contains(kind));
    !kinds.is_empty() && hold.is_none_or(|hold| says(hold) || hold.generation != generation)
}

/// Until when children are not to be created.
pub(super) fn held(hold: Option<Hold>, generation: Option<i64>, now: Instant) -> Option<Instant> {
    hold.filter(|hold| hold.until > now && hold.generation == generation)
        .map(|hold| hold.until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_spec_ends_the_pause() {
        let now = Instant::now();
        let hold = Hold {
            until: now + FORMER.base,
            failures: 1,
            generation: Some(1),
            kind: Some("Pod"),
        };
        assert_eq!(held(Some(hold), Some(1), now), Some(hold.until));
        assert_eq!(held(Some(hold), Some(2), now), None);
        assert_eq!(held(Some(hold), Some(1), hold.until), None);
        let over = |generation, kind| is_over(Some(hold), Some(generation), &HashSet::from_iter(kind));
        assert!(over(1, Some("Pod")) && !over(1, Some("Secret")) && !over(2, None));
        assert!(
            over(2, Some("Secret")),
            "of the kind that was not taken there may be none any more"
        );
    }
}
