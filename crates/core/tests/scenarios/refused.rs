//! Jobs that can't be run as they are, and how they heal.

use trainyard_api::JobPhase::{Failed, Pending, Running, Suspended};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_core::admission;
use trainyard_core::view::Conflict;

use crate::common::World;
use crate::common::jobs::{Change, custom, role, set_image, workers};

fn conflict() -> Conflict {
    Conflict {
        kind: "Service",
        name: "mnist".to_owned(),
        owner: "Deployment web's".to_owned(),
    }
}

#[test]
fn an_invalid_job_says_all_that_is_wrong_and_makes_nothing() {
    let job = custom(&[("worker", 0), ("worker", 1)]).spec(|spec| spec.framework.name = "pythorch".into());
    let mut world = World::new(job);
    let plan = world.reconcile();
    assert_eq!((world.phase(), plan.wake_at), (Some(Pending), None));
    assert_eq!(world.condition("Accepted"), "False Invalid");
    let said = "\
spec.roles[0].replicas: 0 pods: give at least 1, or remove the role; to stop a job, set spec.suspend
spec.roles[1].name: there is a role \"worker\" already: give each role its own name
spec.framework.name: there is no framework \"pythorch\": use one of pytorch, custom";
    assert_eq!(world.message("Accepted"), said);
    assert_eq!(
        (world.log.pods.len(), world.log.services.len(), world.log.statuses),
        (0, 0, 1)
    );
    assert_eq!(world.told(), ["Invalid"], "said once");
}

#[test]
fn an_invalid_job_that_is_mended_runs() {
    let mut world = World::new(custom(&[("worker", 0)]));
    world.reconcile();
    world.tick(100);
    world.edit(|spec| role(spec, "worker").replicas = Some(1));
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.condition("Accepted"), "True Valid");
}

#[test]
fn a_change_that_admission_did_not_see_is_reported_and_touches_nothing() {
    let mut world = World::running(workers(2, OnFailure));
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    let said = "spec.roles[worker]: was changed while the job runs: change it back, \
                or set spec.suspend to true first";
    assert_eq!(world.message("Accepted"), said);
    assert_eq!(world.phase(), Some(Running));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(world.log.pods.len(), 2, "no pod of another template joins");
    assert_eq!(world.told(), ["AllRolesRunning", "Invalid"]);

    world.edit(|spec| set_image(spec, "worker", "example/train:1"));
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Running), "True Valid".to_owned())
    );
    assert_eq!(
        world.restarts(),
        (1, 0),
        "and what happened meanwhile is made up for"
    );
}

#[test]
fn a_change_that_admission_did_not_see_is_taken_over_by_suspending() {
    let mut world = World::running(workers(1, Never));
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.reconcile();
    world.suspend(true);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Suspended), "True Valid".to_owned())
    );
    world.suspend(false);
    world.settle();
    assert_eq!(
        (world.phase(), world.image("mnist-worker-0")),
        (Some(Running), "example/train:2")
    );
}

#[test]
fn every_section_of_the_spec_is_guarded() {
    type Edit = fn(&mut trainyard_api::TrainingJobSpec);
    let edits: [(&str, Edit); 5] = [
        ("spec.roles[a]", |spec| role(spec, "a").replicas = Some(5)),
        ("spec.roles[b]", |spec| {
            role(spec, "b").restart_policy = Some(OnFailure);
        }),
        ("spec.framework", |spec| spec.framework.name = "pytorch".into()),
        ("spec.completion", |spec| {
            let set = trainyard_api::RoleSet {
                all_of: vec!["a".into()],
            };
            spec.completion.get_or_insert_default().succeeded_when = vec![set];
        }),
        ("spec.runPolicy.cleanPodPolicy", |spec| {
            spec.run_policy.get_or_insert_default().clean_pod_policy =
                Some(trainyard_api::CleanPodPolicy::All);
        }),
    ];
    for (path, edit) in edits {
        let mut world = World::running(custom(&[("a", 1), ("b", 1)]));
        world.edit(edit);
        if path == "spec.framework" {
            // pytorch knows neither role: the job is not valid to begin with.
            role(&mut world.job.spec, "a").name = "master".into();
        }
        world.reconcile();
        assert_eq!(world.condition("Accepted"), "False Invalid", "{path}");
        assert!(
            path == "spec.framework" || world.message("Accepted").starts_with(&format!("{path}: ")),
            "{path}"
        );
        assert_eq!(world.log.pods.len(), 2);
    }
}

#[test]
fn writing_the_defaults_down_is_no_change() {
    // A job made before the webhooks were there, and touched after.
    let mut world = World::running(workers(2, Never));
    let mut job = world.job.clone();
    admission::default(&mut job);
    assert_ne!(job.spec, world.job.spec);
    world.edit(|spec| *spec = job.spec);
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 2));
}

#[test]
fn another_order_of_roles_is_no_change() {
    let mut world = World::running(custom(&[("a", 1), ("b", 2)]));
    world.edit(|spec| spec.roles.reverse());
    world.reconcile();
    assert_eq!(
        world.condition("Accepted"),
        "True Valid",
        "{}",
        world.message("Accepted")
    );
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 3));
}

#[test]
fn a_name_that_is_taken_is_reported_and_nothing_is_touched_until_it_is_free() {
    let mut world = World::new(workers(2, Never));
    world.conflicts.push(conflict());
    let plan = world.reconcile();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    let said = "Service \"mnist\" exists and is Deployment web's. Remove or rename it, or give this job another name; \
                the job goes on by itself then.";
    assert_eq!(world.message("Accepted"), said);
    assert_eq!(
        (world.log.pods.len(), world.log.services.len(), plan.wake_at),
        (0, 0, None)
    );
    assert_eq!(world.told(), ["OwnershipConflict"]);
    world.conflicts.clear();
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Running), "True Valid".to_owned())
    );
}

#[test]
fn a_conflict_does_not_keep_a_job_from_being_suspended() {
    let mut world = World::running(workers(2, Never));
    world.services.clear();
    world.conflicts.push(conflict());
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False OwnershipConflict");
    world.suspend(true);
    world.settle();
    assert_eq!(
        (world.phase(), world.pods.len()),
        (Some(Suspended), 0),
        "a suspended job holds no pods"
    );
}

#[test]
fn a_conflict_does_not_move_a_finished_job() {
    let mut world = World::running(workers(1, Never));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    world.conflicts.push(conflict());
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Failed), "True Valid".to_owned())
    );
}
