//! Objects that the server has stored as jobs and that can't be parsed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use trainyard_api::{ConditionType, JobPhase, Reason};
use trainyard_core::local_state::LocalState;
use trainyard_core::model::JobEvent;

use super::Reconciler;
use crate::act::{RequestError, Result};
use crate::controller::{ReconcileResult, Requeue};
use crate::metrics::Outcome;
use crate::slim::Malformed;

impl Reconciler {
    /// Reports in the status of a malformed object, and by an event, that it is malformed.
    pub(super) async fn report_malformed(
        &self,
        malformed: &Malformed,
        local: LocalState,
        term: &CancellationToken,
    ) -> Result<ReconcileResult> {
        let generation = malformed.metadata.generation.unwrap_or_default();
        let uid = malformed.metadata.uid.as_deref().unwrap_or_default();
        let is_terminating = malformed.metadata.deletion_timestamp.is_some();
        if is_terminating
            || local.malformed_generation == Some(generation)
            || is_reported(malformed, generation)
        {
            return Ok(ReconcileResult::REST);
        }
        let now = self.clock.now();
        match self
            .writer
            .write_malformed(term, malformed, &malformed_status(malformed, generation, now))
            .await
        {
            Ok(()) => {}
            // The server may refuse any change of an object that breaks its rules. Then the event
            // is all we can do.
            Err(RequestError::Refused(error)) => {
                tracing::warn!(error, "a malformed job can't be marked as such");
            }
            Err(error) => return Err(error),
        }
        self.index
            .update_local(uid, |local| local.record_malformed(generation));
        let event = JobEvent {
            warning: true,
            reason: Reason::Invalid,
            message: malformed.error.clone(),
        };
        self.recorder.record(&malformed.metadata, &event, now);
        Ok(ReconcileResult::new(Outcome::Acted, Requeue::Rest))
    }
}

fn is_reported(malformed: &Malformed, generation: i64) -> bool {
    malformed.conditions.iter().any(|condition| {
        condition.type_ == ConditionType::Accepted.as_str()
            && condition.status == "False"
            && condition.reason == Reason::Invalid.as_str()
            && condition.observed_generation == Some(generation)
            && condition.message == malformed.error
    })
}

fn malformed_status(malformed: &Malformed, generation: i64, now: Timestamp) -> serde_json::Value {
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
    // A job that has ended keeps its phase. Otherwise it would run again when it can be parsed.
    let phase = malformed.phase.unwrap_or(JobPhase::Pending);
    json!({
        "metadata": {
            "uid": malformed.metadata.uid,
            "resourceVersion": malformed.metadata.resource_version,
        },
        "status": {"observedGeneration": generation, "phase": phase.as_str(), "conditions": conditions},
    })
}
