//! The writes. The leadership is checked right before each. Each names the version it was decided
//! on.

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trainyard_api::names::ANNOTATION_SCALE_REQUEST;
use trainyard_api::{GROUP, ScaleKind, ScaleReason, ScaleRequestStatus, TrainingJob, VERSION};
use trainyard_core::scale_request::{JobResize, RequestStep, ScaleRequest};

use super::ScaleRequests;
use super::store::Entry;
use crate::act::request::{Answer, DeleteOptions, Path, request};
use crate::act::{Class, RequestError, Result};
use crate::index::{JobKey, Source};
use crate::slim::JobObject;

fn group() -> String {
    format!("/apis/{GROUP}/{VERSION}")
}

/// Returns the path of all requests of a kind, in one namespace or in all.
pub(super) fn collection(kind: ScaleKind, namespace: Option<&str>) -> String {
    let plural = kind.plural();
    match namespace {
        Some(namespace) => format!("{}/namespaces/{namespace}/{plural}", group()),
        None => format!("{}/{plural}", group()),
    }
}

fn path(request: &ScaleRequest) -> Path {
    let ObjectMeta { name, namespace, .. } = &request.metadata;
    Path::of(
        &group(),
        namespace.as_deref().unwrap_or_default(),
        request.kind.plural(),
        name.as_deref().unwrap_or_default(),
    )
}

/// The part of a patch that makes the server refuse it if the object has changed.
fn precondition(metadata: &ObjectMeta) -> Value {
    json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version})
}

impl ScaleRequests {
    /// Carries out a step that was planned for a job.
    pub(super) async fn carry_out(
        &self,
        job: Option<&TrainingJob>,
        entry: &Entry,
        step: RequestStep,
        term: &CancellationToken,
    ) -> Result<()> {
        let metadata = &entry.request.metadata;
        match step {
            RequestStep::SetOwners(owners) => {
                let mut change = json!({"metadata": precondition(metadata)});
                change["metadata"]["ownerReferences"] = json!(owners);
                let path = path(&entry.request).by_us();
                self.patch(entry, &path, &change, term).await
            }
            RequestStep::WriteStatus(status) => {
                let change = json!({"metadata": precondition(metadata), "status": status});
                let path = path(&entry.request).status().by_us();
                self.patch(entry, &path, &change, term).await?;
                self.report(&entry.request, &status);
                Ok(())
            }
            RequestStep::Resize(resize) => self.resize(job, &resize, term).await,
            RequestStep::Delete => self.delete(entry, term).await,
        }
    }

    async fn patch(
        &self,
        entry: &Entry,
        path: &Path,
        change: &Value,
        term: &CancellationToken,
    ) -> Result<()> {
        let request = request(Method::PATCH, path, Answer::Whole, Some(change))?;
        let answer: Box<RawValue> = self.context.send(Class::Status, request, term).await?;
        let known = self.store.answered(entry.request.kind, entry, answer.get());
        known.map_err(|error| RequestError::Transient(error.to_string(), None))
    }

    /// Gives the job its new target, if it is as it was seen.
    async fn resize(
        &self,
        job: Option<&TrainingJob>,
        resize: &JobResize,
        term: &CancellationToken,
    ) -> Result<()> {
        let Some(job) = job else {
            return Err(RequestError::Outdated);
        };
        let ObjectMeta { name, namespace, .. } = &job.metadata;
        let key = JobKey::new(
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        );
        let mut metadata = precondition(&job.metadata);
        metadata["annotations"] = json!({ANNOTATION_SCALE_REQUEST: resize.annotation});
        let change = json!({"metadata": metadata, "spec": {"elastic": {"replicas": resize.replicas}}});
        let path = Path::job(&key.namespace, &key.name).by_us();
        let request = request(Method::PATCH, &path, Answer::Whole, Some(&change))?;
        let answer: Box<RawValue> = self.context.send(Class::Urgent, request, term).await?;
        // The next decision sees the write, also if the watch is late.
        if let Ok(job) = JobObject::decode(answer.get()) {
            self.context.index.apply_job(job, Source::Answer);
            (self.wake)(key);
        }
        Ok(())
    }

    /// Deletes a request, if it still has the version that was seen.
    async fn delete(&self, entry: &Entry, term: &CancellationToken) -> Result<()> {
        let metadata = &entry.request.metadata;
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let version = metadata.resource_version.as_deref().unwrap_or_default();
        let options = DeleteOptions::new(uid, None).of_version(version);
        let request = request(
            Method::DELETE,
            &path(&entry.request),
            Answer::Whole,
            Some(&options),
        )?;
        let sent = self
            .context
            .send::<IgnoredAny>(Class::Status, request, term)
            .await;
        match sent {
            Ok(_) | Err(RequestError::Gone | RequestError::Replaced) => {
                self.store.deleted(entry);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Records an event if the request has come to another phase, and counts its end.
    fn report(&self, request: &ScaleRequest, status: &ScaleRequestStatus) {
        let Some(phase) = status.phase else { return };
        let is_news = request.status.phase != Some(phase) || request.status.rollback != status.rollback;
        let mut conditions = status.conditions.iter();
        let Some(condition) = conditions
            .find(|known| known.type_ == phase.as_str())
            .filter(|_| is_news)
        else {
            return;
        };
        let now = self.context.clock.now();
        self.context
            .recorder
            .record_scale_request(request.kind, &request.metadata, condition, now);
        if let Some(reason) = ScaleReason::parse(&condition.reason).filter(|_| phase.is_terminal()) {
            self.context.metrics.scale_request_ended(request.kind, reason);
        }
    }
}
