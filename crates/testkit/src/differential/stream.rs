//! What a watch tells, from the beginning of a run until an object of a known name is seen.

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt};
use http::Request;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::normalise::object;

/// The name of the object that ends a stream.
pub const LAST: &str = "last";

/// A watch that is being followed.
pub struct Stream {
    task: JoinHandle<Result<Vec<(String, Value)>>>,
}

impl Stream {
    /// Follows a collection from a version on.
    pub fn follow(client: Client, collection: &str, version: &str) -> Self {
        let path = format!("{collection}?watch=true&resourceVersion={version}&timeoutSeconds=600");
        Self {
            task: tokio::spawn(async move {
                let request = Request::get(path).body(Vec::new())?;
                let stream = client.request_stream(request).await?;
                let mut lines = std::pin::pin!(stream.lines());
                let mut events = Vec::new();
                while let Some(line) = lines.next().await {
                    let mut event: Value = serde_json::from_str(&line?)?;
                    let kind = event["type"]
                        .as_str()
                        .context("an event without a type")?
                        .to_owned();
                    let object = object(event["object"].take());
                    if kind == "ERROR" {
                        bail!("the watch ended: {object}");
                    }
                    if object["metadata"]["name"] == LAST {
                        return Ok(events);
                    }
                    events.push((kind, object));
                }
                bail!("the watch ended early")
            }),
        }
    }

    /// The events, once the last object has been seen.
    pub async fn events(self) -> Result<Vec<(String, Value)>> {
        self.task.await?
    }
}
