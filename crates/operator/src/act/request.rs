//! Requests to the API server, as small as possible.

use http::{Method, Request, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{RequestError, Result};
use crate::leader::Leadership;

/// The name under which the server records the fields that we write.
const FIELD_MANAGER: &str = "fieldManager=trainyard";

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The path of an object or a collection.
#[derive(Clone, Debug)]
pub(crate) struct Path(String);

impl Path {
    pub(crate) fn pod(namespace: &str, name: &str) -> Self {
        Self::of("/api/v1", namespace, "pods", name)
    }

    pub(crate) fn service(namespace: &str, name: &str) -> Self {
        Self::of("/api/v1", namespace, "services", name)
    }

    pub(crate) fn secret(namespace: &str, name: &str) -> Self {
        Self::of("/api/v1", namespace, "secrets", name)
    }

    pub(super) fn service_account(namespace: &str, name: &str) -> Self {
        Self::of("/api/v1", namespace, "serviceaccounts", name)
    }

    pub(super) fn role(namespace: &str, name: &str) -> Self {
        Self::of(RBAC, namespace, "roles", name)
    }

    pub(super) fn role_binding(namespace: &str, name: &str) -> Self {
        Self::of(RBAC, namespace, "rolebindings", name)
    }

    pub(super) fn budget(namespace: &str, name: &str) -> Self {
        Self::of("/apis/policy/v1", namespace, "poddisruptionbudgets", name)
    }

    pub(crate) fn job(namespace: &str, name: &str) -> Self {
        Self::of("/apis/trainyard.dev/v1alpha1", namespace, "trainingjobs", name)
    }

    pub(crate) fn framework(name: &str) -> Self {
        Self(format!("/apis/trainyard.dev/v1alpha1/frameworks/{name}"))
    }

    pub(crate) fn of(group: &str, namespace: &str, plural: &str, name: &str) -> Self {
        let mut path = format!("{group}/namespaces/{namespace}/{plural}");
        if !name.is_empty() {
            path.push('/');
            path.push_str(name);
        }
        Self(path)
    }

    pub(crate) fn status(mut self) -> Self {
        self.0.push_str("/status");
        self
    }

    pub(crate) fn by_us(mut self) -> Self {
        self.0.push('?');
        self.0.push_str(FIELD_MANAGER);
        self
    }
}

/// How much of the object the answer should contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Whole,
    /// Only the metadata: less for the server to write and for us to read.
    Metadata,
}

impl Answer {
    const fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        }
    }
}

pub(crate) fn request(
    method: Method,
    path: &Path,
    answer: Answer,
    body: Option<&impl Serialize>,
) -> Result<Request<Vec<u8>>> {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = body.map(serde_json::to_vec).transpose();
    let body =
        body.map_err(|error| RequestError::Refused(format!("it can't be written as JSON: {error}")))?;
    Request::builder()
        .method(method)
        .uri(&path.0)
        .header(header::ACCEPT, answer.accept())
        .header(header::CONTENT_TYPE, kind)
        .body(body.unwrap_or_default())
        .map_err(|error| RequestError::Refused(format!("no request can be made of it: {error}")))
}

/// Sends a request, unless this replica does not lead any more. If the term ends before the answer
/// comes, nobody knows whether the server has done what was asked.
pub(crate) async fn send_while_leading<T: DeserializeOwned>(
    client: &kube::Client,
    leadership: &Leadership,
    term: &CancellationToken,
    request: Request<Vec<u8>>,
) -> Result<T> {
    if term.is_cancelled() || !leadership.may_write() {
        return Err(RequestError::NotLeader);
    }
    tokio::select! {
        biased;
        () = term.cancelled() => Err(RequestError::NotLeader),
        answer = client.request(request) => answer.map_err(RequestError::from),
    }
}

/// Which object is deleted, and how.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteOptions<'a> {
    api_version: &'static str,
    kind: &'static str,
    propagation_policy: &'static str,
    preconditions: Preconditions<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<u32>,
}

#[derive(Serialize)]
struct Preconditions<'a> {
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none", rename = "resourceVersion")]
    version: Option<&'a str>,
}

impl<'a> DeleteOptions<'a> {
    pub(crate) fn new(uid: &'a str, grace_period_seconds: Option<u32>) -> Self {
        Self {
            api_version: "v1",
            kind: "DeleteOptions",
            propagation_policy: "Background",
            preconditions: Preconditions { uid, version: None },
            grace_period_seconds,
        }
    }

    /// Deletes the object only if it still has this version.
    pub(crate) fn of_version(mut self, version: &'a str) -> Self {
        self.preconditions.version = Some(version);
        self
    }
}
