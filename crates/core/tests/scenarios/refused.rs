//! Jobs that can't be run as they are, and how they heal.

use rstest::rstest;
use trainyard_api::JobPhase::{Pending, Restarting, Running, Succeeded, Suspended};
use trainyard_api::RestartPolicy::{self, Never, OnFailure};
use trainyard_api::{CleanPodPolicy, RoleSet, TrainingJobSpec};
use trainyard_core::admission;
use trainyard_core::view::Refusal;

use crate::common::World;
use crate::common::jobs::{Change, custom, role, set_image, workers};

#[test]
fn an_invalid_job_says_all_that_is_wrong_and_makes_nothing() {
    let job = custom(&[("worker", 0), ("worker", 1)]).spec(|spec| spec.framework.name = "pythorch".into());
    let mut world = World::new(job);
    let plan = world.reconcile();
    assert_eq!((world.phase(), plan.wake_at()), (Some(Pending), None));
    assert_eq!(world.condition("Accepted"), "False Invalid");
    let said = "\
spec.roles[0].replicas: 0 pods: give at least 1, or remove the role; to stop a job, set spec.suspend
spec.roles[1].name: there is a role \"worker\" already: give each role its own name
spec.framework.name: there is no framework \"pythorch\": use one of pytorch, tensorflow, mpi, \
horovod, deepspeed, mxnet, jax, xgboost, paddle, bagua, dask, standalone, custom, or declare it: apply a Framework of \
that name, or give its file as --framework-file";
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
    let said = "spec.roles[0]: role \"worker\" was changed while the job runs: change it back, \
                or set spec.suspend to true first; replicas and templates of jobs that were created with \
                spec.runPolicy.updatePolicy: Roll may change";
    assert_eq!(world.message("Accepted"), said);
    assert_eq!(world.phase(), Some(Running));
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(world.log.pods.len(), 2, "no pod of another template joins");
    assert!(world.log.deleted.is_empty(), "what is not replaced keeps its log");
    assert_eq!(world.told(), ["AllRolesRunning", "Invalid", "PodReplaced"]);
    assert_eq!(
        world.log.events[2].message,
        "mnist-worker-0 on node-0: container main: exit code 1 (Error): to be replaced when the job is accepted again. \
         Failures so far: 1 of 6 allowed; disruptions: 0."
    );
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (1, 0)));
    assert_eq!(world.condition("Running"), "False Restarting");

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

/// A change that a running job may not see, in every way that it may be made.
pub(crate) type Edit = fn(&mut TrainingJobSpec);

const RESIZE: Edit = |spec| role(spec, "worker").replicas = Some(3);
pub(crate) const EMPTY: Edit = |spec| {
    role(spec, "worker")
        .template
        .spec
        .as_mut()
        .unwrap()
        .containers
        .clear();
};
const RENAME: Edit = |spec| role(spec, "worker").name = "other".into();
pub(crate) const NO_FRAMEWORK: Edit = |spec| spec.framework.name = "pythorch".into();

#[rstest]
fn a_job_whose_change_is_not_accepted_still_ends(
    #[values(RESIZE, EMPTY, RENAME, NO_FRAMEWORK)] edit: Edit,
    #[values(Never, OnFailure)] policy: RestartPolicy,
) {
    let mut world = World::running(workers(2, policy));
    world.edit(edit);
    world.settle();
    assert_eq!(
        (world.phase(), world.condition("Accepted")),
        (Some(Running), "False Invalid".to_owned())
    );
    world.tick(10);
    world.succeed("mnist-worker-0");
    world.reconcile();
    world.tick(2);
    world.reconcile();
    assert_eq!(world.status().ready.as_deref(), Some("1/2"));
    world.vanish("mnist-worker-0");
    world.succeed("mnist-worker-1");
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Succeeded), 2));
}

#[rstest]
fn a_job_whose_change_is_not_accepted_loses_pods_and_says_so(
    #[values(RESIZE, EMPTY, RENAME, NO_FRAMEWORK)] edit: Edit,
) {
    let mut world = World::running(workers(2, OnFailure));
    world.edit(edit);
    world.vanish("mnist-worker-0");
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Restarting), (0, 1)));
    assert_eq!(world.status().ready.as_deref(), Some("1/2"));
    assert_eq!(
        world.log.pods.len(),
        2,
        "nothing is made of a spec that is not accepted"
    );

    let mut world = World::running(workers(2, Never));
    world.edit(edit);
    world.vanish("mnist-worker-0");
    world.settle();
    assert_eq!(world.condition("Failed"), "True RolesFailed");
    assert!(world.holding().is_empty());
}

#[rstest]
fn a_job_whose_change_is_not_accepted_keeps_its_deadline(
    #[values(RESIZE, EMPTY, RENAME, NO_FRAMEWORK)] edit: Edit,
) {
    let job = workers(2, OnFailure).run(|run| run.active_deadline_seconds = Some(60));
    let mut world = World::running(job);
    world.edit(edit);
    let plan = world.reconcile();
    world.now = plan.wake_at().unwrap();
    world.settle();
    assert_eq!(world.condition("Failed"), "True DeadlineExceeded");
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert!(world.holding().is_empty());
}

#[test]
fn a_job_whose_change_is_not_accepted_still_spends_its_budget() {
    let mut world = World::running(workers(2, OnFailure).backoff_limit(0));
    world.edit(EMPTY);
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
}

#[test]
fn rules_that_are_not_accepted_do_not_apply() {
    // Each change would give the job another end.
    let mut world = World::running(workers(1, Never));
    world.edit(|spec| role(spec, "worker").restart_policy = Some(OnFailure));
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(world.condition("Failed"), "True RolesFailed");

    let mut world = World::running(custom(&[("a", 1), ("b", 1)]));
    world.edit(|spec| {
        let set = RoleSet {
            all_of: vec!["a".to_owned()],
        };
        spec.completion.get_or_insert_default().succeeded_when = vec![set];
    });
    world.succeed("mnist-a-0");
    world.settle();
    assert_eq!(world.phase(), Some(Running));

    let mut world = World::running(workers(2, Never));
    world.edit(|spec| spec.run_policy.get_or_insert_default().clean_pod_policy = Some(CleanPodPolicy::All));
    world.succeed_all();
    world.settle();
    assert_eq!(
        (world.phase(), world.all().len()),
        (Some(Succeeded), 2),
        "also after the end"
    );
}

#[test]
fn a_job_that_is_accepted_again_makes_up_for_what_happened() {
    let mut world = World::running(workers(2, OnFailure));
    world.edit(RESIZE);
    world.vanish("mnist-worker-0");
    world.settle();
    world.edit(|spec| role(spec, "worker").replicas = Some(2));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 1)));
    assert_eq!(world.log.pods.len(), 3);
}

#[test]
fn pods_of_a_job_that_never_was_accepted_are_removed() {
    // An operator of a former version died between making the pods and writing the first status,
    // and the spec was changed meanwhile.
    let mut world = World::new(workers(2, Never));
    world.reconcile();
    world.job.status = None;
    assert_eq!((world.pods.len(), world.phase()), (2, None));
    world.edit(EMPTY);
    world.settle();
    assert_eq!((world.phase(), world.pods.len()), (Some(Pending), 0));
}

#[test]
fn every_section_of_the_spec_is_guarded() {
    let edits: [(&str, Edit); 5] = [
        ("spec.roles[0]", |spec| role(spec, "a").replicas = Some(5)),
        ("spec.roles[1]", |spec| {
            role(spec, "b").restart_policy = Some(OnFailure);
        }),
        ("spec.framework", |spec| spec.framework.name = "pytorch".into()),
        ("spec.completion", |spec| {
            let set = RoleSet {
                all_of: vec!["a".into()],
            };
            spec.completion.get_or_insert_default().succeeded_when = vec![set];
        }),
        ("spec.runPolicy.cleanPodPolicy", |spec| {
            spec.run_policy.get_or_insert_default().clean_pod_policy = Some(CleanPodPolicy::All);
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
fn a_role_that_was_changed_is_named_and_found_where_it_is_now() {
    let mut world = World::running(custom(&[("a", 1), ("b", 1)]));
    world.edit(|spec| {
        spec.roles.reverse();
        role(spec, "a").replicas = Some(2);
    });
    world.reconcile();
    let said = world.message("Accepted");
    assert!(
        said.starts_with("spec.roles[1]: role \"a\" was changed "),
        "{said}"
    );
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

fn quota() -> Refusal {
    Refusal {
        kind: "Pod",
        name: "mnist-worker-1".to_owned(),
        message: "pods \"mnist-worker-1\" is forbidden: exceeded quota: small".to_owned(),
    }
}

#[test]
fn what_the_server_does_not_take_is_said_in_the_role() {
    let mut world = World::new(custom(&[("ps", 1), ("worker", 2)]));
    world.crash_after(2);
    world.crash_after(2);
    world.refusal = Some(quota());
    world.start();
    let role = world.role("worker");
    assert_eq!(role.reason.as_deref(), Some("CreateFailed"));
    let said = "Pod \"mnist-worker-1\" could not be created: pods \"mnist-worker-1\" is forbidden: exceeded quota: small";
    assert_eq!(role.message.as_deref(), Some(said));
    assert_eq!(world.role("ps").reason, None, "it lacks nothing");
    assert_eq!(world.log.statuses, 1);
    world.tick(100);
    assert!(World::is_quiet(&world.plan()), "and then nothing is written");
    world.refusal = None;
    world.settle();
    assert_eq!(
        (world.phase(), world.role("worker").reason),
        (Some(Running), None)
    );
}

#[test]
fn a_replacement_that_the_server_does_not_take_is_said() {
    let mut world = World::running(workers(2, OnFailure));
    world.vanish("mnist-worker-1");
    world.refusal = Some(quota());
    world.settle();
    assert_eq!(world.role("worker").reason.as_deref(), Some("CreateFailed"));
    assert_eq!(world.phase(), Some(Restarting));
}

#[test]
fn a_deadline_says_what_kept_the_job_from_running() {
    let job = workers(2, OnFailure).run(|run| run.active_deadline_seconds = Some(60));
    let mut world = World::new(job);
    world.crash_after(1);
    world.refusal = Some(quota());
    world.reconcile();
    world.tick(60);
    world.settle();
    let said = "The job has not ended within 60 seconds (spec.runPolicy.activeDeadlineSeconds). worker: Pod \
                \"mnist-worker-1\" could not be created: pods \"mnist-worker-1\" is forbidden: exceeded quota: small";
    assert_eq!(world.message("Failed"), said);
}
