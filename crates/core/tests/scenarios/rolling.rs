//! Jobs whose templates are changed while they run.

use rstest::rstest;
use trainyard_api::JobPhase::{Failed, Restarting, Running};
use trainyard_api::RestartPolicy::{self, Always, Never, OnFailure};
use trainyard_api::{PodQuorum, RestartCause, TrainingJob, UpdatePolicy};
use trainyard_core::view::{PodPhase, Refusal};

use crate::common::World;
use crate::common::jobs::{Change, custom, mpi, role, set_image, with_agent, workers};
use crate::crashes::{Script, at_every_write};

const NEW: &str = "example/train:2";

fn rolling(replicas: i32, policy: RestartPolicy) -> TrainingJob {
    workers(replicas, policy).rolls()
}

fn renew(world: &mut World) {
    world.edit(|spec| set_image(spec, "worker", NEW));
}

/// The pods that were made from the new template, in the order of their creation.
fn renewed(world: &World) -> Vec<String> {
    world.names(|row| world.image(&row.name) == NEW)
}

#[rstest]
fn pods_are_replaced_one_after_the_other(#[values(Never, OnFailure, Always)] policy: RestartPolicy) {
    let mut world = World::running(rolling(3, policy).backoff_limit(0));
    let before = world.writes();
    renew(&mut world);
    for round in 1..=3 {
        world.reconcile();
        assert_eq!(
            world.log.deleted.len(),
            round,
            "one at a time, the last one first"
        );
        assert_eq!(world.phase(), Some(Restarting));
        world.kubelets_remove();
        world.reconcile();
        assert_eq!(renewed(&world).len(), round);
        world.reconcile();
        assert_eq!(world.log.deleted.len(), round, "the new one must run first");
        world.run_all();
    }
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(
        renewed(&world),
        ["mnist-worker-2", "mnist-worker-1", "mnist-worker-0"]
    );
    let restarts = world.status().restarts.unwrap();
    let causes = restarts
        .history
        .iter()
        .map(|record| (record.cause, &*record.reason));
    assert_eq!(
        causes.collect::<Vec<_>>(),
        [(RestartCause::Update, "TemplateChanged"); 3]
    );
    assert!(restarts.replacing.is_empty());
    assert_eq!(world.status().root_cause, None);
    let told = world.told();
    assert_eq!(
        told,
        ["AllRolesRunning", "PodReplaced", "AllRolesRunning"],
        "once for all"
    );
    // For each pod a deletion, a creation and a status, and one for the end.
    assert!(
        world.writes() - before <= 3 * 3 + 2,
        "{}",
        world.writes() - before
    );
}

#[test]
fn pods_of_a_template_that_does_not_get_ready_take_no_others_with_them() {
    let mut world = World::running(rolling(3, OnFailure));
    renew(&mut world);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.run_on("mnist-worker-2", "node-0");
    world.pod_mut("mnist-worker-2").ready = false;
    world.tick(60);
    world.reconcile();
    assert_eq!(world.log.deleted.len(), 1);
    // A template that works replaces that pod first, though it is not ready.
    world.edit(|spec| set_image(spec, "worker", "example/train:3"));
    world.reconcile();
    assert_eq!(world.log.deleted[1].0, "mnist-worker-2");
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    let images = ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"].map(|name| world.image(name));
    assert_eq!(images, ["example/train:3"; 3]);
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn pods_that_have_not_started_are_replaced_at_once() {
    let mut world = World::new(rolling(3, Never));
    world.reconcile();
    renew(&mut world);
    world.reconcile();
    assert_eq!((world.phase(), renewed(&world).len()), (Some(Restarting), 3));
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}

#[test]
fn a_pod_that_fails_meanwhile_is_counted_and_made_from_the_new_template() {
    let mut world = World::running(rolling(3, OnFailure));
    renew(&mut world);
    world.reconcile();
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (1, 0)));
    assert_eq!(renewed(&world).len(), 3);
    assert_eq!(world.log.pods.len(), 6, "none was replaced twice");
    assert_eq!(world.status().root_cause.unwrap().pod, "mnist-worker-0");
}

#[test]
fn a_new_template_whose_pods_fail_spends_the_budget() {
    let mut world = World::running(rolling(2, OnFailure).backoff_limit(0));
    renew(&mut world);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.run_all();
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    assert_eq!(world.condition("Failed"), "True BackoffLimitExceeded");
}

#[test]
fn what_has_done_its_work_is_not_done_again() {
    let mut world = World::running(rolling(2, Never));
    world.succeed("mnist-worker-0");
    world.reconcile();
    renew(&mut world);
    world.settle();
    assert_eq!(renewed(&world), ["mnist-worker-1"]);
}

#[test]
fn pods_of_an_operator_that_knew_no_templates_are_left_alone() {
    let mut world = World::running(rolling(2, OnFailure));
    for row in &mut world.pods {
        row.template = None;
    }
    renew(&mut world);
    world.settle();
    assert_eq!((world.phase(), world.log.deleted.len()), (Some(Running), 0));
    assert_eq!(world.condition("Accepted"), "True Valid");
}

#[test]
fn roles_are_renewed_after_those_they_wait_for_and_only_if_they_changed() {
    let mut world = World::new(mpi("", 2).rolls());
    world.settings = with_agent();
    world.settle();
    let launcher = world.pod("mnist-launcher-0").uid.clone();
    renew(&mut world);
    world.settle();
    assert_eq!(world.log.deleted.len(), 2);
    assert_eq!(
        world.pod("mnist-launcher-0").uid,
        launcher,
        "its template is the same"
    );
    world.edit(|spec| {
        set_image(spec, "launcher", "example/openmpi:3");
        set_image(spec, "worker", "example/openmpi:3");
    });
    world.settle();
    let deleted: Vec<&str> = world.log.deleted.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        deleted[2..],
        ["mnist-worker-1", "mnist-worker-0", "mnist-launcher-0"]
    );
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
}

#[test]
fn nothing_is_removed_that_could_not_be_made_again() {
    let mut world = World::new(mpi("", 2).rolls());
    world.settings = with_agent();
    world.settle();
    world.settings.agent = None;
    renew(&mut world);
    world.settle();
    assert_eq!((world.phase(), world.log.deleted.len()), (Some(Running), 0));
    world.settings = with_agent();
    world.settle();
    assert_eq!(world.log.deleted.len(), 2);
}

#[test]
fn a_template_and_a_size_change_together() {
    let mut world = World::running(rolling(2, Never));
    world.edit(|spec| {
        set_image(spec, "worker", NEW);
        role(spec, "worker").replicas = Some(3);
    });
    world.settle();
    assert_eq!(renewed(&world).len(), 3);
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 5));
}

#[test]
fn the_rest_of_a_role_and_the_policy_itself_stay_as_they_are() {
    let mut world = World::running(rolling(2, Never));
    world.edit(|spec| role(spec, "worker").restart_policy = Some(OnFailure));
    world.reconcile();
    let said = "spec.roles[0]: role \"worker\" was changed while the job runs: change it back, or set spec.suspend to true first";
    assert_eq!(world.message("Accepted"), said);

    let mut world = World::running(workers(2, Never));
    world.edit(|spec| {
        spec.run_policy.get_or_insert_default().update_policy = Some(UpdatePolicy::Roll);
        set_image(spec, "worker", NEW);
    });
    world.settle();
    let said = "spec.runPolicy.updatePolicy: was changed while the job runs: change it back, or set spec.suspend to true first";
    assert_eq!(world.message("Accepted"), said);
    assert_eq!(world.log.deleted.len(), 0);
    world.suspend(true);
    world.settle();
    world.suspend(false);
    world.settle();
    assert_eq!((world.phase(), renewed(&world).len()), (Some(Running), 2));
    world.edit(|spec| set_image(spec, "worker", "example/train:3"));
    world.settle();
    assert_eq!(world.image("mnist-worker-0"), "example/train:3");
}

#[test]
fn an_annotation_is_written_only_where_it_is_of_use() {
    let world = World::running(workers(1, Never));
    assert_eq!(world.pods[0].template, None);
    let world = World::running(custom(&[("a", 1), ("b", 1)]).rolls());
    assert!(world.pods.iter().all(|row| row.template.is_some()));
}

#[rstest]
fn the_operator_dies_while_pods_are_replaced(#[values(Never, OnFailure)] policy: RestartPolicy) {
    let script: Script = |world, operator| {
        operator(world);
        world.run_all();
        operator(world);
        renew(world);
        for _ in 0..3 {
            operator(world);
            world.kubelets_remove();
            operator(world);
            world.run_all();
        }
        operator(world);
    };
    let points = at_every_write(&rolling(2, policy).backoff_limit(0), script, |world| {
        assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
        assert_eq!((renewed(world).len(), world.log.pods.len()), (2, 4));
        assert!(world.pods.iter().all(|row| row.phase == PodPhase::Running));
    });
    assert!(points >= 10, "{points}");
}

#[test]
fn how_a_pod_ended_that_went_with_a_smaller_role_means_nothing_when_it_comes_back() {
    let job = rolling(3, Never)
        .backoff_limit(0)
        .role("worker", |role| role.failed_when = Some(PodQuorum::AllPods));
    let mut world = World::running(job);
    let resize = |world: &mut World, replicas| {
        world.edit(|spec| role(spec, "worker").replicas = Some(replicas));
        world.reconcile();
    };
    world.fail("mnist-worker-1", 1);
    resize(&mut world, 1);
    resize(&mut world, 2);
    world.kubelets_remove();
    world.reconcile();
    world.run_all();
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.all().len(), 2);
}

#[test]
fn a_role_that_has_ended_is_left_alone_and_keeps_no_other_waiting() {
    let any = |role: &mut trainyard_api::RoleSpec| role.succeeded_when = Some(PodQuorum::AnyPod);
    let mut world = World::running(custom(&[("a", 2), ("b", 2)]).role("a", any).rolls());
    world.succeed("mnist-a-0");
    world.tick(10);
    world.settle();
    assert_eq!(world.role("a").phase, trainyard_api::RolePhase::Succeeded);
    let rest = world.pod("mnist-a-1").uid.clone();
    // What becomes of its pods means nothing either.
    world.pod_mut("mnist-a-1").phase = PodPhase::Pending;
    world.edit(|spec| {
        set_image(spec, "a", "example/train:2");
        set_image(spec, "b", "example/train:2");
    });
    for _ in 0..6 {
        world.reconcile();
        world.kubelets_remove();
        world.reconcile();
        for name in world.names(|row| row.name.contains("-b-") && row.phase == PodPhase::Pending) {
            world.run_on(&name, "node-0");
        }
    }
    assert_eq!(world.pod("mnist-a-1").uid, rest);
    assert_eq!(
        (world.image("mnist-b-0"), world.image("mnist-b-1")),
        ("example/train:2", "example/train:2")
    );
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn a_pod_that_could_not_be_made_and_is_not_wanted_any_more_holds_nothing_up() {
    let mut world = World::running(workers(2, OnFailure).rolls());
    world.edit(|spec| role(spec, "worker").replicas = Some(3));
    world.refusal = Some(Refusal {
        kind: "Pod",
        name: "mnist-worker-2".to_owned(),
        message: "exceeded quota".to_owned(),
    });
    world.settle();
    renew(&mut world);
    world.settle();
    assert_eq!(world.log.deleted, [], "it could not be made again");
    world.edit(|spec| role(spec, "worker").replicas = Some(2));
    world.reconcile();
    assert_eq!(world.log.deleted, [("mnist-worker-1".to_owned(), false)]);
}
