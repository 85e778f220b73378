//! Tells launchers which script to run, and takes how it ended.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use trainyard_contract::script::ScriptReport;
use trainyard_core::local_state::ScriptTask;

use super::caller::Caller;
use super::channel::Channel;
use super::report::Report;
use super::{ErrorResponse, JobPath, Observer, follow};
use crate::index::{Index, JobKey};

/// Only the leader knows what is to be run: it is in the status of a request first.
pub(super) async fn get_script(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    channel: Channel,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.admit(&caller, &key).await?;
    observer.wake()?;
    let feed = observer.feeds.follow(&key);
    let leader = observer.clone();
    let leads = move || leader.wake().is_ok();
    let lines = follow::script(feed, pod.uid, leads, observer.shutdown.clone());
    Ok(channel.send(lines))
}

pub(super) async fn put_script(report: Report) -> Result<Response, ErrorResponse> {
    let Report { index, key, pod, .. } = &report;
    index.record_script(key, &pod.uid, report.read(ScriptReport::read)?);
    Ok("\n".into_response())
}

/// Speaks for the agents of launchers, where no observer is served.
#[derive(Clone)]
pub struct Launchers(Arc<Index>);

impl Launchers {
    pub(crate) fn new(index: Arc<Index>) -> Self {
        Self(index)
    }

    /// The script that the launcher of a job is to run.
    pub fn offered(&self, namespace: &str, job: &str) -> Option<ScriptTask> {
        self.0.offered_script(&JobKey::new(namespace, job))
    }

    /// Takes the report of a pod of a job, as if its agent had sent it to the observer.
    pub fn take(&self, namespace: &str, job: &str, uid: &str, report: ScriptReport) {
        self.0.record_script(&JobKey::new(namespace, job), uid, report);
    }
}
