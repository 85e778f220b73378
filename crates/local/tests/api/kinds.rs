//! Which kinds there are, and what each has of its own.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{create, from, pod, refused, send, send_as, server};

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let client = server().client("default");
    let path = "/api/v1/namespaces/default/configmaps";
    create(&Api::<ConfigMap>::default_namespaced(client.clone()), map("a")).await;
    for (method, path, kind, expected) in [
        (
            "PATCH",
            format!("{path}/a?fieldManager=x"),
            "application/apply-patch+yaml",
            415,
        ),
        (
            "PATCH",
            format!("{path}/a"),
            "application/strategic-merge-patch+json",
            415,
        ),
        ("POST", path.to_owned(), "application/yaml", 415),
        ("DELETE", path.to_owned(), "application/json", 405),
        ("POST", format!("{path}/a"), "application/json", 405),
        (
            "GET",
            "/apis/apps/v1/deployments".to_owned(),
            "application/json",
            404,
        ),
        ("GET", format!("{path}/a/status"), "application/json", 404),
    ] {
        let (code, body) = send_as(&client, method, &path, kind, json!({})).await;
        assert_eq!(
            (code, body["kind"].as_str()),
            (expected, Some("Status")),
            "{method} {path}: {body}"
        );
        assert!(body["message"].as_str().unwrap().len() > 20, "{body}");
    }
}

#[tokio::test]
async fn events_have_two_faces() {
    let client = server().client("default");
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "note": "words", "type": "Normal", "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (code, body) = send(&client, "POST", path, event).await;
    assert_eq!(
        (code, &body["note"], &body["apiVersion"]),
        (201, &json!("words"), &json!("events.k8s.io/v1"))
    );
    let (_, list) = send(
        &client,
        "GET",
        "/api/v1/events?fieldSelector=involvedObject.name=p",
        Value::Null,
    )
    .await;
    assert_eq!(
        (
            &list["items"][0]["message"],
            &list["items"][0]["involvedObject"]["kind"]
        ),
        (&json!("words"), &json!("Pod"))
    );
    let changed = json!({"note": "other words"});
    let (code, body) = send(&client, "PATCH", &format!("{path}/e"), changed).await;
    assert_eq!((code, &body["note"]), (200, &json!("other words")));
}

#[tokio::test]
async fn services_have_an_address_unless_they_are_headless() {
    let client = server().client("default");
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let service = |name: &str, ip: Value| json!({"metadata": {"name": name}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}});
    let one = create(&services, service("one", Value::Null)).await;
    let spec = one.spec.clone().unwrap();
    let ip = spec.cluster_ip.unwrap();
    assert!(ip.starts_with("10.96."), "{ip}");
    assert_eq!(
        (spec.cluster_ips.unwrap(), spec.type_.as_deref()),
        (vec![ip.clone()], Some("ClusterIP"))
    );
    let port = &spec.ports.unwrap()[0];
    assert_eq!(
        (port.protocol.as_deref(), port.target_port.is_some()),
        (Some("TCP"), true)
    );
    let headless = create(&services, service("headless", json!("None"))).await;
    assert_eq!(headless.spec.unwrap().cluster_ip.as_deref(), Some("None"));
    assert_eq!(
        refused(
            services
                .create(&PostParams::default(), &from(service("two", json!(ip))))
                .await
        )
        .code,
        422
    );
    let patch = Patch::Merge(json!({"spec": {"clusterIP": "10.96.1.1"}}));
    assert_eq!(
        refused(services.patch("one", &PatchParams::default(), &patch).await).code,
        422
    );
    let (code, _) = send(
        &client,
        "PUT",
        "/api/v1/namespaces/default/services/one",
        service("one", Value::Null),
    )
    .await;
    assert_eq!(code, 200, "an address that is left out stays");
    services.delete("one", &DeleteParams::default()).await.unwrap();
    create(&services, service("two", json!(ip))).await;
}

#[tokio::test]
async fn secrets_nodes_and_namespaces_are_filled_in() {
    let client = server().client("default");
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = create(
        &secrets,
        json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
    )
    .await;
    assert_eq!(
        (secret.type_.as_deref(), secret.data.unwrap()["a"].0.as_slice()),
        (Some("Opaque"), b"b".as_slice())
    );
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = create(&namespaces, json!({"metadata": {"name": "team"}})).await;
    assert_eq!(namespace.labels()["kubernetes.io/metadata.name"], "team");
    assert_eq!(namespace.status.unwrap().phase.as_deref(), Some("Active"));
    assert_eq!(
        send(
            &client,
            "GET",
            "/api/v1/namespaces/team/serviceaccounts/default",
            Value::Null
        )
        .await
        .0,
        200
    );
    let nodes: Api<Node> = Api::all(client.clone());
    create(
        &nodes,
        json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}}),
    )
    .await;
    let status = Patch::Merge(json!({"spec": {"unschedulable": true}, "status": {"phase": "Running"}}));
    let node = nodes
        .patch_status("n", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(
        node.spec.and_then(|spec| spec.unschedulable),
        None,
        "the status alone is written"
    );
    assert_eq!(node.status.unwrap().phase.as_deref(), Some("Running"));
}

#[tokio::test]
async fn what_is_served_can_be_asked_for() {
    let client = server().client("default");
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let groups = client.list_api_groups().await.unwrap();
    assert!(
        groups
            .groups
            .iter()
            .any(|group| group.name == "coordination.k8s.io")
    );
    let core = client.list_core_api_resources("v1").await.unwrap();
    let pods = core
        .resources
        .iter()
        .find(|resource| resource.name == "pods")
        .unwrap();
    assert!(pods.namespaced && pods.short_names.as_ref().unwrap()[0] == "po");
    assert!(
        core.resources
            .iter()
            .any(|resource| resource.name == "pods/status")
    );
    assert_eq!(pod("x")["kind"], "Pod");
}
