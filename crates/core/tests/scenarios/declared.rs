//! Jobs of declared frameworks while the declarations change.

use rstest::rstest;
use trainyard_api::{DeclaredFramework, JobPhase};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;

use crate::common::World;
use crate::common::jobs::job;

fn framework(value: &str) -> DeclaredFramework {
    let text = format!("{{metadata: {{name: ring}}, spec: {{env: [{{name: A, value: '{value}'}}]}}}}");
    serde_saphyr::from_str(&text).unwrap()
}

fn world(value: &str) -> World {
    let mut world = World::new(job("ring", &[("worker", 2)]));
    world.registry.declare(&framework(value));
    world
}

/// The value of the variable that the framework gives pods which are created now.
fn variable(world: &World) -> String {
    let frameworks = world.registry.for_job(&world.job);
    let job = Job::parse_with(&world.job, &frameworks).unwrap();
    let pod = build::pod(&job, &world.settings, PodKey { role: 0, index: 0 }).unwrap();
    let env = pod.spec.unwrap().containers.remove(0).env.unwrap();
    let variable = env.into_iter().find(|variable| variable.name == "A").unwrap();
    variable.value.unwrap()
}

fn start(world: &mut World) {
    world.reconcile();
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Running));
}

#[test]
fn a_changed_declaration_does_not_touch_jobs_that_run() {
    let mut world = world("1");
    start(&mut world);
    let statuses = world.log.statuses;
    world.registry.declare(&framework("2"));
    world.reconcile();
    assert_eq!(world.log.statuses, statuses, "nothing is written");
    assert_eq!(variable(&world), "1", "a pod that is replaced is as the others");
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(world.log.pods.len(), 3, "it is replaced");
    assert_eq!(variable(&world), "1");
}

#[test]
fn neither_does_one_that_is_broken_or_gone() {
    let mut world = world("1");
    start(&mut world);
    world.registry.declare(&framework("nonsense"));
    world.reconcile();
    assert_eq!(variable(&world), "1");
    world.registry.remove("ring");
    world.reconcile();
    assert_eq!(variable(&world), "1");
    world.succeed("mnist-worker-0");
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!(world.phase(), Some(JobPhase::Succeeded));
}

#[test]
fn a_job_that_is_resumed_finds_the_current_declaration() {
    let mut world = world("1");
    start(&mut world);
    world.suspend(true);
    world.settle();
    world.registry.declare(&framework("2"));
    world.suspend(false);
    start(&mut world);
    assert_eq!(variable(&world), "2");
}

#[test]
fn no_pod_is_created_before_the_status_has_the_declaration() {
    let mut world = world("1");
    let status = world.plan();
    let status = status.status().unwrap();
    assert!(
        status
            .accepted_framework
            .as_deref()
            .is_some_and(|json| json.contains("\"value\":\"1\""))
    );
    assert_eq!(world.actions(), []);
    world.crash_after(1);
    world.registry.declare(&framework("2"));
    start(&mut world);
    assert_eq!(variable(&world), "1");
}

#[test]
fn a_job_waits_for_its_declaration() {
    let mut world = World::new(job("ring", &[("worker", 2)]));
    world.reconcile();
    assert_eq!(world.log.pods, [""; 0]);
    world.registry.declare(&framework("nonsense"));
    world.reconcile();
    let status = world.job.status.clone().unwrap();
    assert!(
        status.conditions[0]
            .message
            .contains("can't be used until its declaration is corrected")
    );
    world.registry.declare(&framework("1"));
    start(&mut world);
}

/// Without webhooks nobody has refused these, and the job is told.
#[rstest]
#[case::loops(
    "job.hosts.map(a, job.hosts.map(b, b)).size()",
    2,
    "spec.env[0].value: column 18: a loop inside of a loop takes too long"
)]
#[case::wrong_type("job.hosts", 2, "spec.env[0].value: it results in a list, and a string")]
#[case::no_such_field(
    "replica.node",
    2,
    "spec.env[0].value: column 1: replica has no field \"node\""
)]
#[case::endless("((((", 2, "spec.env[0].value: column 5: the expression ends too early")]
#[case::too_dear(
    "job.hosts.map(a, a + job.name).join(job.namespace + replica.host).size()",
    2000,
    "spec.framework: the framework's spec.env[0].value fails for worker-"
)]
#[case::fails(
    "job.hosts[replica.rank + 1]",
    2,
    "spec.framework: the framework's spec.env[0].value fails for worker-1: there is no item 2: the list has 2"
)]
fn a_job_says_why_its_framework_can_not_serve_it(
    #[case] value: &str,
    #[case] pods: i32,
    #[case] problem: &str,
) {
    let mut world = World::new(job("ring", &[("worker", pods)]));
    world.registry.declare(&framework(value));
    world.reconcile();
    let status = world.job.status.clone().unwrap();
    let accepted = &status.conditions[0];
    assert_eq!((&*accepted.type_, &*accepted.status), ("Accepted", "False"));
    assert_eq!(accepted.reason, "Invalid");
    assert!(accepted.message.contains(problem), "{}", accepted.message);
    assert_eq!(world.log.pods, [""; 0]);
    world.registry.declare(&framework("1"));
    world.reconcile();
    assert_eq!(world.job.status.unwrap().conditions[0].status, "True");
}

#[test]
fn a_job_goes_on_without_an_expendable_role() {
    let declaration = "{metadata: {name: ring}, spec: {restartPolicy: Never, roles: [{name: head, decides: true}, {name: tail, \
                       expendable: true}, {name: side}]}}";
    for (role, phase) in [("tail", JobPhase::Running), ("side", JobPhase::Failed)] {
        let mut world = World::new(job("ring", &[("head", 1), ("tail", 1), ("side", 1)]));
        world
            .registry
            .declare(&serde_saphyr::from_str(declaration).unwrap());
        start(&mut world);
        world.fail(&format!("mnist-{role}-0"), 1);
        world.settle();
        assert_eq!(world.phase(), Some(phase), "{role}");
    }
}

#[test]
fn an_edited_copy_is_no_way_around_the_rules() {
    let mut world = world("1");
    start(&mut world);
    for edited in ["", "{", "{\"env\":[{\"name\":\"A\",\"value\":\"x.y\"}]}"] {
        world.job.status.as_mut().unwrap().accepted_framework = Some(edited.to_owned());
        world.reconcile();
        assert_eq!(variable(&world), "1", "the current declaration takes its place");
    }
}
