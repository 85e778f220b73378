//! Creates a job and what it needs.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use trainyard_api::TrainingJob;

use super::Error;

const CLUSTER_SCOPED: &[&str] = &["Namespace", "PriorityClass"];

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
    job.metadata.namespace = Some(namespace.clone());
    let what = format!("the job {}", job.name_any());
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), &namespace);
    jobs.create(&PostParams::default(), &job)
        .await
        .map_err(|error| explain(&what, error))
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
