//! Tokens of service accounts, as they are asked for and as others check them.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use kube::{Api, Client};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_local::api::Api as Server;
use trainyard_local::env::{Clock, Environment};

use crate::support::{create, pod, send};

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-01-31T12:00:00.7Z".parse().unwrap()
    }
}

fn client() -> Client {
    Server::new(Environment::seeded(7).with_clock(Arc::new(Noon))).client("default")
}

fn part(token: &str, number: usize) -> Vec<u8> {
    URL_SAFE_NO_PAD
        .decode(token.split('.').nth(number).unwrap())
        .unwrap()
}

/// What a token claims, if the server's published key says that it may.
async fn claims(client: &Client, token: &str) -> Value {
    let (_, configuration) = send(client, "GET", "/.well-known/openid-configuration", Value::Null).await;
    let issuer = configuration["issuer"].as_str().unwrap();
    let path = configuration["jwks_uri"]
        .as_str()
        .unwrap()
        .strip_prefix(issuer)
        .unwrap();
    let (_, keys) = send(client, "GET", path, Value::Null).await;
    let head: Value = serde_json::from_slice(&part(token, 0)).unwrap();
    let key = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["kid"] == head["kid"])
        .unwrap();
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let (signed, _) = token.rsplit_once('.').unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &part(token, 2))
        .expect("it is signed");
    serde_json::from_slice(&part(token, 1)).unwrap()
}

#[tokio::test]
async fn a_token_says_whose_it_is_and_until_when() {
    let client = client();
    let (code, answer) = send(&client, "POST", TOKEN, json!({"spec": {"audiences": []}})).await;
    assert_eq!((code, answer["kind"].as_str()), (201, Some("TokenRequest")));
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-31T13:00:00Z");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    let claims = claims(&client, answer["status"]["token"].as_str().unwrap()).await;
    let (_, account) = send(&client, "GET", TOKEN.trim_end_matches("/token"), Value::Null).await;
    let start = Noon.now().as_second();
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    assert_eq!(claims["aud"], json!([claims["iss"]]));
    assert_eq!(
        (&claims["iat"], &claims["nbf"], &claims["exp"]),
        (&json!(start), &json!(start), &json!(start + 3600))
    );
    assert_eq!(
        claims["kubernetes.io"],
        json!({"namespace": "default", "serviceaccount": {"name": "default", "uid": account["metadata"]["uid"]}})
    );
}

#[tokio::test]
async fn a_token_can_be_bound_to_a_pod() {
    let client = client();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(client.clone());
    let uid = create(&pods, pod("a")).await.metadata.uid.unwrap();
    let request = |kind: &str, name: &str, uid: &str| {
        let bound = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        json!({"spec": {"audiences": ["them"], "expirationSeconds": 600, "boundObjectRef": bound}})
    };
    let (_, answer) = send(&client, "POST", TOKEN, request("Pod", "a", &uid)).await;
    let claims = claims(&client, answer["status"]["token"].as_str().unwrap()).await;
    assert_eq!(claims["aud"], json!(["them"]));
    assert_eq!(claims["kubernetes.io"]["pod"], json!({"name": "a", "uid": uid}));
    for (request, code) in [
        (request("Pod", "a", "other"), 409),
        (request("Pod", "b", ""), 404),
        (request("Lease", "a", ""), 400),
    ] {
        let (refused, answer) = send(&client, "POST", TOKEN, request).await;
        assert_eq!(refused, code, "{answer}");
    }
    let other = json!({"metadata": {"name": "other"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(send(&client, "POST", accounts, other).await.0, 201);
    let (code, answer) = send(
        &client,
        "POST",
        &format!("{accounts}/other/token"),
        request("Pod", "a", &uid),
    )
    .await;
    assert_eq!(code, 400, "{answer}");
}

#[rstest]
#[case(TOKEN, json!({"spec": {"audiences": [], "expirationSeconds": 599}}), 422)]
#[case(TOKEN, json!({"spec": {"audiences": [], "expirationSeconds": 4_294_967_297_i64}}), 422)]
#[case(TOKEN, json!({"metadata": {"name": "x"}, "spec": {"audiences": []}}), 422)]
#[case(TOKEN, json!([]), 400)]
#[case("/api/v1/namespaces/default/serviceaccounts/x/token", json!({"spec": {"audiences": []}}), 404)]
#[tokio::test]
async fn what_can_not_be_is_refused(#[case] path: &str, #[case] request: Value, #[case] code: u16) {
    let (refused, answer) = send(&client(), "POST", path, request).await;
    assert_eq!(refused, code, "{answer}");
}
