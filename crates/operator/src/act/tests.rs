mod budget;
mod denied;
mod interrupted;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use trainyard_core::model::PodKey;

use trainyard_api::TrainingJobStatus;
use trainyard_core::view::Conflict;

use super::*;
use crate::index::Lookup;
use crate::slim::{JobObject, Version};

type Answerer = dyn Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync;

/// A server whose answers are a function; `None` breaks the connection.
struct Server {
    writer: Writer,
    index: Arc<Index>,
    asked: Arc<Mutex<Vec<String>>>,
    key: JobKey,
    term: CancellationToken,
}

impl Server {
    fn new(answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static) -> Self {
        Self::led_by(Leadership::always(), answer)
    }

    fn led_by(
        leadership: Leadership,
        answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Self {
        let answer: Arc<Answerer> = Arc::new(answer);
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (answer, notes) = (answer.clone(), notes.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let asked = format!("{} {}", parts.method, parts.uri.path());
                notes.lock().push(asked.clone());
                match answer(&asked, &body) {
                    Some((code, body)) => {
                        let body = Full::new(Bytes::from(body.to_string()));
                        Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
                    }
                    None => Err(std::io::ErrorKind::ConnectionReset.into()),
                }
            }
        });
        let client = kube::Client::new(service, "default");
        let index = Arc::new(Index::new(&[]));
        index.listing(Kind::Job, 0, Version(5));
        index.apply_job(JobObject::Ok(Box::new(job())), Source::List);
        for kind in [Kind::Job, Kind::Pod, Kind::Service] {
            index.listed(kind, 0, Version(5), tokio::time::Instant::now());
        }
        let writer = Writer::new(client, index.clone(), leadership, SharedSettings::default());
        let (key, term) = (JobKey::new("ns", "a"), CancellationToken::new());
        Self {
            writer,
            index,
            asked,
            key,
            term,
        }
    }

    fn target(&self) -> Target<'_> {
        Target {
            key: &self.key,
            uid: "u1",
            term: &self.term,
        }
    }

    async fn create_pods(&self, count: i32) -> ActionResults {
        let actions = (0..count)
            .map(|index| Action::CreatePod(PodKey { role: 0, index }))
            .collect();
        self.writer.act(self.target(), &job(), actions).await
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn pods(&self) -> Vec<(String, bool)> {
        let Some(Lookup::Job(known)) = self.index.get(&self.key) else {
            panic!()
        };
        let mut pods: Vec<_> = known
            .pods
            .iter()
            .map(|pod| (pod.uid.to_string(), pod.terminating))
            .collect();
        pods.sort();
        pods
    }

    fn conflicts(&self) -> Vec<Conflict> {
        let Some(Lookup::Job(known)) = self.index.get(&self.key) else {
            panic!()
        };
        known.conflicts
    }
}

fn job() -> TrainingJob {
    serde_json::from_value(json!({
        "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "3", "generation": 1},
        "spec": {"framework": {"name": "custom"}, "roles": [{"name": "w", "replicas": 200,
            "template": {"spec": {"containers": [{"name": "train", "image": "i"}]}}}]},
    }))
    .unwrap()
}

fn pod(name: &str, owner: Option<&str>) -> Value {
    let owners = owner.map(|uid| {
        json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "a", "uid": uid, "controller": true})
    });
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "10",
        "labels": {"app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": "a"},
        "ownerReferences": owners.into_iter().collect::<Vec<_>>()}})
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

fn exists() -> (u16, Value) {
    status(409, "AlreadyExists", "pods \"a-w-0\" already exists")
}

const POST: &str = "POST /api/v1/namespaces/ns/pods";

#[tokio::test]
async fn what_is_created_is_known_at_once() {
    let server =
        Server::new(|_, body| Some((201, pod(body["metadata"]["name"].as_str().unwrap(), Some("u1")))));
    let done = server.create_pods(3).await;
    assert_eq!((done.acted, done.conflict, done.error), (3, false, None));
    assert_eq!(server.pods().len(), 3);
    assert_eq!(server.asked(), [POST; 3]);
}

#[tokio::test]
async fn a_lost_answer_is_found_out_by_trying_again() {
    let tries = Mutex::new(0);
    let server = Server::new(move |asked, _| {
        let mut tries = tries.lock();
        *tries += 1;
        match (*tries, asked) {
            (1, _) => None,
            (2, _) => Some(exists()),
            _ => Some((200, pod("a-w-0", Some("u1")))),
        }
    });
    let lost = server.create_pods(1).await;
    assert!(
        matches!(lost.error, Some(RequestError::Transient(..))),
        "{lost:?}"
    );
    assert!(server.pods().is_empty());
    let done = server.create_pods(1).await;
    assert_eq!((done.acted, done.error), (1, None));
    assert_eq!(server.pods().len(), 1);
    assert_eq!(server.asked()[2], "GET /api/v1/namespaces/ns/pods/a-w-0");
}

#[tokio::test]
async fn what_is_somebody_elses_is_not_touched() {
    let server = Server::new(|asked, _| {
        if asked == POST {
            Some(exists())
        } else {
            Some((200, pod("a-w-0", None)))
        }
    });
    let done = server.create_pods(1).await;
    assert!(done.conflict && done.error.is_none() && done.acted == 0);
    let conflict = Conflict {
        kind: "Pod",
        name: "a-w-0".into(),
        owner: "nobody".into(),
    };
    assert_eq!(server.conflicts(), [conflict]);
    assert_eq!(server.asked().len(), 2);
    assert_eq!(
        server
            .writer
            .check_conflicts(server.target(), &server.conflicts())
            .await,
        Ok(false)
    );
    assert_eq!(server.conflicts().len(), 1);
}

#[tokio::test]
async fn what_was_in_the_way_and_is_gone_is_not_in_the_way() {
    let server = Server::new(|_, _| Some(status(404, "NotFound", "gone")));
    server.index.add_conflict(
        "u1",
        Conflict {
            kind: "Service",
            name: "a".into(),
            owner: "nobody".into(),
        },
    );
    assert_eq!(
        server
            .writer
            .check_conflicts(server.target(), &server.conflicts())
            .await,
        Ok(true)
    );
    assert!(server.conflicts().is_empty());
    assert_eq!(server.asked(), ["GET /api/v1/namespaces/ns/services/a"]);
}

#[tokio::test]
async fn what_a_former_job_left_is_waited_for() {
    for going in [false, true] {
        let server = Server::new(move |asked, _| {
            if asked == POST {
                return Some(exists());
            }
            let mut found = pod("a-w-0", (!going).then_some("u0"));
            if going {
                found["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
            }
            Some((200, found))
        });
        let done = server.create_pods(1).await;
        assert_eq!(done.error, Some(RequestError::Former));
        assert!(server.conflicts().is_empty());
    }
}

#[tokio::test]
async fn a_child_without_its_label_gets_it_back() {
    let server = Server::new(|asked, body| {
        let mut found = pod("a-w-0", Some("u1"));
        match asked.split_once(' ').unwrap().0 {
            "POST" => return Some(exists()),
            "GET" => found["metadata"]["labels"] = json!({}),
            _ => {
                assert_eq!(body["metadata"]["uid"], "uid-a-w-0");
                assert_eq!(body["metadata"]["resourceVersion"], "10");
                assert_eq!(body["metadata"]["labels"]["trainyard.dev/job"], "a");
                found["metadata"]["resourceVersion"] = json!("11");
            }
        }
        Some((200, found))
    });
    // The watch selects by label and has shown the pod as deleted.
    server.index.bookmark(Kind::Pod, 0, Version(10));
    assert_eq!(server.create_pods(1).await.acted, 1);
    assert_eq!(server.pods().len(), 1);
}

/// What a scheduler reads from pods follows the job: a value is written, and one that is gone is
/// removed.
#[tokio::test]
async fn pods_carry_what_their_job_passes_on() {
    let mut job = job();
    job.spec.dialect = Some(trainyard_api::Dialect::Ares);
    let queue = ("ares.io/ares-queue".to_owned(), "daily".to_owned());
    job.metadata.annotations = Some([queue].into());
    for keeps in [true, false] {
        let server = Server::new(move |asked, body| {
            assert_eq!(asked, "PATCH /api/v1/namespaces/ns/pods/a-w-0");
            for place in ["labels", "annotations"] {
                let written = &body["metadata"][place];
                assert_eq!(written["ares.io/ares-queue"], "daily");
                assert!(written["ares.io/preemptable"].is_null());
                assert!(written.get("ares.io/preemptable").is_some(), "it is removed");
            }
            let mut found = pod("a-w-0", Some("u1"));
            found["metadata"]["labels"] = body["metadata"]["labels"].clone();
            if keeps {
                found["metadata"]["annotations"] = body["metadata"]["annotations"].clone();
            }
            Some((200, found))
        });
        let label = Action::LabelPod {
            key: PodKey { role: 0, index: 0 },
            uid: "uid-a-w-0".to_owned(),
        };
        let done = server.writer.act(server.target(), &job, vec![label]).await;
        assert_eq!(
            done.unsuccessful.is_empty(),
            keeps,
            "somebody may change it as it is written"
        );
    }
}

#[tokio::test]
async fn a_refusal_ends_the_creating_of_siblings() {
    let server = Server::new(|_, _| {
        Some(status(
            403,
            "Forbidden",
            "pods \"x\" is forbidden: exceeded quota: q",
        ))
    });
    let done = server.create_pods(200).await;
    assert!(matches!(done.error, Some(RequestError::Refused(words)) if words.contains("quota")));
    assert!(server.asked().len() <= IN_FLIGHT, "{}", server.asked().len());
}

#[tokio::test]
async fn deletes_name_the_uid_and_what_is_gone_is_deleted() {
    for answer in [
        (200, json!({})),
        status(404, "NotFound", ""),
        status(
            409,
            "Conflict",
            "Precondition failed: UID in precondition: a, UID in object meta: b",
        ),
    ] {
        let server = Server::new(move |_, body| {
            assert_eq!(body["preconditions"]["uid"], "uid-a-w-0");
            assert_eq!(body["gracePeriodSeconds"], json!(0));
            Some(answer.clone())
        });
        server.index.apply_pod(
            serde_json::from_value(pod("a-w-0", Some("u1"))).unwrap(),
            Source::Watch,
        );
        let action = Action::DeletePod {
            name: "a-w-0".into(),
            uid: "uid-a-w-0".into(),
            force: true,
        };
        let done = server.writer.act(server.target(), &job(), vec![action]).await;
        assert_eq!((done.acted, done.error), (1, None));
        assert_eq!(server.pods(), [("uid-a-w-0".to_owned(), true)]);
    }
}

#[tokio::test]
async fn what_the_server_says_is_gone_is_gone_at_once() {
    let server = Server::new(|_, _| {
        let mut left = pod("a-w-0", Some("u1"));
        left["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        left["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        left["metadata"]["resourceVersion"] = json!("14");
        Some((200, left))
    });
    let row = || serde_json::from_value(pod("a-w-0", Some("u1"))).unwrap();
    server.index.apply_pod(row(), Source::Watch);
    let action = Action::DeletePod {
        name: "a-w-0".into(),
        uid: "uid-a-w-0".into(),
        force: false,
    };
    assert_eq!(
        server
            .writer
            .act(server.target(), &job(), vec![action])
            .await
            .acted,
        1
    );
    assert!(server.pods().is_empty());
    server.index.apply_pod(row(), Source::Watch);
    assert!(server.pods().is_empty(), "the watch is late");
}

#[tokio::test]
async fn a_status_carries_the_version_it_was_computed_from_and_is_known_at_once() {
    let server = Server::new(|asked, body| {
        assert_eq!(
            asked,
            "PUT /apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs/a/status"
        );
        assert_eq!(
            (&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]),
            (&json!("3"), &json!("u1"))
        );
        let metadata =
            json!({"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "8", "generation": 1});
        Some((200, json!({"metadata": metadata})))
    });
    let status = TrainingJobStatus {
        ready: Some("1/1".into()),
        ..TrainingJobStatus::default()
    };
    server
        .writer
        .write_status(server.target(), Arc::new(job()), &status)
        .await
        .unwrap();
    let Some(Lookup::Job(known)) = server.index.get(&server.key) else {
        panic!()
    };
    assert_eq!(known.job.status, Some(status));
    assert_eq!(known.job.metadata.resource_version.as_deref(), Some("8"));
}

#[tokio::test]
async fn a_status_that_lost_a_race_is_not_forced() {
    let server = Server::new(|_, _| Some(status(409, "Conflict", "the object has been modified")));
    let written = server
        .writer
        .write_status(server.target(), Arc::new(job()), &TrainingJobStatus::default())
        .await;
    assert_eq!(written, Err(RequestError::VersionConflict));
}

#[tokio::test]
async fn nothing_is_sent_when_the_term_is_over() {
    let server = Server::new(|_, _| panic!("nothing is to be sent"));
    server.term.cancel();
    let done = server.create_pods(3).await;
    assert_eq!(done.error, Some(RequestError::NotLeader));
    assert!(server.asked().is_empty());
}
