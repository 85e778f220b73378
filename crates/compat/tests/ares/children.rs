//! What a job becomes: a TrainingJob in its place, and the pods and Services of a job that is
//! served.

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{Dialect, TrainingJob};
use trainyard_compat::{Converted, convert};
use trainyard_core::build;
use trainyard_core::foreign::ChildAction;
use trainyard_core::job::Job;

use super::common::{of_job, settings};
use super::{OURS, SAMPLES, at, child, kind, manifest, object, plan};

#[test]
fn converted() {
    for (name, _) in OURS.into_iter().chain(SAMPLES) {
        let Converted { job, notes } =
            convert(&manifest(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut lines: Vec<String> = notes.iter().map(|note| format!("# {note}")).collect();
        lines.push(serde_saphyr::to_string(&job).unwrap());
        insta::assert_snapshot!(format!("convert_{name}"), lines.join("\n"));
        let read: TrainingJob = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
        assert_eq!(read, job, "{name}: also after it was written and read");
    }
}

/// Names, labels, environment and files of every role, as users of AresOperator know them.
#[test]
fn served() {
    for (name, _) in OURS {
        let mut child = child(&object(name));
        child.metadata.uid = Some("child-uid".to_owned());
        let job = Job::parse(&child).unwrap();
        let settings = settings();
        let mut documents = vec![
            serde_saphyr::to_string(&child.metadata).unwrap(),
            serde_saphyr::to_string(&child.spec.run_policy).unwrap(),
            serde_saphyr::to_string(&child.spec.completion).unwrap(),
        ];
        let services = build::service_keys(&job).into_iter();
        documents.extend(services.map(|key| serde_saphyr::to_string(&build::service(&job, key)).unwrap()));
        let pods = job.keys().filter(|key| key.index <= 1);
        documents.extend(pods.map(|key| serde_saphyr::to_string(&build::pod(&job, &settings, key)).unwrap()));
        insta::assert_snapshot!(format!("serve_{name}"), documents.join("---\n"));
    }
}

/// The variables of a pod's main container.
fn env(job: &Job<'_>, role: &str, index: i32) -> Vec<(String, String)> {
    let key = job
        .keys()
        .find(|key| job.roles[key.role].name == role && key.index == index);
    let pod = build::pod(job, &settings(), key.unwrap()).unwrap();
    let main = &job.role(role).unwrap().1.main.name;
    let mut containers = pod.spec.unwrap().containers.into_iter();
    let main = containers.find(|container| container.name == *main).unwrap();
    let env = main.env.unwrap().into_iter();
    env.map(|var| (var.name, var.value.unwrap_or_default())).collect()
}

/// What programs of each framework are told, by the names that the Services of roles give.
#[rstest]
#[case("pytorch", "master", 0, "MASTER_ADDR", "0.0.0.0")]
#[case(
    "pytorch",
    "worker",
    1,
    "MASTER_ADDR",
    "cats-master-0.cats-master.research.svc.cluster.local"
)]
#[case("pytorch", "worker", 1, "MASTER_PORT", "23456")]
#[case("pytorch", "worker", 1, "RANK", "2")]
// Four accelerators do not make four processes.
#[case("pytorch", "master", 0, "WORLD_SIZE", "3")]
#[case("dask", "leadworker", 0, "MASTER_ADDR", "0.0.0.0")]
#[case(
    "dask",
    "worker",
    0,
    "MASTER_ADDR",
    "clouds-leadworker.research.svc.cluster.local"
)]
#[case("dask", "worker", 0, "MASTER_PORT", "9003")]
#[case("dask", "worker", 1, "RANK", "2")]
#[case("dask", "launcher", 0, "RANK", "3")]
#[case("dask", "launcher", 0, "WORLD_SIZE", "4")]
#[case(
    "dask",
    "scheduler",
    0,
    "SCHEDULER",
    "tcp://clouds-scheduler.research.svc.cluster.local:9001"
)]
#[case(
    "dask",
    "launcher",
    0,
    "SchedulerAddress",
    "clouds-scheduler.research.svc.cluster.local"
)]
#[case("bagua", "worker", 0, "RANK", "1")]
#[case("bagua", "worker", 0, "BAGUA_AVAILABLE_PORTS", "7003,7004")]
#[case(
    "bagua",
    "master",
    0,
    "SERVICE_DOMAIN_NAME",
    "trigrams-worker.research.svc.cluster.local trigrams-master.research.svc.cluster.local"
)]
#[case(
    "bagua-elastic",
    "worker",
    1,
    "SERVICE_DOMAIN_NAME",
    "hexagrams-worker.research.svc.cluster.local"
)]
#[case("bagua-elastic", "worker", 1, "BAGUA_SSH_PORT", "7005")]
#[case(
    "bagua-elastic",
    "worker",
    0,
    "ETCD_HOST",
    "hexagrams-etcd-0.hexagrams-etcd.research.svc.cluster.local"
)]
#[case("custom", "train", 1, "INDEX", "1")]
#[case(
    "custom",
    "train",
    1,
    "hub",
    "tiles-hub-0.tiles-hub.research.svc.cluster.local"
)]
fn programs_are_told(
    #[case] name: &str,
    #[case] role: &str,
    #[case] index: i32,
    #[case] variable: &str,
    #[case] value: &str,
) {
    let child = child(&object(name));
    let job = Job::parse(&child).unwrap();
    let env = env(&job, role, index);
    let found: Vec<&str> = env
        .iter()
        .filter(|(name, _)| name == variable)
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(found, [value], "{env:?}");
}

#[test]
fn tensorflow_knows_all_tasks_but_evaluators() {
    let child = child(&object("tensorflow"));
    let job = Job::parse(&child).unwrap();
    let env = env(&job, "worker", 1);
    let (_, config) = env.iter().find(|(name, _)| name == "TF_CONFIG").unwrap();
    let config: Value = serde_json::from_str(config).unwrap();
    let host = |role: &str, i: i32, port: i32| {
        format!("boats-{role}-{i}.boats-{role}.research.svc.cluster.local:{port}")
    };
    assert_eq!(
        config,
        json!({
            "cluster": {
                "chief": [host("chief", 0, 2222)],
                "ps": [host("ps", 0, 4000)],
                "worker": [host("worker", 0, 2222), host("worker", 1, 2222)],
            },
            "task": {"type": "worker", "index": 1},
            "environment": "cloud",
        })
    );
}

/// Each role has a Service but those that nobody looks for.
#[rstest]
#[case("pytorch", &["cats-master", "cats-worker"])]
#[case("dask", &["clouds-leadworker", "clouds-scheduler"])]
#[case("standalone", &[])]
fn services(#[case] name: &str, #[case] wanted: &[&str]) {
    let child = child(&object(name));
    assert_eq!(child.spec.dialect, Some(Dialect::Ares));
    let job = Job::parse(&child).unwrap();
    let keys = build::service_keys(&job);
    let names: Vec<String> = keys.iter().map(|key| build::service_name(&job, *key)).collect();
    assert_eq!(names, wanted);
    for key in keys {
        let service = build::service(&job, key).unwrap();
        let selector = service.spec.unwrap().selector.unwrap();
        let role = &service.metadata.labels.unwrap()["ares.io/replica-type"];
        assert_eq!(selector["trainyard.dev/role"], *role);
    }
}

/// A scheduler reads what a job may do from its pods, also when that changes while they run.
#[test]
fn annotations_are_passed_on_and_kept_in_step() {
    let before = object("tensorflow");
    let running = at(&before, json!({"phase": "Running"}));
    assert_eq!(plan(&before, of_job(&running)).child, ChildAction::Leave);
    let mut after = before.clone();
    after["metadata"]["annotations"] = json!({"ares.io/ares-queue": "daily", "unrelated": "yes"});
    let ChildAction::Replace(job) = plan(&after, of_job(&running)).child else {
        panic!("they are to be changed")
    };
    let annotations = job.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["ares.io/ares-queue"], "daily");
    assert!(!annotations.contains_key("ares.io/job-priority") && !annotations.contains_key("unrelated"));
    assert_eq!(
        job.spec, running.spec,
        "nothing else changes, and no pod is replaced"
    );
    assert_eq!(plan(&after, of_job(&job)).child, ChildAction::Leave);
    let job = Job::parse(&job).unwrap();
    let key = job.keys().next().unwrap();
    let metadata = build::pod(&job, &settings(), key).unwrap().metadata;
    for place in [metadata.labels.unwrap(), metadata.annotations.unwrap()] {
        assert_eq!(place["ares.io/ares-queue"], "daily");
        assert!(!place.contains_key("ares.io/job-priority"));
    }
}

/// Scripts take the phase from the fourth column of `kubectl get aj`.
#[test]
fn columns() {
    let definition = kind().definition();
    let columns = &definition["spec"]["versions"][0]["additionalPrinterColumns"];
    let names: Vec<&str> = columns
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Namespace", "Framework", "Phase", "Age"]);
}
