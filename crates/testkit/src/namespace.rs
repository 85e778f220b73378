//! Namespaces of tests, also where no controller fills or empties them.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Request};
use serde_json::json;

/// Creates a namespace in which pods can be created at once: with its service account.
pub async fn create(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    ignore_conflict(
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await,
    )
    .with_context(|| format!("namespace {name}"))?;
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
    let accounts = Api::namespaced(client.clone(), name);
    ignore_conflict(accounts.create(&PostParams::default(), &account).await)
        .with_context(|| format!("the service account of {name}"))
}

/// Removes jobs, pods, Services and events of a namespace, and the namespace.
///
/// Without controllers the namespace itself stays, empty, on its way out.
pub async fn remove(client: &Client, name: &str) -> Result<()> {
    empty(client, name).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("namespace {name}")),
    }
}

/// Removes jobs, pods, Services and events of a namespace.
pub async fn empty(client: &Client, name: &str) -> Result<()> {
    // Jobs first, so that no operator makes new children.
    for collection in [
        "/apis/trainyard.dev/v1alpha1/namespaces/NAME/trainingjobs",
        "/api/v1/namespaces/NAME/pods",
        "/api/v1/namespaces/NAME/services",
        "/api/v1/namespaces/NAME/events",
    ] {
        let request = Request::new(collection.replace("NAME", name));
        let delete =
            request.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default())?;
        match client.request_text(delete).await {
            Ok(_) => {}
            // The kind is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("{collection} of {name}")),
        }
    }
    Ok(())
}

fn ignore_conflict<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}
