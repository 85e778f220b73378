//! Takes what pods that were told to leave report.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use trainyard_contract::drain::DrainReport;

use super::caller::Caller;
use super::progress::receive;
use super::{ErrorResponse, JobPath, Observer};
use crate::index::JobKey;

pub(super) async fn put_drain(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    body: Body,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.authorize(&caller, &key).await?;
    let wake = observer.wake()?;
    let report = DrainReport::read(&receive(body).await?)
        .map_err(|problem| ErrorResponse(StatusCode::BAD_REQUEST, problem))?;
    if observer.index.record_drain(&key, &pod.uid, report) {
        wake(key);
    }
    Ok("\n".into_response())
}
