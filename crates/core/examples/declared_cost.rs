//! How long it takes to parse a job and build all its pods, of frameworks that are built in and of
//! the same ones as they are declared in `examples/declared`.
//!
//!     cargo run --release -p trainyard-core --example declared_cost

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for developers"
)]

use std::time::{Duration, Instant};

use trainyard_api::{DeclaredFramework, TrainingJob};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::registry::Registry;
use trainyard_core::view::Settings;

fn job(framework: &str, roles: &[(&str, i32)]) -> TrainingJob {
    let template = "{spec: {containers: [{name: main, image: x}]}}";
    let role = |(name, replicas): &(&str, i32)| {
        format!("{{name: {name}, replicas: {replicas}, template: {template}}}")
    };
    let roles: Vec<String> = roles.iter().map(role).collect();
    let text = format!(
        "{{metadata: {{name: mnist, namespace: team}}, spec: {{framework: {{name: {framework}}}, roles: [{}]}}}}",
        roles.join(", ")
    );
    serde_saphyr::from_str(&text).unwrap()
}

/// The shortest of many times, for a job whose spec was accepted before, or for a new one.
fn time(registry: &Registry, mut job: TrainingJob, is_accepted: bool) -> Duration {
    let frameworks = registry.for_job(&job);
    trainyard_core::admission::default_with(&mut job, &frameworks);
    job.metadata.generation = Some(1);
    let accepted = "{observedGeneration: 1, conditions: [{type: Accepted, status: 'True', reason: Valid, message: '', \
                    lastTransitionTime: '2026-01-01T00:00:00Z'}]}";
    job.status = is_accepted.then(|| serde_saphyr::from_str(accepted).unwrap());
    let settings = Settings::default();
    let once = || {
        let start = Instant::now();
        let frameworks = registry.for_job(&job);
        let job = Job::parse_with(&job, &frameworks).unwrap();
        for key in job.keys() {
            std::hint::black_box(build::pod(&job, &settings, key));
        }
        start.elapsed()
    };
    (0..30).map(|_| once()).min().unwrap_or_default()
}

fn main() {
    let mut registry = Registry::default();
    let cases: [(&str, &[(&str, i32)]); 5] = [
        ("jax", &[("worker", 1000)]),
        ("xgboost", &[("master", 1), ("worker", 999)]),
        ("mxnet", &[("scheduler", 1), ("server", 50), ("worker", 200)]),
        ("mxnet", &[("scheduler", 1), ("server", 199), ("worker", 800)]),
        ("jax", &[("worker", 1)]),
    ];
    for (name, roles) in cases {
        let path = format!(
            "{}/../../examples/declared/{name}.yaml",
            env!("CARGO_MANIFEST_DIR")
        );
        let framework: DeclaredFramework =
            serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(registry.declare(&framework), []);
        let pods: i32 = roles.iter().map(|(_, replicas)| replicas).sum();
        for (what, is_accepted) in [("accepted", true), ("new", false)] {
            let built_in = time(&registry, job(name, roles), is_accepted);
            let declared = time(&registry, job(&format!("my-{name}"), roles), is_accepted);
            let ratio = declared.as_secs_f64() / built_in.as_secs_f64();
            println!(
                "{name}, {pods} pods, {what}: built in {built_in:?}, declared {declared:?}, {ratio:.2} x"
            );
        }
    }
}
