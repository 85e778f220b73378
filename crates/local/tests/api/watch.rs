//! Watches.

use std::collections::BTreeSet;

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use trainyard_eventually::within;

use crate::support::{create, pod, server};

/// The lines of a watch, as they come.
struct Lines {
    lines: futures::stream::BoxStream<'static, std::io::Result<String>>,
}

impl Lines {
    async fn open(client: &Client, path: &str) -> Self {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let stream = client.request_stream(request).await.unwrap();
        Self {
            lines: stream.lines().boxed(),
        }
    }

    async fn next(&mut self) -> Option<Value> {
        let line = within("an event", self.lines.try_next()).await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    async fn told(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        (
            event["type"].as_str().unwrap().into(),
            event["object"]["metadata"]["name"].as_str().unwrap_or("-").into(),
        )
    }
}

fn told(what: &str, name: &str) -> (String, String) {
    (what.into(), name.into())
}

#[tokio::test]
async fn a_watch_tells_what_is_there_and_what_happens() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create(&pods, pod("a")).await;
    for path in [
        "/api/v1/pods?watch=true",
        "/api/v1/namespaces/default/pods?watch=1&resourceVersion=0",
    ] {
        let mut watch = Lines::open(&client, path).await;
        assert_eq!(watch.told().await, told("ADDED", "a"));
        let patch = Patch::Merge(json!({"metadata": {"labels": {"at": path.len().to_string()}}}));
        pods.patch("a", &PatchParams::default(), &patch).await.unwrap();
        let event = watch.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["labels"]["at"]),
            (&json!("MODIFIED"), &json!(path.len().to_string()))
        );
        assert_eq!(
            (&event["object"]["kind"], &event["object"]["apiVersion"]),
            (&json!("Pod"), &json!("v1"))
        );
    }
}

#[tokio::test]
async fn a_watch_goes_on_from_a_version() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let first = create(&pods, pod("a")).await;
    create(&pods, pod("b")).await;
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let path = format!(
        "/api/v1/pods?watch=true&resourceVersion={}",
        first.resource_version().unwrap()
    );
    let mut watch = Lines::open(&client, &path).await;
    assert_eq!(watch.told().await, told("ADDED", "b"));
    // A pod that may take no time to go is marked, and goes.
    assert_eq!(watch.told().await, told("MODIFIED", "a"));
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    let version = |value: &Value| {
        value["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(version(&gone) > first.resource_version().unwrap().parse().unwrap());
    assert_eq!(gone["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
}

#[tokio::test]
async fn who_selects_sees_objects_come_and_go() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut watch = Lines::open(
        &client,
        "/api/v1/pods?watch=true&labelSelector=app%3Da&fieldSelector=status.phase%3DPending",
    )
    .await;
    create(&pods, pod("b")).await;
    let made = create(&pods, pod("a")).await;
    assert_eq!(watch.told().await, told("ADDED", "a"));
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    let now = pods
        .patch_status("a", &PatchParams::default(), &running)
        .await
        .unwrap();
    let gone = watch.next().await.unwrap();
    assert_eq!(
        (&gone["type"], &gone["object"]["status"]["phase"]),
        (&json!("DELETED"), &json!("Pending"))
    );
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"],
        now.resource_version().unwrap(),
        "as of when it was not selected any more"
    );
    assert_ne!(made.resource_version(), now.resource_version());
    let pending = Patch::Merge(json!({"status": {"phase": "Pending"}}));
    pods.patch_status("a", &PatchParams::default(), &pending)
        .await
        .unwrap();
    assert_eq!(watch.told().await, told("ADDED", "a"));
}

#[tokio::test]
async fn metadata_alone_can_be_watched_and_so_can_one_object() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create(&pods, pod("a")).await;
    create(&pods, pod("b")).await;
    let params = WatchParams::default().fields("metadata.name=b");
    let mut events = pods.watch_metadata(&params, "0").await.unwrap().boxed();
    let Some(WatchEvent::Added(object)) = within("an event", events.try_next()).await.unwrap() else {
        panic!("something else");
    };
    assert_eq!(
        (object.name_any().as_str(), object.types.unwrap().kind.as_str()),
        ("b", "PartialObjectMetadata")
    );
    let mut one = Lines::open(&client, "/api/v1/namespaces/default/pods/b?watch=true").await;
    assert_eq!(one.told().await, told("ADDED", "b"));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_if_wanted_and_a_watch_ends_in_time() {
    let client = server().client("default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut watch = Lines::open(
        &client,
        "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=90",
    )
    .await;
    let made = create(&maps, json!({"metadata": {"name": "m"}})).await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["kind"]),
        (&json!("BOOKMARK"), &json!("Pod"))
    );
    let version: u64 = bookmark["object"]["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        version >= made.resource_version().unwrap().parse().unwrap(),
        "it is of the whole store"
    );
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(watch.next().await, None);
    let mut silent = Lines::open(&client, "/api/v1/pods?watch=true&timeoutSeconds=90").await;
    assert_eq!(silent.next().await, None);
}

#[tokio::test]
async fn a_version_that_is_forgotten_is_gone() {
    let server = server();
    let client = server.client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let first = create(&pods, pod("a")).await;
    let second = create(&pods, pod("b")).await;
    server.compact();
    let path = |version: String| format!("/api/v1/pods?watch=true&resourceVersion={version}");
    let mut watch = Lines::open(&client, &path(first.resource_version().unwrap())).await;
    let event = watch.next().await.unwrap();
    assert_eq!(
        (
            &event["type"],
            &event["object"]["code"],
            &event["object"]["reason"]
        ),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.next().await, None);
    let mut watch = Lines::open(&client, &path(second.resource_version().unwrap())).await;
    create(&pods, pod("c")).await;
    assert_eq!(watch.told().await, told("ADDED", "c"));
}

#[tokio::test]
async fn kubes_own_watcher_follows_in_both_of_its_ways() {
    let server = server();
    for config in [
        watcher::Config::default().page_size(3),
        watcher::Config::default().streaming_lists(),
    ] {
        let client = server.client("default");
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        for number in 0..10 {
            let _ = pods
                .create(
                    &PostParams::default(),
                    &crate::support::from(pod(&format!("p-{number}"))),
                )
                .await;
        }
        let mut events = watcher(pods.clone(), config).boxed();
        let mut seen = 0;
        loop {
            match within("the list", events.try_next()).await.unwrap().unwrap() {
                watcher::Event::InitApply(_) => seen += 1,
                watcher::Event::InitDone => break,
                _ => {}
            }
        }
        assert_eq!(seen, 10);
        let _ = pods.delete("late", &DeleteParams::default()).await;
        create(&pods, pod("late")).await;
        let watcher::Event::Apply(late) = within("an event", events.try_next()).await.unwrap().unwrap()
        else {
            panic!("something else");
        };
        assert_eq!(late.name_any(), "late");
        pods.delete("late", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_missed_while_much_happens() {
    let client = server().client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut events = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let writers = (0..4).map(|writer| {
        let pods = pods.clone();
        tokio::spawn(async move {
            for number in 0..250 {
                create(&pods, pod(&format!("p-{writer}-{number}"))).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (mut last, mut seen) = (0, BTreeSet::new());
    for _ in 0..1000 {
        let Some(WatchEvent::Added(pod)) = within("an event", events.try_next()).await.unwrap() else {
            panic!("something else");
        };
        let version: u64 = pod.resource_version().unwrap().parse().unwrap();
        assert!(version > last, "in order");
        last = version;
        assert!(seen.insert(pod.name_any()), "told twice: {}", pod.name_any());
    }
    for writer in writers {
        writer.await.unwrap();
    }
    // Whatever else the watch had to tell would come before what happens now.
    create(&pods, pod("last")).await;
    let next = within("the last event", events.try_next()).await.unwrap();
    let Some(WatchEvent::Added(next)) = next else {
        panic!("something else: {next:?}");
    };
    assert_eq!(next.name_any(), "last");
}
