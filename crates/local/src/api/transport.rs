//! HTTP: decodes requests and encodes answers.

mod container_location;
mod discovery;
mod encode;
mod exec;
mod list;
mod log;
mod pod_listener;
mod query;
mod route;
mod upgrade;
mod user_listener;
mod watch;

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::client::Body;
use serde_json::Value;
use tower::{BoxError, Service};

use super::Api;
use super::error::StatusError;
use super::rules::Source;
use super::semantics::delete::{Removal, Removed};
use super::semantics::patch::Patch;
use super::semantics::pod::{binding, eviction};
use super::semantics::update::{Change, Changed, Part};
use super::semantics::{Target, WriteOptions, scale, token};
use super::status;
use encode::Form;
use query::Query;
use route::Route;

/// The body of an answer: complete, or a stream.
pub type ResponseBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, BoxError>>;

type Answer = Response<ResponseBody>;

impl Service<Request<Body>> for Api {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        // The caller's task does the work, so that requests run in parallel.
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let answer = match body.collect().await {
                Ok(body) if upgrade::needs_connection(&parts) => {
                    let request = Request::from_parts(parts, body.to_bytes());
                    let answer = upgrade::over_memory(api, request).await;
                    answer.map_err(|error| status::internal(format!("no connection could be made: {error}")))
                }
                Ok(body) => api.answer(&parts, &body.to_bytes()),
                Err(error) => Err(status::bad_request(format!(
                    "the body could not be read: {error}"
                ))),
            };
            Ok(answer.unwrap_or_else(|refusal| encode::refusal(&refusal)))
        })
    }
}

impl Api {
    fn answer(&self, parts: &http::request::Parts, body: &Bytes) -> Result<Answer, StatusError> {
        let path = parts.uri.path();
        if let Some(answer) = discovery::answer(&self.shared, path) {
            return Ok(answer);
        }
        let query = Query::read(parts.uri.query().unwrap_or_default())?;
        let path = route::decoded(path);
        let route = Route::read(&self.shared.kinds, &path)?;
        let request = Call {
            api: self,
            target: Target {
                shared: &self.shared,
                kind: &route.kind,
                namespace: route.namespace,
            },
            query: &query,
            form: Form::wanted(&parts.headers),
            head: parts,
            content_type: text_header(parts, &header::CONTENT_TYPE),
            body,
        };
        match (route.name, route.subresource) {
            (None, _) => request.collection(&parts.method),
            (Some(name), None) => request.object(&parts.method, name),
            (Some(name), Some(subresource)) => request.subresource(&parts.method, name, subresource),
        }
    }
}

fn text_header<'a>(parts: &'a http::request::Parts, name: &header::HeaderName) -> &'a str {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// A decoded request.
struct Call<'a> {
    api: &'a Api,
    target: Target<'a>,
    query: &'a Query,
    form: Form,
    head: &'a http::request::Parts,
    content_type: &'a str,
    body: &'a Bytes,
}

impl Call<'_> {
    fn options(&self) -> WriteOptions {
        WriteOptions {
            dry_run: self.query.dry_run,
            strict: self.query.strict,
        }
    }

    fn collection(&self, method: &Method) -> Result<Answer, StatusError> {
        let kind = self.target.kind;
        match *method {
            Method::GET if self.query.watch => {
                watch::watch(self.api, &self.target, self.query, self.form, None)
            }
            Method::GET => list::list(&self.target, self.query, self.form),
            Method::POST if kind.namespaced && self.target.namespace.is_empty() => {
                Err(status::method_not_allowed(format!(
                    "{} are created in a namespace: name one in the path",
                    kind.plural
                )))
            }
            Method::POST => {
                self.must_be_json()?;
                let stored = self.target.create(Source::Text(self.body), self.options())?;
                Ok(encode::object(StatusCode::CREATED, kind, &stored, self.form))
            }
            Method::DELETE => Err(status::method_not_allowed(
                "deletion of collections is not served by the embedded cluster: list the objects and delete each",
            )),
            _ => Err(self.no_such_verb(method)),
        }
    }

    fn object(&self, method: &Method, name: &str) -> Result<Answer, StatusError> {
        let kind = self.target.kind;
        match *method {
            Method::GET if self.query.watch => {
                watch::watch(self.api, &self.target, self.query, self.form, Some(name))
            }
            Method::GET => {
                let stored = self.target.stored(name)?;
                Ok(encode::object(StatusCode::OK, kind, &stored, self.form))
            }
            Method::PUT | Method::PATCH => self.change(method, name, Part::Whole),
            Method::DELETE => self.delete(name),
            _ => Err(self.no_such_verb(method)),
        }
    }

    fn change(&self, method: &Method, name: &str, part: Part) -> Result<Answer, StatusError> {
        let patch = self.patch(method)?;
        let change = patch.as_ref().map_or(Change::Put(self.body), Change::Patch);
        let Changed { stored, created } = self.target.update(name, part, &change, self.options())?;
        let code = if created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Ok(encode::object(code, self.target.kind, &stored, self.form))
    }

    fn patch(&self, method: &Method) -> Result<Option<Patch>, StatusError> {
        if method == Method::PATCH {
            return Patch::read(self.content_type, self.body).map(Some);
        }
        self.must_be_json()?;
        Ok(None)
    }

    fn delete(&self, name: &str) -> Result<Answer, StatusError> {
        let mut options: DeleteOptions = if self.body.is_empty() {
            DeleteOptions::default()
        } else {
            serde_json::from_slice(self.body)
                .map_err(|error| status::bad_request(format!("the body is no DeleteOptions: {error}")))?
        };
        if self.body.is_empty() {
            options.grace_period_seconds = self.query.grace_period_seconds;
            options
                .propagation_policy
                .clone_from(&self.query.propagation_policy);
        }
        let mut removal = Removal::new(options)?;
        removal.dry_run |= self.query.dry_run;
        let kind = self.target.kind;
        match self.target.delete(name, &removal)? {
            Removed::Gone(last) if !kind.traits.returns_deleted => {
                let details = status::gone(kind, name, &last.head.uid);
                Ok(encode::status(StatusCode::OK, &status::success(0, Some(details))))
            }
            Removed::Gone(stored) | Removed::Going(stored) => {
                Ok(encode::object(StatusCode::OK, kind, &stored, self.form))
            }
        }
    }

    fn subresource(&self, method: &Method, name: &str, subresource: &str) -> Result<Answer, StatusError> {
        let kind = self.target.kind;
        let created = || encode::status(StatusCode::CREATED, &status::success(201, None));
        match (subresource, method) {
            ("status", &Method::GET) if kind.subresources.status => self.object(method, name),
            ("status", &(Method::PUT | Method::PATCH)) if kind.subresources.status => {
                self.change(method, name, Part::Status)
            }
            ("scale", _) if kind.subresources.scale.is_some() => self.scale(method, name),
            ("binding", &Method::POST) if kind.is_pod() => {
                binding::bind(&self.target, name, self.body, self.options())?;
                Ok(created())
            }
            ("eviction", &Method::POST) if kind.is_pod() => {
                eviction::evict(&self.target, name, self.body, self.query.dry_run)?;
                Ok(created())
            }
            ("token", &Method::POST) if kind.is_service_account() => {
                let token = token::issue(&self.target, name, self.body)?;
                Ok(encode::json(StatusCode::CREATED, token.to_string()))
            }
            ("log", &Method::GET) if kind.is_pod() => log::log(self.api, &self.target, name, self.query),
            ("exec", &(Method::GET | Method::POST)) if kind.is_pod() => {
                exec::exec(self.api, &self.target, name, self.query, self.head)
            }
            ("attach" | "portforward", &(Method::GET | Method::POST)) if kind.is_pod() => {
                self.target.stored(name)?;
                Err(status::not_implemented(format!(
                    "{subresource} is not served by the embedded cluster: use exec, or have the pod do it by itself"
                )))
            }
            ("token", _) if kind.is_service_account() => Err(self.no_such_verb(method)),
            ("status" | "binding" | "eviction" | "log" | "exec" | "attach" | "portforward", _)
                if kind.is_pod() =>
            {
                Err(self.no_such_verb(method))
            }
            _ => Err(status::unknown_path()),
        }
    }

    fn scale(&self, method: &Method, name: &str) -> Result<Answer, StatusError> {
        let Some(scale) = &self.target.kind.subresources.scale else {
            return Err(status::unknown_path());
        };
        let value: Value = match *method {
            Method::GET => {
                let stored = self.target.stored(name)?;
                scale::read(scale, &stored)?
            }
            Method::PUT | Method::PATCH => {
                let patch = self.patch(method)?;
                let change = patch.as_ref().map_or(Change::Put(self.body), Change::Patch);
                self.target.set_scale(name, scale, &change, self.options())?
            }
            _ => return Err(self.no_such_verb(method)),
        };
        Ok(encode::json(StatusCode::OK, value.to_string()))
    }

    fn must_be_json(&self) -> Result<(), StatusError> {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        if matches!(kind, "" | "application/json") {
            return Ok(());
        }
        Err(status::unsupported_media_type(format!(
            "the body of the request was in an unknown format ({kind:?}) - accepted media types include: application/json"
        )))
    }

    fn no_such_verb(&self, method: &Method) -> StatusError {
        let plural = &self.target.kind.plural;
        status::method_not_allowed(format!(
            "{method} is not supported on this path of resource {plural:?}"
        ))
    }
}
