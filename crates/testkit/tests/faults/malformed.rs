//! Objects that the server keeps as jobs and that are none.

use kube::Api;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};
use trainyard_api::{JobPhase, TrainingJob};
use trainyard_eventually::eventually_async;
use trainyard_testkit::faults::{Faults, run_operator};
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;
use trainyard_testkit::operator::in_process;

use super::{client, create, manifest, phase};

/// The definition says of such a port that it is a number or a name, and not how large a number.
/// The program has no room for it.
const NO_PORT: i64 = 1 << 32;

/// As after a change of the definition: the server takes it, and the program can't read it.
async fn create_malformed(objects: &Api<DynamicObject>, name: &str) {
    let mut job: Value = serde_json::from_str(&manifest(name, 1, "", "")).unwrap();
    job["spec"]["roles"][0]["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": NO_PORT}});
    assert!(
        serde_json::from_value::<TrainingJob>(job.clone()).is_err(),
        "it can be decoded"
    );
    let object = serde_json::from_value(job).unwrap();
    objects.create(&PostParams::default(), &object).await.unwrap();
}

/// Waits until it is said of an object whether it is accepted.
async fn accepted(objects: &Api<DynamicObject>, name: &str) -> Value {
    eventually_async(&format!("{name} is told"), async || {
        let object = objects.get(name).await.unwrap();
        let conditions = object.data["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let accepted = conditions.find(|condition| condition["type"] == "Accepted");
        accepted.cloned().ok_or_else(|| object.data["status"].to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_decoded_is_told_so_and_stalls_nobody() {
    let client = client().await;
    let name = format!("legacy-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    let resource = kube::core::ApiResource::erase::<TrainingJob>(&());
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name, &resource);
    // One is there before the operator, and the other comes while it watches.
    create_malformed(&objects, "bad-0").await;
    let operator = run_operator(&in_process(), &name, Faults::none()).unwrap();
    let player = Player::start(client.clone(), &Scope::namespace(&*name), Script::run());
    create(&client, &name, &manifest("good-0", 1, "", ""))
        .await
        .unwrap();
    phase(&client, &name, "good-0", JobPhase::Running).await.unwrap();
    create_malformed(&objects, "bad-1").await;
    create(&client, &name, &manifest("good-1", 1, "", ""))
        .await
        .unwrap();
    phase(&client, &name, "good-1", JobPhase::Running).await.unwrap();
    for bad in ["bad-0", "bad-1"] {
        let told = accepted(&objects, bad).await;
        assert_eq!(
            (&told["status"], &told["reason"]),
            (&json!("False"), &json!("Invalid"))
        );
        let message = told["message"].as_str().unwrap();
        let field = "spec.roles[0].template.spec.containers[0].readinessProbe.tcpSocket.port: ";
        assert!(message.starts_with(field), "{message}");
    }
    assert_eq!(player.counts().seen, 2, "only jobs have pods");
    operator.stop().await.unwrap();
    namespace::remove(&client, &name).await.unwrap();
}
