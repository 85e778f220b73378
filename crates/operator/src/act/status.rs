//! Writes of a job's status.

use std::sync::Arc;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio_util::sync::CancellationToken;
use trainyard_api::{TrainingJob, TrainingJobSpec, TrainingJobStatus};

use super::request::{Answer, Path, request};
use super::{Class, RequestError, Result, Target, Writer};
use crate::slim::{Malformed, MetadataAnswer};

impl Writer {
    /// Writes a job's status, if the job is unchanged since the status was computed.
    ///
    /// The caller must have a [`Permit`](super::Permit), and must have computed the status after it
    /// got it.
    pub async fn write_status(
        &self,
        target: Target<'_>,
        job: Arc<TrainingJob>,
        status: &TrainingJobStatus,
    ) -> Result<()> {
        let body = StatusBody {
            api_version: API_VERSION,
            kind: KIND,
            metadata: &job.metadata,
            spec: &job.spec,
            status,
        };
        let path = Path::job(&target.key.namespace, &target.key.name).status();
        let request = request(Method::PUT, &path.by_us(), Answer::Metadata, Some(&body))?;
        // Without this reference the index can change its copy in place.
        drop(job);
        let answer = self.send::<MetadataAnswer>(target.term, request).await?;
        // The server keeps times in whole seconds. Our copy must be the same as the server's.
        let stored = serde_json::to_vec(status).and_then(|json| serde_json::from_slice(&json));
        let stored = stored.map_err(|error| RequestError::Transient(error.to_string(), None))?;
        self.index
            .apply_status(target.uid, answer.into_metadata(), Some(stored));
        Ok(())
    }

    /// Writes into the status of a malformed job that it is malformed.
    pub async fn write_malformed(
        &self,
        term: &CancellationToken,
        malformed: &Malformed,
        report: &serde_json::Value,
    ) -> Result<()> {
        let _permit = self.limiter.enter(Class::Status).await;
        let ObjectMeta { name, namespace, .. } = &malformed.metadata;
        let path = Path::job(
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        )
        .status();
        let request = request(Method::PATCH, &path, Answer::Metadata, Some(report))?;
        self.send::<IgnoredAny>(term, request).await.map(|_| ())
    }
}

const API_VERSION: &str = "trainyard.dev/v1alpha1";
const KIND: &str = "TrainingJob";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: &'a ObjectMeta,
    spec: &'a TrainingJobSpec,
    status: &'a TrainingJobStatus,
}
