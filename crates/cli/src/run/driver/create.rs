//! Creates a job and what it needs.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use trainyard_api::{DeclaredFramework, TrainingJob};

use super::Error;

const CLUSTER_SCOPED: &[&str] = &[FRAMEWORK, "Namespace", "PriorityClass"];
const FRAMEWORK: &str = "Framework";

/// How long the operator may take to look at a Framework. The job says what is wrong if it takes
/// longer.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// Creates the companions, then the job.
pub async fn create_all(
    client: &Client,
    mut job: TrainingJob,
    companions: &[Value],
) -> Result<TrainingJob, Error> {
    let namespace = job
        .namespace()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    for object in companions {
        create_companion(client, &namespace, object).await?;
    }
    for object in companions.iter().filter(|object| object["kind"] == FRAMEWORK) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        wait_until_ready(client, name).await?;
    }
    job.metadata.namespace = Some(namespace.clone());
    let what = format!("the job {}", job.name_any());
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), &namespace);
    jobs.create(&PostParams::default(), &job)
        .await
        .map_err(|error| explain(&what, error))
}

/// Waits until the operator knows a Framework, so that it does not refuse the job first.
async fn wait_until_ready(client: &Client, name: &str) -> Result<(), Error> {
    let frameworks: Api<DeclaredFramework> = Api::all(client.clone());
    let ready = async {
        loop {
            let found = frameworks.get(name).await.ok();
            let status = found.and_then(|found| found.status).unwrap_or_default();
            let mut conditions = status.conditions.into_iter();
            if let Some(ready) = conditions.find(|condition| condition.type_ == "Ready") {
                return ready;
            }
            tokio::time::sleep(READY_INTERVAL).await;
        }
    };
    match tokio::time::timeout(READY_TIMEOUT, ready).await {
        Ok(ready) if ready.status == "False" => {
            let message = ready.message;
            Err(Error::Refused(format!(
                "the Framework {name} is not valid: {message}"
            )))
        }
        _ => Ok(()),
    }
}

/// Creates an object that the job needs. One that exists is left as it is: it may be shared.
async fn create_companion(client: &Client, namespace: &str, object: &Value) -> Result<(), Error> {
    let object: DynamicObject = serde_json::from_value(object.clone())
        .map_err(|error| Error::Refused(format!("an object beside the job can't be read: {error}")))?;
    let types = object.types.clone().unwrap_or_default();
    let what = format!("the {} {}", types.kind, object.name_any());
    let resource = GroupVersionKind::try_from(&types)
        .map(|kind| ApiResource::from_gvk(&kind))
        .map_err(|error| Error::Refused(format!("{what} can't be created: {error}")))?;
    let api: Api<DynamicObject> = if CLUSTER_SCOPED.contains(&types.kind.as_str()) {
        Api::all_with(client.clone(), &resource)
    } else {
        let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        Err(error) => Err(explain(&what, error)),
        Ok(_) => Ok(()),
    }
}

fn explain(what: &str, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if status.reason == "AlreadyExists" => Error::Refused(format!(
            "{what} exists already: delete it, or give this one another name with --set metadata.name=NAME"
        )),
        kube::Error::Api(status) if status.code == 404 => Error::Refused(format!(
            "{what} can't be created: the cluster does not know its kind or its namespace ({}). Trainyard must be installed \
             there, see docs/install.md",
            status.message
        )),
        kube::Error::Api(status) if (400..500).contains(&status.code) => {
            Error::Refused(format!("{what} was refused: {}", status.message))
        }
        error => Error::Broken(format!("{what} can't be created: {error}")),
    }
}
