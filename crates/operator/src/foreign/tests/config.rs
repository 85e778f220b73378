//! The ConfigMap of an object.

use k8s_openapi::api::core::v1::ConfigMap;

use super::*;

const CONFIGS: &str = "/api/v1/namespaces/ns/configmaps";
const CONFIG: &str = "/api/v1/namespaces/ns/configmaps/a-config";
const JOB: &str = "/apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs/a";

/// The ConfigMap of a toy that has hosts.
pub(super) fn wanted(toy: &Value) -> Option<Box<ConfigMap>> {
    let hosts = toy["spec"]["hosts"].as_str()?;
    let owner = json!({
        "apiVersion": "toys.example/v1", "kind": "Toy", "name": "a", "uid": "u", "controller": true,
    });
    let config = json!({
        "metadata": {"name": "a-config", "namespace": "ns", "ownerReferences": [owner]},
        "data": {"hosts": hosts},
    });
    Some(serde_json::from_value(config).unwrap())
}

impl Server {
    /// Answers a request for the ConfigMap.
    pub(super) fn configure(&self, method: &Method, mut body: Value) -> Response<Full<Bytes>> {
        let mut there = self.config.lock();
        let mut code = 200;
        match (method, &*there) {
            (&Method::POST, Some(_)) => {
                code = 409;
                body = json!({"kind": "Status", "code": code, "reason": "AlreadyExists", "message": "it is there"});
            }
            (&Method::GET, Some(config)) => body = config.clone(),
            _ => *there = Some(body.clone()),
        }
        let body = Full::new(Bytes::from(body.to_string()));
        Response::builder().status(code).body(body).unwrap()
    }

    fn hosts(&self) -> Value {
        let config = self.config.lock();
        config.as_ref().unwrap()["data"]["hosts"].clone()
    }
}

#[tokio::test]
async fn it_is_there_before_the_child() {
    let server = Server::default();
    let controller = controller(&server);
    show(&controller, 10, &json!({"spec": {"hosts": "one"}}));
    look(&controller).await;
    assert_eq!(
        server.written(),
        [
            (Method::POST, CONFIGS.to_owned()),
            (Method::POST, JOBS.to_owned())
        ]
    );
    assert_eq!(server.hosts(), "one");
    show_child(&controller);
    look(&controller).await;
    assert_eq!(
        server.written(),
        [(Method::PUT, STATUS.to_owned())],
        "it is not asked for again"
    );
    show(
        &controller,
        10_000,
        &json!({"spec": {"hosts": "two", "changed": true}, "status": {"phase": "there"}}),
    );
    look(&controller).await;
    assert_eq!(
        server.written(),
        [
            (Method::POST, CONFIGS.to_owned()),
            (Method::GET, CONFIG.to_owned()),
            (Method::PUT, CONFIG.to_owned()),
            (Method::PUT, JOB.to_owned()),
        ]
    );
    assert_eq!(server.hosts(), "two");
}

/// The answer to its creation may have been lost.
#[tokio::test]
async fn one_that_is_as_it_should_be_is_left_as_it_is() {
    let server = Server::default();
    let controller = controller(&server);
    let toy = json!({"spec": {"hosts": "one"}});
    *server.config.lock() = Some(serde_json::to_value(wanted(&toy)).unwrap());
    show(&controller, 10, &toy);
    assert!(matches!(look(&controller).await, Requeue::At(_)));
    assert_eq!(
        server.written(),
        [
            (Method::POST, CONFIGS.to_owned()),
            (Method::GET, CONFIG.to_owned()),
            (Method::POST, JOBS.to_owned()),
        ]
    );
}

#[tokio::test]
async fn one_of_somebody_else_is_not_touched_and_told() {
    let owner = |name: &str, uid: &str, controller: bool| json!([{"apiVersion": "toys.example/v1", "kind": "Toy", "name": name, "uid": uid, "controller": controller}]);
    let cases = [
        (Value::Null, Value::Null, Some("a-config is taken")),
        (
            owner("another", "v", true),
            Value::Null,
            Some("a-config is taken"),
        ),
        (owner("a", "u", false), Value::Null, Some("a-config is taken")),
        // Of a former object, or on its way out: it will be gone.
        (owner("a", "former", true), Value::Null, None),
        (owner("a", "u", true), json!("2026-01-02T03:04:05Z"), None),
    ];
    for (owners, deleted, told) in cases {
        let server = Server::default();
        let controller = controller(&server);
        let theirs = json!({
            "metadata": {"name": "a-config", "ownerReferences": owners, "deletionTimestamp": deleted},
            "data": {"hosts": "theirs"},
        });
        *server.config.lock() = Some(theirs);
        show(&controller, 10, &json!({"spec": {"hosts": "one"}}));
        assert!(matches!(look(&controller).await, Requeue::Retry(_)));
        let mut expected = vec![
            (Method::POST, CONFIGS.to_owned()),
            (Method::GET, CONFIG.to_owned()),
        ];
        expected.extend(told.map(|_| (Method::PUT, STATUS.to_owned())));
        let status = server.writes.lock().last().unwrap().2["status"]["phase"].clone();
        assert_eq!(status.as_str(), told);
        assert_eq!(server.written(), expected, "and there is no child");
        assert_eq!(server.hosts(), "theirs");
        // It goes, and the child comes.
        *server.config.lock() = None;
        look(&controller).await;
        assert_eq!(
            server.written(),
            [
                (Method::POST, CONFIGS.to_owned()),
                (Method::POST, JOBS.to_owned())
            ]
        );
    }
}
