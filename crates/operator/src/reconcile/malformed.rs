//! Objects that the server keeps as jobs and that are none.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use trainyard_api::{ConditionType, JobPhase, Reason};
use trainyard_core::local_state::LocalState;
use trainyard_core::model::JobEvent;

use super::{ReconcileResult, Reconciler, Requeue};
use crate::act::Failure;
use crate::metrics::Outcome;
use crate::slim::Malformed;

impl Reconciler {
    /// Reports on itself an object that is no job.
    pub(super) async fn malformed(
        &self,
        malformed: &Malformed,
        local: LocalState,
        term: &CancellationToken,
    ) -> Result<ReconcileResult, Failure> {
        let generation = malformed.metadata.generation.unwrap_or_default();
        let uid = malformed.metadata.uid.as_deref().unwrap_or_default();
        let going = malformed.metadata.deletion_timestamp.is_some();
        if going || local.reported_generation == Some(generation) || says_so(malformed, generation) {
            return Ok(ReconcileResult::REST);
        }
        let now = self.clock.now();
        match self
            .writer
            .write_malformed(term, malformed, &report(malformed, generation, now))
            .await
        {
            Ok(()) => {}
            // The server may refuse any change of an object that breaks its rules; then the event must do.
            Err(Failure::Refused(error)) => tracing::warn!(error, "a malformed job can't be marked as such"),
            Err(failure) => return Err(failure),
        }
        self.index
            .remember(uid, |local| local.reported_generation = Some(generation));
        let note = JobEvent {
            warning: true,
            reason: Reason::Invalid,
            message: malformed.error.clone(),
        };
        self.recorder.note(&malformed.metadata, &note, now);
        Ok(ReconcileResult::new(Outcome::Acted, Requeue::Rest))
    }
}

fn says_so(malformed: &Malformed, generation: i64) -> bool {
    malformed.conditions.iter().any(|condition| {
        condition.type_ == ConditionType::Accepted.as_str()
            && condition.status == "False"
            && condition.reason == Reason::Invalid.as_str()
            && condition.observed_generation == Some(generation)
            && condition.message == malformed.error
    })
}

fn report(malformed: &Malformed, generation: i64, now: Timestamp) -> serde_json::Value {
    let accepted = ConditionType::Accepted.as_str();
    let mut conditions: Vec<&Condition> = malformed
        .conditions
        .iter()
        .filter(|old| old.type_ != accepted)
        .collect();
    let condition = Condition {
        type_: accepted.to_owned(),
        status: "False".to_owned(),
        reason: Reason::Invalid.as_str().to_owned(),
        message: malformed.error.clone(),
        observed_generation: Some(generation),
        last_transition_time: Time(now),
    };
    conditions.push(&condition);
    // What has ended has ended: else it would run again once it can be read.
    let phase = malformed.phase.unwrap_or(JobPhase::Pending);
    json!({
        "metadata": {
            "uid": malformed.metadata.uid,
            "resourceVersion": malformed.metadata.resource_version,
        },
        "status": {"observedGeneration": generation, "phase": phase.as_str(), "conditions": conditions},
    })
}
