//! Takes what pods that were told to leave report.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use trainyard_contract::drain::DrainReport;

use super::caller::Caller;
use super::progress::receive;
use super::{ErrorResponse, JobPath, Observer, Wake};
use crate::index::{Index, JobKey};

pub(super) async fn put_drain(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    body: Body,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.authorize(&caller, &key).await?;
    let wake = observer.wake()?.clone();
    let report = DrainReport::read(&receive(body).await?)
        .map_err(|problem| ErrorResponse(StatusCode::BAD_REQUEST, problem))?;
    let index = observer.index.clone();
    DrainReports::new(index, wake).record(&key, &pod.uid, report);
    Ok("\n".into_response())
}

/// Takes reports of pods that were told to leave.
#[derive(Clone)]
pub struct DrainReports {
    index: Arc<Index>,
    wake: Wake,
}

impl DrainReports {
    pub(crate) fn new(index: Arc<Index>, wake: Wake) -> Self {
        Self { index, wake }
    }

    /// Takes the report of a pod of a job, as if its agent had sent it to the observer.
    pub fn take(&self, namespace: &str, job: &str, uid: &str, report: DrainReport) {
        self.record(&JobKey::new(namespace, job), uid, report);
    }

    fn record(&self, key: &JobKey, uid: &str, report: DrainReport) {
        if self.index.record_drain(key, uid, report) {
            (self.wake)(key.clone());
        }
    }
}
