//! What a pod sends to the replica that leads.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use trainyard_contract::observer::MAX_BODY;

use super::caller::Caller;
use super::token::PodIdentity;
use super::{ErrorResponse, JobPath, Observer, Wake};
use crate::index::{Index, JobKey};

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A report of a pod of a job. Only who leads takes one.
pub(super) struct Report {
    pub index: Arc<Index>,
    pub wake: Wake,
    /// The job.
    pub key: JobKey,
    /// Who reports.
    pub pod: PodIdentity,
    body: Bytes,
}

impl FromRequest<Arc<Observer>> for Report {
    type Rejection = Response;

    async fn from_request(request: Request, observer: &Arc<Observer>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let path = Path::<JobPath>::from_request_parts(&mut parts, observer).await;
        let Path(JobPath { namespace, name }) = path.map_err(IntoResponse::into_response)?;
        let Ok(caller) = Caller::from_request_parts(&mut parts, observer).await;
        let key = JobKey::new(&namespace, &name);
        receive(observer, key, &caller, body)
            .await
            .map_err(IntoResponse::into_response)
    }
}

impl Report {
    /// Reads the body, or says what is wrong with it.
    pub(super) fn read<T>(&self, read: fn(&[u8]) -> Result<T, String>) -> Result<T, ErrorResponse> {
        read(&self.body).map_err(|problem| ErrorResponse(StatusCode::BAD_REQUEST, problem))
    }
}

/// Receives a report. Only a pod of the job is waited for: others could take long on purpose.
async fn receive(
    observer: &Observer,
    key: JobKey,
    caller: &Caller,
    body: Body,
) -> Result<Report, ErrorResponse> {
    let pod = observer.authorize(caller, &key).await?;
    let wake = observer.wake()?.clone();
    let body = match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let problem = format!("the body can't be read: {error}; it may have {MAX_BODY} bytes");
            return Err(ErrorResponse(StatusCode::PAYLOAD_TOO_LARGE, problem));
        }
        Err(_) => {
            let problem = "the body did not come in time".to_owned();
            return Err(ErrorResponse(StatusCode::REQUEST_TIMEOUT, problem));
        }
    };
    Ok(Report {
        index: observer.index.clone(),
        wake,
        key,
        pod,
        body,
    })
}
