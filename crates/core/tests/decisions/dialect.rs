//! Whose names and labels pods carry.

use rstest::rstest;
use trainyard_api::{Dialect, MasterService, PytorchOptions, TrainingJob};
use trainyard_core::job::Job;
use trainyard_core::model::{PodKey, ServiceKey};
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

/// AresOperator has a Service for each role, and pods are found by its name.
#[test]
fn ares_has_services_of_roles() {
    let job = in_dialect(mpi("launcherAsWorker: true", 2), Dialect::Ares);
    let job = Job::parse(&job).unwrap();
    let keys = build::service_keys(&job);
    assert_eq!(keys, [ServiceKey::Role(0), ServiceKey::Role(1)]);
    for (key, role) in keys.into_iter().zip(["launcher", "worker"]) {
        let service = build::service(&job, key).unwrap();
        let name = format!("mnist-{role}");
        assert_eq!(service.metadata.name.as_ref(), Some(&name));
        assert_eq!(build::service_name(&job, key), name);
        let labels = service.metadata.labels.unwrap();
        assert_eq!(labels["ares.io/replica-type"], role);
        let spec = service.spec.unwrap();
        assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
        assert_eq!(spec.selector.unwrap()["trainyard.dev/role"], role);
    }
    let worker = build::pod(&job, &with_agent(), WORKER).unwrap();
    let labels = worker.metadata.labels.unwrap();
    for (label, value) in [
        ("group-name", "ares.io"),
        ("job-name", "mnist"),
        ("replica-type", "worker"),
        ("replica-index", "1"),
    ] {
        assert_eq!(labels[&format!("ares.io/{label}")], value);
    }
    let spec = worker.spec.unwrap();
    assert_eq!(spec.subdomain.as_deref(), Some("mnist-worker"));
    assert_eq!(
        job.host(WORKER, "cluster.local"),
        "mnist-worker-1.mnist-worker.team.svc.cluster.local"
    );
    let shell = job.framework.remote_shell(&job, &with_agent(), LAUNCHER);
    let patterns: Vec<String> = shell
        .unwrap()
        .hosts
        .into_iter()
        .map(|hosts| hosts.pattern)
        .collect();
    assert_eq!(
        patterns,
        [
            "mnist-launcher-{}.mnist-launcher.team.svc.cluster.local",
            "mnist-worker-{}.mnist-worker.team.svc.cluster.local",
        ]
    );
    assert_eq!(
        spec.dns_config.unwrap().searches.unwrap(),
        [
            "mnist-launcher.team.svc.cluster.local",
            "mnist-worker.team.svc.cluster.local"
        ],
        "programs call back at a name without a domain"
    );
}

/// The Service that gives rank 0 an address would have the name of a role's.
#[test]
fn ares_has_no_stable_address_of_a_master() {
    let mut job = in_dialect(pytorch(&[("master", 1), ("worker", 1)]), Dialect::Ares);
    assert_eq!(errors(&job), [""; 0]);
    job.spec.framework.pytorch = Some(PytorchOptions {
        master_service: Some(MasterService::ClusterIP),
        ..PytorchOptions::default()
    });
    assert_eq!(
        errors(&job),
        [
            "spec.framework.pytorch.masterService: in the dialect Ares the Service mnist-master is that of a role: remove this"
        ]
    );
}

/// What users of AresOperator tell their scheduler is on pods, as annotations and as labels, and
/// nowhere else.
#[test]
fn ares_passes_annotations_on() {
    let mut job = in_dialect(mpi("", 2), Dialect::Ares);
    let given = [
        ("ares.io/ares-queue", "nightly"),
        ("ares.io/job-priority", "no label, for it has spaces"),
        ("example.com/other", "yes"),
    ];
    let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
    job.metadata.annotations = Some(given.into());
    let template = job.spec.roles[1].template.metadata.get_or_insert_default();
    let preemptable = ("ares.io/preemptable".to_owned(), "true".to_owned());
    template.labels.get_or_insert_default().extend([preemptable]);
    let pod = |job: &TrainingJob| {
        let job = Job::parse(job).unwrap();
        let metadata = build::pod(&job, &with_agent(), WORKER).unwrap().metadata;
        (metadata.labels.unwrap(), metadata.annotations.unwrap())
    };
    let (labels, annotations) = pod(&job);
    assert_eq!(labels["ares.io/ares-queue"], "nightly");
    assert_eq!(annotations["ares.io/ares-queue"], "nightly");
    assert!(!labels.contains_key("ares.io/job-priority"));
    assert!(annotations["ares.io/job-priority"].contains("spaces"));
    assert!(!labels.contains_key("ares.io/preemptable"), "the job decides");
    assert!(!annotations.contains_key("example.com/other"));
    job.spec.dialect = None;
    let (labels, annotations) = pod(&job);
    assert!(!annotations.contains_key("ares.io/ares-queue"));
    assert_eq!(labels["ares.io/preemptable"], "true");
}
