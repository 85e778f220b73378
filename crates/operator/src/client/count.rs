//! Counts requests by verb, kind and answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};

use crate::metrics::{Foreign, Kind, Metrics, Subject, Verb};

/// Counts every request.
#[derive(Clone, Debug)]
pub(super) struct CountLayer {
    metrics: Arc<Metrics>,
}

impl CountLayer {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count {
            inner,
            metrics: self.metrics.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Count<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, A, B> Service<Request<A>> for Count<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (verb, kind) = classify(request.method(), request.uri(), self.metrics.foreign());
        let counted = Counted {
            metrics: self.metrics.clone(),
            verb,
            kind,
            code: None,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut counted = counted;
            let answer = answer.await;
            counted.code = answer.as_ref().ok().map(|response| response.status().as_u16());
            answer
        })
    }
}

/// Counts when dropped, so that a request is counted too whose caller has stopped waiting.
struct Counted {
    metrics: Arc<Metrics>,
    verb: Verb,
    kind: Subject,
    code: Option<u16>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics.requested(self.verb, self.kind, self.code);
    }
}

/// Returns the verb and the kind of a request, by its method and path. `foreign` are the kinds of
/// other operators that are known.
pub(super) fn classify(method: &Method, uri: &Uri, foreign: &[Foreign]) -> (Verb, Subject) {
    let Some(target) = Target::parse(uri.path()) else {
        return (
            if method == Method::GET {
                Verb::Get
            } else {
                Verb::Other
            },
            Kind::Other.into(),
        );
    };
    let watching = || {
        let mut pairs = uri.query().unwrap_or_default().split('&');
        pairs.any(|pair| matches!(pair, "watch=true" | "watch=1"))
    };
    let verb = match *method {
        // A single object is watched by watching its kind with a field selector, also where the
        // path names it.
        Method::GET if watching() => Verb::Watch,
        Method::GET if target.named => Verb::Get,
        Method::GET => Verb::List,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if target.named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => Verb::Other,
    };
    (verb, target.subject(foreign))
}

/// The parts of an API path that tell what it is about.
struct Target<'a> {
    group: &'a str,
    resource: &'a str,
    named: bool,
    subresource: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Parses `/api/v1/...` or `/apis/<group>/<version>/...`, followed by
    /// `[namespaces/<ns>/]<resource>[/<name>[/<subresource>]]`.
    fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        parts.next()?;
        let mut resource = parts.next()?;
        let mut name = parts.next();
        // `namespaces/<ns>` is a namespace itself, unless a resource follows that is no
        // subresource.
        if resource == "namespaces"
            && parts
                .peek()
                .is_some_and(|next| !matches!(*next, "status" | "finalize"))
        {
            resource = parts.next()?;
            name = parts.next();
        }
        Some(Self {
            group,
            resource,
            named: name.is_some(),
            subresource: parts.next(),
        })
    }

    fn subject(&self, foreign: &[Foreign]) -> Subject {
        let known = self.kind();
        let mut foreign = foreign.iter().copied();
        let found = (known == Kind::Other)
            .then(|| foreign.find_map(|kind| kind.find(self.group, self.resource, self.subresource)))
            .flatten();
        found.map_or(Subject::Known(known), Subject::Foreign)
    }

    fn kind(&self) -> Kind {
        match (self.group, self.resource, self.subresource) {
            (trainyard_api::GROUP, "trainingjobs", None) => Kind::TrainingJob,
            (trainyard_api::GROUP, "trainingjobs", Some("status")) => Kind::TrainingJobStatus,
            (trainyard_api::GROUP, "frameworks", None) => Kind::Framework,
            (trainyard_api::GROUP, "frameworks", Some("status")) => Kind::FrameworkStatus,
            (trainyard_api::GROUP, "scaleins", None) => Kind::ScaleIn,
            (trainyard_api::GROUP, "scaleins", Some("status")) => Kind::ScaleInStatus,
            (trainyard_api::GROUP, "scaleouts", None) => Kind::ScaleOut,
            (trainyard_api::GROUP, "scaleouts", Some("status")) => Kind::ScaleOutStatus,
            ("", "pods", None) => Kind::Pod,
            ("", "services", None) => Kind::Service,
            ("", "configmaps", None) => Kind::ConfigMap,
            ("", "secrets", None) => Kind::Secret,
            ("", "nodes", None) => Kind::Node,
            ("policy", "poddisruptionbudgets", None) => Kind::PodDisruptionBudget,
            ("" | "events.k8s.io", "events", None) => Kind::Event,
            ("coordination.k8s.io", "leases", None) => Kind::Lease,
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", None) => {
                Kind::MutatingWebhookConfiguration
            }
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations", None) => {
                Kind::ValidatingWebhookConfiguration
            }
            ("apiextensions.k8s.io", "customresourcedefinitions", None) => Kind::CustomResourceDefinition,
            _ => Kind::Other,
        }
    }
}
