//! Backoff for creating children that the server refuses, and the event that tells the user why.

use std::collections::HashSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use trainyard_api::Reason;
use trainyard_core::model::JobEvent;
use trainyard_core::view::Refusal;

use super::Reconciler;
use super::fingerprint::{fingerprint, hash};
use super::write_backoff::{LASTING, PASSING};
use crate::act::{Failure, Target};
use crate::index::{CreateBackoff, LocalState};
use crate::queue::{Backoff, jitter};

/// While children of a former job of the same name are still there.
const FORMER: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(10),
};
/// After so many failures in a row that may pass, the user is told.
const FAILURES_BEFORE_EVENT: u32 = 4;
/// Servers keep events for an hour: one that still holds is repeated before it is gone.
const EVENT_INTERVAL: Duration = Duration::from_mins(30);

impl Reconciler {
    /// Backs off from creating children, and tells the user unless that was said lately. Returns the
    /// failure if it may pass, so that the whole job is retried soon.
    pub(super) fn hold(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        local: LocalState,
        failure: Failure,
        refusal: Option<Refusal>,
    ) -> Result<(), Failure> {
        let now = Instant::now();
        let failures = local
            .create_backoff
            .filter(|hold| hold.generation == job.generation)
            .map_or(1, |hold| hold.failures.saturating_add(1));
        let (backoff, asked) = match &failure {
            Failure::Refused(_) | Failure::NamespaceEnds => (LASTING, None),
            Failure::Former => (FORMER, None),
            Failure::Transient(_, asked) => (PASSING, *asked),
            _ => (PASSING, None),
        };
        let pause = backoff.pause(failures, jitter());
        let hold = CreateBackoff {
            until: now + pause.max(asked.unwrap_or_default()),
            failures,
            generation: job.generation,
            kind: refusal.as_ref().map(|refusal| refusal.kind),
        };
        self.index
            .remember(target.uid, |local| local.create_backoff = Some(hold));
        let passing = !matches!(
            failure,
            Failure::Refused(_) | Failure::NamespaceEnds | Failure::Former
        );
        if passing && failures < FAILURES_BEFORE_EVENT {
            return Err(failure);
        }
        if let Some(refusal) = refusal.filter(|_| failure != Failure::NamespaceEnds) {
            self.record_refusal(target, job, local, &failure, refusal);
        }
        Ok(())
    }

    fn record_refusal(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        local: LocalState,
        failure: &Failure,
        refusal: Refusal,
    ) {
        let now = Instant::now();
        let message = refusal.to_string();
        let print = match failure {
            // Which of them it is makes a difference: they go one by one.
            Failure::Former => hash(&message),
            _ => fingerprint(&refusal.message),
        };
        let said = local.last_event.filter(|(told, _)| *told == print);
        let lately = said.is_some_and(|(_, at)| now < at + EVENT_INTERVAL);
        if said.is_none() {
            // What says the same is not replaced, so that a status with it in it stays as it is.
            self.index.refuse(target.uid, Some(refusal));
        }
        if !lately {
            self.index
                .remember(target.uid, |local| local.last_event = Some((print, now)));
            tracing::warn!(job = %target.key, error = message, "children could not be created");
            let note = JobEvent {
                warning: true,
                reason: Reason::CreateFailed,
                message,
            };
            self.recorder.note(job, &note, self.clock.now());
        }
    }

    /// Ends the backoff once children of these kinds were created.
    pub(super) fn taken(
        &self,
        target: Target<'_>,
        job: &ObjectMeta,
        local: LocalState,
        kinds: &HashSet<&'static str>,
    ) {
        let holds = local.create_backoff.is_some() || local.last_event.is_some();
        if holds && is_over(local.create_backoff, job.generation, kinds) {
            self.index.remember(target.uid, |local| {
                (local.create_backoff, local.last_event) = (None, None);
            });
            self.index.refuse(target.uid, None);
        }
    }
}

/// Whether the backoff is over because children of these kinds were created. A Secret alone does
/// not end it, because it is found before every attempt to create pods.
fn is_over(hold: Option<CreateBackoff>, generation: Option<i64>, kinds: &HashSet<&'static str>) -> bool {
    let says = |hold: CreateBackoff| hold.kind.is_none_or(|kind| kinds.contains(kind));
    !kinds.is_empty() && hold.is_none_or(|hold| says(hold) || hold.generation != generation)
}

/// Until when no children are created.
pub(super) fn held(hold: Option<CreateBackoff>, generation: Option<i64>, now: Instant) -> Option<Instant> {
    hold.filter(|hold| hold.until > now && hold.generation == generation)
        .map(|hold| hold.until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_spec_ends_the_pause() {
        let now = Instant::now();
        let hold = CreateBackoff {
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
