//! What goes with what: finalizers, owners, namespaces.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{create, from, pod, refused, send, server};

fn map(name: &str, finalizers: &[&str], owners: &[(&ConfigMap, bool)]) -> Value {
    let owners = owners.iter().map(|(owner, blocks)| json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "blockOwnerDeletion": blocks,
    }));
    json!({"metadata": {"name": name, "finalizers": finalizers, "ownerReferences": owners.collect::<Vec<_>>()}})
}

async fn names(maps: &Api<ConfigMap>) -> Vec<String> {
    let list = maps.list(&ListParams::default()).await.unwrap();
    let names = list.items.iter().map(ResourceExt::name_any);
    // Every namespace has this one.
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

#[tokio::test]
async fn an_object_waits_for_its_finalizers() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    create(&maps, map("a", &["x.io/one", "x.io/two"], &[])).await;
    let going = maps
        .delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("the object");
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(0));
    let again = maps
        .delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("the object");
    assert_eq!(again.resource_version(), going.resource_version());
    let params = PatchParams::default();
    let more = Patch::Merge(json!({"metadata": {"finalizers": ["x.io/one", "x.io/two", "x.io/three"]}}));
    assert_eq!(
        refused(maps.patch("a", &params, &more).await).code,
        422,
        "none may come"
    );
    let one = Patch::Merge(json!({"metadata": {"finalizers": ["x.io/one"], "deletionTimestamp": null}}));
    let left = maps.patch("a", &params, &one).await.unwrap();
    assert!(
        left.metadata.deletion_timestamp.is_some(),
        "what goes does not come back"
    );
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let last = maps.patch("a", &params, &none).await.unwrap();
    assert_eq!(last.finalizers().len(), 0);
    assert_eq!(refused(maps.get("a").await).code, 404);
}

#[tokio::test]
async fn the_answer_to_a_delete_is_a_status_where_nothing_is_left() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    let made = create(&maps, map("a", &[], &[])).await;
    let status = maps
        .delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .right()
        .expect("a Status");
    assert!(status.is_success());
    let details = status.details.unwrap();
    assert_eq!(
        (details.kind.as_str(), Some(details.uid)),
        ("configmaps", made.uid())
    );
}

#[tokio::test]
async fn dependents_go_with_their_last_owner() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    let one = create(&maps, map("one", &[], &[])).await;
    let two = create(&maps, map("two", &[], &[])).await;
    let child = create(&maps, map("child", &[], &[(&one, false), (&two, false)])).await;
    create(&maps, map("grandchild", &[], &[(&child, false)])).await;
    maps.delete("one", &DeleteParams::background()).await.unwrap();
    let child = maps.get("child").await.unwrap();
    assert_eq!(
        child.owner_references().len(),
        1,
        "the owner that is gone is not named any more"
    );
    maps.delete("two", &DeleteParams::default()).await.unwrap();
    assert!(names(&maps).await.is_empty());
}

#[tokio::test]
async fn what_has_no_owner_left_does_not_stay() {
    let client = server().client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = create(&maps, map("owner", &[], &[])).await;
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    create(&maps, map("late", &[], &[(&owner, false)])).await;
    assert!(names(&maps).await.is_empty());
    // An owner in another namespace is none.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "other"}})).await;
    let owner = create(&maps, map("owner", &[], &[])).await;
    let others: Api<ConfigMap> = Api::namespaced(client, "other");
    create(&others, map("far", &[], &[(&owner, false)])).await;
    assert!(names(&others).await.is_empty());
}

#[tokio::test]
async fn orphans_stay() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    let owner = create(&maps, map("owner", &[], &[])).await;
    create(&maps, map("child", &[], &[(&owner, true)])).await;
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    maps.delete("owner", &orphan).await.unwrap();
    assert_eq!(names(&maps).await, ["child"]);
    assert!(maps.get("child").await.unwrap().owner_references().is_empty());
}

#[tokio::test]
async fn an_owner_may_wait_for_those_it_owns() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    let owner = create(&maps, map("owner", &[], &[])).await;
    create(&maps, map("child", &["x.io/slow"], &[(&owner, true)])).await;
    create(&maps, map("quick", &[], &[(&owner, true)])).await;
    create(&maps, map("aside", &[], &[(&owner, false)])).await;
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    assert_eq!(names(&maps).await, ["aside", "child", "owner"]);
    assert!(
        maps.get("child")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    assert_eq!(
        maps.get("owner").await.unwrap().finalizers(),
        ["foregroundDeletion"]
    );
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("child", &PatchParams::default(), &none).await.unwrap();
    assert!(names(&maps).await.is_empty());
}

#[tokio::test]
async fn a_namespace_takes_its_content_with_it() {
    let client = server().client("default");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "team"}})).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "team");
    create(&maps, map("a", &[], &[])).await;
    create(&pods, pod("free")).await;
    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = "n1".into();
    create(&pods, bound).await;
    let going = namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .expect("the namespace");
    assert_eq!(going.status.unwrap().phase.as_deref(), Some("Terminating"));
    assert!(names(&maps).await.is_empty());
    let left = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(
        (left.len(), left[0].metadata.deletion_timestamp.is_some()),
        (1, true)
    );

    let late = refused(
        maps.create(&PostParams::default(), &from(map("late", &[], &[])))
            .await,
    );
    assert_eq!((late.code, late.reason.as_str()), (403, "Forbidden"));
    assert_eq!(late.details.unwrap().causes[0].reason, "NamespaceTerminating");

    pods.delete("bound", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(refused(namespaces.get("team").await).code, 404);
    assert_eq!(
        refused(namespaces.delete("default", &DeleteParams::default()).await).code,
        403
    );
    create(&namespaces, json!({"metadata": {"name": "team"}})).await;
    let (code, _) = send(
        &client,
        "POST",
        "/api/v1/namespaces/team/configmaps",
        map("a", &[], &[]),
    )
    .await;
    assert_eq!(code, 201);
}
