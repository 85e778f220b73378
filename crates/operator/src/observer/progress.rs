//! Takes the progress that programs report.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use trainyard_api::Progress;
use trainyard_contract::observer::ProgressReport;

use super::ErrorResponse;
use super::report::Report;
use crate::index::TooOften;

pub(super) async fn put_progress(report: Report) -> Result<Response, ErrorResponse> {
    let ProgressReport {
        metrics,
        artifacts,
        step,
        total,
    } = report.read(ProgressReport::read)?;
    let progress = Progress {
        step,
        total,
        metrics,
        artifacts,
        time: None,
    };
    let recorded = report
        .index
        .record_progress(&report.key, (&report.pod.pod, &report.pod.uid), progress);
    let changed = recorded.map_err(|TooOften| {
        let problem = "this pod has spoken a moment ago: wait a second".to_owned();
        ErrorResponse(StatusCode::TOO_MANY_REQUESTS, problem)
    })?;
    if let Some(key) = changed {
        (report.wake)(key);
    }
    Ok("\n".into_response())
}
