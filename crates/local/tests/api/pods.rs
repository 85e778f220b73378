//! What pods have that nothing else has.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{AsyncBufReadExt, SinkExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, LogParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use trainyard_eventually::within;
use trainyard_local::api::{LogOptions, LogStream, NodeAccess, PodRef, Start};

use crate::support::{create, from, pod, refused, send, server};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn bind(client: &Client, name: &str, node: &str) -> (u16, Value) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
    send(client, "POST", &format!("{PODS}/{name}/binding"), binding).await
}

#[tokio::test]
async fn a_new_pod_is_pending_whatever_its_creator_says() {
    let pods: Api<Pod> = Api::default_namespaced(server().client("default"));
    let mut sent = pod("a");
    sent["status"] = json!({"phase": "Running", "podIP": "1.2.3.4"});
    let made = create(&pods, sent).await;
    let status = serde_json::to_value(made.status).unwrap();
    assert_eq!(status, json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let spec = made.spec.unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    assert_eq!(
        (spec.priority, spec.preemption_policy.as_deref()),
        (Some(0), Some("PreemptLowerPriority"))
    );
    assert_eq!(spec.tolerations.unwrap().len(), 2);
    assert_eq!(made.metadata.generation, Some(1));
}

#[tokio::test]
async fn a_pod_names_an_account_and_a_class_that_exist() {
    let client = server().client("default");
    for (field, value, words) in [
        (
            "serviceAccountName",
            "nobody",
            "serviceaccount \"nobody\" not found",
        ),
        (
            "priorityClassName",
            "none",
            "no PriorityClass with name none was found",
        ),
    ] {
        let mut sent = pod("a");
        sent["spec"][field] = value.into();
        let (code, body) = send(&client, "POST", PODS, sent).await;
        assert_eq!((code, body["reason"].as_str()), (403, Some("Forbidden")));
        assert!(body["message"].as_str().unwrap().contains(words), "{body}");
    }
    let class = json!({"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"});
    send(
        &client,
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        class,
    )
    .await;
    let mut sent = pod("a");
    sent["spec"]["priorityClassName"] = "high".into();
    let (_, body) = send(&client, "POST", PODS, sent).await;
    assert_eq!(
        (&body["spec"]["priority"], &body["spec"]["preemptionPolicy"]),
        (&json!(100), &json!("Never"))
    );
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let pods: Api<Pod> = Api::default_namespaced(server().client("default"));
    let wrong = json!({"metadata": {"name": "a"}, "spec": {"restartPolicy": "Maybe", "containers": [{"name": "Main"}]}});
    let status = refused(pods.create(&PostParams::default(), &from(wrong)).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let causes = status.details.unwrap().causes;
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.containers[0].name",
            "spec.containers[0].image",
            "spec.restartPolicy"
        ]
    );
    assert_eq!(causes[2].reason, "FieldValueNotSupported");
    assert!(
        status
            .message
            .starts_with("Pod \"a\" is invalid: [spec.containers[0].name: Invalid value: \"Main\""),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create(&pods, pod("a")).await;
    assert_eq!(bind(&client, "a", "").await.0, 422);
    let (code, body) = bind(&client, "a", "n1").await;
    assert_eq!((code, body["status"].as_str()), (201, Some("Success")));
    let bound = pods.get("a").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert_eq!(
        (conditions[0].type_.as_str(), conditions[0].status.as_str()),
        ("PodScheduled", "True")
    );
    let (code, body) = bind(&client, "a", "n2").await;
    assert_eq!(code, 409);
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("already assigned to node \"n1\"")
    );
    assert_eq!(bind(&client, "b", "n1").await.0, 404);

    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}]);
    let gated = create(&pods, gated).await;
    assert_eq!(
        gated.status.unwrap().conditions.unwrap()[0].reason.as_deref(),
        Some("SchedulingGated")
    );
    assert_eq!(bind(&client, "gated", "n1").await.0, 409);
}

#[tokio::test]
async fn a_spec_does_not_change_and_a_status_has_its_own_place() {
    let pods: Api<Pod> = Api::default_namespaced(server().client("default"));
    let mut without_token = pod("a");
    without_token["spec"]["automountServiceAccountToken"] = json!(false);
    create(&pods, without_token).await;
    let params = PatchParams::default();
    let command = Patch::Merge(json!({"spec": {"nodeName": "n1"}}));
    assert_eq!(refused(pods.patch("a", &params, &command).await).code, 422);
    let both = json!({"spec": {"containers": [{"name": "main", "image": "example/image:2"}]}, "status": {"phase": "Failed"}});
    let patched = pods
        .patch("a", &params, &Patch::Merge(both.clone()))
        .await
        .unwrap();
    assert_eq!(
        patched.status.unwrap().phase.as_deref(),
        Some("Pending"),
        "the status is not written here"
    );
    assert_eq!(
        (
            patched.spec.unwrap().containers[0].image.as_deref(),
            patched.metadata.generation
        ),
        (Some("example/image:2"), Some(2))
    );
    let status = json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "message": "m"}});
    let patched = pods
        .patch_status("a", &params, &Patch::Merge(status))
        .await
        .unwrap();
    assert_eq!(patched.spec.unwrap().node_name, None, "nor the spec there");
    assert_eq!(
        (
            patched.status.unwrap().phase.as_deref(),
            patched.metadata.generation
        ),
        (Some("Running"), Some(2))
    );
}

#[tokio::test]
async fn a_pod_takes_its_time_to_go_unless_nobody_runs_it() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create(&pods, pod("free")).await;
    let gone = pods
        .delete("free", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("the pod");
    assert_eq!(gone.metadata.deletion_grace_period_seconds, Some(0));
    assert_eq!(refused(pods.get("free").await).code, 404);

    create(&pods, pod("bound")).await;
    bind(&client, "bound", "n1").await;
    let going = pods
        .delete("bound", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("the pod");
    assert_eq!(
        (
            going.metadata.deletion_grace_period_seconds,
            going.metadata.generation
        ),
        (Some(30), Some(2))
    );
    let end = going.metadata.deletion_timestamp.clone().unwrap().0;
    let again = pods
        .delete("bound", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("the pod");
    assert_eq!(
        again.resource_version(),
        going.resource_version(),
        "asking twice changes nothing"
    );
    let sooner = pods
        .delete("bound", &DeleteParams::default().grace_period(5))
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(sooner.metadata.deletion_grace_period_seconds, Some(5));
    assert!(sooner.metadata.deletion_timestamp.unwrap().0 < end);
    let later = pods
        .delete("bound", &DeleteParams::default().grace_period(50))
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(
        later.metadata.deletion_grace_period_seconds,
        Some(5),
        "only ever sooner"
    );
    pods.delete("bound", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(refused(pods.get("bound").await).code, 404);

    create(&pods, pod("ended")).await;
    bind(&client, "ended", "n1").await;
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("ended", &PatchParams::default(), &ended)
        .await
        .unwrap();
    pods.delete("ended", &DeleteParams::default()).await.unwrap();
    assert_eq!(refused(pods.get("ended").await).code, 404);
}

#[tokio::test]
async fn only_the_very_pod_that_is_meant_is_deleted() {
    let pods: Api<Pod> = Api::default_namespaced(server().client("default"));
    let made = create(&pods, pod("a")).await;
    let with = |uid: Option<String>, version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: version,
        }),
        ..DeleteParams::default()
    };
    let other = refused(pods.delete("a", &with(Some("other".into()), None)).await);
    assert_eq!((other.code, other.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        refused(pods.delete("a", &with(None, Some("1".into()))).await).code,
        409
    );
    let tried = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    pods.delete("a", &tried).await.unwrap();
    pods.delete("a", &with(made.uid(), made.resource_version()))
        .await
        .unwrap();
    assert_eq!(
        refused(pods.delete("a", &DeleteParams::default()).await).code,
        404
    );
}

#[tokio::test]
async fn an_eviction_respects_the_budget() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for name in ["a", "b"] {
        let mut sent = pod(name);
        sent["metadata"]["labels"] = json!({"app": "x"});
        create(&pods, sent).await;
        bind(&client, name, "n1").await;
        let running = Patch::Merge(
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        pods.patch_status(name, &PatchParams::default(), &running)
            .await
            .unwrap();
    }
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    assert_eq!(send(&client, "POST", path, budget).await.0, 201);
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
    assert_eq!(
        send(&client, "PATCH", &format!("{path}/b/status"), status)
            .await
            .0,
        200
    );
    let path = "/api/v1/namespaces/default/pods/a/eviction?dryRun=All";
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
    assert_eq!(send(&client, "POST", path, eviction).await.0, 201);
    let asked = pods.get("a").await.unwrap();
    assert!(asked.metadata.deletion_timestamp.is_none(), "it was only asked");
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let evicted = pods.get("a").await.unwrap();
    assert!(evicted.metadata.deletion_timestamp.is_some());
    let conditions = evicted.status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|one| one.type_ == "DisruptionTarget" && one.status == "True"),
        "{conditions:?}"
    );
    let status = refused(pods.evict("b", &EvictParams::default()).await);
    assert_eq!(
        (status.code, status.details.unwrap().causes[0].reason.as_str()),
        (429, "DisruptionBudget")
    );
}

/// A node whose containers say who they are, and then whatever they are sent.
struct Talker {
    more: std::sync::Mutex<Option<futures::channel::mpsc::Receiver<io::Result<Bytes>>>>,
}

impl NodeAccess for Talker {
    fn logs(&self, pod: PodRef<'_>, container: &str, options: LogOptions) -> Result<LogStream, String> {
        if options.previous {
            return Err("previous terminated container \"main\" not found".into());
        }
        let first = format!(
            "{}/{} {container} {:?}\n",
            pod.namespace, pod.name, options.tail_lines
        );
        let first = futures::stream::once(async { Ok(Bytes::from(first)) });
        if !options.follow {
            return Ok(first.boxed());
        }
        Ok(first.chain(self.more.lock().unwrap().take().unwrap()).boxed())
    }

    fn exec(&self, _: PodRef<'_>, _: &str, _: Vec<String>, _: bool) -> Option<Start> {
        None
    }
}

#[tokio::test]
async fn logs_come_from_the_node_as_they_are_written() {
    let server = server();
    let client = server.client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create(&pods, pod("a")).await;
    assert_eq!(
        refused(pods.logs("a", &LogParams::default()).await).code,
        400,
        "it is on no node"
    );
    bind(&client, "a", "n1").await;
    assert_eq!(
        refused(pods.logs("a", &LogParams::default()).await).code,
        500,
        "the node is not there"
    );
    let (mut say, more) = futures::channel::mpsc::channel(1);
    let more = std::sync::Mutex::new(Some(more));
    server.attach_node("n1", Arc::new(Talker { more }));
    let params = LogParams {
        tail_lines: Some(3),
        ..LogParams::default()
    };
    assert_eq!(pods.logs("a", &params).await.unwrap(), "default/a main Some(3)\n");
    let previous = LogParams {
        previous: true,
        ..LogParams::default()
    };
    assert_eq!(refused(pods.logs("a", &previous).await).code, 400);

    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let mut lines = pods.log_stream("a", &follow).await.unwrap().lines();
    assert_eq!(
        within("a line", lines.try_next()).await.unwrap().unwrap(),
        "default/a main None"
    );
    say.send(Ok("later\n".into())).await.unwrap();
    assert_eq!(
        within("a line", lines.try_next()).await.unwrap().unwrap(),
        "later"
    );
    drop(say);
    assert_eq!(within("the end", lines.try_next()).await.unwrap(), None);
}
