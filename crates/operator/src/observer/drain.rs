//! Takes what pods that were told to leave report.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use trainyard_contract::drain::DrainReport;

use super::report::Report;
use super::{ErrorResponse, Wake};
use crate::index::{Index, JobKey};

pub(super) async fn put_drain(report: Report) -> Result<Response, ErrorResponse> {
    let read = report.read(DrainReport::read)?;
    let Report {
        index,
        wake,
        key,
        pod,
        ..
    } = report;
    DrainReports::new(index, wake).record(&key, &pod.uid, read);
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
