//! How far programs are, as the operator writes it where they are not heard themselves.

use std::future::pending;

use http::{Method, Request};
use kube::client::Body;
use tokio::sync::Notify;
use tower::service_fn;
use trainyard_api::ProgressPolicy;

use super::*;

impl Recorded {
    fn progress(&self) -> Vec<String> {
        let items = self.0.lock().unwrap();
        let told = items.iter().filter_map(|item| match item {
            Item::Progress(text) => Some(text.clone()),
            _ => None,
        });
        told.collect()
    }
}

fn reporting() -> Plan {
    let mut plan = plan(None);
    plan.job.spec.progress = Some(ProgressPolicy::Report);
    plan
}

#[tokio::test]
async fn what_the_operator_writes_is_shown() {
    let stage = Stage::start(reporting(), |client| client).await;
    let log = stage.runs(0).await;
    let written = json!({"step": 1, "total": 4, "metrics": {"loss": "0.5"}, "time": "2026-01-01T00:00:00Z"});
    stage.job(json!({"phase": "Running", "progress": written})).await;
    stage
        .until("it is told", async || {
            stage.shown.progress() == ["step 1/4  loss 0.5000"]
        })
        .await;
    drop(log);
    stage.ends(0, 0).await;
    stage
        .job(json!({"phase": "Succeeded", "progress": {"step": 4}}))
        .await;
    let (summary, _) = stage.end().await;
    let progress = summary.progress.unwrap();
    assert_eq!((progress.step, progress.total), (Some(4), Some(4)));
}

/// A client that sees jobs once, when it may, and of which no watch tells anything.
fn short_sighted(client: Client, may: Arc<Notify>) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (client, may) = (client.clone(), may.clone());
        async move {
            let uri = request.uri();
            if request.method() == Method::GET && uri.path().ends_with("/trainingjobs") {
                if uri.query().is_some_and(|query| query.contains("watch=")) {
                    pending::<()>().await;
                }
                may.notified().await;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn last_words_are_looked_for_when_the_pods_are_over() {
    let may = Arc::new(Notify::new());
    let stage = Stage::start(reporting(), |client| short_sighted(client, may.clone())).await;
    let log = stage.runs(0).await;
    stage
        .job(json!({"phase": "Succeeded", "progress": {"step": 1, "total": 4}}))
        .await;
    may.notify_one();
    stage
        .until("the end is seen", async || {
            stage.shown.phases().contains(&"Succeeded")
        })
        .await;
    stage.job(json!({"progress": {"step": 4}})).await;
    stage.ends(0, 0).await;
    drop(log);
    let (summary, _) = stage.end().await;
    let progress = summary.progress.unwrap();
    assert_eq!((progress.step, progress.total), (Some(4), Some(4)));
}
