//! Which jobs a framework accepts, and what it says of the others.

use std::collections::HashSet;
use std::fs;

use rstest::rstest;
use trainyard_api::{Completion, RestartPolicy, RoleSet, TrainingJob};
use trainyard_core::job::{Framework, RoleRule};
use trainyard_core::{admission, frameworks};

use crate::jobs::yaml;

fn pytorch(options: &str, roles: &str) -> TrainingJob {
    yaml(&format!(
        "metadata: {{name: ddp}}\nspec:\n  framework: {{name: pytorch, pytorch: {{{options}}}}}\n  roles:\n{roles}"
    ))
}

const WORKERS: &str =
    "  - {name: worker, replicas: 2, template: {spec: {containers: [{name: train, image: example/ddp}]}}}\n";

fn errors(job: &TrainingJob) -> Vec<String> {
    admission::validate(None, job)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn an_unknown_framework_is_rejected_with_those_there_are() {
    let mut job = pytorch("", WORKERS);
    job.spec.framework.pytorch = None;
    job.spec.framework.name = "caffe".to_owned();
    let known = names().join(", ");
    let said = format!(
        "spec.framework.name: there is no framework \"caffe\": use one of {known}, or declare it: apply a Framework of \
         that name, or give its file as --framework-file"
    );
    assert_eq!(errors(&job), [said]);
    assert!(frameworks::find("caffe").is_none());
}

#[rstest]
#[case("MASTER_ADDR")]
#[case("MASTER_PORT")]
#[case("WORLD_SIZE")]
#[case("RANK")]
#[case("PET_MASTER_ADDR")]
#[case("PET_MASTER_PORT")]
#[case("PET_NODE_RANK")]
#[case("PET_NNODES")]
fn env_that_would_break_rendezvous_is_rejected(#[case] name: &str) {
    let env = format!("env: [{{name: A, value: b}}, {{name: {name}, value: x}}]");
    let roles = format!(
        "  - {{name: worker, template: {{spec: {{initContainers: [{{name: i, image: x, {env}}}], containers: \
         [{{name: t, image: x}}, {{name: u, image: x, {env}}}]}}}}}}\n"
    );
    let said = format!(
        "{name} is set by the operator for pytorch; another value would keep the pods from finding each other: \
         remove it"
    );
    let at = |list: &str| format!("spec.roles[0].template.spec.{list}.env[1].name: {said}");
    assert_eq!(
        errors(&pytorch("", &roles)),
        [at("containers[1]"), at("initContainers[0]")]
    );
}

#[test]
fn custom_reserves_nothing() {
    let job = yaml(
        "{metadata: {name: c}, spec: {framework: {name: custom}, roles: [{name: a, template: {spec: {containers: \
         [{name: m, image: x, env: [{name: MASTER_ADDR, value: x}, {name: INDEX, value: mine}]}]}}}]}}",
    );
    assert_eq!(errors(&job), [""; 0]);
}

#[test]
fn tensorflow_has_one_leader() {
    let roles = |names: &[&str]| {
        let role = |name: &&str| {
            format!("{{name: {name}, template: {{spec: {{containers: [{{name: t, image: x}}]}}}}}}")
        };
        let roles: Vec<String> = names.iter().map(role).collect();
        errors(&yaml(&format!(
            "{{metadata: {{name: tf}}, spec: {{framework: {{name: tensorflow}}, roles: [{}]}}}}",
            roles.join(", ")
        )))
    };
    assert_eq!(roles(&["chief", "worker"]), [""; 0]);
    assert_eq!(roles(&["worker", "master"]), [""; 0]);
    let said = "spec.roles[0].name: chief and master are two words for the role that leads, and there is one leader: remove \
                one of them";
    assert_eq!(roles(&["master", "worker", "chief"]), [said]);
}

#[test]
fn pytorch_knows_its_roles() {
    let chief = "  - {name: chief, template: {spec: {containers: [{name: t, image: x}]}}}\n";
    let said = "spec.roles[0].name: pytorch has no role \"chief\": use master or worker";
    assert_eq!(errors(&pytorch("", chief)), [said]);
    let two = "  - {name: master, replicas: 2, template: {spec: {containers: [{name: t, image: x}]}}}\n";
    let said = "spec.roles[0].replicas: pytorch jobs have at most 1 \"master\" pod: set replicas to 1";
    assert_eq!(errors(&pytorch("", two)), [said]);
}

#[rstest]
#[case(
    "procsPerNode: 0",
    "procsPerNode: 0 processes can't train: give at least 1, or leave it out"
)]
#[case(
    "port: 0",
    "port: 0 is no port: give a number from 1 to 65535, or leave it out"
)]
#[case(
    "port: 65536",
    "port: 65536 is no port: give a number from 1 to 65535, or leave it out"
)]
fn options_of_pytorch_are_checked(#[case] options: &str, #[case] said: &str) {
    assert_eq!(
        errors(&pytorch(options, WORKERS)),
        [format!("spec.framework.pytorch.{said}")]
    );
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let mut job = pytorch(
        "port: 0",
        "  - {name: chief, replicas: 0, template: {spec: {containers: []}}}\n",
    );
    job.metadata.name = Some("Bad_Name".to_owned());
    let paths: Vec<String> = admission::validate(None, &job)
        .into_iter()
        .map(|error| error.path)
        .collect();
    let expected = [
        "metadata.name",
        "spec.roles[0].replicas",
        "spec.roles[0].template.spec.containers",
        "spec.roles[0].name",
        "spec.framework.pytorch.port",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn the_default_restart_policy_is_the_frameworks() {
    let policy = |mut job: TrainingJob| {
        admission::default(&mut job);
        job.spec.roles[0].restart_policy.unwrap()
    };
    assert_eq!(
        policy(pytorch("", WORKERS)),
        trainyard_api::RestartPolicy::OnFailure
    );
    assert_eq!(
        policy(crate::jobs::custom(&[("a", 1)])),
        trainyard_api::RestartPolicy::Never
    );
}

fn names() -> Vec<&'static str> {
    frameworks::FRAMEWORKS.iter().map(Framework::name).collect()
}

#[test]
fn every_framework_has_its_own_name() {
    let mut names = names();
    let all = names.len();
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(*name));
    assert_eq!(names.len(), all);
    let known = [
        "pytorch",
        "tensorflow",
        "mpi",
        "horovod",
        "deepspeed",
        "mxnet",
        "jax",
        "xgboost",
        "paddle",
        "bagua",
        "dask",
        "standalone",
        "custom",
    ];
    names.retain(|name| known.contains(name));
    assert_eq!(names, known);
}

#[test]
fn roles_wait_for_roles_of_their_framework() {
    for framework in frameworks::FRAMEWORKS.iter() {
        let rules = &framework.roles;
        let awaited = rules.iter().flat_map(|rule| &rule.depends_on);
        for on in awaited {
            assert!(
                rules.iter().any(|rule| rule.name == on.role),
                "{on:?} of {framework:?}"
            );
        }
    }
}

#[test]
fn every_framework_has_a_page_and_an_example() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| {
        let file = format!("{repository}/{path}");
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let list = read("docs/trainingjob.md");
    for name in names() {
        let page = format!("frameworks/{name}.md");
        assert!(list.contains(&page), "docs/trainingjob.md does not name {page}");
        let page = read(&format!("docs/{page}"));
        let link = page
            .split("](../../")
            .nth(1)
            .and_then(|rest| rest.split(')').next());
        let example = link.unwrap_or_else(|| panic!("the page of {name} names no example"));
        let job: TrainingJob = yaml(
            read(&format!("{example}/job.yaml"))
                .split("\n---\n")
                .next()
                .unwrap(),
        );
        assert_eq!(job.spec.framework.name, name);
    }
}

/// What frameworks say where users say nothing is no reason to refuse a job. Where it makes one
/// impossible that the user asks for, the words name the field to set, and setting it is enough.
#[test]
fn what_frameworks_say_by_themselves_can_be_mended() {
    for framework in frameworks::FRAMEWORKS.iter() {
        let size = |rule: &'static RoleRule| (&*rule.name, rule.max.unwrap_or(2));
        let mut roles: Vec<(&str, i32)> = framework.roles.iter().map(size).collect();
        // There is one leader, which has two names.
        if framework.name() == "tensorflow" {
            roles.retain(|(name, _)| *name != "master");
        }
        if roles.is_empty() {
            roles = vec![("chief", 1), ("worker", 2)];
        }
        let mut job = crate::jobs::job(framework.name(), &roles);
        for role in &mut job.spec.roles {
            let pod = role.template.spec.as_mut().unwrap();
            pod.containers[0].command = Some(vec!["train".to_owned()]);
        }
        let said = |job: &TrainingJob| admission::review(None, &mut job.clone());
        assert_eq!(said(&job), [], "{}", framework.name());

        let all = roles.iter().map(|(name, _)| (*name).to_owned()).collect();
        job.spec.completion = Some(Completion {
            succeeded_when: vec![RoleSet { all_of: all }],
            ..Completion::default()
        });
        for error in said(&job) {
            let role = (0..roles.len()).find(|i| {
                let field = format!("give another spec.roles[{i}].restartPolicy");
                error.path == format!("spec.completion.succeededWhen[0].allOf[{i}]")
                    && error.message.ends_with(&field)
            });
            let role = role.unwrap_or_else(|| panic!("{error}"));
            job.spec.roles[role].restart_policy = Some(RestartPolicy::OnFailure);
        }
        assert_eq!(said(&job), [], "{}", framework.name());
    }
}
