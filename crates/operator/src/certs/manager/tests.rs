//! The manager against a server that keeps objects: what it writes, and what it leaves alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::certs::fake::{MUTATING, SECRETS, Server, VALIDATING};
use crate::leader::Leadership;

struct Replica {
    manager: CertManager,
    serving: Arc<ServingCert>,
}

fn replica(server: &Arc<Server>, leadership: Leadership) -> Replica {
    let serving = Arc::new(ServingCert::default());
    let config = CertConfig::new("system", &["hooks"], true);
    Replica {
        manager: CertManager::new(server.client(), config, leadership, serving.clone()),
        serving,
    }
}

impl Replica {
    /// What the watches bring.
    fn see(&mut self, server: &Server) {
        self.manager.is_read = true;
        self.manager.secret = server.get(&format!("{SECRETS}/trainyard-webhook-tls"));
        self.manager.mutating = server.get(MUTATING);
        self.manager.validating = server.get(VALIDATING);
    }
}

fn never() -> Leadership {
    crate::leader::Elector::new(
        Arc::new(Server::default()).client(),
        crate::leader::LeaderConfig::new("system", "trainyard", "me"),
    )
    .unwrap()
    .leadership()
}

fn configuration() -> Value {
    let webhook = |name: &str| {
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "unknownField": 1,
            "clientConfig": {"service": {"name": "hooks", "namespace": "system", "path": "/mutate"}}
        })
    };
    json!({"metadata": {"name": "trainyard"}, "webhooks": [webhook("a.trainyard.dev"), webhook("b.trainyard.dev")]})
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

#[tokio::test]
async fn the_leader_makes_certificates_and_has_them_trusted_and_is_then_quiet() {
    let server = Arc::new(Server::default());
    server.put(MUTATING, configuration());
    server.put(VALIDATING, configuration());
    let mut one = replica(&server, Leadership::always());
    assert_eq!(
        one.manager.sync(now()).await.unwrap(),
        None,
        "nothing before the Secret was looked for"
    );
    one.see(&server);
    let until = one.manager.sync(now()).await.unwrap().unwrap();
    assert!(until > now() + Duration::from_hours(50 * 24));
    assert!(one.serving.is_loaded());
    assert_eq!(
        server.take_writes(),
        [
            "POST secrets",
            "PATCH mutatingwebhookconfigurations",
            "PATCH validatingwebhookconfigurations"
        ]
    );
    let trusted: MutatingWebhookConfiguration = server.get(MUTATING).unwrap();
    for webhook in trusted.webhooks.unwrap() {
        assert_eq!(
            webhook.client_config.ca_bundle.unwrap().0,
            server.data().ca_crt.into_bytes()
        );
    }
    assert_eq!(
        server.get::<Value>(MUTATING).unwrap()["webhooks"][1]["unknownField"],
        1,
        "the rest is left alone"
    );

    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), [""; 0]);
}

#[tokio::test]
async fn an_installation_that_is_applied_anew_is_trusted_again() {
    let server = Arc::new(Server::default());
    let mut one = replica(&server, Leadership::always());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(
        server.take_writes(),
        ["POST secrets"],
        "no configuration is no error"
    );
    server.put(VALIDATING, configuration());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), ["PATCH validatingwebhookconfigurations"]);
    // The webhooks were reordered since they were seen: nothing is written to the wrong one.
    server.put(VALIDATING, configuration());
    one.see(&server);
    let mut other = configuration();
    other["webhooks"].as_array_mut().unwrap().reverse();
    server.put(VALIDATING, other);
    one.manager.sync(now()).await.unwrap_err();
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing_and_serves_what_there_is() {
    let server = Arc::new(Server::default());
    server.put(MUTATING, configuration());
    let mut two = replica(&server, never());
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert!(!two.serving.is_loaded());
    assert_eq!(server.take_writes(), [""; 0]);

    let mut one = replica(&server, Leadership::always());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    server.take_writes();
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert!(two.serving.is_loaded());
    assert_eq!(server.take_writes(), [""; 0]);

    server.put(MUTATING, configuration());
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert_eq!(
        server.take_writes(),
        [""; 0],
        "also what is trusted is the leader's to write"
    );
}

#[tokio::test]
async fn two_that_race_end_with_one_authority() {
    let server = Arc::new(Server::default());
    let (mut one, mut two) = (
        replica(&server, Leadership::always()),
        replica(&server, Leadership::always()),
    );
    one.see(&server);
    two.see(&server);
    one.manager.sync(now()).await.unwrap();
    let first = server.data();
    assert_eq!(
        two.manager.sync(now()).await.unwrap(),
        None,
        "the other was faster"
    );
    assert_eq!(server.data(), first);
    two.see(&server);
    two.manager.sync(now()).await.unwrap();
    assert_eq!(server.data(), first);
    assert!(two.serving.is_loaded());

    // The same for a renewal: whoever is late has an old resource version.
    let late = now() + Duration::from_hours(80 * 24);
    one.see(&server);
    two.see(&server);
    one.manager.sync(late).await.unwrap();
    let renewed = server.data();
    assert_ne!(renewed.tls_crt, first.tls_crt);
    assert_eq!(two.manager.sync(late).await.unwrap(), None);
    assert_eq!(server.data(), renewed);
}

#[tokio::test]
async fn a_secret_that_was_emptied_is_filled_and_one_that_was_deleted_is_made() {
    let server = Arc::new(Server::default());
    let path = format!("{SECRETS}/trainyard-webhook-tls");
    server.put(
        &path,
        json!({"metadata": {"name": "trainyard-webhook-tls", "resourceVersion": "9"}}),
    );
    let mut one = replica(&server, Leadership::always());
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), ["PUT secrets"]);
    server.objects.lock().clear();
    one.see(&server);
    one.manager.sync(now()).await.unwrap();
    assert_eq!(server.take_writes(), ["POST secrets"]);
}

/// An operator without any right to change what belongs to no namespace.
#[tokio::test]
async fn a_leaf_is_renewed_also_by_who_may_not_have_it_trusted() {
    const DAY: Duration = Duration::from_hours(24);
    let server = Arc::new(Server::default());
    server.forbids_patches.store(true, Ordering::Relaxed);
    server.put(MUTATING, configuration());
    server.put(VALIDATING, configuration());
    let mut one = replica(&server, Leadership::always());
    let mut at = now();
    let authority = async |one: &mut Replica, at: Timestamp| {
        one.see(&server);
        one.manager.sync(at).await.unwrap();
        server.data()
    };
    let first = authority(&mut one, at).await;
    // Nobody ever writes the bundle. The leaf is renewed all the same, by the same authority.
    let mut held = first.clone();
    while at < now() + DAY * 300 {
        at += DAY * 70;
        let next = authority(&mut one, at).await;
        assert_ne!(next.tls_crt, held.tls_crt, "at {at}");
        assert_eq!(next.ca_crt, first.ca_crt);
        held = next;
    }
    // A new authority is made in time, and no leaf is signed by it before it is trusted.
    at = now() + DAY * (3650 - 365 - 30);
    let before = authority(&mut one, at).await;
    at += DAY * 31;
    let added = authority(&mut one, at).await;
    assert!(added.ca_crt.len() > before.ca_crt.len(), "there is none");
    let later = authority(&mut one, at + DAY * 2).await;
    assert_eq!(later, added, "nobody trusts the new one yet");
    server.forbids_patches.store(false, Ordering::Relaxed);
    let trusted = authority(&mut one, at + DAY * 2).await;
    assert_ne!(trusted.tls_crt, added.tls_crt);
}

#[tokio::test]
async fn what_is_undone_while_it_runs_is_done_again() {
    let server = Arc::new(Server::default());
    server.put(MUTATING, configuration());
    server.put(VALIDATING, configuration());
    let one = replica(&server, Leadership::always());
    let two = replica(&server, never());
    let shutdown = CancellationToken::new();
    let tasks = [one.manager, two.manager].map(|manager| tokio::spawn(manager.run(shutdown.clone())));

    let path = format!("{SECRETS}/trainyard-webhook-tls");
    server.until(|server| server.get::<Secret>(&path).is_some()).await;
    let first = server.data();
    for emptied in [MUTATING, VALIDATING, MUTATING] {
        server
            .until(|server| {
                server.trusts(MUTATING, &first.ca_crt) && server.trusts(VALIDATING, &first.ca_crt)
            })
            .await;
        server.put(emptied, configuration());
    }
    // Somebody empties the Secret: everything is made anew, and trusted.
    server.put(&path, json!({"metadata": {"name": "trainyard-webhook-tls"}}));
    server.until(|server| !server.data().ca_crt.is_empty()).await;
    let second = server.data();
    assert_ne!(second.ca_crt, first.ca_crt);
    server
        .until(|server| server.trusts(MUTATING, &second.ca_crt) && server.trusts(VALIDATING, &second.ca_crt))
        .await;
    // A follower serves what the leader made.
    while !(one.serving.is_loaded() && two.serving.is_loaded()) {
        yield_now().await;
    }

    shutdown.cancel();
    for task in tasks {
        task.await.unwrap();
    }
}
