//! What strangers send to the webhooks.

use serde_json::{Value, json};
use trainyard_eventually::eventually_async;

use super::super::servers::Servers;

/// A request, and what must be answered.
pub struct Review {
    name: &'static str,
    path: &'static str,
    body: Vec<u8>,
    code: u16,
    /// Words of the answer.
    words: &'static str,
}

impl Review {
    pub async fn check(&self, servers: &Servers) {
        let (code, answer) = eventually_async(self.name, async || {
            match servers.review(self.path, &self.body).await {
                // On a busy machine it took too long to arrive.
                Some((408, answer)) => Err(answer),
                Some(answer) => Ok(answer),
                // The server was done before everything was sent.
                None => Err("no answer".to_owned()),
            }
        })
        .await;
        assert_eq!(code, self.code, "{}: {answer}", self.name);
        assert!(answer.contains(self.words), "{}: {answer}", self.name);
        if code == 200 {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["response"]["allowed"], false, "{}: {answer}", self.name);
        }
    }
}

/// A review of an object of a kind, with a value in it that is written as it is.
fn review(group: &str, kind: &str, spec: &str) -> Vec<u8> {
    let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": "SPEC"});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "name": "a", "namespace": "b",
            "kind": {"group": group, "version": "v1", "kind": kind}, "object": object},
    });
    review.to_string().replace(r#""SPEC""#, spec).into_bytes()
}

fn of_job(template: &str) -> String {
    format!(r#"{{"framework":{{"name":"custom"}},"roles":[{{"name":"worker","template":{template}}}]}}"#)
}

pub fn all() -> Vec<Review> {
    let nested = |depth: usize| r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
    let job = |template: &str| review("trainyard.dev", "TrainingJob", &of_job(template));
    let pod = |spec: &str| job(&format!(r#"{{"spec":{spec}}}"#));
    let containers = r#""containers":[{"name":"a","image":"i"}]"#;
    let empty = |count: usize| vec!["{}"; count].join(",");
    let sources = pod(&format!(
        r#"{{{containers},"volumes":[{{"name":"v","projected":{{"sources":[{}]}}}}]}}"#,
        empty(1_000_000)
    ));
    let long = pod(&format!(
        r#"{{{containers},"nodeName":"{}"}}"#,
        "x".repeat(6 << 20)
    ));
    let mpi = |spec: &str| review("kubeflow.org", "MPIJob", spec);
    let scale = |spec: &str| review("trainyard.dev", "ScaleIn", spec);
    // Those of any path, and those that are about one.
    let mut all = Vec::new();
    for path in ["/mutate", "/validate"] {
        let mut add = |name, body: Vec<u8>, code, words| {
            all.push(Review {
                name,
                path,
                body,
                code,
                words,
            });
        };
        add("nothing", Vec::new(), 400, "no AdmissionReview");
        add("text", b"GET / HTTP/1.1".to_vec(), 400, "no AdmissionReview");
        add(
            "brackets",
            "[".repeat(2 << 20).into_bytes(),
            400,
            "no AdmissionReview",
        );
        add("bytes", vec![0xff; 1 << 20], 400, "no AdmissionReview");
        add("large", vec![b' '; 8 << 20], 413, "larger than");
        add(
            "empty",
            br#"{"apiVersion":"v1","request":null}"#.to_vec(),
            400,
            "has no request",
        );
        add("sources", sources.clone(), 200, "this has");
        add("long", long.clone(), 200, "bytes");
        add("deep", job(&nested(1_000)), 200, "deep");
        add("deeper", job(&nested(400_000)), 200, "this has");
        add("type", job("7"), 200, "spec.roles[0].template");
    }
    all.push(Review {
        name: "surrogate",
        path: "/validate",
        body: pod(r#"{"containers":[{"name":"\ud800","image":"i"}]}"#),
        code: 400,
        words: "hex escape",
    });
    let mut add = |path, name, body: Vec<u8>, words| {
        all.push(Review {
            name,
            path,
            body,
            code: 200,
            words,
        });
    };
    add(
        "/validate",
        "amount",
        pod(r#"{"containers":[{"name":"a","image":"i","resources":{"limits":{"cpu":"1e999999999"}}}]}"#),
        "is no amount",
    );
    add(
        "/validate",
        "name",
        pod(r#"{"containers":[{"name":"\u001b[2J","image":"i"}]}"#),
        "the container's name",
    );
    add("/validate", "MPIJob", mpi("7"), "must be of type object");
    add("/validate", "deep MPIJob", mpi(&nested(1_000)), "deep");
    add(
        "/validate",
        "ScaleIn",
        scale(r#"{"jobRef":{"name":"a"},"toDelete":{"count":-1}}"#),
        "toDelete",
    );
    add(
        "/validate",
        "many names",
        scale(&format!(
            r#"{{"jobRef":{{"name":"a"}},"toDelete":{{"podNames":[{}]}}}}"#,
            empty(100_000)
        )),
        "this has",
    );
    add(
        "/scripts",
        "script",
        scale(r#"{"jobRef":{"name":"a"},"toDelete":{"count":1},"script":"rm"}"#),
        "scripts are off",
    );
    all
}
