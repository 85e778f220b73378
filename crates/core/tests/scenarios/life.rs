//! From creation to a good end, and what the user sees on the way.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use trainyard_api::JobPhase::{Running, Starting, Succeeded};
use trainyard_api::{Dialect, Elastic, MasterService, NodeDownPolicy, RestartPolicy, RolePhase};
use trainyard_core::plan::{Plan, Step};
use trainyard_core::view::{NodeState, Refusal};

use crate::common::World;
use crate::common::jobs::{Change, custom, pytorch, set_image, workers};

#[test]
fn a_custom_job_costs_its_pods_one_service_and_two_status_writes_until_it_runs() {
    let mut world = World::new(custom(&[("ps", 1), ("worker", 3)]));
    world.start();
    assert_eq!(
        world.log.pods,
        ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1", "mnist-worker-2"]
    );
    assert_eq!(world.log.services, ["mnist"]);
    assert_eq!((world.phase(), world.log.statuses), (Some(Starting), 1));
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!(world.condition("Running"), "False Starting");
    // Pods start to run one by one, a second apart: no write until all of them do.
    for name in world.log.pods.clone() {
        assert_eq!(world.log.statuses, 1);
        world.run_on(&name, "node-0");
        world.reconcile();
        world.tick(1);
    }
    assert_eq!((world.phase(), world.log.statuses), (Some(Running), 2));
    assert_eq!(world.condition("Running"), "True AllRolesRunning");
    assert_eq!(world.status().ready.as_deref(), Some("4/4"));
    assert_eq!((world.log.pods.len(), world.log.services.len()), (4, 1));
    assert_eq!(world.told(), ["AllRolesRunning"]);
}

#[test]
fn a_pytorch_job_runs_and_succeeds_when_all_its_roles_did() {
    let mut world = World::running(pytorch(&[("master", 1), ("worker", 2)]));
    assert_eq!(world.log.statuses, 1);
    world.succeed("mnist-master-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Running), "workers still work");
    assert_eq!(world.role("master").phase, RolePhase::Succeeded);
    world.succeed_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
    assert_eq!(world.condition("Succeeded"), "True RolesSucceeded");
    assert_eq!(world.condition("Failed"), "");
    assert_eq!(world.condition("Running"), "False Finished");
    assert_eq!(world.told(), ["AllRolesRunning", "RolesSucceeded"]);
    assert_eq!(world.log.pods.len(), 3, "nothing was made again");
    assert!(
        world.log.deleted.is_empty(),
        "pods that ended are kept for their logs"
    );
}

/// An object of another operator's kind has events of its own about that.
#[test]
fn the_child_of_an_object_costs_as_many_statuses_and_tells_only_what_goes_wrong() {
    let life = |change: fn(&mut trainyard_api::TrainingJob)| {
        let mut job = pytorch(&[("master", 1), ("worker", 2)]);
        job.spec.roles[1].restart_policy = Some(RestartPolicy::OnFailure);
        change(&mut job);
        let mut world = World::running(job);
        world.fail("mnist-worker-1", 1);
        world.settle();
        world.run_all();
        world.settle();
        world.succeed_all();
        world.settle();
        assert_eq!(world.phase(), Some(Succeeded));
        world
    };
    let child = life(|job| {
        job.spec.dialect = Some(Dialect::Ares);
        job.metadata.owner_references = Some(vec![OwnerReference {
            controller: Some(true),
            ..OwnerReference::default()
        }]);
    });
    let users = life(|job| job.spec.dialect = Some(Dialect::Ares));
    assert_eq!(child.log.statuses, users.log.statuses);
    assert_eq!(child.log.services, ["mnist-master", "mnist-worker"]);
    assert_eq!(child.told(), ["PodReplaced"]);
    assert_eq!(
        users.told(),
        [
            "AllRolesRunning",
            "PodReplaced",
            "AllRolesRunning",
            "RolesSucceeded"
        ]
    );
}

#[test]
fn a_pytorch_job_of_workers_only_succeeds_when_all_workers_did() {
    let mut world = World::running(pytorch(&[("worker", 2)]));
    world.succeed("mnist-worker-0");
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!(world.phase(), Some(Succeeded));
}

#[test]
fn a_stable_master_address_is_one_more_service() {
    let job = pytorch(&[("master", 1)]).spec(|spec| {
        spec.framework.pytorch.get_or_insert_default().master_service = Some(MasterService::ClusterIP);
    });
    let world = World::running(job);
    assert_eq!(world.log.services, ["mnist", "mnist-master"]);
}

#[test]
fn a_job_that_runs_is_left_alone() {
    let world = World::running(custom(&[("worker", 3)]));
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_job_whose_pods_end_at_once_goes_straight_to_its_end() {
    let mut world = World::new(custom(&[("worker", 2)]));
    world.reconcile();
    world.succeed("mnist-worker-0");
    world.succeed("mnist-worker-1");
    world.reconcile();
    assert_eq!((world.phase(), world.log.statuses), (Some(Succeeded), 1));
}

#[test]
fn counters_wait_for_the_next_write_but_not_for_ever() {
    let mut world = World::new(custom(&[("worker", 2)]));
    world.start();
    world.tick(1);
    world.run_on("mnist-worker-0", "node-0");
    let plan = world.reconcile();
    assert!(matches!(plan.step(), Step::Wait));
    assert_eq!(world.log.statuses, 1);
    world.tick(9);
    world.reconcile();
    assert_eq!(world.log.statuses, 2);
    assert_eq!(world.status().ready.as_deref(), Some("1/2"));
    assert_eq!(
        (world.role("worker").active, world.role("worker").pending),
        (1, 1)
    );
}

#[test]
fn what_keeps_a_pod_from_running_is_said_in_its_role() {
    let mut world = World::new(custom(&[("worker", 3)]));
    world.reconcile();
    world.trouble("mnist-worker-1", "ImagePullBackOff", "no such image");
    world.trouble("mnist-worker-2", "ImagePullBackOff", "no such image");
    world.tick(10);
    world.reconcile();
    let role = world.role("worker");
    assert_eq!(role.reason.as_deref(), Some("ImagePullBackOff"));
    assert_eq!(
        role.message.as_deref(),
        Some("mnist-worker-1: no such image (and 1 more pod)")
    );
    world.run_all();
    world.tick(10);
    world.reconcile();
    assert_eq!(world.role("worker").reason, None);
}

#[test]
fn a_pod_that_succeeded_and_was_removed_is_not_run_again() {
    for policy in [
        RestartPolicy::Never,
        RestartPolicy::OnFailure,
        RestartPolicy::ExitCode,
    ] {
        let mut world = World::running(workers(3, policy));
        world.succeed("mnist-worker-1");
        world.reconcile();
        world.tick(10);
        world.reconcile();
        assert_eq!(world.role("worker").succeeded_indices.as_deref(), Some("1"));
        world.vanish("mnist-worker-1");
        world.tick(10);
        world.reconcile();
        assert_eq!(
            (world.phase(), world.log.pods.len()),
            (Some(Running), 3),
            "{policy:?}"
        );
        assert_eq!(world.role("worker").succeeded, 1);
        world.succeed_all();
        world.reconcile();
        assert_eq!(world.phase(), Some(Succeeded));
        assert_eq!(world.restarts(), (0, 0));
    }
}

#[test]
fn a_pod_that_succeeded_a_moment_ago_and_was_removed_is_not_run_again() {
    for policy in [
        RestartPolicy::Never,
        RestartPolicy::OnFailure,
        RestartPolicy::ExitCode,
    ] {
        // The status was written this very second, so that the success is not in it yet.
        let mut world = World::running(workers(2, policy));
        world.succeed("mnist-worker-0");
        world.reconcile();
        assert_eq!(world.role("worker").succeeded_indices, None);
        world.vanish("mnist-worker-0");
        world.settle();
        assert_eq!(world.role("worker").succeeded_indices.as_deref(), Some("0"));
        assert_eq!(
            (world.phase(), world.restarts()),
            (Some(Running), (0, 0)),
            "{policy:?}"
        );
        assert_eq!(world.log.pods.len(), 2);
        world.succeed_all();
        world.reconcile();
        assert_eq!(world.phase(), Some(Succeeded));
    }
}

#[test]
fn a_pod_that_succeeded_before_the_job_ran_and_was_removed_is_not_run_again() {
    let mut world = World::new(custom(&[("worker", 2)]));
    world.reconcile();
    world.succeed("mnist-worker-0");
    world.vanish("mnist-worker-0");
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 2));
}

#[test]
fn an_operator_that_starts_anew_knows_of_a_success_that_is_two_seconds_old() {
    let mut world = World::running(workers(2, RestartPolicy::OnFailure));
    world.succeed("mnist-worker-0");
    world.reconcile();
    world.tick(2);
    world.reconcile();
    world.vanish("mnist-worker-0");
    world.departed.clear();
    world.settle();
    assert_eq!((world.restarts(), world.log.pods.len()), ((0, 0), 2));
}

#[test]
fn successes_that_follow_each_other_are_written_together() {
    let mut world = World::running(workers(60, RestartPolicy::OnFailure));
    world.tick(30);
    let before = world.log.statuses;
    // The first waits for two seconds.
    for index in 0..50 {
        world.succeed(&format!("mnist-worker-{index}"));
        world.reconcile();
        if index % 10 == 9 {
            world.tick(2);
        }
    }
    world.reconcile();
    assert_eq!(world.log.statuses - before, 5);
}

#[test]
fn a_pod_that_always_runs_again_does_so_after_it_was_removed_as_well() {
    let mut world = World::running(workers(1, RestartPolicy::Always));
    world.succeed("mnist-worker-0");
    world.vanish("mnist-worker-0");
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 2));
}

#[test]
fn a_pod_that_was_counted_as_lost_is_replaced_though_it_succeeded_in_the_end() {
    let job = workers(2, RestartPolicy::OnFailure).role("worker", |role| {
        role.node_down_policy = Some(NodeDownPolicy::Fail);
    });
    let mut world = World::running(job);
    world.node("node-1", NodeState::Down);
    world.reconcile();
    world.succeed("mnist-worker-1");
    world.node("node-1", NodeState::Up);
    world.kubelets_remove();
    world.settle();
    assert_eq!((world.restarts(), world.log.pods.len()), ((0, 1), 3));
}

#[test]
fn a_pod_gets_labels_back_that_somebody_took_from_it() {
    let mut world = World::running(custom(&[("worker", 2)]));
    world.pod_mut("mnist-worker-1").labelled = false;
    world.settle();
    assert_eq!(world.log.labelled, ["mnist-worker-1"]);
    assert_eq!((world.phase(), world.log.statuses), (Some(Running), 1));
    // What has ended needs to be found by nobody.
    world.succeed("mnist-worker-0");
    world.pod_mut("mnist-worker-0").labelled = false;
    world.settle();
    assert_eq!(world.log.labelled.len(), 1);
}

/// Pods that run are told, and nothing else happens to them.
#[test]
fn pods_carry_what_their_job_passes_on_also_when_it_changes() {
    let mut job = custom(&[("worker", 2)]);
    job.spec.dialect = Some(trainyard_api::Dialect::Ares);
    let mut world = World::running(job);
    assert_eq!(world.log.labelled, [""; 0]);
    let queue = ("ares.io/ares-queue".to_owned(), "daily".to_owned());
    world
        .job
        .metadata
        .annotations
        .get_or_insert_default()
        .extend([queue]);
    world.settle();
    assert_eq!(world.log.labelled, ["mnist-worker-0", "mnist-worker-1"]);
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 2));
    world.settle();
    assert_eq!(world.log.labelled.len(), 2, "once");
}

#[test]
fn pods_whose_absence_is_about_to_count_are_named() {
    for policy in [RestartPolicy::Never, RestartPolicy::OnFailure] {
        let mut world = World::running(workers(3, policy));
        assert!(world.missing().is_empty());
        world.vanish("mnist-worker-1");
        assert_eq!(world.missing(), ["mnist-worker-1"], "{policy:?}");
        world.settle();
        assert!(world.missing().is_empty());
    }
    let mut world = World::new(workers(1, RestartPolicy::Never));
    world.reconcile();
    world.vanish("mnist-worker-0");
    assert!(world.missing().is_empty(), "that counts for nothing");
}

#[test]
fn a_service_that_somebody_deleted_is_made_again() {
    let mut world = World::running(custom(&[("worker", 1)]));
    world.services.clear();
    world.reconcile();
    assert_eq!(world.log.services, ["mnist", "mnist"]);
    // One that is on its way out still has the name.
    world.services[0].terminating = true;
    world.reconcile();
    assert_eq!(world.log.services.len(), 2);
}

#[test]
fn a_pod_removed_before_the_job_ran_is_simply_made_again() {
    let mut world = World::new(custom(&[("worker", 2)]));
    world.reconcile();
    world.vanish("mnist-worker-0");
    world.reconcile();
    assert_eq!(
        world.log.pods,
        ["mnist-worker-0", "mnist-worker-1", "mnist-worker-0"]
    );
    assert_eq!(world.restarts(), (0, 0));
}

#[test]
fn a_job_that_is_being_deleted_is_not_touched() {
    let mut world = World::new(custom(&[("worker", 2)]));
    world.job.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    assert_eq!(world.plan(), Plan::default());
}

#[test]
fn a_job_of_another_controller_is_not_touched() {
    let job =
        custom(&[("worker", 2)]).spec(|spec| spec.managed_by = Some("kueue.x-k8s.io/multikueue".into()));
    assert_eq!(World::new(job).plan(), Plan::default());
    let job = custom(&[("worker", 2)]).spec(|spec| spec.managed_by = Some("trainyard.dev/operator".into()));
    assert_eq!(World::new(job).actions().len(), 1, "named outright, it is ours");
}

#[test]
fn every_generation_is_answered() {
    let mut world = World::running(custom(&[("worker", 1)]));
    world.edit(|spec| spec.run_policy.get_or_insert_default().ttl_seconds_after_finished = Some(60));
    world.reconcile();
    assert_eq!(world.status().observed_generation, Some(2));
    assert_eq!(world.phase(), Some(Running));
}

#[test]
fn a_condition_remembers_since_when_it_holds() {
    let since = |world: &World, kind: &str| {
        let conditions = world.status().conditions;
        conditions
            .into_iter()
            .find(|c| c.type_ == kind)
            .unwrap()
            .last_transition_time
            .0
    };
    let mut world = World::new(workers(1, RestartPolicy::OnFailure));
    let created = world.now;
    world.start();
    world.tick(60);
    let ran = world.now;
    world.run_all();
    world.reconcile();
    assert_eq!(
        (since(&world, "Accepted"), since(&world, "Running")),
        (created + SignedDuration::from_secs(2), ran)
    );
    world.tick(60);
    let failed = world.now;
    world.fail("mnist-worker-0", 1);
    world.reconcile();
    assert_eq!(since(&world, "Running"), failed);
    world.tick(60);
    world.suspend(true);
    world.reconcile();
    assert_eq!(world.condition("Running"), "False Suspended");
    assert_eq!(since(&world, "Running"), failed, "it did not run before either");
}

/// Its first status waits until the job runs, which most jobs do soon.
#[test]
fn a_job_that_runs_soon_writes_its_status_once() {
    let mut world = World::new(workers(2, RestartPolicy::Never));
    let created = world.now;
    world.reconcile();
    assert_eq!((world.phase(), world.log.pods.len()), (None, 2));
    world.tick(1);
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), world.log.statuses), (Some(Running), 1));
    let status = world.status();
    assert_eq!(status.start_time.map(|at| at.0), Some(created));
    assert!(status.accepted.rules.is_some() && !status.accepted.spec.is_empty());
}

/// Many jobs at once wait for each other: the pods of one may take longer to create than to run.
#[test]
fn the_first_status_waits_from_when_all_pods_exist() {
    let mut world = World::new(workers(2, RestartPolicy::Never));
    let plan = world.plan();
    world.local.record_plan(plan.waits(), &[]);
    world.tick(5);
    world.reconcile();
    assert_eq!((world.phase(), world.log.pods.len()), (None, 2));
    world.tick(1);
    world.reconcile();
    assert_eq!(world.phase(), None, "they may run soon");
    world.tick(1);
    world.reconcile();
    assert_eq!((world.phase(), world.log.statuses), (Some(Starting), 1));
    assert_eq!(
        world.status().start_time.map(|at| at.0),
        Some(world.now - SignedDuration::from_secs(7))
    );
}

#[test]
fn a_job_is_not_without_a_status_for_longer_however_its_pods_are_created() {
    let mut world = World::new(workers(2, RestartPolicy::Never));
    let plan = world.plan();
    world.local.record_plan(plan.waits(), &[]);
    world.tick(9);
    world.reconcile();
    assert_eq!(world.phase(), None);
    world.tick(1);
    world.reconcile();
    assert_eq!((world.phase(), world.log.statuses), (Some(Starting), 1));
}

/// Pods that are refused may never come, which is to be told as soon as that a job starts.
#[test]
fn the_first_status_of_a_job_whose_pods_are_refused_does_not_wait_for_them() {
    let mut world = World::new(workers(2, RestartPolicy::Never));
    world.refusal = Some(Refusal {
        kind: "Pod",
        name: "mnist-worker-0".to_owned(),
        message: "exceeded quota".to_owned(),
    });
    world.reconcile();
    world.tick(1);
    world.reconcile();
    assert_eq!(world.phase(), None);
    world.tick(1);
    world.reconcile();
    assert_eq!(world.phase(), Some(Starting));
    assert_eq!(world.role("worker").reason.as_deref(), Some("CreateFailed"));
}

/// What its pods are made of is recorded on themselves until then.
#[test]
fn a_job_that_is_edited_before_it_has_a_status_starts_over() {
    let mut world = World::new(pytorch(&[("master", 1), ("worker", 1)]).spec(|spec| {
        spec.framework.pytorch.get_or_insert_default().master_service = Some(MasterService::ClusterIP);
    }));
    world.crash_after(2);
    world.crash_after(1);
    assert_eq!(
        (world.phase(), world.services.len(), world.pods.len()),
        (None, 2, 1)
    );
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    for (services, pods) in [(1, 1), (1, 0)] {
        world.crash_after(1);
        assert_eq!((world.services.len(), world.pods.len()), (services, pods));
    }
    assert_eq!(
        world.phase(),
        None,
        "nothing is recorded while pods of two specs may exist"
    );
    world.settle();
    assert_eq!((world.phase(), world.restarts()), (Some(Running), (0, 0)));
    assert_eq!(world.log.pods.len(), 3);
    world.edit(|spec| set_image(spec, "worker", "example/train:3"));
    world.reconcile();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    // Somebody removes the status. The pods were made of this very spec.
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.job.status = None;
    world.settle();
    assert_eq!((world.phase(), world.log.pods.len()), (Some(Running), 3));
}

/// What is recorded there is needed before there are pods.
#[test]
fn an_elastic_job_has_a_status_before_it_has_pods() {
    let job = workers(2, RestartPolicy::Never).run(|run| run.active_deadline_seconds = Some(60));
    let mut world = World::new(job.spec(|spec| {
        spec.roles[0].replicas = None;
        spec.elastic = Some(Elastic {
            replicas: 2,
            ..Elastic::default()
        });
    }));
    world.crash_after(1);
    assert_eq!((world.phase(), world.writes()), (Some(Starting), 1));
    let status = world.status();
    assert_eq!(status.start_time.map(|at| at.0), Some(world.now));
    assert!(status.accepted.rules.is_some() && !status.accepted.spec.is_empty());
    world.tick(60);
    world.settle();
    assert_eq!(world.condition("Failed"), "True DeadlineExceeded");
}
