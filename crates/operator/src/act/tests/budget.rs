//! Disruption budgets are created and deleted.

use trainyard_core::view::{Agent, ObserverEndpoint, Settings};

use super::*;

const POST: &str = "POST /apis/policy/v1/namespaces/ns/poddisruptionbudgets";

fn elastic() -> TrainingJob {
    let mut job = serde_json::to_value(job()).unwrap();
    job["spec"]["elastic"] = json!({"replicas": 2, "drainTimeoutSeconds": 300});
    job["spec"]["roles"][0]["replicas"] = Value::Null;
    serde_json::from_value(job).unwrap()
}

fn server(answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static) -> Server {
    let mut server = Server::new(answer);
    let agent = Agent {
        image: "i".to_owned(),
        image_pull_policy: None,
        may_be_root: false,
        command: vec!["/agent".to_owned()],
        observer: Some(ObserverEndpoint {
            address: "https://observer".to_owned(),
            authority: String::new(),
        }),
    };
    server.writer.settings = SharedSettings::new(Settings {
        agent: Some(agent),
        ..Settings::default()
    });
    server
        .index
        .listed(Kind::Node, 0, Version(5), tokio::time::Instant::now());
    server
        .index
        .listed(Kind::Budget, 0, Version(5), tokio::time::Instant::now());
    server
}

fn own(server: &Server) -> Vec<(String, bool)> {
    let Some(Lookup::Job(known)) = server.index.get(&server.key) else {
        panic!()
    };
    let budgets = known.budgets.unwrap();
    let rows = budgets.own.iter();
    rows.map(|row| (row.name.to_string(), row.terminating)).collect()
}

#[tokio::test]
async fn a_budget_is_known_at_once_and_is_of_the_job_by_its_uid() {
    let server = server(|asked, body| {
        if asked != POST {
            return Some((200, json!({"kind": "Status", "status": "Success"})));
        }
        let mut made = body.clone();
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u1");
        made["metadata"]["uid"] = json!("b1");
        made["metadata"]["resourceVersion"] = json!("10");
        Some((201, made))
    });
    let done = server
        .writer
        .act(server.target(), &elastic(), vec![Action::CreateBudget])
        .await;
    assert_eq!((done.acted, done.error), (1, None));
    assert_eq!(server.asked(), [POST]);
    assert_eq!(own(&server), [("a-drain".to_owned(), false)]);
    let deletion = Action::DeleteBudget {
        name: "a-drain".to_owned(),
        uid: "b1".to_owned(),
    };
    let done = server
        .writer
        .act(server.target(), &elastic(), vec![deletion])
        .await;
    assert_eq!(done.acted, 1);
    let asked = "DELETE /apis/policy/v1/namespaces/ns/poddisruptionbudgets/a-drain";
    assert_eq!(server.asked()[1], asked);
    assert_eq!(own(&server), [("a-drain".to_owned(), true)]);
}

#[tokio::test]
async fn a_job_goes_on_where_its_budget_is_refused() {
    let forbidden = || status(403, "Forbidden", "poddisruptionbudgets is forbidden");
    for answer in [exists, forbidden] {
        let server = server(move |asked, body| match asked {
            POST => Some(answer()),
            _ => Some((201, pod(body["metadata"]["name"].as_str().unwrap(), Some("u1")))),
        });
        let create = Action::CreatePod(PodKey { role: 0, index: 0 });
        let done = server
            .writer
            .act(server.target(), &elastic(), vec![Action::CreateBudget, create])
            .await;
        assert_eq!((done.acted, done.conflict, done.error), (1, false, None));
        assert!(done.refusal.is_none());
        assert!(
            matches!(&done.unsuccessful[..], [(Action::CreateBudget, Some(_))]),
            "{:?}",
            done.unsuccessful
        );
        assert_eq!(server.conflicts(), []);
        assert_eq!(
            server.asked().len(),
            2,
            "nobody asks whose it is: the watch shows that"
        );
    }
}
