//! The end of a job: how it is known, and how it is removed.

use std::time::Duration;

use kube::api::DeleteParams;
use kube::runtime::wait::{self, delete::delete_and_finalize};
use kube::{Api, Client};
use tokio::time::timeout;
use trainyard_api::{ConditionType, JobPhase, TrainingJob};

use super::Error;
use crate::run::outcome::Outcome;
use crate::run::view::{Summary, View};

/// How long what a job owns may take to go away after its end.
const REMOVAL: Duration = Duration::from_mins(1);

/// Whether the job has come to its end, and to which.
pub(super) fn verdict(view: &View) -> Option<(Outcome, Option<String>)> {
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

/// Deletes a job that has ended and waits until all it owned is gone, so that the next may have its name.
pub async fn delete(client: &Client, summary: &Summary) -> Result<(), Error> {
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), &summary.namespace);
    let params = DeleteParams::foreground();
    let deletion = delete_and_finalize(jobs, &summary.job, &params);
    let problem = match timeout(REMOVAL, deletion).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(wait::delete::Error::Delete(kube::Error::Api(status)))) if status.code == 404 => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it is still there after {} s", REMOVAL.as_secs()),
    };
    Err(Error::Broken(format!(
        "the job {} could not be deleted: {problem}",
        summary.job
    )))
}
