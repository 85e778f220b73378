//! Hostile objects among good ones: the good ones are carried out, each bad one says what is wrong
//! with it, and the operator lives through all of it within its memory.

mod objects;
mod reviews;

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_api::{JobPhase, Restarts};
use trainyard_eventually::eventually_async;
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::{lab, namespace};

use super::servers::Servers;
use super::{client, jobs};
use objects::{Bad, Collection, Expected};

const GOOD: usize = 200;
const MAX_PARALLEL: usize = 16;
/// How the name of a good job begins that ends.
const ENDS: &str = "ends";
/// A good job, which runs and is not elastic.
const RUNS: &str = "runs-001";

/// Makes the cluster know MPIJobs, of which it checks nothing: clusters have definitions of their
/// own.
async fn define_mpi_jobs(client: &Client) {
    let kinds = trainyard_compat::served();
    let kind = kinds.iter().find(|kind| kind.flag() == "kubeflow-mpi").unwrap();
    let mut definition = kind.definition();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({"x-kubernetes-preserve-unknown-fields": true});
    schema.as_object_mut().unwrap().remove("required");
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    // An earlier run may have left it.
    match definitions.create(&PostParams::default(), &definition).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.unwrap()),
    }
    eventually_async("MPIJobs are served", async || {
        let list = http::Request::get("/apis/kubeflow.org/v2beta1/mpijobs").body(Vec::new());
        let listed = client.request_text(list.unwrap()).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

fn good_names() -> impl Iterator<Item = String> {
    (0..GOOD).map(|number| {
        let kind = if number % 2 == 0 { ENDS } else { "runs" };
        format!("{kind}-{number:03}")
    })
}

fn good(name: &str) -> String {
    let job = lab::job(name, "pytorch", &[lab::Role::worker(1, "true")], "");
    let mut job: Value = serde_json::from_str(&job).unwrap();
    job["metadata"]["labels"] = json!({"is": "good"});
    job.to_string()
}

/// Creates an object of either sort. Returns what the server says against it.
async fn create(client: &Client, namespace: &str, collection: Collection, body: String) -> Option<String> {
    let request = http::Request::post(collection.path(namespace))
        .header("content-type", "application/json")
        .body(body.into_bytes());
    match client.request_text(request.unwrap()).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

async fn create_bad(client: &Client, namespace: &str, bad: &Bad) {
    let refused = create(client, namespace, bad.collection, bad.body.clone()).await;
    let expected = matches!(bad.expected, Expected::Refused);
    assert_eq!(refused.is_some(), expected, "{}: {refused:?}", bad.name);
}

/// The part of an object that says what is wrong with it. The rest may be nested deeper than can be
/// decoded.
#[derive(Deserialize)]
struct WithStatus {
    #[serde(default)]
    status: Value,
}

/// Waits until a bad object says what is wrong with it.
async fn told(client: &Client, namespace: &str, bad: &Bad) {
    let Expected::Told(words) = &bad.expected else {
        return;
    };
    let path = format!("{}/{}", bad.collection.path(namespace), bad.name);
    let said = eventually_async(&format!("{} is told", bad.name), async || {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        let WithStatus { status } = serde_json::from_str(&text).unwrap();
        let said = bad.collection.complaint(&status).map(ToOwned::to_owned);
        said.ok_or_else(|| status.to_string())
    })
    .await;
    assert!(said.contains(words), "{}: {said}", bad.name);
}

/// Waits until all good jobs are where they should be, each without a restart.
async fn all_good(client: &Client, namespace: &str) {
    let wanted = |name: &str| {
        if name.starts_with(ENDS) {
            JobPhase::Succeeded
        } else {
            JobPhase::Running
        }
    };
    eventually_async("all good jobs are where they should be", async || {
        let good = ListParams::default().labels("is=good");
        let found = jobs(client, namespace).list(&good).await.unwrap().items;
        let arrived = found.iter().filter(|job| {
            let status = job.status.clone().unwrap_or_default();
            assert!(
                status.restarts.unwrap_or_default() == Restarts::default(),
                "{job:?}"
            );
            status.phase == Some(wanted(job.metadata.name.as_deref().unwrap()))
        });
        match arrived.count() {
            GOOD => Ok(()),
            others => Err(format!("{others} of {}", found.len())),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_objects_disturb_no_job_and_are_told_so_each() {
    let client = client().await;
    let name = format!("hostile-{}", std::process::id());
    namespace::create(&client, &name).await.unwrap();
    define_mpi_jobs(&client).await;
    let (client, name) = (&client, &*name);
    let bad = objects::all(RUNS);
    assert_eq!(bad.len(), 170);
    // Half of them is there before the operator, and the others come among good jobs while it
    // watches.
    let (before, during): (Vec<_>, Vec<_>) = bad.iter().enumerate().partition(|(number, _)| number % 2 == 0);
    futures::stream::iter(before)
        .for_each_concurrent(MAX_PARALLEL, |(_, bad)| create_bad(client, name, bad))
        .await;
    let servers = Servers::start(client, name, &["--compat=kubeflow-mpi"]).await;
    let script = Script::run().succeed(format!("{ENDS}-*"), Duration::ZERO);
    let player = Player::start(client.clone(), &Scope::namespace(name), script);
    let good_jobs = futures::stream::iter(good_names()).for_each_concurrent(MAX_PARALLEL, |job| async move {
        let refused = create(client, name, Collection::Jobs, good(&job)).await;
        assert_eq!(refused, None, "{job}");
    });
    let bad_objects = futures::stream::iter(during)
        .for_each_concurrent(MAX_PARALLEL, |(_, bad)| create_bad(client, name, bad));
    let reviews = reviews::all();
    assert_eq!(reviews.len(), 30);
    let reviewed =
        futures::stream::iter(&reviews).for_each_concurrent(MAX_PARALLEL, |review| review.check(&servers));
    tokio::join!(good_jobs, bad_objects, reviewed);
    player.until(|counts| counts.started >= GOOD).await.unwrap();
    all_good(client, name).await;
    futures::stream::iter(&bad)
        .for_each_concurrent(MAX_PARALLEL, |bad| told(client, name, bad))
        .await;
    assert_eq!(player.counts().seen, GOOD, "only good jobs have pods");
    all_good(client, name).await;
    servers.check_memory();
    servers.stop().await;
    namespace::remove(client, name).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = "mpijobs.kubeflow.org";
    definitions
        .delete(definition, &DeleteParams::default())
        .await
        .unwrap();
}
