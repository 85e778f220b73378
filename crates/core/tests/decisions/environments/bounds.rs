//! Which jobs are refused, and what they are told.

use rstest::rstest;
use trainyard_api::TrainingJob;
use trainyard_core::admission;
use trainyard_core::job::Job;

use super::job;

/// All that is wrong with a job, the same with and without webhooks.
fn errors(job: &TrainingJob) -> Vec<String> {
    let mut defaulted = job.clone();
    let errors = admission::review(None, &mut defaulted);
    assert_eq!(errors, Job::parse(job).err().unwrap_or_default());
    errors.iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::tensorflow("tensorflow", "chief or master or worker or ps or evaluator", "")]
#[case::mxnet("mxnet", "scheduler or server or worker", "scheduler server worker")]
#[case::jax("jax", "worker", "worker")]
#[case::xgboost("xgboost", "master or worker", "")]
#[case::paddle("paddle", "master or worker", "worker")]
#[case::bagua("bagua", "master or worker", "")]
#[case::dask("dask", "leadworker or worker or launcher or scheduler", "launcher scheduler")]
#[case::standalone("standalone", "worker", "worker")]
#[case::deepspeed("deepspeed", "worker", "worker")]
fn roles_that_a_framework_does_not_know(#[case] framework: &str, #[case] known: &str, #[case] needed: &str) {
    let missing = needed
        .split_whitespace()
        .map(|role| format!("spec.roles: {framework} jobs need a role {role:?}: add it"));
    let unknown = format!("spec.roles[0].name: {framework} has no role \"driver\": use {known}");
    let expected: Vec<String> = missing.chain([unknown]).collect();
    assert_eq!(errors(&job(framework, "", &[("driver", 1)])), expected);
}

#[rstest]
#[case::chiefs("tensorflow", &[("chief", 2), ("worker", 1)], "chief")]
#[case::masters_of_tensorflow("tensorflow", &[("master", 2), ("worker", 1)], "master")]
#[case::schedulers("mxnet", &[("scheduler", 2), ("server", 1), ("worker", 1)], "scheduler")]
#[case::masters_of_xgboost("xgboost", &[("master", 2), ("worker", 1)], "master")]
#[case::masters_of_bagua("bagua", &[("master", 2), ("worker", 1)], "master")]
#[case::etcds("bagua", &[("etcd", 2), ("worker", 1)], "etcd")]
#[case::launchers("dask", &[("launcher", 2), ("scheduler", 1)], "launcher")]
#[case::lead_workers("dask", &[("leadworker", 2), ("launcher", 1), ("scheduler", 1)], "leadworker")]
fn two_where_there_is_one(#[case] framework: &str, #[case] roles: &[(&str, i32)], #[case] role: &str) {
    assert_eq!(
        errors(&job(framework, "", roles)),
        [format!(
            "spec.roles[0].replicas: {framework} jobs have at most 1 {role:?} pod: set replicas to 1"
        )]
    );
}

#[rstest]
#[case("mxnet", &[("server", 1), ("worker", 1)], "scheduler")]
#[case("mxnet", &[("scheduler", 1), ("worker", 1)], "server")]
#[case("mxnet", &[("scheduler", 1), ("server", 1)], "worker")]
#[case("dask", &[("launcher", 1), ("worker", 1)], "scheduler")]
#[case("dask", &[("scheduler", 1), ("worker", 1)], "launcher")]
#[case("bagua", &[("etcd", 1)], "worker")]
#[case("paddle", &[("master", 1)], "worker")]
#[case("deepspeed", &[("launcher", 1)], "worker")]
fn a_role_that_is_missing(#[case] framework: &str, #[case] roles: &[(&str, i32)], #[case] role: &str) {
    assert_eq!(
        errors(&job(framework, "", roles)),
        [format!(
            "spec.roles: {framework} jobs need a role {role:?}: add it"
        )]
    );
}

#[rstest]
#[case(&[("ps", 2)])]
#[case(&[("evaluator", 1)])]
#[case(&[("evaluator", 1), ("ps", 2)])]
fn a_job_of_servers_alone_does_not_train(#[case] roles: &[(&str, i32)]) {
    let said = "spec.roles: tensorflow jobs need a role that trains: add chief or master or worker";
    assert_eq!(errors(&job("tensorflow", "", roles)), [said]);
}

/// A job of each framework with one pod of each role that it needs.
fn smallest(framework: &str, options: &str) -> TrainingJob {
    let roles: &[(&str, i32)] = match framework {
        "mxnet" => &[("scheduler", 1), ("server", 1), ("worker", 1)],
        "dask" => &[("launcher", 1), ("scheduler", 1)],
        _ => &[("worker", 1)],
    };
    job(framework, options, roles)
}

#[rstest]
fn ports_are_numbers_that_ports_can_have(
    #[values(
        ("tensorflow", "port"),
        ("mxnet", "port"),
        ("jax", "port"),
        ("xgboost", "port"),
        ("paddle", "port"),
        ("dask", "port"),
        ("dask", "dashboardPort"),
        ("dask", "masterPort")
    )]
    (framework, option): (&str, &str),
) {
    let said = |port: i32| {
        let errors = errors(&smallest(framework, &format!("{option}: {port}")));
        let expected = format!(
            "spec.framework.{framework}.{option}: {port} is no port: give a number from 1 to 65535, or leave it out"
        );
        assert_eq!(errors, [expected]);
    };
    said(0);
    said(65536);
    said(-1);
    assert_eq!(errors(&smallest(framework, &format!("{option}: 65535"))), [""; 0]);
}

#[rstest]
#[case::level(
    "mxnet",
    "verbosity: 3",
    "verbosity: 3 is no level: give 0, 1 or 2, or leave it out"
)]
#[case::same_ports(
    "dask",
    "port: 9000, dashboardPort: 9000",
    "dashboardPort: 9000 is the port of the scheduler, too: give another number"
)]
#[case::the_port_is_that_of_the_dashboard(
    "dask",
    "port: 8787",
    "dashboardPort: 8787 is the port of the scheduler, too: give another number"
)]
#[case::adaptive_and_fixed(
    "dask",
    "adaptive: true",
    "adaptive: the number of workers does not change in this job: add spec.elastic, or remove this"
)]
#[case::one_port(
    "bagua",
    "ports: [1]",
    "ports: 1 port is not enough: give at least 2, one for SSH and one for the master, or leave it out"
)]
#[case::no_port(
    "bagua",
    "ports: [1, 0]",
    "ports[1]: 0 is no port: give a number from 1 to 65535, or leave it out"
)]
#[case::a_port_twice("bagua", "ports: [1, 2, 1]", "ports[2]: 1 is there twice: remove one")]
#[case::sizes_without_an_etcd(
    "bagua",
    "minReplicas: 1",
    "minReplicas: is for jobs with a role \"etcd\", which decides who trains: add that role, or remove this"
)]
#[case::slots(
    "deepspeed",
    "slotsPerWorker: 0",
    "slotsPerWorker: 0 processes can't train: give at least 1, or leave it out"
)]
#[case::how_a_launcher_attaches(
    "deepspeed",
    "attach: Ssh",
    "attach: says how a launcher reaches the workers, and there is none: add a role \"launcher\", or remove this"
)]
#[case::host_files_of_a_launcher(
    "deepspeed",
    "slotsPerWorker: 2, hostFiles: [{path: /job/hosts, format: MPICH}]",
    "hostFiles: says how a launcher reaches the workers, and there is none: add a role \"launcher\", or remove this"
)]
fn options_are_checked(#[case] framework: &str, #[case] options: &str, #[case] said: &str) {
    assert_eq!(
        errors(&smallest(framework, options)),
        [format!("spec.framework.{framework}.{said}")]
    );
}

#[rstest]
#[case::too_few(
    "ports: [1, 2, 3]",
    "ports: 3 ports are not enough: give at least 4, two for etcd and one for each worker, or leave it out"
)]
#[case::more_than_there_are(
    "minReplicas: 3",
    "minReplicas: there are 2 workers: give a number from 1 to 2, or leave it out"
)]
#[case::none(
    "minReplicas: 0",
    "minReplicas: there are 2 workers: give a number from 1 to 2, or leave it out"
)]
#[case::less_than_the_least(
    "minReplicas: 2, maxReplicas: 1",
    "maxReplicas: is less than minReplicas (2): give at least that, or leave it out"
)]
fn options_of_bagua_with_an_etcd(#[case] options: &str, #[case] said: &str) {
    assert_eq!(
        errors(&job("bagua", options, &[("etcd", 1), ("worker", 2)])),
        [format!("spec.framework.bagua.{said}")]
    );
}

#[test]
fn one_worker_is_no_workers() {
    let alone = job("bagua", "minReplicas: 2", &[("etcd", 1), ("worker", 1)]);
    let said = "spec.framework.bagua.minReplicas: there is 1 worker: give 1, or leave it out";
    assert_eq!(errors(&alone), [said]);
}

#[test]
fn there_are_ports_for_every_worker() {
    let workers = |replicas| errors(&job("bagua", "", &[("etcd", 1), ("worker", replicas)]));
    assert_eq!(workers(9009), [""; 0]);
    let said =
        "spec.framework.bagua.ports: there are not four ports for each of 9010 workers: name those to use";
    assert_eq!(workers(9010), [said]);
}

#[rstest]
#[case("tensorflow", "TF_CONFIG")]
#[case(
    "mxnet",
    "DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_SERVER DMLC_NUM_WORKER DMLC_WORKER_ID MX_CONFIG"
)]
#[case(
    "jax",
    "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID COORDINATOR_ADDRESS COORDINATOR_PORT NUM_PROCESSES PROCESS_ID"
)]
#[case(
    "xgboost",
    "DMLC_TRACKER_URI DMLC_TRACKER_PORT DMLC_TASK_ID DMLC_NUM_WORKER MASTER_ADDR MASTER_PORT WORLD_SIZE RANK WORKER_PORT \
     WORKER_ADDRS"
)]
#[case(
    "paddle",
    "PADDLE_JOB_ID PADDLE_NNODES PADDLE_RANK PADDLE_MASTER PADDLE_SERVER_NUM PADDLE_TRAINER_NUM POD_IP"
)]
#[case(
    "bagua",
    "BAGUA_SSH_PORT BAGUA_AVAILABLE_PORTS BAGUA_NODE_DOMAIN_NAMES WORLD_SIZE MASTER_ADDR MASTER_PORT RANK"
)]
#[case(
    "dask",
    "SCHEDULER DASK_SCHEDULER_ADDRESS SchedulerAddress SchedulerPort RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"
)]
#[case(
    "deepspeed",
    "MASTER_ADDR MASTER_PORT WORLD_SIZE RANK PET_MASTER_ADDR PET_MASTER_PORT PET_NODE_RANK PET_NNODES"
)]
#[case("standalone", "")]
fn variables_by_which_pods_find_each_other_are_refused(#[case] framework: &str, #[case] reserved: &str) {
    let with = |names: &[&str]| {
        let mut job = smallest(framework, "");
        let pod = job.spec.roles[0].template.spec.as_mut().unwrap();
        let vars: Vec<String> = names
            .iter()
            .map(|name| format!("{{name: {name}, value: x}}"))
            .collect();
        let env = format!("[{}]", vars.join(", "));
        pod.containers[0].env = Some(serde_saphyr::from_str(&env).unwrap());
        errors(&job)
    };
    let reserved: Vec<&str> = reserved.split_whitespace().collect();
    let expected = reserved.iter().enumerate().map(|(e, name)| {
        format!(
            "spec.roles[0].template.spec.containers[0].env[{e}].name: {name} is set by the operator for {framework}; another \
             value would keep the pods from finding each other: remove it"
        )
    });
    assert_eq!(with(&reserved), expected.collect::<Vec<_>>());
    assert_eq!(
        with(&["PYTHONUNBUFFERED", "PS_VERBOSE", "LOCAL_IP", "MY_IP"]),
        [""; 0]
    );
}

#[test]
fn variables_of_bagua_with_an_etcd_are_its_own() {
    let mut job = job("bagua", "", &[("etcd", 1), ("worker", 1)]);
    let pod = job.spec.roles[1].template.spec.as_mut().unwrap();
    let env = "[{name: MASTER_ADDR, value: x}, {name: ETCD_HOST, value: x}, {name: MIN_SIZE, value: '1'}]";
    pod.containers[0].env = Some(serde_saphyr::from_str(env).unwrap());
    let paths: Vec<String> = errors(&job)
        .iter()
        .filter_map(|error| error.split(':').next().map(str::to_owned))
        .collect();
    let at = |e: usize| format!("spec.roles[1].template.spec.containers[0].env[{e}].name");
    assert_eq!(paths, [at(1), at(2)]);
}

/// Linux starts no program with a longer variable, and its sentence is "Argument list too long".
#[rstest]
#[case::all_are_told_of_all("", &[("worker", 3000)], Some(165_000))]
#[case::that_many_can_be_told("", &[("chief", 1), ("ps", 99), ("worker", 2000)], None)]
#[case::evaluators_are_not_listed("", &[("evaluator", 3000), ("worker", 2)], None)]
#[case::dynamic_workers_are_told_of_servers("dynamicWorkers: true", &[("ps", 100), ("worker", 9000)], None)]
#[case::servers_are_listed_twice("dynamicWorkers: true", &[("ps", 1500), ("worker", 2)], Some(168_000))]
#[case::their_chief_is_told_of_all("dynamicWorkers: true", &[("chief", 1), ("worker", 3000)], Some(180_064))]
fn a_job_of_which_a_variable_can_tell(
    #[case] options: &str,
    #[case] roles: &[(&str, i32)],
    #[case] size: Option<usize>,
) {
    let errors = errors(&job("tensorflow", options, roles));
    let said: Vec<usize> = errors
        .iter()
        .map(|error| {
            let begin = "spec.roles: TF_CONFIG would have some ";
            let rest = error.strip_prefix(begin).unwrap_or_else(|| panic!("{error}"));
            rest.split(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(said.len(), usize::from(size.is_some()), "{errors:?}");
    // The estimate is on the safe side, and near.
    if let (Some(size), Some(said)) = (size, said.first()) {
        assert!(size.abs_diff(*said) * 10 < size, "{said} and not about {size}");
        assert!(errors[0].contains("use fewer pods"), "{errors:?}");
        assert_eq!(errors[0].contains("dynamicWorkers"), options.is_empty());
    }
}

#[test]
fn the_nodes_of_bagua_fit_into_a_variable() {
    let nodes = |replicas| errors(&job("bagua", "", &[("worker", replicas)]));
    assert_eq!(nodes(2000), [""; 0]);
    let errors = nodes(3000);
    assert!(
        errors[0].starts_with("spec.roles: BAGUA_NODE_DOMAIN_NAMES would have some"),
        "{errors:?}"
    );
}

/// The lists that are made are not longer than what was said of them.
#[test]
fn lists_of_pods_are_as_long_as_was_thought() {
    let found = |framework: &str, name: &str| {
        let object = job(framework, "", &[("worker", 2000)]);
        super::values(&object, 0, 1999)[name].len()
    };
    for (framework, name) in [
        ("tensorflow", "TF_CONFIG"),
        ("bagua", "BAGUA_NODE_DOMAIN_NAMES"),
        ("xgboost", "WORKER_ADDRS"),
    ] {
        assert!(found(framework, name) <= 131_071, "{framework}");
    }
}

/// XGBoost needs no list of machines, so that its jobs may be larger.
#[test]
fn a_list_that_is_too_long_for_a_variable_is_left_out() {
    let listed = |replicas| {
        let object = job("xgboost", "", &[("worker", replicas)]);
        super::values(&object, 0, 0).contains_key("WORKER_ADDRS")
    };
    assert_eq!((listed(2000), listed(4000)), (true, false));
}
