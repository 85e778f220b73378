//! Asks the API server what somebody may do.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request};
use serde_json::Value;
use tokio::time::timeout;

/// An API server waits for the webhook for 5 s.
const TIMEOUT: Duration = Duration::from_secs(4);
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Answers a `SubjectAccessReview`: whether it is allowed, or why nobody knows.
pub type Access = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<bool, String>> + Send + Sync>;

/// Asks the API server.
pub fn of_server(client: kube::Client) -> Access {
    Arc::new(move |review| Box::pin(ask(client.clone(), review)))
}

async fn ask(client: kube::Client, review: Value) -> Result<bool, String> {
    let body = serde_json::to_vec(&review).map_err(|error| error.to_string())?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(PATH)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| error.to_string())?;
    let answer: Value = match timeout(TIMEOUT, client.request(request)).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("it did not answer in time".to_owned()),
    };
    Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}
