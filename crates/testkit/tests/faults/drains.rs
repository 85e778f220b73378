//! An operator that crashes while pods leave a node that was cordoned.

use trainyard_testkit::load::{cordon, create_nodes, remove_nodes};

use super::*;

/// Two pods that train as one: all leave and start anew.
struct Together;

/// A job of three pods of which one leaves, and another joins in its place.
struct Alone;

/// The nodes of a run: the one that is cordoned, and the one that has all other pods.
fn nodes(namespace: &str) -> [String; 2] {
    ["going", "staying"].map(|name| format!("{namespace}-{name}"))
}

fn script(namespace: &str) -> Script {
    let [going, staying] = nodes(namespace);
    Script::run()
        .first_on_node("j-worker-1", going)
        .on_nodes(vec![staying])
}

/// Creates a job, cordons the node of one of its pods when it runs, and waits until it has none
/// there.
async fn drain(client: &Client, namespace: &str, job: &str) -> Result<TrainingJob> {
    let [going, staying] = nodes(namespace);
    create_nodes(client, &[going.clone(), staying]).await?;
    create(client, namespace, job).await?;
    phase(client, namespace, "j", JobPhase::Running).await?;
    cordon(client, &going).await?;
    let mut wait = Wait::new("no pod is left on the node, and the job runs");
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    loop {
        let all = pods.list(&ListParams::default()).await?.items;
        let on = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let has_left = all.iter().all(|pod| on(pod).as_ref() != Some(&going));
        let job = jobs(client, namespace).get("j").await?;
        let status = job.status.clone().unwrap_or_default();
        let is_done = status.phase == Some(JobPhase::Running) && status.scaling.is_none();
        if has_left && is_done {
            return Ok(job);
        }
        let names: Vec<_> = all.iter().map(|pod| (&pod.metadata.name, on(pod))).collect();
        if !wait.has_patience(format!("{names:?} {:?}", job.status)) {
            bail!("{wait}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

impl Scenario for Together {
    fn name(&self) -> &'static str {
        "together"
    }

    fn script(&self, namespace: &str) -> Script {
        script(namespace)
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        _: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let more = r#"{"runPolicy": {"drainTimeoutSeconds": 60, "backoffLimit": 0}}"#;
            let job = drain(client, namespace, &manifest("j", 2, "", more)).await?;
            let restarts = job.status.and_then(|status| status.restarts).unwrap_or_default();
            assert_eq!(
                (restarts.failures, restarts.disruptions, restarts.history.len()),
                (0, 1, 1),
                "one disruption, whenever the operator crashed"
            );
            Ok(())
        })
    }
}

impl Scenario for Alone {
    fn name(&self) -> &'static str {
        "alone"
    }

    /// The pod that joins finds a list of those that were there when it was made, and the one that
    /// leaves may have been.
    fn may_differ(&self, path: &str) -> bool {
        path.starts_with("pods/j-worker-3.spec.containers[0].env[")
    }

    fn script(&self, namespace: &str) -> Script {
        script(namespace)
    }

    fn play<'a>(
        &'a self,
        client: &'a Client,
        namespace: &'a str,
        _: &'a Player,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let more = r#"{"elastic": {"replicas": 3, "maxReplicas": 4, "drainTimeoutSeconds": 60}}"#;
            drain(client, namespace, &requests::elastic_job(more)?).await?;
            requests::assert_size(client, namespace, 3, Some("0,2-3")).await
        })
    }
}

async fn crash_at_every_write(scenario: &dyn Scenario, writes: u64) {
    let client = client().await;
    let report = crash_everywhere(&client, &in_process(), scenario).await;
    remove_played_nodes(&client, scenario.name()).await.unwrap();
    let report = report.unwrap();
    println!("{report:?}");
    assert!(report.writes >= writes, "{report:?}");
}

/// Removes the nodes of all runs of a scenario of this process.
async fn remove_played_nodes(client: &Client, scenario: &str) -> Result<()> {
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let nodes = api.list_metadata(&ListParams::default()).await?;
    let names = nodes.items.into_iter().filter_map(|node| node.metadata.name);
    let process = format!("-{}-", std::process::id());
    let is_ours = |name: &String| name.starts_with(scenario) && name.contains(&process);
    let names: Vec<String> = names.filter(is_ours).collect();
    remove_nodes(client, &names).await
}

/// Two pods and a Service, each pod deleted and made anew, and the statuses: it runs, it is told to
/// leave, it has left, it runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_a_drain_of_pods_that_train_as_one_changes_nothing_in_the_end() {
    crash_at_every_write(&Together, 3 + 4 + 4).await;
}

/// Three pods and a Service, one pod deleted and one created, and the statuses: it runs, one is
/// told to leave, it has left, the other has joined.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_write_of_a_drain_of_an_elastic_worker_changes_nothing_in_the_end() {
    crash_at_every_write(&Alone, 4 + 2 + 3).await;
}
