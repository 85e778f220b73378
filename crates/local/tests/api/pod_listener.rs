//! The listener through which pods reach the API: who is authenticated, who is authorized, and who
//! gets in nobody's way.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use kube::Client;
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trainyard_eventually::within;
use trainyard_local::api::Api as Server;
use trainyard_local::env::{Clock, Environment};

use crate::support::{pod, send};

/// More connections than may be unauthenticated.
const CROWD: usize = 300;

/// A clock that is set by hand.
#[derive(Clone)]
struct Watch(Arc<AtomicI64>);

impl Clock for Watch {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

/// A cluster that serves pods, with the account `worker` and the pods `w-0` and `w-1` of it in the
/// namespace `default`.
struct Yard {
    client: Client,
    address: SocketAddr,
    tls: TlsConnector,
    clock: Watch,
    _pod_listener: JoinSet<()>,
}

impl Yard {
    async fn open() -> Self {
        let clock = Watch(Arc::new(AtomicI64::new(1_770_000_000)));
        let server = Server::new(Environment::seeded(7).with_clock(Arc::new(clock.clone())));
        let client = server.client("default");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut pod_listener = JoinSet::new();
        pod_listener.spawn(async move { server.serve_pods(listener, Ipv4Addr::LOCALHOST).await.unwrap() });
        let yard = Self {
            tls: trusting(&client).await,
            client,
            address,
            clock,
            _pod_listener: pod_listener,
        };
        yard.make(
            "default",
            "serviceaccounts",
            json!({"metadata": {"name": "worker"}}),
        )
        .await;
        for name in ["w-0", "w-1"] {
            let mut pod = pod(name);
            pod["spec"]["serviceAccountName"] = "worker".into();
            yard.make("default", "pods", pod).await;
        }
        yard
    }

    async fn make(&self, namespace: &str, plural: &str, object: Value) -> Value {
        let group = match plural {
            "roles" | "rolebindings" => "/apis/rbac.authorization.k8s.io/v1",
            _ => "/api/v1",
        };
        let path = format!("{group}/namespaces/{namespace}/{plural}");
        let (code, made) = send(&self.client, "POST", &path, object).await;
        assert_eq!(code, 201, "{made}");
        made
    }

    /// Gives the account a role of some rules in a namespace.
    async fn permit(&self, namespace: &str, rules: Value) {
        let role = json!({"metadata": {"name": "may"}, "rules": rules});
        self.make(namespace, "roles", role).await;
        self.bind(
            namespace,
            "Role",
            json!({"kind": "ServiceAccount", "name": "worker", "namespace": "default"}),
        )
        .await;
    }

    async fn bind(&self, namespace: &str, kind: &str, subject: Value) {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "may"});
        let binding = json!({"metadata": {"name": "may"}, "roleRef": role, "subjects": [subject]});
        self.make(namespace, "rolebindings", binding).await;
    }

    /// A token of the account, as a request asks for it.
    async fn token_for(&self, spec: Value) -> String {
        let path = "/api/v1/namespaces/default/serviceaccounts/worker/token";
        let (code, answer) = send(&self.client, "POST", path, json!({"spec": spec})).await;
        assert_eq!(code, 201, "{answer}");
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The token that a pod finds.
    async fn token(&self) -> String {
        self.token_for(bound("Pod", "w-0")).await
    }

    async fn knock(&self) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        self.tls.connect(name, tcp).await.unwrap()
    }

    /// Asks as somebody who has a token. The code and the body of the answer.
    async fn ask(&self, token: &str, method: &str, path: &str) -> (u16, Value) {
        self.ask_with(&format!("Authorization: Bearer {token}\r\n"), method, path)
            .await
    }

    async fn ask_with(&self, headers: &str, method: &str, path: &str) -> (u16, Value) {
        let mut stream = self.knock().await;
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: kubernetes\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let said = within("an answer", rest(&mut stream)).await;
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.unwrap_or(0), serde_json::from_str(body).unwrap_or_default())
    }
}

/// A client that trusts the authority which every namespace knows.
async fn trusting(client: &Client) -> TlsConnector {
    let path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let (_, authority) = send(client, "GET", path, Value::Null).await;
    let certificate = authority["data"]["ca.crt"].as_str().unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// All that is still said on a connection. Who is shown out need not be told in the words of TLS.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

fn bound(kind: &str, name: &str) -> Value {
    json!({"audiences": [], "boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}})
}

fn rule(resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": verbs})
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/w-0";

#[rstest]
#[case::nothing("")]
#[case::empty("Authorization: Bearer \r\n")]
#[case::no_token("Authorization: Bearer nonsense\r\n")]
#[case::three_parts("Authorization: Bearer a.b.c\r\n")]
#[case::password("Authorization: Basic d29ya2VyOnNlY3JldA==\r\n")]
#[case::no_text("Authorization: Bearer \u{fc}\r\n")]
#[tokio::test]
async fn who_shows_no_token_is_not_let_in(#[case] headers: &str) {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("*", &["*"])])).await;
    for path in [POD, PODS, "/api", "/healthz", "/nowhere"] {
        let (code, answer) = yard.ask_with(headers, "GET", path).await;
        assert_eq!(
            (code, &answer["reason"]),
            (401, &json!("Unauthorized")),
            "{path}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_token_of_a_pod_authenticates_it() {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["get"])])).await;
    let token = yard.token().await;
    let (code, answer) = yard.ask(&token, "GET", POD).await;
    assert_eq!(
        (code, &answer["metadata"]["name"]),
        (200, &json!("w-0")),
        "{answer}"
    );
    // As every server reads it.
    let (code, _) = yard
        .ask_with(&format!("Authorization: bearer {token}\r\n"), "GET", POD)
        .await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_token_holds_from_its_beginning_to_its_end() {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["get"])])).await;
    let token = yard
        .token_for(json!({"audiences": [], "expirationSeconds": 600}))
        .await;
    let start = yard.clock.0.load(Ordering::Relaxed);
    for (second, code) in [(-1, 401), (0, 200), (599, 200), (600, 401), (100_000, 401)] {
        yard.clock.0.store(start + second, Ordering::Relaxed);
        assert_eq!(
            yard.ask(&token, "GET", POD).await.0,
            code,
            "{second} s after it was made"
        );
    }
}

#[tokio::test]
async fn a_token_for_somebody_else_is_none_for_the_api() {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["get"])])).await;
    let token = yard.token_for(json!({"audiences": ["trainyard"]})).await;
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 401);
}

/// Two runs have the same names and, here, the same UIDs. Each has a key of its own.
#[tokio::test]
async fn a_token_of_another_run_is_none_of_this() {
    let (yard, other) = (Yard::open().await, Yard::open().await);
    let (ours, theirs) = (yard.token().await, other.token().await);
    yard.permit("default", json!([rule("pods", &["get"])])).await;
    let claims = |token: &str| token.split('.').nth(1).unwrap().to_owned();
    assert_eq!(claims(&theirs), claims(&ours), "only the key differs");
    assert_eq!(yard.ask(&theirs, "GET", POD).await.0, 401);
    assert_eq!(yard.ask(&ours, "GET", POD).await.0, 200);
    // What was not signed as it is.
    let signature = ours.rsplit_once('.').unwrap().1;
    let other_claims = claims(&yard.token_for(json!({"audiences": []})).await);
    let head = ours.split('.').next().unwrap();
    let forged = format!("{head}.{other_claims}.{signature}");
    assert_eq!(yard.ask(&forged, "GET", POD).await.0, 401);
}

#[rstest]
#[case::pod(bound("Pod", "w-1"), "pods/w-1?gracePeriodSeconds=0")]
#[case::secret(bound("Secret", "bound"), "secrets/bound")]
#[case::account(json!({"audiences": []}), "serviceaccounts/worker")]
#[tokio::test]
async fn a_token_dies_with_what_it_was_made_for(#[case] spec: Value, #[case] path: &str) {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["get"])])).await;
    yard.make("default", "secrets", json!({"metadata": {"name": "bound"}}))
        .await;
    let token = yard.token_for(spec).await;
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 200);
    let path = format!("/api/v1/namespaces/default/{path}");
    let (code, answer) = send(&yard.client, "DELETE", &path, Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 401);
    // Nor does it come back with another of the same name.
    let (plural, name) = path.rsplit_once('/').unwrap();
    let plural = plural.rsplit_once('/').unwrap().1;
    let name = name.split('?').next().unwrap();
    let object = if plural == "pods" {
        pod(name)
    } else {
        json!({"metadata": {"name": name}})
    };
    yard.make("default", plural, object).await;
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 401);
}

#[tokio::test]
async fn without_a_role_nothing_is_allowed_but_to_ask_what_there_is() {
    let yard = Yard::open().await;
    let token = yard.token().await;
    let (code, answer) = yard.ask(&token, "GET", POD).await;
    assert_eq!((code, &answer["reason"]), (403, &json!("Forbidden")));
    let said = "pods \"w-0\" is forbidden: User \"system:serviceaccount:default:worker\" cannot get resource \"pods\" in \
                API group \"\" in the namespace \"default\"";
    assert_eq!(answer["message"], said);
    let (code, answer) = yard.ask(&token, "GET", "/api/v1/nodes").await;
    assert_eq!(code, 403);
    let said = "nodes is forbidden: User \"system:serviceaccount:default:worker\" cannot list resource \"nodes\" in API \
                group \"\" at the cluster scope";
    assert_eq!(answer["message"], said);
    for path in ["/api", "/apis", "/api/v1", "/version", "/openid/v1/jwks"] {
        assert_eq!(yard.ask(&token, "GET", path).await.0, 200, "{path}");
    }
    assert_eq!(yard.ask(&token, "POST", "/api").await.0, 404);
    assert_eq!(yard.ask(&token, "GET", "/nowhere").await.0, 404);
}

/// What a role allows is allowed, and nothing beside it.
#[rstest]
#[case::named(json!({"resourceNames": ["w-0"]}), "GET", "pods/w-0", 200)]
#[case::another_name(json!({"resourceNames": ["w-0"]}), "GET", "pods/w-1", 403)]
#[case::all_of_them(json!({"resourceNames": ["w-0"], "verbs": ["*"]}), "GET", "pods", 403)]
#[case::one_of_all(json!({"resourceNames": ["w-0"], "verbs": ["list"]}), "GET", "pods?fieldSelector=metadata.name%3Dw-0", 200)]
#[case::another_of_all(json!({"resourceNames": ["w-0"], "verbs": ["list"]}), "GET", "pods?fieldSelector=metadata.name%3Dw-1", 403)]
#[case::all_but_one(json!({"resourceNames": ["w-0"], "verbs": ["list"]}), "GET", "pods?fieldSelector=metadata.name!%3Dw-0", 403)]
#[case::by_another_field(json!({"resourceNames": ["w-0"], "verbs": ["list"]}), "GET", "pods?fieldSelector=spec.nodeName%3Dw-0", 403)]
#[case::no_selector(json!({"resourceNames": ["w-0"], "verbs": ["list"]}), "GET", "pods?fieldSelector=w-0", 400)]
#[case::a_new_one(json!({"resourceNames": ["w-0"], "verbs": ["create"]}), "POST", "pods", 403)]
#[case::another_verb(json!({}), "DELETE", "pods/w-0", 403)]
#[case::change(json!({}), "PATCH", "pods/w-0", 403)]
#[case::replacement(json!({}), "PUT", "pods/w-0", 403)]
#[case::list(json!({}), "GET", "pods", 403)]
#[case::watch(json!({"verbs": ["get", "list"]}), "GET", "pods?watch=true", 403)]
#[case::watch_of_one(json!({}), "GET", "pods/w-0?watch=true", 403)]
#[case::removal_of_all(json!({"verbs": ["delete"]}), "DELETE", "pods", 403)]
#[case::odd_method(json!({}), "BREW", "pods/w-0", 403)]
#[case::subresource(json!({}), "GET", "pods/w-0/log", 403)]
#[case::own_subresource(json!({"resources": ["pods/status"]}), "GET", "pods/w-0/status", 200)]
#[case::only_subresource(json!({"resources": ["pods/status"]}), "GET", "pods/w-0", 403)]
#[case::subresource_of_any(json!({"resources": ["*/status"]}), "GET", "pods/w-0/status", 200)]
#[case::token(json!({"resources": ["serviceaccounts"], "verbs": ["*"]}), "POST", "serviceaccounts/worker/token", 403)]
#[case::another_kind(json!({}), "GET", "secrets/x", 403)]
#[case::another_group(json!({"apiGroups": ["apps"]}), "GET", "pods/w-0", 403)]
#[case::any_group(json!({"apiGroups": ["*"]}), "GET", "pods/w-0", 200)]
#[case::as_it_is_written(json!({}), "GET", "pods%2Fw-0", 200)]
#[case::as_it_is_written_and_not_allowed(json!({}), "GET", "pods%2Fw-0%2Flog", 403)]
#[case::and_not_allowed(json!({}), "GET", "%73ecrets/x", 403)]
#[case::slashes(json!({}), "GET", "/pods//w-0", 200)]
#[tokio::test]
async fn what_a_role_allows(
    #[case] change: Value,
    #[case] method: &str,
    #[case] path: &str,
    #[case] code: u16,
) {
    let yard = Yard::open().await;
    let mut rule = rule("pods", &["get"]);
    for (field, value) in change.as_object().unwrap() {
        rule[field] = value.clone();
    }
    yard.permit("default", json!([rule])).await;
    let token = yard.token().await;
    let path = format!("/api/v1/namespaces/default/{path}");
    let (answered, answer) = yard.ask(&token, method, &path).await;
    assert_eq!(answered, code, "{answer}");
}

#[rstest]
#[case::account(json!({"kind": "ServiceAccount", "name": "worker", "namespace": "default"}), 200)]
#[case::here(json!({"kind": "ServiceAccount", "name": "worker"}), 200)]
#[case::another_account(json!({"kind": "ServiceAccount", "name": "default", "namespace": "default"}), 403)]
#[case::elsewhere(json!({"kind": "ServiceAccount", "name": "worker", "namespace": "kube-system"}), 403)]
#[case::user(json!({"kind": "User", "name": "system:serviceaccount:default:worker"}), 200)]
#[case::another_user(json!({"kind": "User", "name": "worker"}), 403)]
#[case::accounts_of_a_namespace(json!({"kind": "Group", "name": "system:serviceaccounts:default"}), 200)]
#[case::of_another(json!({"kind": "Group", "name": "system:serviceaccounts:kube-system"}), 403)]
#[case::all_accounts(json!({"kind": "Group", "name": "system:serviceaccounts"}), 200)]
#[case::everybody(json!({"kind": "Group", "name": "system:authenticated"}), 200)]
#[case::nobody(json!({"kind": "Group", "name": "system:unauthenticated"}), 403)]
#[tokio::test]
async fn whom_a_binding_binds(#[case] subject: Value, #[case] code: u16) {
    let yard = Yard::open().await;
    let role = json!({"metadata": {"name": "may"}, "rules": [rule("pods", &["get"])]});
    yard.make("default", "roles", role).await;
    yard.bind("default", "Role", subject).await;
    let token = yard.token().await;
    assert_eq!(yard.ask(&token, "GET", POD).await.0, code);
}

/// There are no such roles, so that nothing follows from a binding to one, not even if a Role has
/// its name.
#[tokio::test]
async fn a_binding_to_a_role_of_the_cluster_gives_nothing() {
    let yard = Yard::open().await;
    let role = json!({"metadata": {"name": "may"}, "rules": [rule("pods", &["get"])]});
    yard.make("default", "roles", role).await;
    let subject = json!({"kind": "ServiceAccount", "name": "worker", "namespace": "default"});
    yard.bind("default", "ClusterRole", subject).await;
    let token = yard.token().await;
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 403);
}

#[rstest]
#[case("/api/v1/namespaces/kube-system/pods/x", 403)]
#[case("/api/v1/namespaces/kube-system/pods", 403)]
#[case("/api/v1/pods", 403)]
#[case("/api/v1/pods?watch=true", 403)]
#[case("/api/v1/namespaces", 403)]
#[case("/api/v1/namespaces/default", 403)]
#[case("/api/v1/namespaces/default/status", 403)]
#[case("/api/v1/nodes/local", 403)]
#[case("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", 403)]
#[case("/api/v1/pods/w-0", 404)]
#[tokio::test]
async fn a_role_ends_with_its_namespace(#[case] path: &str, #[case] code: u16) {
    let yard = Yard::open().await;
    yard.permit(
        "default",
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    )
    .await;
    let token = yard.token().await;
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 200);
    let (answered, answer) = yard.ask(&token, "GET", path).await;
    assert_eq!(answered, code, "{answer}");
}

/// A role elsewhere holds there, for whoever it is bound to.
#[tokio::test]
async fn a_role_of_another_namespace_holds_there() {
    let yard = Yard::open().await;
    yard.permit("kube-system", json!([rule("configmaps", &["get"])]))
        .await;
    let token = yard.token().await;
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
    assert_eq!(yard.ask(&token, "GET", &path("kube-system")).await.0, 200);
    assert_eq!(yard.ask(&token, "GET", &path("default")).await.0, 403);
}

#[rstest]
#[case::no_http("Guten Tag\r\n\r\n")]
#[case::another_version("GET / HTTP/9.9\r\n\r\n")]
#[case::space_in_a_header("GET / HTTP/1.1\r\nBad Header: x\r\n\r\n")]
#[case::binary("\u{0}\u{1}\u{2}\r\n\r\n")]
#[case::two_lengths("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")]
#[tokio::test]
async fn what_is_no_request_is_refused_and_harms_nobody(#[case] said: &str) {
    let yard = Yard::open().await;
    let mut stream = yard.knock().await;
    stream.write_all(said.as_bytes()).await.unwrap();
    let answer = within("an answer", rest(&mut stream)).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
    assert_eq!(yard.ask("nobody", "GET", POD).await.0, 401);
}

/// A connection of that version can't change, so that there is no use in looking for one that can.
#[rstest]
#[case("GET", POD, 200)]
#[case("GET", "/api/v1/namespaces/default/pods/none", 404)]
#[case(
    "POST",
    "/api/v1/namespaces/default/pods/w-0/exec?command=ls&stdout=true",
    400
)]
#[tokio::test]
async fn who_speaks_an_old_http_is_not_asked_to_another_protocol(
    #[case] method: &str,
    #[case] path: &str,
    #[case] code: u16,
) {
    let yard = Yard::open().await;
    yard.permit(
        "default",
        json!([rule("pods", &["get"]), rule("pods/exec", &["create"])]),
    )
    .await;
    let token = yard.token().await;
    let mut stream = yard.knock().await;
    let request = format!(
        "{method} {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let said = within("an answer", rest(&mut stream)).await;
    assert!(said.starts_with(&format!("HTTP/1.0 {code} ")), "{said}");
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let yard = Yard::open().await;
    let mut stream = yard.knock().await;
    let line = format!("X-Long: {}\r\n", "x".repeat(1000));
    let mut sent = stream.write_all(b"GET / HTTP/1.1\r\n").await;
    for _ in 0..10_000 {
        if sent.is_err() {
            break;
        }
        sent = stream.write_all(line.as_bytes()).await;
    }
    sent.expect_err("nobody reads ten megabytes of headers");
    assert_eq!(yard.ask("nobody", "GET", POD).await.0, 401);
}

#[tokio::test]
async fn a_body_without_end_is_refused() {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["create"])])).await;
    let token = yard.token().await;
    let headers = format!(
        "Authorization: Bearer {token}\r\nContent-Length: {}\r\n",
        64 << 20
    );
    let mut stream = yard.knock().await;
    let head = format!("POST {PODS} HTTP/1.1\r\nHost: kubernetes\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(stream);
    let writing = tokio::spawn(async move {
        let some = vec![b' '; 64 << 10];
        while writing.write_all(&some).await.is_ok() {}
    });
    let mut first = [0; 12];
    within("an answer", reading.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 400");
    drop(reading);
    within("the end of the connection", writing).await.unwrap();
}

/// Who agrees on keys and then says nothing, or half of something, is shown out. Time passes by
/// itself while all wait.
#[rstest]
#[case::nothing("")]
#[case::half_a_head("GET / HTTP/1.1\r\nHost: kube")]
#[tokio::test]
async fn who_is_slow_is_shown_out(#[case] said: &str) {
    let yard = Yard::open().await;
    let mut stream = yard.knock().await;
    stream.write_all(said.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::pause();
    within("the end of the connection", rest(&mut stream)).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["create"])])).await;
    let token = yard.token().await;
    let mut stream = yard.knock().await;
    let head = format!(
        "POST {PODS} HTTP/1.1\r\nHost: kubernetes\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    tokio::time::pause();
    let said = within("an answer", rest(&mut stream)).await;
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    assert!(said.contains("did not come in time"), "{said}");
}

/// Silent ones make room for others, the oldest first; those who are known do not.
#[tokio::test]
async fn a_silent_crowd_keeps_nobody_out() {
    let yard = Yard::open().await;
    yard.permit("default", json!([rule("pods", &["watch"])])).await;
    let token = yard.token().await;
    let mut known = yard.knock().await;
    let request = format!(
        "GET {PODS}?watch=true HTTP/1.1\r\nHost: kubernetes\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    known.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    within("an answer", known.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");

    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(TcpStream::connect(yard.address).await.unwrap());
    }
    assert_eq!(yard.ask(&token, "GET", POD).await.0, 403);
    // Who came after all of them has been answered, so that by now the oldest has been shown out.
    let now = |stream: TcpStream| {
        stream
            .into_std()
            .unwrap()
            .read(&mut [0])
            .map_err(|error| error.kind())
    };
    let (last, oldest) = (crowd.pop().unwrap(), crowd.swap_remove(0));
    assert_eq!(now(oldest), Ok(0), "its end");
    assert_eq!(now(last), Err(std::io::ErrorKind::WouldBlock), "still there");
    // Who watches still hears.
    yard.make("default", "pods", pod("new")).await;
    let mut heard = Vec::new();
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&heard).contains("\"new\"") {
        let read = within("news", known.read(&mut some)).await.unwrap();
        assert_ne!(read, 0, "it was shown out");
        heard.extend_from_slice(&some[..read]);
    }
}
