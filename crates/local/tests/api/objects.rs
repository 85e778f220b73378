//! Creation, reading, changing, lists: what every kind has in common.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{create, from, refused, send, send_as, server};

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test]
async fn what_only_the_server_writes_is_written_by_the_server() {
    let client = server().client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut sent = map("a");
    sent["metadata"]["uid"] = "mine".into();
    sent["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z".into();
    let made = create(&maps, sent).await;
    let read = maps.get("a").await.unwrap();
    assert_eq!(made, read);
    assert_ne!(read.uid().unwrap(), "mine");
    assert_ne!(
        read.creation_timestamp().unwrap().0.to_string(),
        "2000-01-01T00:00:00Z"
    );
    assert_eq!(read.namespace().as_deref(), Some("default"));
    assert!(read.resource_version().unwrap().parse::<u64>().is_ok());
    assert_eq!(
        read.metadata.generation, None,
        "what has no spec has no generation"
    );
}

#[tokio::test]
async fn names_can_be_made_up() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    let sent = json!({"metadata": {"generateName": "job-"}});
    let (one, other) = (create(&maps, sent.clone()).await, create(&maps, sent).await);
    assert!(
        one.name_any().starts_with("job-") && one.name_any().len() == 9,
        "{}",
        one.name_any()
    );
    assert_ne!(one.name_any(), other.name_any());
}

#[tokio::test]
async fn what_is_only_tried_leaves_nothing() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client("default"));
    let tried = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let made = maps.create(&tried, &from(map("a"))).await.unwrap();
    assert!(made.uid().is_some() && made.resource_version().is_none());
    assert_eq!(refused(maps.get("a").await).code, 404);
    create(&maps, map("a")).await;
    assert_eq!(
        refused(maps.create(&tried, &from(map("a"))).await).reason,
        "AlreadyExists"
    );
    let services: Api<Service> = Api::default_namespaced(server.client("default"));
    let service: Service =
        from(json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 1}]}}));
    services.create(&tried, &service).await.unwrap();
    services.create(&PostParams::default(), &service).await.unwrap();
}

#[tokio::test]
async fn refusals_say_what_clients_look_for() {
    let client = server().client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&maps, map("a")).await;

    let exists = refused(maps.create(&PostParams::default(), &from(map("a"))).await);
    assert_eq!((exists.code, exists.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(exists.message, "configmaps \"a\" already exists");

    let missing = refused(maps.get("b").await);
    let details = missing.details.unwrap();
    assert_eq!(
        (missing.code, details.name.as_str(), details.kind.as_str()),
        (404, "b", "configmaps")
    );

    let nowhere: Api<ConfigMap> = Api::namespaced(client.clone(), "nowhere");
    let nowhere = refused(nowhere.create(&PostParams::default(), &from(map("a"))).await);
    assert_eq!(
        (nowhere.code, nowhere.details.unwrap().kind.as_str()),
        (404, "namespaces")
    );

    let invalid = refused(maps.create(&PostParams::default(), &from(map("A"))).await);
    assert_eq!((invalid.code, invalid.reason.as_str()), (422, "Invalid"));
    let details = invalid.details.unwrap();
    assert_eq!(
        (details.kind.as_str(), details.causes[0].field.as_str()),
        ("ConfigMap", "metadata.name")
    );
    assert_eq!(details.causes[0].reason, "FieldValueInvalid");

    let unnamed = refused(maps.create(&PostParams::default(), &ConfigMap::default()).await);
    assert_eq!(unnamed.details.unwrap().causes[0].reason, "FieldValueRequired");

    let path = "/api/v1/namespaces/default/configmaps";
    let (code, body) = send(
        &client,
        "POST",
        path,
        json!({"metadata": {"name": "x"}, "data": {"a": 1}}),
    )
    .await;
    assert_eq!((code, body["reason"].as_str()), (400, Some("BadRequest")));
    assert!(body["message"].as_str().unwrap().contains("data.a"), "{body}");
    let (code, _) = send(
        &client,
        "POST",
        path,
        json!({"kind": "Secret", "metadata": {"name": "x"}}),
    )
    .await;
    assert_eq!(code, 400);
    let (code, _) = send(
        &client,
        "POST",
        path,
        json!({"metadata": {"name": "x", "namespace": "other"}}),
    )
    .await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn fields_that_do_not_exist_are_left_out_or_refused() {
    let client = server().client("default");
    let sent = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "m", "image": "i:1", "nonsense": 1}]}});
    let path = "/api/v1/namespaces/default/pods";
    let (code, body) = send(
        &client,
        "POST",
        &format!("{path}?fieldValidation=Strict"),
        sent.clone(),
    )
    .await;
    assert_eq!(code, 400);
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"spec.containers[0].nonsense\""),
        "{body}"
    );
    let (code, body) = send(&client, "POST", path, sent).await;
    assert_eq!((code, body["spec"]["containers"][0].get("nonsense")), (201, None));
}

#[tokio::test]
async fn an_update_is_refused_if_the_object_has_changed() {
    let client = server().client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let first = create(&maps, map("a")).await;
    let mut second = first.clone();
    second.data = from(json!({"a": "2"}));
    let written = maps.replace("a", &PostParams::default(), &second).await.unwrap();
    assert_ne!(written.resource_version(), first.resource_version());
    let stale = refused(maps.replace("a", &PostParams::default(), &second).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));

    let same = maps.replace("a", &PostParams::default(), &written).await.unwrap();
    assert_eq!(
        same.resource_version(),
        written.resource_version(),
        "nothing changed"
    );

    second.metadata.resource_version = None;
    second.data = from(json!({"a": "3"}));
    maps.replace("a", &PostParams::default(), &second).await.unwrap();
    second.metadata.uid = Some("other".into());
    assert_eq!(
        refused(maps.replace("a", &PostParams::default(), &second).await).code,
        409
    );
    let (code, _) = send(
        &client,
        "PUT",
        "/api/v1/namespaces/default/configmaps/b",
        map("a"),
    )
    .await;
    assert_eq!(code, 404);
    let (code, _) = send(
        &client,
        "PUT",
        "/api/v1/namespaces/default/configmaps/a",
        map("b"),
    )
    .await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn a_lease_is_written_by_who_read_it_last() {
    let leases: Api<Lease> = Api::default_namespaced(server().client("default"));
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "a",
        "renewTime": "2026-01-01T00:00:00.123456Z"}});
    // An update of what is not there creates it.
    let made = leases
        .replace("l", &PostParams::default(), &from(lease.clone()))
        .await
        .unwrap();
    assert_eq!(made.spec.as_ref().unwrap().holder_identity.as_deref(), Some("a"));
    let blind = refused(leases.replace("l", &PostParams::default(), &from(lease)).await);
    assert_eq!(
        (blind.code, blind.details.unwrap().causes[0].field.as_str()),
        (422, "metadata.resourceVersion")
    );
    leases.replace("l", &PostParams::default(), &made).await.unwrap();
}

#[tokio::test]
async fn patches_change_what_they_name() {
    let client = server().client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = create(&maps, map("a")).await;
    let merge = json!({"metadata": {"labels": {"x": "y"}}, "data": {"a": null, "b": "2"}});
    let patched = maps
        .patch("a", &PatchParams::default(), &Patch::Merge(merge))
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap(), [("b".to_owned(), "2".to_owned())].into());
    assert_eq!(patched.metadata.labels.unwrap()["x"], "y");

    let path = "/api/v1/namespaces/default/configmaps/a";
    let json_patch = json!([{"op": "test", "path": "/data/b", "value": "2"}, {"op": "add", "path": "/data/c", "value": "3"}]);
    let (code, body) = send_as(
        &client,
        "PATCH",
        path,
        "application/json-patch+json",
        json_patch.clone(),
    )
    .await;
    assert_eq!((code, &body["data"]), (200, &json!({"b": "2", "c": "3"})));
    let (code, _) = send_as(
        &client,
        "PATCH",
        path,
        "application/json-patch+json",
        json!([{"op": "test", "path": "/data/b", "value": "no"}]),
    )
    .await;
    assert_eq!(code, 422);

    let stale = json!({"metadata": {"resourceVersion": made.resource_version()}, "data": {"d": "4"}});
    assert_eq!(
        refused(
            maps.patch("a", &PatchParams::default(), &Patch::Merge(stale))
                .await
        )
        .code,
        409
    );
    let renamed = json!({"metadata": {"name": "b"}});
    assert_eq!(
        refused(
            maps.patch("a", &PatchParams::default(), &Patch::Merge(renamed))
                .await
        )
        .code,
        400
    );
}

#[tokio::test]
async fn patches_at_the_same_time_are_all_applied() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client("default"));
    create(&maps, map("a")).await;
    let patches = (0..50).map(|number| {
        let maps = maps.clone();
        tokio::spawn(async move {
            let patch = json!({"data": {format!("key-{number}"): "x"}});
            maps.patch("a", &PatchParams::default(), &Patch::Merge(patch))
                .await
                .unwrap();
        })
    });
    for patch in patches.collect::<Vec<_>>() {
        patch.await.unwrap();
    }
    assert_eq!(maps.get("a").await.unwrap().data.unwrap().len(), 51);
}

#[tokio::test]
async fn lists_are_selected_and_come_in_pages_of_one_version() {
    let server = server();
    let client = server.client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    // What every namespace has would be one more.
    maps.delete("kube-root-ca.crt", &DeleteParams::default())
        .await
        .unwrap();
    for number in 0..25 {
        let mut map = map(&format!("m-{number:02}"));
        map["metadata"]["labels"] = json!({"odd": (number % 2).to_string()});
        create(&maps, map).await;
    }
    let odd = maps.list(&ListParams::default().labels("odd=1")).await.unwrap();
    assert_eq!((odd.items.len(), odd.items[0].name_any().as_str()), (12, "m-01"));
    let one = maps
        .list(&ListParams::default().fields("metadata.name=m-03"))
        .await
        .unwrap();
    assert_eq!(one.items.len(), 1);
    let unknown = refused(maps.list(&ListParams::default().fields("data.a=1")).await);
    assert_eq!(unknown.code, 400);

    let mut params = ListParams::default().limit(10);
    let first = maps.list(&params).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (10, Some(15))
    );
    // What happens between two pages is in none of them.
    maps.delete("m-20", &DeleteParams::default()).await.unwrap();
    create(&maps, map("m-19b")).await;
    params.continue_token = first.metadata.continue_.clone();
    let second = maps.list(&params).await.unwrap();
    params.continue_token = second.metadata.continue_.clone();
    let third = maps.list(&params).await.unwrap();
    let names: Vec<String> = [&first, &second, &third]
        .iter()
        .flat_map(|page| page.items.iter().map(ResourceExt::name_any))
        .collect();
    assert_eq!(
        names,
        (0..25).map(|number| format!("m-{number:02}")).collect::<Vec<_>>()
    );
    assert_eq!(third.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(third.metadata.continue_, None);

    server.compact();
    params.continue_token = first.metadata.continue_;
    assert_eq!(refused(maps.list(&params).await).reason, "Expired");
    let metadata = maps.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 25);
    let path = "/api/v1/configmaps?resourceVersion=99999999";
    assert_eq!(send(&client, "GET", path, Value::Null).await.0, 504);
}
