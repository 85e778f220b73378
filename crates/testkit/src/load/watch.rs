//! A list and watch of slim objects, which is restarted when it fails.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{TryStreamExt, pin_mut};
use kube::Client;
use kube::api::{ListParams, Request, WatchEvent, WatchParams};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What happened to an object.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// All objects.
    Listed(Vec<T>),
    /// An object is new or has changed.
    Applied(T),
    /// An object was removed.
    Deleted(T),
}

/// What is watched: a path of the API and a label selector.
#[derive(Clone, Debug)]
pub struct Target {
    /// Such as `/api/v1/namespaces/some/pods`.
    pub path: String,
    /// Labels, such as `a=b,c`; empty: all objects.
    pub labels: String,
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    items: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

/// Follows objects until the future is dropped; a watch that ends or fails is followed by a new
/// list.
pub async fn follow<T>(client: Client, target: Target, mut handle: impl FnMut(Change<T>))
where
    T: DeserializeOwned + Clone + Send + 'static,
{
    loop {
        if let Err(error) = follow_once(&client, &target, &mut handle).await {
            eprintln!("watch of {}: {error:#}", target.path);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn follow_once<T>(client: &Client, target: &Target, handle: &mut impl FnMut(Change<T>)) -> Result<()>
where
    T: DeserializeOwned + Clone + Send + 'static,
{
    let request = Request::new(target.path.clone());
    let list: List<T> = client
        .request(request.list(&ListParams::default().labels(&target.labels))?)
        .await
        .context("list")?;
    handle(Change::Listed(list.items));
    let parameters = WatchParams::default().labels(&target.labels);
    let events = client
        .request_events::<T>(request.watch(&parameters, &list.metadata.resource_version)?)
        .await
        .context("watch")?;
    pin_mut!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => handle(Change::Applied(object)),
            WatchEvent::Deleted(object) => handle(Change::Deleted(object)),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
        }
    }
    Ok(())
}
