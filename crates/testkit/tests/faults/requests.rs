//! An operator that crashes while it carries out requests to change the size of a job.

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trainyard_api::{ScaleIn, ScaleOut, ScalePhase, ScaleRequestStatus};

use super::*;

/// A job of three pods that grows by a ScaleOut.
struct Grow;

/// A job of three pods that loses one of them to a ScaleIn that names it.
struct Shrink;

impl Scenario for Grow {
    fn name(&self) -> &'static str {
        "grow"
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        _: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            start_job(client, namespace).await?;
            let request =
                json!({"metadata": {"name": "r"}, "spec": {"jobRef": {"name": "j"}, "toAdd": {"count": 1}}});
            let grown = ask::<ScaleOut>(client, namespace, request, |request| request.status).await?;
            assert_eq!((grown.from, grown.to), (Some(3), Some(4)));
            assert_eq!(grown.joining, ["j-worker-3"]);
            // Four pods without a gap.
            assert_size(client, namespace, 4, None).await
        })
    }
}

impl Scenario for Shrink {
    fn name(&self) -> &'static str {
        "shrink"
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        _: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            start_job(client, namespace).await?;
            let names = json!({"podNames": ["j-worker-1"]});
            let request =
                json!({"metadata": {"name": "r"}, "spec": {"jobRef": {"name": "j"}, "toDelete": names}});
            let shrunk = ask::<ScaleIn>(client, namespace, request, |request| request.status).await?;
            assert_eq!(shrunk.victims, ["j-worker-1"]);
            assert_size(client, namespace, 2, Some("0,2")).await
        })
    }
}

/// Creates an elastic job of three pods, and waits until it runs.
async fn start_job(client: &Client, namespace: &str) -> Result<()> {
    let more = r#"{"elastic": {"replicas": 3, "maxReplicas": 4}}"#;
    create(client, namespace, &elastic_job(more)?).await?;
    phase(client, namespace, "j", JobPhase::Running).await?;
    Ok(())
}

/// A job whose workers join and leave.
pub fn elastic_job(more: &str) -> Result<String> {
    let workers = [lab::Role::worker(1, "true")];
    let mut job: Value = serde_json::from_str(&lab::job("j", "custom", &workers, more))?;
    if let Some(role) = job["spec"]["roles"][0].as_object_mut() {
        role.remove("replicas");
    }
    Ok(job.to_string())
}

/// The job runs with that many pods, and has lost none.
pub async fn assert_size(client: &Client, namespace: &str, size: i32, members: Option<&str>) -> Result<()> {
    let job = phase(client, namespace, "j", JobPhase::Running).await?;
    assert_eq!(job.spec.elastic.map(|elastic| elastic.replicas), Some(size));
    let status = job.status.unwrap_or_default();
    let accepted = status.accepted.rules.unwrap_or_default();
    let worker = accepted.roles.iter().find(|role| role.name == "worker");
    assert_eq!(worker.and_then(|role| role.members.as_deref()), members);
    let restarts = status.restarts.unwrap_or_default();
    assert_eq!((restarts.failures, restarts.disruptions), (0, 0));
    Ok(())
}

/// Creates a request, and waits until it has succeeded.
pub async fn ask<K>(
    client: &Client,
    namespace: &str,
    request: Value,
    status: fn(K) -> Option<ScaleRequestStatus>,
) -> Result<ScaleRequestStatus>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let request: K = serde_json::from_value(request)?;
    let name = request.meta().name.clone().unwrap_or_default();
    api.create(&PostParams::default(), &request).await?;
    let mut wait = Wait::new(format!("{name} succeeds"));
    loop {
        let seen = status(api.get(&name).await?).unwrap_or_default();
        if seen.phase == Some(ScalePhase::ScaleSucceeded) {
            return Ok(seen);
        }
        if seen.has_ended() || !wait.has_patience(format!("{seen:?}")) {
            bail!("{wait}: {seen:?}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn crash_at_every_write(scenario: &dyn Scenario, pods: u64, deleted: u64) {
    let client = client().await;
    let report = crash_everywhere(&client, &in_process(), scenario).await.unwrap();
    println!("{report:?}");
    // The pods and a Service, four writes for the request, and the statuses of the job.
    assert!(report.writes >= pods + 1 + deleted + 4 + 3, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_a_scale_out_changes_nothing_in_the_end() {
    crash_at_every_write(&Grow, 4, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_a_scale_in_changes_nothing_in_the_end() {
    crash_at_every_write(&Shrink, 3, 1).await;
}
