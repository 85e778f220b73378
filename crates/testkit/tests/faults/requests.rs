//! An operator that crashes while it carries out requests to change the size of a job.

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trainyard_api::{ScaleIn, ScaleOut, ScalePhase, ScaleRequestStatus};

use super::*;

/// Grows by a ScaleOut, then loses a pod to a ScaleIn that names it.
struct GrowAndShrink;

impl Scenario for GrowAndShrink {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        _: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let workers = [lab::Role::worker(1, "true")];
            let more = r#"{"elastic": {"replicas": 2, "maxReplicas": 4}}"#;
            let mut job: Value = serde_json::from_str(&lab::job("j", "custom", &workers, more))?;
            if let Some(role) = job["spec"]["roles"][0].as_object_mut() {
                role.remove("replicas");
            }
            create(client, namespace, &job.to_string()).await?;
            phase(client, namespace, "j", JobPhase::Running).await?;
            let out = json!({"metadata": {"name": "out"}, "spec": {"jobRef": {"name": "j"}, "toAdd": {"count": 1}}});
            let grown = ask::<ScaleOut>(client, namespace, out, |request| request.status).await?;
            assert_eq!((grown.from, grown.to), (Some(2), Some(3)));
            let names = json!({"podNames": ["j-worker-1"]});
            let inn =
                json!({"metadata": {"name": "in"}, "spec": {"jobRef": {"name": "j"}, "toDelete": names}});
            let shrunk = ask::<ScaleIn>(client, namespace, inn, |request| request.status).await?;
            assert_eq!(shrunk.victims, ["j-worker-1"]);
            let job = phase(client, namespace, "j", JobPhase::Running).await?;
            assert_eq!(job.spec.elastic.map(|elastic| elastic.replicas), Some(2));
            let status = job.status.unwrap_or_default();
            let members = status
                .accepted_rules
                .and_then(|rules| rules.roles[0].members.clone());
            assert_eq!(members.as_deref(), Some("0,2"));
            let restarts = status.restarts.unwrap_or_default();
            assert_eq!((restarts.failures, restarts.disruptions), (0, 0));
            Ok(())
        })
    }
}

/// Creates a request, and waits until it has succeeded.
async fn ask<K>(
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

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_a_request_changes_nothing_in_the_end() {
    let client = client().await;
    let report = crash_everywhere(&client, &in_process(), &GrowAndShrink)
        .await
        .unwrap();
    println!("{report:?}");
    // Three pods, a Service, a deletion; four writes for each request; the statuses of the job.
    assert!(report.writes >= 3 + 1 + 1 + 8 + 5, "{report:?}");
}
