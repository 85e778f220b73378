//! Jobs of declared frameworks while the declarations change.

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
