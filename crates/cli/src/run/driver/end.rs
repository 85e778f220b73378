//! The end of a job, and its deletion.

use std::time::Duration;

use kube::api::DeleteParams;
use kube::runtime::wait::{self, delete::delete_and_finalize};
use kube::{Api, Client};
use tokio::time::timeout;
use trainyard_api::{ConditionType, JobPhase, TrainingJob};

use super::Error;
use crate::run::outcome::Outcome;
use crate::run::view::{Summary, View};

/// How long the deletion of a job with all it owns may take.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(1);

/// How the job has ended, with a message; None while it runs.
pub(super) fn outcome(view: &View) -> Option<(Outcome, Option<String>)> {
    match view.phase() {
        JobPhase::Succeeded => return Some((Outcome::Succeeded, None)),
        JobPhase::Failed => return Some((Outcome::Failed, None)),
        _ => {}
    }
    let accepted = ConditionType::Accepted.as_str();
    let mut conditions = view.status().conditions.iter();
    let refusal = conditions.find(|condition| condition.type_ == accepted && condition.status == "False")?;
    Some((
        Outcome::Refused,
        Some(format!("{}: {}", refusal.reason, refusal.message)),
    ))
}

/// Deletes a job and waits until all it owned is gone, so that its name is free again.
pub async fn delete(client: &Client, summary: &Summary) -> Result<(), Error> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), &summary.namespace);
    let params = DeleteParams::foreground();
    let deletion = delete_and_finalize(jobs, &summary.job, &params);
    let problem = match timeout(REMOVAL_TIMEOUT, deletion).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(wait::delete::Error::Delete(kube::Error::Api(status)))) if status.code == 404 => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it is still there after {} s", REMOVAL_TIMEOUT.as_secs()),
    };
    Err(Error::Broken(format!(
        "the job {} could not be deleted: {problem}",
        summary.job
    )))
}
