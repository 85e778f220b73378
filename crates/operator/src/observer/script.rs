//! Tells launchers which script to run, and takes how it ended.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use trainyard_contract::script::ScriptReport;

use super::caller::Caller;
use super::channel::Channel;
use super::progress::receive;
use super::{ErrorResponse, JobPath, Observer, follow};
use crate::index::JobKey;

/// Only the leader knows what is to be run: it is in the status of a request first.
pub(super) async fn get_script(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    channel: Channel,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.authorize(&caller, &key).await?;
    observer.wake()?;
    let feed = observer.feeds.follow(&key);
    let leader = observer.clone();
    let leads = move || leader.wake().is_ok();
    let lines = follow::script(feed, pod.uid, leads, observer.shutdown.clone());
    Ok(channel.send(lines))
}

pub(super) async fn put_script(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    body: Body,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.authorize(&caller, &key).await?;
    observer.wake()?;
    let report = ScriptReport::read(&receive(body).await?)
        .map_err(|problem| ErrorResponse(StatusCode::BAD_REQUEST, problem))?;
    observer.index.record_script(&key, &pod.uid, report);
    Ok("\n".into_response())
}
