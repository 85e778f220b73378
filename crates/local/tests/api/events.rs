//! Events, which do not stay for ever.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trainyard_eventually::within;
use trainyard_local::api::Api as Server;
use trainyard_local::env::{Clock, Environment};

use crate::support::create;

/// A clock that goes when it is told to.
#[derive(Default)]
struct Hand(Mutex<Timestamp>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

impl Hand {
    fn on(&self, minutes: i64) {
        *self.0.lock().unwrap() += SignedDuration::from_mins(minutes);
    }
}

fn events() -> (Api<Event>, Arc<Hand>) {
    let hand = Arc::new(Hand::default());
    let server = Server::new(Environment::seeded(7).with_clock(hand.clone()));
    (Api::default_namespaced(server.client("default")), hand)
}

async fn happens(events: &Api<Event>, name: &str) {
    let about = json!({"kind": "Pod", "namespace": "default", "name": "a"});
    create(
        events,
        json!({"metadata": {"name": name}, "involvedObject": about}),
    )
    .await;
}

async fn names(events: &Api<Event>) -> Vec<String> {
    let list = events.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn an_event_goes_when_nobody_has_written_it_for_an_hour() {
    let (events, clock) = events();
    happens(&events, "old").await;
    happens(&events, "again").await;
    clock.on(59);
    let more = Patch::Merge(json!({"count": 2}));
    events
        .patch("again", &PatchParams::default(), &more)
        .await
        .unwrap();
    assert_eq!(names(&events).await, ["again", "old"]);
    clock.on(1);
    happens(&events, "new").await;
    assert_eq!(names(&events).await, ["again", "new"]);
    clock.on(59);
    happens(&events, "newest").await;
    assert_eq!(names(&events).await, ["new", "newest"]);
}

#[tokio::test]
async fn an_event_of_the_same_name_has_an_hour_of_its_own() {
    let (events, clock) = events();
    happens(&events, "a").await;
    clock.on(30);
    events
        .delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    happens(&events, "a").await;
    clock.on(30);
    happens(&events, "b").await;
    assert_eq!(names(&events).await, ["a", "b"]);
}

#[tokio::test]
async fn whoever_watches_is_told() {
    let (events, clock) = events();
    happens(&events, "old").await;
    let version = events
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version;
    let watch = events.watch(&WatchParams::default(), &version.unwrap()).await;
    let mut watch = watch.unwrap().boxed();
    clock.on(60);
    happens(&events, "new").await;
    let mut told = Vec::new();
    while told.len() < 2 {
        match within("something happens", watch.try_next())
            .await
            .unwrap()
            .unwrap()
        {
            WatchEvent::Added(event) => told.push(format!("added {}", event.name_any())),
            WatchEvent::Deleted(event) => told.push(format!("deleted {}", event.name_any())),
            _ => {}
        }
    }
    assert_eq!(told, ["added new", "deleted old"]);
}
