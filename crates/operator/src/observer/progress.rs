//! Takes the progress that programs report.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use trainyard_api::Progress;
use trainyard_contract::observer::{MAX_BODY, ProgressReport};

use super::caller::Caller;
use super::{ErrorResponse, JobPath, Observer};
use crate::index::{JobKey, TooOften};

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn put_progress(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    body: Body,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.authorize(&caller, &key).await?;
    let wake = observer.wake()?;
    let progress = read(&receive(body).await?)?;
    let recorded = observer.index.record_progress(&key, &pod.pod, progress);
    let changed = recorded.map_err(|TooOften| {
        let problem = "this pod has spoken a moment ago: wait a second".to_owned();
        ErrorResponse(StatusCode::TOO_MANY_REQUESTS, problem)
    })?;
    if let Some(key) = changed {
        wake(key);
    }
    Ok("\n".into_response())
}

/// Receives a body. Only a pod of the job is waited for: others could take long on purpose.
pub(super) async fn receive(body: Body) -> Result<Bytes, ErrorResponse> {
    match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) => {
            let problem = format!("the body can't be read: {error}; it may have {MAX_BODY} bytes");
            Err(ErrorResponse(StatusCode::PAYLOAD_TOO_LARGE, problem))
        }
        Err(_) => {
            let problem = "the body did not come in time".to_owned();
            Err(ErrorResponse(StatusCode::REQUEST_TIMEOUT, problem))
        }
    }
}

fn read(body: &[u8]) -> Result<Progress, ErrorResponse> {
    let report =
        ProgressReport::read(body).map_err(|problem| ErrorResponse(StatusCode::BAD_REQUEST, problem))?;
    let ProgressReport {
        metrics,
        artifacts,
        step,
        total,
    } = report;
    Ok(Progress {
        step,
        total,
        metrics,
        artifacts,
        time: None,
    })
}
