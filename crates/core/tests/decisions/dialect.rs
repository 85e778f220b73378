//! Whose names and labels pods carry.

use rstest::rstest;
use trainyard_api::{Dialect, TrainingJob};
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::{admission, build, observe};

use crate::jobs::{mpi, pytorch, with_agent};

const LAUNCHER: PodKey = PodKey { role: 0, index: 0 };
const WORKER: PodKey = PodKey { role: 1, index: 1 };

fn in_dialect(mut job: TrainingJob, dialect: Dialect) -> TrainingJob {
    job.spec.dialect = Some(dialect);
    job
}

fn errors(job: &TrainingJob) -> Vec<String> {
    let errors = admission::validate(None, job);
    errors.iter().map(ToString::to_string).collect()
}

#[rstest]
#[case(Dialect::Native, "mnist-launcher-0", "mnist-launcher")]
#[case(Dialect::KubeflowMpi, "mnist-launcher", "mnist-launcher-0")]
#[case(Dialect::BdapMpi, "mnist-launcher", "mnist-launcher-0")]
fn names_lead_to_pods_and_back(#[case] dialect: Dialect, #[case] launcher: &str, #[case] nobody: &str) {
    let job = in_dialect(mpi("", 12), dialect);
    let job = Job::parse(&job).unwrap();
    assert_eq!(job.pod_name(LAUNCHER), launcher);
    assert_eq!(job.pod_name(WORKER), "mnist-worker-1");
    for key in job.keys() {
        let name = job.pod_name(key);
        assert_eq!(job.key(&name), Some(key));
        assert_eq!(
            observe::place(job.object, &name),
            Some((key.role, key.index)),
            "who speaks for the job"
        );
    }
    assert_eq!(observe::place(job.object, nobody), None);
    for name in [
        nobody,
        "mnist-worker",
        "mnist-worker-12",
        "mnist-",
        "mnist",
        "other-launcher",
    ] {
        assert_eq!(job.key(name), None, "{name}");
    }
}

#[rstest]
#[case(Dialect::Native, "mnist-worker-{}.mnist.team.svc.cluster.local")]
#[case(Dialect::KubeflowMpi, "mnist-worker-{}.mnist.team.svc.cluster.local")]
#[case(Dialect::BdapMpi, "mnist-worker-{}")]
fn hosts_are_listed_as_users_know_them(#[case] dialect: Dialect, #[case] pattern: &str) {
    let job = in_dialect(mpi("launcherAsWorker: true", 2), dialect);
    let job = Job::parse(&job).unwrap();
    let hosts = job
        .framework
        .remote_shell(&job, &with_agent(), LAUNCHER)
        .unwrap()
        .hosts;
    assert_eq!(hosts[1].pattern, pattern);
    assert_eq!(
        (hosts[0].count, hosts[0].pattern.contains("{}")),
        (1, dialect == Dialect::Native)
    );
}

/// The role comes first, and the labels are those that its users select by.
#[test]
fn dl_names_the_role_first() {
    let mut job = in_dialect(
        pytorch(&[("scheduler", 1), ("server", 2), ("worker", 12)]),
        Dialect::Dl,
    );
    job.spec.framework.name = "mxnet".to_owned();
    // A name that ends as that of a pod does.
    job.metadata.name = Some("a-worker-0".to_owned());
    assert_eq!(errors(&job), [""; 0]);
    let job = Job::parse(&job).unwrap();
    let last = PodKey { role: 2, index: 11 };
    assert_eq!(job.pod_name(last), "worker-a-worker-0-11");
    for key in job.keys() {
        let name = job.pod_name(key);
        assert_eq!(job.key(&name), Some(key), "{name}");
        assert_eq!(observe::place(job.object, &name), Some((key.role, key.index)));
    }
    for name in [
        "a-worker-0-worker-11",
        "worker-a-worker-0-12",
        "worker-a-worker-0-011",
        "worker-a-worker-0",
        "worker-a-worker-0-",
        "-a-worker-0-1",
        "boss-a-worker-0-1",
        "worker-b-worker-0-1",
        "workera-worker-0-1",
    ] {
        assert_eq!(job.key(name), None, "{name}");
    }
    let labels = build::pod_labels(&job, last);
    assert_eq!(labels["job_name"], "a-worker-0");
    assert_eq!(labels["pod_name"], "worker-a-worker-0-11");
    assert_eq!(labels["trainyard.dev/role"], "worker", "ours stay");
    let worker = &job.roles[2];
    assert_eq!(
        job.host_pattern(worker, "cluster.local"),
        "worker-a-worker-0-{}.a-worker-0.team.svc.cluster.local"
    );
    let pod = build::pod(&job, &with_agent(), last).unwrap().spec.unwrap();
    assert_eq!(
        pod.dns_config.unwrap().searches.unwrap(),
        ["a-worker-0.team.svc.cluster.local"],
        "pods find each other by their names alone"
    );
}

#[rstest]
#[case("", LAUNCHER, None)]
#[case("", WORKER, Some("1"))]
#[case("launcherAsWorker: true", LAUNCHER, Some("0"))]
#[case("launcherAsWorker: true", WORKER, Some("2"))]
fn kubeflow_counts_workers(#[case] options: &str, #[case] pod: PodKey, #[case] index: Option<&str>) {
    let job = in_dialect(mpi(options, 2), Dialect::KubeflowMpi);
    let job = Job::parse(&job).unwrap();
    let labels = build::pod_labels(&job, pod);
    let label = |name: &str| {
        labels
            .get(&format!("training.kubeflow.org/{name}"))
            .map(String::as_str)
    };
    assert_eq!(label("replica-index"), index);
    assert_eq!(label("job-name"), Some("mnist"));
    assert_eq!(label("operator-name"), Some("mpi-operator"));
    assert_eq!(labels["trainyard.dev/index"], pod.index.to_string(), "ours stay");
}

#[test]
fn a_dialect_is_for_its_framework() {
    let job = in_dialect(pytorch(&[("worker", 1)]), Dialect::BdapMpi);
    assert_eq!(
        errors(&job),
        ["spec.dialect: BdapMpi is for jobs of mpi, and this one is of pytorch: remove it"]
    );
    let job = in_dialect(pytorch(&[("worker", 1)]), Dialect::Dl);
    assert_eq!(
        errors(&job),
        ["spec.dialect: Dl is for jobs of mxnet or tensorflow, and this one is of pytorch: remove it"]
    );
}

#[rstest]
#[case(Dialect::Native, 52, true)]
#[case(Dialect::Native, 53, false)]
#[case(Dialect::BdapMpi, 54, true)]
#[case(Dialect::BdapMpi, 55, false)]
fn names_of_pods_are_host_names(#[case] dialect: Dialect, #[case] length: usize, #[case] fine: bool) {
    let mut job = in_dialect(mpi("", 2), dialect);
    job.metadata.name = Some("a".repeat(length));
    assert_eq!(errors(&job).is_empty(), fine, "{:?}", errors(&job));
}

#[test]
fn a_dialect_stays() {
    let before = in_dialect(mpi("", 2), Dialect::BdapMpi);
    let native = in_dialect(mpi("", 2), Dialect::Native);
    let silent = mpi("", 2);
    let changed = |from: &TrainingJob, to: &TrainingJob| {
        let errors = admission::validate(Some(from), to);
        errors.iter().any(|error| error.path == "spec.dialect")
    };
    assert!(changed(&before, &native) && changed(&silent, &before));
    assert!(!changed(&silent, &native) && !changed(&before, &before));
}
