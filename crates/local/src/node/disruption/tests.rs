use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Binding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{EvictParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use trainyard_eventually::within;

use super::*;

/// A cluster with a disruption controller and no kubelet.
struct Cluster {
    client: Client,
    /// Runs as long as this.
    _controller: tokio::task::JoinSet<()>,
}

impl Cluster {
    fn new() -> Self {
        let environment = Environment::seeded(7);
        let client = crate::api::Api::new(environment.clone()).client("default");
        let mut controller = tokio::task::JoinSet::new();
        controller.spawn(run(client.clone(), environment));
        Self {
            client,
            _controller: controller,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::default_namespaced(self.client.clone())
    }

    /// Makes a running pod with the label `app=x`.
    async fn pod(&self, name: &str, is_ready: bool, owner: Option<&Value>) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "x"}, "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
            "spec": {"containers": [{"name": "main", "image": "example/image:1"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let binding: Binding =
            serde_json::from_value(json!({"metadata": {"name": name}, "target": {"name": "n1"}})).unwrap();
        let _: Value = self
            .pods()
            .create_subresource("binding", name, &PostParams::default(), &binding)
            .await
            .unwrap();
        self.set_ready(name, is_ready).await;
    }

    async fn set_ready(&self, name: &str, is_ready: bool) {
        let state = if is_ready { "True" } else { "False" };
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": state}]}});
        self.pods()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    async fn budget(&self, name: &str, mut spec: Value) {
        spec["selector"] = json!({"matchLabels": {"app": "x"}});
        let budget = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.budgets()
            .create(&PostParams::default(), &budget)
            .await
            .unwrap();
    }

    /// Waits until the status of the budget `b` is as wanted.
    async fn until(&self, wanted: impl Fn(&PodDisruptionBudgetStatus) -> bool) -> PodDisruptionBudgetStatus {
        let mut last = PodDisruptionBudgetStatus::default();
        let mut events = self
            .budgets()
            .watch(&WatchParams::default(), "0")
            .await
            .unwrap()
            .boxed();
        loop {
            let event = within(&format!("the budget changes: {last:#?}"), events.try_next()).await;
            if let Some(WatchEvent::Added(budget) | WatchEvent::Modified(budget)) = event.unwrap()
                && budget.metadata.name.as_deref() == Some("b")
            {
                last = budget.status.unwrap_or_default();
                if wanted(&last) {
                    return last;
                }
            }
        }
    }

    /// Evicts a pod. Returns the code, and the cause if it is refused.
    async fn evict(&self, name: &str) -> (u16, String) {
        match self.pods().evict(name, &EvictParams::default()).await {
            Ok(_) => (201, String::new()),
            Err(kube::Error::Api(status)) => {
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                let cause = causes.into_iter().next().map(|cause| cause.message);
                (status.code, cause.unwrap_or(status.message))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Healthy, desired, expected and allowed.
fn numbers(status: &PodDisruptionBudgetStatus) -> [i32; 4] {
    [
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
        status.disruptions_allowed,
    ]
    .map(Option::unwrap_or_default)
}

fn condition(status: &PodDisruptionBudgetStatus) -> [&str; 3] {
    let condition = &status.conditions.as_ref().unwrap()[0];
    [&condition.status, &condition.reason, &condition.message]
}

#[tokio::test]
async fn a_budget_is_spent_by_evictions_and_filled_by_pods_that_become_ready() {
    let cluster = Cluster::new();
    for name in ["p0", "p1"] {
        cluster.pod(name, true, None).await;
    }
    cluster.budget("b", json!({"minAvailable": 1})).await;
    let status = cluster.until(|status| numbers(status) == [2, 1, 2, 1]).await;
    assert_eq!(condition(&status), ["True", "SufficientPods", ""]);
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(cluster.evict("p0").await.0, 201);
    let why = "The disruption budget b needs 1 healthy pods and has 1 currently";
    let status = cluster.until(|status| status.current_healthy == Some(1)).await;
    assert_eq!(condition(&status), ["False", "InsufficientPods", ""]);
    assert_eq!(cluster.evict("p1").await, (429, why.to_owned()));
    cluster.pod("p2", false, None).await;
    cluster.until(|status| status.expected_pods == Some(3)).await;
    assert_eq!(cluster.evict("p1").await, (429, why.to_owned()));
    cluster.set_ready("p2", true).await;
    cluster.until(|status| numbers(status) == [2, 1, 3, 1]).await;
    assert_eq!(cluster.evict("p1").await.0, 201);
}

/// The controller may see the second eviction before it sees that the first pod terminates.
#[tokio::test]
async fn one_disruption_is_never_spent_twice() {
    let cluster = Cluster::new();
    for name in ["p0", "p1", "p2"] {
        cluster.pod(name, true, None).await;
    }
    cluster.budget("b", json!({"minAvailable": 2})).await;
    cluster
        .until(|status| status.disruptions_allowed == Some(1))
        .await;
    let evictions = ["p0", "p1", "p2"].map(|name| cluster.evict(name));
    let mut codes: Vec<_> = futures::future::join_all(evictions)
        .await
        .into_iter()
        .map(|(code, _)| code)
        .collect();
    codes.sort_unstable();
    assert_eq!(codes, [201, 429, 429]);
}

#[tokio::test]
async fn more_than_there_are_can_be_needed_and_then_none_may_go() {
    let cluster = Cluster::new();
    cluster.pod("p0", true, None).await;
    cluster.budget("b", json!({"minAvailable": 1_000_000})).await;
    cluster
        .until(|status| numbers(status) == [1, 1_000_000, 1, 0])
        .await;
    assert_eq!(cluster.evict("p0").await.0, 429);
    // It is not healthy, and still the budget is not.
    cluster.set_ready("p0", false).await;
    cluster.until(|status| status.current_healthy == Some(0)).await;
    assert_eq!(cluster.evict("p0").await.0, 429);
}

#[rstest::rstest]
#[case::of_a_healthy_budget(json!({"minAvailable": 1}), 201)]
#[case::of_an_unhealthy_budget(json!({"minAvailable": 2}), 429)]
#[case::by_default(json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}), 429)]
#[case::always(json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}), 201)]
#[tokio::test]
async fn a_pod_that_is_not_ready_may_go(#[case] spec: Value, #[case] code: u16) {
    let cluster = Cluster::new();
    cluster.pod("ready", true, None).await;
    cluster.pod("unready", false, None).await;
    cluster.budget("b", spec).await;
    cluster
        .until(|status| (status.current_healthy, status.disruptions_allowed) == (Some(1), Some(0)))
        .await;
    assert_eq!(cluster.evict("unready").await.0, code);
}

#[rstest::rstest]
#[case("Pending")]
#[case("Succeeded")]
#[case("Failed")]
#[tokio::test]
async fn a_pod_that_does_not_run_may_go(#[case] phase: &str) {
    let cluster = Cluster::new();
    cluster.pod("p0", true, None).await;
    let status = json!({"status": {"phase": phase}});
    cluster
        .pods()
        .patch_status("p0", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    cluster.budget("b", json!({"minAvailable": 5})).await;
    cluster.until(|status| status.desired_healthy == Some(5)).await;
    assert_eq!(cluster.evict("p0").await.0, 201);
}

#[tokio::test]
async fn a_pod_with_two_budgets_can_not_be_evicted() {
    let cluster = Cluster::new();
    cluster.pod("p0", true, None).await;
    for name in ["b", "c"] {
        cluster.budget(name, json!({"minAvailable": 0})).await;
    }
    cluster
        .until(|status| status.disruptions_allowed == Some(1))
        .await;
    let why =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(cluster.evict("p0").await, (500, why.to_owned()));
}

#[tokio::test]
async fn a_budget_that_nobody_has_seen_yet_allows_nothing() {
    let client = crate::api::Api::new(Environment::seeded(7)).client("default");
    let cluster = Cluster {
        client,
        _controller: tokio::task::JoinSet::new(),
    };
    cluster.pod("p0", true, None).await;
    cluster.budget("b", json!({"minAvailable": 0})).await;
    let why = "The disruption budget b is still being processed by the server.";
    assert_eq!(cluster.evict("p0").await, (429, why.to_owned()));
}

/// A kind whose objects say how many pods they want, and one whose objects do not.
async fn define(cluster: &Cluster, kind: &str, subresources: Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let definition = json!({
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    definitions
        .create(
            &PostParams::default(),
            &serde_json::from_value(definition).unwrap(),
        )
        .await
        .unwrap();
    let object = json!({"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": "set"}, "spec": {"replicas": 4}});
    let request = http::Request::post(format!("/apis/example.org/v1/namespaces/default/{plural}"))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    let object: Value = cluster.client.request(request).await.unwrap();
    json!({"apiVersion": "example.org/v1", "kind": kind, "name": "set", "uid": object["metadata"]["uid"], "controller": true})
}

#[rstest::rstest]
#[case(json!({"minAvailable": "50%"}), [3, 2, 4, 1])]
#[case(json!({"minAvailable": "51%"}), [3, 3, 4, 0])]
#[case(json!({"maxUnavailable": "30%"}), [3, 2, 4, 1])]
#[case(json!({"maxUnavailable": 1}), [3, 3, 4, 0])]
#[case(json!({"maxUnavailable": 9}), [3, 0, 4, 3])]
#[tokio::test]
async fn shares_are_of_what_the_controllers_of_the_pods_want(
    #[case] spec: Value,
    #[case] expected: [i32; 4],
) {
    let cluster = Cluster::new();
    let scale =
        json!({"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let owner = define(&cluster, "Set", scale).await;
    for name in ["p0", "p1", "p2"] {
        cluster.pod(name, true, Some(&owner)).await;
    }
    cluster.budget("b", spec).await;
    cluster.until(|status| numbers(status) == expected).await;
}

#[tokio::test]
async fn nothing_is_allowed_where_the_controller_does_not_say_how_many_it_wants() {
    let cluster = Cluster::new();
    let owner = define(&cluster, "Set", json!({})).await;
    cluster.pod("p0", true, Some(&owner)).await;
    cluster.budget("b", json!({"maxUnavailable": 1})).await;
    let status = cluster.until(|status| status.conditions.is_some()).await;
    let why = "sets.example.org does not implement the scale subresource";
    assert_eq!(condition(&status), ["False", "SyncFailed", why]);
    assert_eq!(status.disruptions_allowed, Some(0));
}
