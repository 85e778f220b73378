//! Declared frameworks: what their jobs are, and what is wrong with declarations.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::{DeclaredFramework, TrainingJob};
use trainyard_core::job::Job;
use trainyard_core::registry::Registry;
use trainyard_core::view::Settings;
use trainyard_core::{admission, build, registry};

use crate::jobs::{job, yaml};

fn framework(text: &str) -> DeclaredFramework {
    serde_saphyr::from_str(text).unwrap()
}

/// A framework of an example.
fn example(name: &str) -> DeclaredFramework {
    let path = format!(
        "{}/../../examples/declared/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    framework(&fs::read_to_string(path).unwrap())
}

fn declare(framework: &DeclaredFramework) -> Registry {
    let mut registry = Registry::default();
    assert_eq!(registry.declare(framework), []);
    registry
}

/// All pods and Services of a job, as JSON.
fn children(registry: &Registry, job: &TrainingJob) -> Vec<String> {
    let (settings, frameworks) = (Settings::default(), registry.for_job(job));
    let job = Job::parse_with(job, &frameworks).unwrap();
    let pods = job.keys().map(|key| build::pod(&job, &settings, key).unwrap());
    let pods = pods.map(|pod| serde_json::to_string(&pod).unwrap());
    let services = build::service_keys(&job).into_iter();
    let services = services.map(|key| serde_json::to_string(&build::service(&job, key)).unwrap());
    pods.chain(services).collect()
}

/// What admission says of a job.
fn errors(registry: &Registry, job: &TrainingJob) -> Vec<String> {
    let frameworks = registry.for_job(job);
    let errors = admission::review_with(None, &mut job.clone(), &frameworks);
    errors.iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::jax("jax", &[("worker", 1)])]
#[case::jax_of_many("jax", &[("worker", 300)])]
#[case::xgboost_alone("xgboost", &[("worker", 1)])]
#[case::xgboost("xgboost", &[("worker", 4)])]
#[case::xgboost_with_master("xgboost", &[("worker", 3), ("master", 1)])]
#[case::xgboost_of_many("xgboost", &[("master", 1), ("worker", 500)])]
#[case::mxnet("mxnet", &[("scheduler", 1), ("server", 1), ("worker", 1)])]
#[case::mxnet_in_another_order("mxnet", &[("worker", 5), ("server", 2), ("scheduler", 1)])]
#[case::mxnet_that_just_lists("mxnet", &[("scheduler", 1), ("server", 55), ("worker", 200)])]
#[case::mxnet_too_large_to_list("mxnet", &[("scheduler", 1), ("server", 56), ("worker", 200)])]
fn declared_pods_are_the_built_in_ones(
    #[case] name: &str,
    #[case] roles: &[(&str, i32)],
    #[values(false, true)] with_options: bool,
) {
    let registry = declare(&example(name));
    let mut built_in = job(name, roles);
    let mut declared = job(&format!("my-{name}"), roles);
    if with_options {
        let options = json!({"name": name, name: {"port": 7777}});
        built_in.spec.framework = serde_json::from_value(options).unwrap();
        declared
            .spec
            .framework
            .params
            .insert("port".to_owned(), json!(7777));
    }
    let (expected, found) = (children(&registry, &built_in), children(&registry, &declared));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    let (of_one, of_other) = (registry.for_job(&built_in), registry.for_job(&declared));
    let (one, other) = (
        Job::parse_with(&built_in, &of_one).unwrap(),
        Job::parse_with(&declared, &of_other).unwrap(),
    );
    assert_eq!(one.succeeded_when, other.succeeded_when);
    assert_eq!(one.failed_when, other.failed_when);
    admission::default_with(&mut built_in.clone(), &of_one);
    let reserved = |job: &Job<'_>| -> Vec<String> {
        let reserved = job.framework.environment.reserved(job.object);
        reserved.into_iter().map(ToOwned::to_owned).collect()
    };
    assert_eq!(reserved(&one), reserved(&other));
}

/// An elastic job that runs, and that workers have left.
fn with_gaps(job: TrainingJob, workers: &str) -> TrainingJob {
    let mut job = serde_json::to_value(job).unwrap();
    let roles = job["spec"]["roles"].as_array_mut().unwrap();
    let accepted: Vec<Value> = roles
        .iter_mut()
        .map(|role| {
            let mut accepted = json!({
                "name": role["name"], "replicas": role["replicas"], "restartPolicy": "OnFailure",
                "succeededWhen": "AllPods", "failedWhen": "AnyPod", "nodeDownPolicy": "Wait",
            });
            if role["name"] == "worker" {
                role.as_object_mut().unwrap().remove("replicas");
                accepted["members"] = json!(workers);
            }
            accepted
        })
        .collect();
    job["spec"]["elastic"] = json!({"replicas": 3});
    job["status"] = json!({"phase": "Running", "acceptedRules": {"roles": accepted}});
    serde_json::from_value(job).unwrap()
}

#[rstest]
#[case("jax", &[("worker", 3)])]
#[case("xgboost", &[("master", 1), ("worker", 3)])]
#[case("mxnet", &[("worker", 3), ("server", 2), ("scheduler", 1)])]
fn declared_pods_know_as_the_built_in_ones_who_has_left(#[case] name: &str, #[case] roles: &[(&str, i32)]) {
    let registry = declare(&example(name));
    let built_in = with_gaps(job(name, roles), "0,2,5");
    let declared = with_gaps(job(&format!("my-{name}"), roles), "0,2,5");
    let (expected, found) = (children(&registry, &built_in), children(&registry, &declared));
    assert!(expected.iter().any(|child| child.contains("mnist-worker-5")));
    assert_eq!(found, expected);
}

#[test]
fn declared_jobs_get_the_defaults_of_built_in_ones() {
    let registry = declare(&example("mxnet"));
    let roles = [("scheduler", 1), ("server", 2), ("worker", 3)];
    let (mut built_in, mut declared) = (job("mxnet", &roles), job("my-mxnet", &roles));
    admission::default(&mut built_in);
    let frameworks = registry.for_job(&declared);
    admission::default_with(&mut declared, &frameworks);
    assert_eq!(built_in.spec.roles, declared.spec.roles);
}

/// A framework with one of everything.
const ALL: &str = r#"
metadata: {name: ring}
spec:
  service: Master
  roles:
    - {name: head, required: true, max: 1, decides: true}
    - {name: tail, dependsOn: [{role: head, state: Ready}], restartPolicy: Always, succeededWhen: AnyPod}
  params:
    port: {type: integer, default: 7000, minimum: 1024}
    token: {type: string, enum: [red, blue]}
    debug: {type: boolean, default: false}
  env:
    - {name: RING_NEXT, value: 'job.hosts[(replica.rank + 1) % job.replicas]'}
    - {name: RING_MASTER, value: job.master}
    - {name: RING_DEBUG, value: params.debug, when: params.debug}
  ports:
    - {name: ring, number: params.port + replica.index}
  files:
    - {path: /etc/ring/hosts, content: 'job.hosts.join("\n") + "\n"'}
    - {path: /etc/ring/token, content: params.token, roles: [head]}
  mounts:
    - {path: /dev/shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
    - {path: /etc/site, configMap: {name: '"site-" + job.namespace', optional: true}, roles: [tail]}
  validations:
    - {rule: 'job.replicas <= 5 || params.token == "blue"', message: 'only blue rings are long: give fewer pods', path: spec.roles}
"#;

fn ring(params: &str, tails: i32) -> TrainingJob {
    yaml(&format!(
        "{{metadata: {{name: r}}, spec: {{framework: {{name: ring, params: {{{params}}}}}, roles: [{{name: head, template: \
         {{spec: {{containers: [{{name: m, image: x}}]}}}}}}, {{name: tail, replicas: {tails}, template: {{spec: \
         {{containers: [{{name: m, image: x}}, {{name: side, image: y}}]}}}}}}]}}}}"
    ))
}

#[test]
fn a_declaration_gives_env_ports_files_mounts_and_services() {
    let registry = declare(&framework(ALL));
    let job = ring("token: red", 2);
    let frameworks = registry.for_job(&job);
    let job = Job::parse_with(&job, &frameworks).unwrap();
    let settings = Settings::default();
    let pods: Vec<_> = job
        .keys()
        .map(|key| build::pod(&job, &settings, key).unwrap())
        .collect();
    let services: Vec<_> = build::service_keys(&job)
        .into_iter()
        .map(|key| build::service(&job, key))
        .collect();
    insta::assert_yaml_snapshot!("declared-ring", (pods, services));
}

#[rstest]
#[case("token: red", 4, &[])]
#[case("token: red", 5, &["spec.roles: only blue rings are long: give fewer pods"])]
#[case("token: blue", 5, &[])]
#[case("", 1, &["spec.framework.params.token: the framework needs this: give it"])]
#[case("token: green", 1, &["spec.framework.params.token: \"green\" is not possible: use red, blue"])]
#[case("token: red, port: 80", 1, &["spec.framework.params.port: 80 is out of range: give at least 1024"])]
#[case("token: red, port: '8080'", 1, &["spec.framework.params.port: \"8080\" is no whole number: give one"])]
#[case("token: red, debug: 1", 1, &["spec.framework.params.debug: 1 is neither true nor false: give one of them"])]
#[case("token: red, colour: red", 1, &["spec.framework.params.colour: the framework has no such param: use debug, port, token"])]
#[case("token: red, port: 65535", 2, &["spec.framework: the framework's spec.ports[0] fails for tail-1: 65536 is no port: ports are from 1 to 65535"])]
fn jobs_are_checked_by_the_declaration(#[case] params: &str, #[case] tails: i32, #[case] expected: &[&str]) {
    let registry = declare(&framework(ALL));
    assert_eq!(errors(&registry, &ring(params, tails)), expected);
}

#[test]
fn a_master_service_needs_a_port_of_rank_zero() {
    let declaration = "{metadata: {name: ring}, spec: {service: Master, roles: [{name: head}, {name: tail}], \
                       ports: [{name: ring, number: '7000', roles: [head]}]}}";
    let registry = declare(&framework(declaration));
    assert_eq!(errors(&registry, &ring("", 2)), [""; 0]);
    let said = "spec.framework: the framework's spec.service fails for tail-0: the Service Master leads to a port of this \
                pod, the first of all, and no entry of spec.ports is for it: the Framework needs one";
    assert_eq!(errors(&registry, &job("ring", &[("tail", 2)])), [said]);
}

#[test]
fn volumes_of_users_keep_clear_of_declared_ones() {
    let registry = declare(&framework(ALL));
    let mut job = ring("token: red", 1);
    let pod = job.spec.roles[0].template.spec.as_mut().unwrap();
    let spec = json!({"containers": [{"name": "m", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/etc/ring"}]}],
        "volumes": [{"name": "v", "emptyDir": {}}]});
    *pod = serde_json::from_value(spec).unwrap();
    let said = "spec.roles[0].template.spec.containers[0].volumeMounts[0].mountPath: /etc/ring/hosts, which is where the \
                framework puts something, would be inside of the volume, which may hide it or have no place for it: mount \
                the volume somewhere else";
    assert_eq!(errors(&registry, &job), [said]);
}

#[test]
fn variables_that_are_too_long_are_refused_before_linux_does() {
    let declaration = "{metadata: {name: long}, spec: {env: [{name: ALL, value: 'job.hosts.join(\",\")'}]}}";
    let registry = declare(&framework(declaration));
    assert_eq!(errors(&registry, &job("long", &[("worker", 1000)])), [""; 0]);
    let found = errors(&registry, &job("long", &[("worker", 3000)]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .starts_with("spec.framework: the framework's spec.env[0] fails for worker-0: ALL would have 1"),
        "{found:?}"
    );
}

#[test]
fn a_value_that_no_variable_can_have_is_refused() {
    let declaration = "{metadata: {name: ring}, spec: {params: {tag: {type: string}}, env: [{name: TAG, value: params.tag}]}}";
    let registry = declare(&framework(declaration));
    let mut ring = job("ring", &[("worker", 1)]);
    let mut tag = |text: &str| {
        ring.spec.framework.params.insert("tag".to_owned(), json!(text));
        errors(&registry, &ring)
    };
    assert_eq!(tag("a\nb"), [""; 0]);
    let said = "spec.framework: the framework's spec.env[0] fails for worker-0: TAG would have the character NUL, which no \
                variable can have: remove it";
    assert_eq!(tag("a\0b"), [said]);
}

#[test]
fn what_is_too_dear_is_refused() {
    let declaration = "{metadata: {name: dear}, spec: {env: [{name: N, value: 'job.hosts.filter(h, h == replica.host).size()'}]}}";
    let registry = declare(&framework(declaration));
    assert_eq!(errors(&registry, &job("dear", &[("worker", 1000)])), [""; 0]);
    let said = "spec.framework: the framework's spec.env[0].value fails for worker-";
    let found = errors(&registry, &job("dear", &[("worker", 4000)]));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with(said)
            && found[0].ends_with("it takes too long for a job of this size: simplify it, or use fewer pods"),
        "{found:?}"
    );
}

/// An elastic job of three pods, which may have up to eight.
#[rstest]
#[case::by_rank("job.hosts[replica.rank] + string(job.replicas)", false, None)]
#[case::not_at_once("job.hosts[3]", true, Some("worker-0: there is no item 3: the list has 3"))]
#[case::not_for_so_many(
    "24 / (8 - job.replicas)",
    false,
    Some("worker-0 once worker has the pods 0-7: a number is divided by zero")
)]
#[case::not_for_all(
    "['a', 'b', 'c', 'd'][replica.index]",
    true,
    Some("worker-4 once worker has the pods 0-7: there is no item 4: the list has 4")
)]
#[case::not_with_a_gap(
    "hosts(replica.role)[replica.index]",
    true,
    Some("worker-7 once worker has the pods 0-5,7: there is no item 7: the list has 7")
)]
#[case::who_starts_anew_has_no_gap("hosts(replica.role)[replica.index]", false, None)]
fn a_job_is_reviewed_at_the_sizes_that_it_may_come_to(
    #[case] value: &str,
    #[case] resizes: bool,
    #[case] problem: Option<&str>,
) {
    let declaration = json!({"metadata": {"name": "ring"}, "spec": {
        "resizes": resizes,
        "env": [{"name": "A", "value": value}],
        "validations": [{"rule": "job.replicas < 4", "message": "rules are asked of the size that there is"}],
    }});
    let registry = declare(&serde_json::from_value(declaration).unwrap());
    let mut elastic = job("ring", &[("worker", 1)]);
    elastic.spec.roles[0].replicas = None;
    elastic.spec.elastic = serde_json::from_value(json!({"replicas": 3, "maxReplicas": 8})).unwrap();
    let expected = problem
        .map(|problem| format!("spec.framework: the framework's spec.env[0].value fails for {problem}"));
    assert_eq!(errors(&registry, &elastic), Vec::from_iter(expected));
}

/// A role that decides, one that the job goes on without, one that serves, as those of tensorflow.
const ROLES: &str = "{metadata: {name: my-tensorflow}, spec: {trainsAsOne: true, roles: [{name: chief, max: 1, decides: true}, \
                     {name: worker, succeededWhen: FirstPod, expendable: true}, {name: ps, serves: true}]}}";

#[rstest]
#[case::all(&[("chief", 1), ("ps", 1), ("worker", 2)])]
#[case::nobody_decides(&[("ps", 1), ("worker", 2)])]
#[case::workers(&[("worker", 2)])]
#[case::in_another_order(&[("worker", 2), ("chief", 1)])]
fn declared_jobs_end_as_built_in_ones(#[case] roles: &[(&str, i32)]) {
    let registry = declare(&framework(ROLES));
    let (built_in, declared) = (job("tensorflow", roles), job("my-tensorflow", roles));
    let (of_one, of_other) = (registry.for_job(&built_in), registry.for_job(&declared));
    let (one, other) = (
        Job::parse_with(&built_in, &of_one).unwrap(),
        Job::parse_with(&declared, &of_other).unwrap(),
    );
    assert_eq!(one.succeeded_when, other.succeeded_when);
    assert_eq!(one.failed_when, other.failed_when);
    let has_chief = roles.iter().any(|(name, _)| *name == "chief");
    assert_eq!(
        other.failed_when.len(),
        roles.len() - usize::from(has_chief),
        "workers are expendable where a chief decides"
    );
}

#[test]
fn params_are_for_declared_frameworks() {
    let mut job = job("pytorch", &[("worker", 1)]);
    job.spec.framework.params.insert("port".to_owned(), json!(1));
    let said = "spec.framework.params: pytorch is built in and has no params: use its options in spec.framework.pytorch";
    assert_eq!(errors(&Registry::default(), &job), [said]);
}

#[rstest]
#[case("{metadata: {name: pytorch}, spec: {}}", &["metadata.name: pytorch is built in, and jobs would find that one: choose another name"])]
#[case("{metadata: {name: A}, spec: {}}", &["metadata.name: the framework's name must consist of lower-case letters, digits and '-', start with a letter and not end with '-'"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, value: job.nme}]}}", &["spec.env[0].value: column 1: job has no field \"nme\": it has name, namespace, roles, hosts, replicas, master"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, value: job.hosts}]}}", &["spec.env[0].value: it results in a list, and a string or a number or a boolean is expected: write json(...) around it, or join(...) after a list"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, value: '1', when: '1'}]}}", &["spec.env[0].when: it results in a number, and a boolean is expected"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A}]}}", &["spec.env[0]: give either value or fieldPath"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, fieldPath: spec.serviceAccountName}]}}", &["spec.env[0].fieldPath: \"spec.serviceAccountName\" is not possible: use metadata.name, metadata.namespace, metadata.uid, spec.nodeName, status.hostIP, status.podIP, status.podIPs"])]
#[case("{metadata: {name: a}, spec: {env: [{name: TRAINYARD_JOB, value: '1'}]}}", &["spec.env[0].name: names that begin with TRAINYARD_ are the operator's: choose another"])]
#[case("{metadata: {name: a}, spec: {env: [{name: 1A, value: '1'}]}}", &["spec.env[0].name: a variable is named by at most 128 letters, digits and '_', and begins with no digit"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, value: '1'}, {name: A, value: '2'}]}}", &["spec.env[1].name: A is set already for every pod: remove one, or say when each is set"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: w}], env: [{name: A, value: '1', roles: [v]}]}}", &["spec.env[0].roles[0]: there is no role \"v\": spec.roles has w"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: w, serves: true}]}}", &["spec.roles: all roles serve others: a job needs one that trains"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: w, expendable: true}]}}", &["spec.roles[0].expendable: no role decides, so that a job needs all of them: say which one decides"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: w, expendable: true, decides: true}]}}", &["spec.roles[0].expendable: this role decides, so that a job can't go on without it: remove one of both"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, value: 'job.hosts.map(a, job.hosts.map(b, a + b)).size()'}]}}", &["spec.env[0].value: column 18: a loop inside of a loop takes too long: only a loop over roles may have one inside"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: w}, {name: w}]}}", &["spec.roles[1].name: there is a role \"w\" already: give each role its own name"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: w, dependsOn: [{role: x, state: Running}]}]}}", &["spec.roles[0].dependsOn[0].role: there is no role \"x\": spec.roles has w"])]
#[case("{metadata: {name: a}, spec: {roles: [{name: v, dependsOn: [{role: w, state: Running}]}, {name: w, dependsOn: [{role: v, state: Running}]}]}}", &["spec.roles: \"v\" waits for itself through other roles: remove a dependency"])]
#[case("{metadata: {name: a}, spec: {params: {p: {type: integer, default: x}}}}", &["spec.params.p.default: \"x\" is no whole number: give one"])]
#[case("{metadata: {name: a}, spec: {params: {p-q: {type: string}}}}", &["spec.params.p-q: a param is named by letters, digits and '_', and begins with a letter: expressions say params.<name>"])]
#[case("{metadata: {name: a}, spec: {service: Master}}", &["spec.service: Master is a Service in front of the first port of rank 0, and spec.ports is empty: add that port, or use Headless"])]
#[case("{metadata: {name: a}, spec: {ports: [{name: P, number: '1'}]}}", &["spec.ports[0].name: a port is named by at most 15 lower-case letters, digits and '-', with a letter, and without '-' at its ends"])]
#[case("{metadata: {name: a}, spec: {ports: [{name: p, number: '\"1\"'}]}}", &["spec.ports[0].number: it results in a string, and a number is expected"])]
#[case("{metadata: {name: a}, spec: {files: [{path: /etc/../x, content: '\"\"'}]}}", &["spec.files[0].path: write a path from the root, without '.', '..' and '/' at the end"])]
#[case("{metadata: {name: a}, spec: {files: [{path: /var/run/trainyard/x, content: '\"\"'}]}}", &["spec.files[0].path: /var/run/trainyard is not for frameworks: choose another path"])]
#[case("{metadata: {name: a}, spec: {files: [{path: /a/b, content: '\"\"'}], mounts: [{path: /a, emptyDir: {}}]}}", &["spec.mounts[0].path: /a and /a/b are inside of each other: choose another path"])]
#[case("{metadata: {name: a}, spec: {mounts: [{path: /a}]}}", &["spec.mounts[0]: give either emptyDir or configMap"])]
#[case("{metadata: {name: a}, spec: {mounts: [{path: /a, emptyDir: {sizeLimit: big}}]}}", &["spec.mounts[0].emptyDir.sizeLimit: this is no amount: write it as 512Mi or 1Gi"])]
#[case("{metadata: {name: a}, spec: {validations: [{rule: replica.rank == 0, message: m}]}}", &["spec.validations[0].rule: column 1: replica is not known here: this is asked of the whole job"])]
#[case("{metadata: {name: a}, spec: {validations: [{rule: 'true', message: m, path: metadata.name}]}}", &["spec.validations[0].path: this is no field of a job: write for example spec.framework.params.port"])]
#[case("{metadata: {name: a}, spec: {env: [{name: A, value: 'x'}, {name: B, value: '1 +'}]}}", &["spec.env[0].value: column 1: there is no x: there are job, replica, params", "spec.env[1].value: column 4: the expression ends too early"])]
fn what_is_wrong_with_a_declaration_is_said_with_its_field(
    #[case] declaration: &str,
    #[case] expected: &[&str],
) {
    let found: Vec<String> = registry::check(&framework(declaration))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected);
}

/// How many of everything a declaration may have.
#[rstest]
#[case("roles", 16, |i| json!({"name": format!("r{i}")}))]
#[case("env", 64, |i| json!({"name": format!("A{i}"), "value": "1"}))]
#[case("reserved", 64, |i| json!(format!("A{i}")))]
#[case("ports", 16, |i| json!({"name": format!("p{i}"), "number": format!("{}", i + 1)}))]
#[case("files", 16, |i| json!({"path": format!("/f{i}"), "content": "'a'"}))]
#[case("mounts", 16, |i| json!({"path": format!("/m{i}"), "emptyDir": {}}))]
#[case("validations", 32, |_| json!({"rule": "true", "message": "m"}))]
fn a_declaration_has_so_many_of_everything(
    #[case] field: &str,
    #[case] most: usize,
    #[case] entry: fn(usize) -> Value,
) {
    let with = |count: usize| wrong(&json!({field: (0..count).map(entry).collect::<Vec<_>>()}));
    assert_eq!(with(most), [""; 0]);
    let given = most + 1;
    assert_eq!(
        with(given),
        [format!(
            "spec.{field}: {given} are given; at most {most} are possible"
        )]
    );
}

#[test]
fn a_declaration_has_so_many_params() {
    let with = |count: usize| {
        let params = (0..count).map(|i| (format!("p{i}"), json!({"type": "integer"})));
        wrong(&json!({"params": params.collect::<serde_json::Map<_, _>>()}))
    };
    assert_eq!(with(32), [""; 0]);
    assert_eq!(with(33), ["spec.params: 33 are given; at most 32 are possible"]);
}

/// A job that runs keeps a copy of it.
#[test]
fn a_declaration_is_not_longer_than_64_kib() {
    let with = |spare: usize| {
        let value = |length: usize| format!("'{}'", "x".repeat(length - 2));
        let variables = |last: usize| -> Vec<Value> {
            let lengths = (0..16).map(|i| if i == 15 { last } else { 4096 });
            let variables = lengths.enumerate();
            let variable = |(i, length)| json!({"name": format!("A{i:02}"), "value": value(length)});
            variables.map(variable).collect()
        };
        let empty = json!({"env": variables(2)}).to_string().len();
        wrong(&json!({"env": variables(2 + 65_536 - empty + spare)}))
    };
    assert_eq!(with(0), [""; 0]);
    let said = "spec: the declaration has 65537 bytes as JSON; at most 65536 are possible: shorten it";
    assert_eq!(with(1), [said]);
}

/// What is wrong with a declaration.
fn wrong(spec: &Value) -> Vec<String> {
    let declaration = json!({"metadata": {"name": "a"}, "spec": spec});
    let errors = registry::check(&serde_json::from_value(declaration).unwrap());
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_declaration_can_not_say_what_is_the_authors() {
    for field in [
        "image",
        "command",
        "serviceAccountName",
        "securityContext",
        "hostPath",
        "volumes",
    ] {
        let text = format!("{{metadata: {{name: a}}, spec: {{{field}: x}}}}");
        assert!(
            serde_saphyr::from_str::<DeclaredFramework>(&text).is_err(),
            "{field}"
        );
    }
    let mount = "{metadata: {name: a}, spec: {mounts: [{path: /a, hostPath: {path: /}}]}}";
    assert!(serde_saphyr::from_str::<DeclaredFramework>(mount).is_err());
}

#[test]
fn a_broken_declaration_is_said_on_its_jobs_alone() {
    let mut registry = declare(&example("jax"));
    let broken = framework("{metadata: {name: broken}, spec: {env: [{name: A, value: x}]}}");
    assert_eq!(registry.declare(&broken).len(), 1);
    let said = "spec.framework.name: the Framework \"broken\" can't be used until its declaration is corrected: \
                spec.env[0].value: column 1: there is no x: there are job, replica, params";
    assert_eq!(errors(&registry, &job("broken", &[("worker", 1)])), [said]);
    assert_eq!(errors(&registry, &job("my-jax", &[("worker", 1)])), [""; 0]);
    registry.remove("my-jax");
    let found = errors(&registry, &job("my-jax", &[("worker", 1)]));
    assert!(
        found[0].starts_with("spec.framework.name: there is no framework \"my-jax\": use one of"),
        "{found:?}"
    );
    let forbidden = Registry::forbidden();
    let found = errors(&forbidden, &job("my-jax", &[("worker", 1)]));
    assert!(found[0].ends_with("standalone, custom; Frameworks that are declared are not served here, as the operator may not read them in the whole cluster"), "{found:?}");
}
