//! The same random operations on the embedded API and on a real kube-apiserver; see `differential`.
//!
//! `DIFFERENTIAL_SEED` repeats one run, `DIFFERENTIAL_STEPS` makes runs longer.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests, which clippy.toml lets unwrap"
)]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use serde_json::json;
use trainyard_local::api::Api;
use trainyard_local::env::Environment;
use trainyard_testkit::differential::{RandomOperations, Side, Stream, compare, known};
use trainyard_testkit::{cluster::Cluster, differential, namespace, operator};

/// What every namespace has.
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// How many differences are shown; the first usually explains the others.
const MAX_SHOWN: usize = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn sides(name: &str) -> (Side, Side) {
    let cluster = Cluster::from_env()
        .unwrap_or_else(|| panic!("this suite needs a test cluster: use `make test-apiserver`"));
    operator::install_crds(&cluster);
    let real = kube::Client::try_default().await.unwrap();
    let embedded = Api::new(Environment::system()).client(name);
    let definitions: kube::Api<_> = kube::Api::all(embedded.clone());
    definitions
        .create(
            &PostParams::default(),
            &trainyard_api::crd::training_job().unwrap(),
        )
        .await
        .unwrap();
    for client in [&real, &embedded] {
        namespace::create(client, name).await.unwrap();
    }
    // The real server has no controllers, of which one would do this.
    let authority = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOT_CA_CONFIG_MAP},
        "data": kube::Api::<ConfigMap>::namespaced(embedded.clone(), name).get(ROOT_CA_CONFIG_MAP).await.unwrap().data,
    });
    kube::Api::<ConfigMap>::namespaced(real.clone(), name)
        .create(
            &PostParams::default(),
            &serde_json::from_value(authority).unwrap(),
        )
        .await
        .unwrap();
    (
        Side::new(real, name).await.unwrap(),
        Side::new(embedded, name).await.unwrap(),
    )
}

async fn run(seed: u64, steps: usize) {
    let (real, embedded) = sides(&format!("differential-{}-{seed}", std::process::id())).await;
    let follow = |side: &Side| -> Vec<Stream> {
        let kinds = differential::kinds().iter();
        kinds
            .map(|kind| Stream::follow(side.client(), &side.collection(kind), side.start()))
            .collect()
    };
    let streams = (follow(&real), follow(&embedded));
    let mut differences = Vec::new();
    for (step, operation) in RandomOperations::new(seed).take(steps).enumerate() {
        let answers = (
            real.perform(&operation).await.unwrap(),
            embedded.perform(&operation).await.unwrap(),
        );
        differences.extend(compare(step, &operation, &answers.0, &answers.1));
    }
    real.end().await.unwrap();
    embedded.end().await.unwrap();
    for ((kind, real), embedded) in differential::kinds().iter().zip(streams.0).zip(streams.1) {
        let (mut real, mut embedded) = (real.events().await.unwrap(), embedded.events().await.unwrap());
        for (_, object) in real.iter_mut().chain(&mut embedded) {
            known::remove_known_from_object(object);
        }
        let events = real.len().max(embedded.len());
        let differs = (0..events).find(|place| real.get(*place) != embedded.get(*place));
        differences.extend(differs.map(|place| {
            let (real, embedded) = (json!(real.get(place)), json!(embedded.get(place)));
            let differs = differential::difference(&real, &embedded);
            format!(
                "watch of {}, event {place} of {events}: {} {}\n{differs}",
                kind.plural, real[0], real[1]["metadata"]
            )
        }));
    }
    let all = differences.len();
    differences.truncate(MAX_SHOWN);
    assert!(
        differences.is_empty(),
        "seed {seed}: {all} differences in {steps} steps\n{}",
        differences.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_have_the_same_answers_and_watches_as_on_a_real_server() {
    let steps = usize::try_from(number("DIFFERENTIAL_STEPS").unwrap_or(1500)).unwrap();
    let seeds = number("DIFFERENTIAL_SEED").map_or_else(|| vec![1, 2, 3], |seed| vec![seed]);
    for seed in seeds {
        run(seed, steps).await;
    }
}
