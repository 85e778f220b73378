//! One of the two servers.

use anyhow::{Context, Result};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::normalise::Answer;
use super::objects::{JSON_PATCHES, KINDS, Kind, pods};
use super::operation::{Operation, Precondition, Version};
use super::stream::LAST;

/// One of the two servers.
pub struct Side {
    client: Client,
    namespace: String,
    /// A version that was current before anything was done.
    stale: String,
}

impl Side {
    /// A server, and an empty namespace of it.
    pub async fn new(client: Client, namespace: &str) -> Result<Self> {
        let mut side = Self {
            client,
            namespace: namespace.to_owned(),
            stale: String::new(),
        };
        let list = side.raw(Method::GET, "/api/v1/namespaces", "", None).await?.1;
        side.stale = list["metadata"]["resourceVersion"]
            .as_str()
            .context("a list without a version")?
            .into();
        Ok(side)
    }

    /// The version before anything was done, from which watches begin.
    pub fn start(&self) -> &str {
        &self.stale
    }

    /// Its client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Where the objects of a kind are.
    pub fn collection(&self, kind: &Kind) -> String {
        format!("{}/namespaces/{}/{}", kind.root, self.namespace, kind.plural)
    }

    /// Creates the objects that end the streams.
    pub async fn end(&self) -> Result<()> {
        for kind in KINDS {
            let mut object = kind.manifest(0);
            object["metadata"]["name"] = json!(LAST);
            let path = self.collection(kind);
            let (code, answer) = self
                .raw(Method::POST, &path, "application/json", Some(object))
                .await?;
            anyhow::ensure!(code == 201, "{path}: {answer}");
        }
        Ok(())
    }

    async fn raw(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<Value>,
    ) -> Result<(u16, Value)> {
        let mut request = Request::builder().method(method).uri(path);
        if !content.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, content);
        }
        let body = body.map(|body| serde_json::to_vec(&body)).transpose()?;
        let request = request.body(Body::from(body.unwrap_or_default()))?;
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        let value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        Ok((code, value))
    }

    async fn read(&self, path: &str) -> Result<Option<Value>> {
        let (code, object) = self.raw(Method::GET, path, "", None).await?;
        Ok((code == 200).then_some(object))
    }

    /// Performs the operation and returns the answer.
    pub async fn perform(&self, operation: &Operation) -> Result<Answer> {
        let (code, body) = self.request(operation).await?;
        Ok(Answer::of(code, body))
    }

    async fn request(&self, operation: &Operation) -> Result<(u16, Value)> {
        const JSON: &str = "application/json";
        match operation {
            Operation::Create {
                kind,
                name,
                variant,
                dry_run,
            } => {
                let mut object = kind.manifest(*variant);
                match name {
                    Some(name) => object["metadata"]["name"] = json!(name),
                    None => object["metadata"]["generateName"] = json!("made-"),
                }
                let query = if *dry_run { "?dryRun=All" } else { "" };
                let path = format!("{}{query}", self.collection(kind));
                self.raw(Method::POST, &path, JSON, Some(object)).await
            }
            Operation::Get { kind, name } => {
                let path = format!("{}/{name}", self.collection(kind));
                self.raw(Method::GET, &path, "", None).await
            }
            Operation::List { kind, query } => {
                let path = format!("{}?{query}", self.collection(kind));
                self.raw(Method::GET, &path, "", None).await
            }
            Operation::Update {
                kind,
                name,
                change,
                version,
                status,
            } => {
                let object = format!("{}/{name}", self.collection(kind));
                let mut new = self.read(&object).await?.unwrap_or_else(|| {
                    let mut new = kind.manifest(0);
                    new["metadata"]["name"] = json!(name);
                    new
                });
                json_patch::merge(&mut new, &kind.change(*change));
                match version {
                    Version::Current => {}
                    Version::Stale => new["metadata"]["resourceVersion"] = json!(self.stale),
                    Version::Absent => new["metadata"]["resourceVersion"] = Value::Null,
                }
                let path = if *status { object + "/status" } else { object };
                self.raw(Method::PUT, &path, JSON, Some(new)).await
            }
            Operation::Merge {
                kind,
                name,
                change,
                status,
            } => {
                let subresource = if *status { "/status" } else { "" };
                let path = format!("{}/{name}{subresource}", self.collection(kind));
                let change = kind.change(*change);
                self.raw(Method::PATCH, &path, "application/merge-patch+json", Some(change))
                    .await
            }
            Operation::JsonPatch { kind, name, change } => {
                let path = format!("{}/{name}", self.collection(kind));
                let change = serde_json::from_str(JSON_PATCHES[*change])?;
                self.raw(Method::PATCH, &path, "application/json-patch+json", Some(change))
                    .await
            }
            Operation::Delete {
                kind,
                name,
                precondition,
                grace,
            } => self.delete(kind, name, *precondition, *grace).await,
            Operation::Bind { name } => {
                let path = format!("{}/{name}/binding", self.collection(pods()));
                let binding = json!({
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
                });
                self.raw(Method::POST, &path, JSON, Some(binding)).await
            }
            Operation::Evict { name } => {
                let path = format!("{}/{name}/eviction", self.collection(pods()));
                let eviction = json!({
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": name, "namespace": self.namespace},
                });
                self.raw(Method::POST, &path, JSON, Some(eviction)).await
            }
        }
    }

    async fn delete(
        &self,
        kind: &Kind,
        name: &str,
        precondition: Precondition,
        grace: Option<i64>,
    ) -> Result<(u16, Value)> {
        let path = format!("{}/{name}", self.collection(kind));
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(grace) = grace {
            options["gracePeriodSeconds"] = json!(grace);
        }
        match precondition {
            Precondition::None => {}
            Precondition::RightUid => {
                let found = self.read(&path).await?.unwrap_or_default();
                let uid = found["metadata"]["uid"].as_str().unwrap_or("none").to_owned();
                options["preconditions"] = json!({"uid": uid});
            }
            Precondition::WrongUid => options["preconditions"] = json!({"uid": "another"}),
            Precondition::WrongVersion => {
                options["preconditions"] = json!({"resourceVersion": self.stale});
            }
        }
        self.raw(Method::DELETE, &path, "application/json", Some(options))
            .await
    }
}
