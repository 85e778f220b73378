//! Jobs whose programs say how far they are.

use trainyard_api::JobPhase::{Failed, Running, Succeeded};
use trainyard_api::RestartPolicy::{Never, OnFailure};
use trainyard_api::{Progress, ProgressPolicy, RestartRecord, TrainingJob};
use trainyard_contract::drain::{DrainReport, DrainState};
use trainyard_core::observe;
use trainyard_core::plan::Step;

use crate::common::World;
use crate::common::jobs::{Change, custom, pytorch, workers};

fn reporting() -> TrainingJob {
    workers(1, Never).spec(|spec| spec.progress = Some(ProgressPolicy::Report))
}

fn step(step: i64) -> Progress {
    Progress {
        step: Some(step),
        metrics: [("loss".to_owned(), "0.5".to_owned())].into(),
        ..Progress::default()
    }
}

fn written(world: &World) -> Option<i64> {
    world.status().progress.and_then(|progress| progress.step)
}

#[test]
fn it_is_written_once_a_minute_and_at_the_end() {
    let mut world = World::running(reporting());
    world.tick(10);
    let before = world.log.statuses;
    for second in 0..170 {
        world.progress = Some(step(second));
        world.reconcile();
        world.tick(1);
    }
    assert_eq!(world.log.statuses - before, 3);
    assert_eq!(written(&world), Some(120));
    let plan = world.plan();
    assert!(plan.wake_at().is_some(), "the rest is not forgotten");
    world.settle();
    assert_eq!(written(&world), Some(169));
    world.progress = Some(step(200));
    world.succeed_all();
    world.reconcile();
    assert_eq!((world.phase(), written(&world)), (Some(Succeeded), Some(200)));
}

#[test]
fn last_words_that_come_after_the_end_are_heard() {
    let mut world = World::running(reporting());
    world.progress = Some(step(1));
    world.tick(10);
    world.reconcile();
    world.succeed_all();
    world.reconcile();
    assert_eq!((world.phase(), written(&world)), (Some(Succeeded), Some(1)));
    world.progress = Some(step(2));
    let plan = world.plan();
    assert!(
        matches!(plan.clone().step(), Step::WriteStatus(_)),
        "who follows the job to its end does not wait: {plan:#?}"
    );
    world.settle();
    assert_eq!(written(&world), Some(2));
    let statuses = world.log.statuses;
    world.tick(100);
    world.settle();
    assert_eq!(world.log.statuses, statuses, "and then it is quiet");
}

fn with_model(step: i64, loss: &str) -> Progress {
    Progress {
        step: Some(step),
        metrics: [("loss".to_owned(), loss.to_owned())].into(),
        artifacts: [("model".to_owned(), format!("/data/model-{step}.pt"))].into(),
        ..Progress::default()
    }
}

#[test]
fn what_was_reported_last_is_the_result_when_the_job_has_ended() {
    let mut world = World::running(reporting());
    world.progress = Some(with_model(1, "0.5"));
    world.tick(10);
    world.settle();
    let status = world.status();
    assert_eq!(status.progress.unwrap().artifacts["model"], "/data/model-1.pt");
    assert_eq!(status.result, None, "it has not ended");
    world.progress = Some(with_model(2, "0.25"));
    world.succeed_all();
    world.settle();
    let result = world.status().result.unwrap();
    assert_eq!(
        (&*result.metrics["loss"], &*result.artifacts["model"]),
        ("0.25", "/data/model-2.pt")
    );
    // The last words may come late, and an operator may forget what it was told.
    world.progress = Some(with_model(3, "nan"));
    world.settle();
    let result = world.status().result.unwrap();
    assert_eq!(
        (&*result.metrics["loss"], &*result.artifacts["model"]),
        ("nan", "/data/model-3.pt")
    );
    world.progress = None;
    let statuses = world.log.statuses;
    world.tick(100);
    world.settle();
    assert_eq!(
        (world.log.statuses, world.status().result),
        (statuses, Some(result))
    );
}

#[test]
fn the_result_is_kept_by_an_operator_that_was_told_nothing_itself() {
    let mut world = World::running(reporting());
    world.progress = Some(with_model(7, "0.5"));
    world.tick(10);
    world.settle();
    world.progress = None;
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(world.phase(), Some(Failed));
    let result = world.status().result.unwrap();
    assert_eq!(
        result.artifacts["model"], "/data/model-7.pt",
        "also of a job that failed"
    );
}

#[test]
fn a_job_whose_programs_say_nothing_has_no_result() {
    let mut world = World::running(reporting());
    world.succeed_all();
    world.settle();
    assert_eq!((world.phase(), world.status().result), (Some(Succeeded), None));
    // Steps alone are no result.
    let mut world = World::running(reporting());
    world.progress = Some(Progress {
        step: Some(3),
        ..Progress::default()
    });
    world.succeed_all();
    world.settle();
    assert_eq!((written(&world), world.status().result), (Some(3), None));
}

/// It ended when nobody kept results: that is no reason to write its status now.
#[test]
fn a_job_that_ended_before_is_left_alone() {
    let mut world = World::running(reporting());
    world.progress = Some(with_model(7, "0.5"));
    world.succeed_all();
    world.settle();
    world.progress = None;
    world.job.status.as_mut().unwrap().result = None;
    let statuses = world.log.statuses;
    world.tick(100);
    world.settle();
    assert_eq!((world.log.statuses, world.status().result), (statuses, None));
}

#[test]
fn a_job_that_did_not_ask_for_it_is_left_alone() {
    let mut world = World::running(workers(1, Never));
    world.progress = Some(step(1));
    let statuses = world.log.statuses;
    world.tick(100);
    world.settle();
    assert_eq!((world.log.statuses, written(&world)), (statuses, None));
    assert_eq!(world.phase(), Some(Running));
}

#[test]
fn a_job_that_is_resumed_begins_anew() {
    let mut world = World::running(reporting());
    world.progress = Some(step(5));
    world.tick(10);
    world.settle();
    world.suspend(true);
    world.settle();
    assert_eq!(written(&world), Some(5), "it is still of interest");
    world.progress = None;
    world.suspend(false);
    world.settle();
    assert_eq!((world.phase(), written(&world)), (Some(Running), None));
}

#[test]
fn the_first_pod_by_role_and_index_speaks() {
    let job = custom(&[("chief", 1), ("a-worker", 12)]);
    let place = |pod: &str| observe::place(&job, pod);
    assert!(place("mnist-chief-0") < place("mnist-a-worker-0"));
    assert!(place("mnist-a-worker-2") < place("mnist-a-worker-10"));
    assert_eq!(place("mnist-chief-0"), Some((0, 0)));
    for stranger in ["mnist-other-0", "mnist-chief-x", "chief-0", "mnist"] {
        assert_eq!(place(stranger), None, "{stranger}");
    }
}

/// What programs say of a step and of their last checkpoint.
fn saved(step: i64, checkpoint: &str) -> Progress {
    Progress {
        step: Some(step),
        metrics: [("checkpoint".to_owned(), checkpoint.to_owned())].into(),
        ..Progress::default()
    }
}

fn checkpoint(world: &World) -> Option<(i64, i32)> {
    let written = world.status().checkpoint;
    written.map(|checkpoint| (checkpoint.step, checkpoint.attempt))
}

fn report(world: &mut World, progress: Progress) {
    world.progress = Some(progress);
    world.tick(100);
    world.reconcile();
}

#[test]
fn a_checkpoint_does_not_go_back() {
    let mut world = World::running(reporting());
    for nonsense in ["nan", "1e99", "-7", "", "0.5"] {
        report(&mut world, saved(1, nonsense));
        assert_eq!(checkpoint(&world), None, "{nonsense:?}");
    }
    report(&mut world, saved(120, "100.0"));
    assert_eq!(checkpoint(&world), Some((100, 0)));
    report(&mut world, saved(121, "50"));
    assert_eq!(checkpoint(&world), Some((100, 0)), "an answer that comes late");
    world.suspend(true);
    world.reconcile();
    assert_eq!(
        checkpoint(&world),
        Some((100, 0)),
        "it is there when the job goes on"
    );
}

#[test]
fn what_an_incident_cost_is_written_down() {
    let job = pytorch(&[("worker", 2)]).spec(|spec| spec.progress = Some(ProgressPolicy::Report));
    let mut world = World::running(job);
    report(&mut world, saved(130, "100"));
    let node = world.pod("mnist-worker-1").node.clone();
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.kubelets_remove();
    world.tick(5);
    world.reconcile();
    // The new pods have reported nothing yet.
    world.progress = None;
    world.tick(4);
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    let record = incident(&world);
    assert_eq!(
        (record.step, record.checkpoint, record.seconds),
        (Some(130), Some(100), Some(9))
    );
    assert_eq!((record.step_after, record.steps_lost), (None, Some(30)));
    assert_eq!(record.node.as_deref(), node.as_deref());
    // The file was damaged, and the programs go on from an older one.
    report(&mut world, saved(60, "50"));
    assert_eq!(checkpoint(&world), Some((50, 1)));
    let record = incident(&world);
    assert_eq!((record.step_after, record.steps_lost), (Some(60), Some(70)));
    report(&mut world, saved(70, "70"));
    let again = incident(&world);
    assert_eq!(again, record, "once");
}

/// The last incident.
fn incident(world: &World) -> RestartRecord {
    let history = world.status().restarts.map(|restarts| restarts.history);
    history.unwrap_or_default().pop().unwrap()
}

/// The pod that reports goes on, so no step is done again.
#[test]
fn a_pod_that_is_replaced_alone_costs_the_others_no_step() {
    let job = workers(2, OnFailure).spec(|spec| spec.progress = Some(ProgressPolicy::Report));
    let mut world = World::running(job);
    report(&mut world, saved(130, "100"));
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.progress = Some(saved(135, "100"));
    world.settle_without_waiting();
    let record = incident(&world);
    assert_eq!((record.step, record.step_after), (Some(130), Some(135)));
    assert_eq!(record.steps_lost, Some(0));
}

#[test]
fn a_report_that_comes_much_later_says_nothing_of_where_programs_went_on() {
    let job = pytorch(&[("worker", 2)]).spec(|spec| spec.progress = Some(ProgressPolicy::Report));
    let mut world = World::running(job);
    report(&mut world, step(130));
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.progress = None;
    world.settle_without_waiting();
    world.tick(601);
    report(&mut world, step(5000));
    let record = incident(&world);
    assert_eq!((record.step_after, record.steps_lost), (None, None));
}

/// What a pod says while it leaves is written together with its end.
#[test]
fn a_checkpoint_of_a_pod_that_leaves_is_where_all_go_on() {
    let job = pytorch(&[("worker", 2)])
        .spec(|spec| spec.progress = Some(ProgressPolicy::Report))
        .run(|run| run.drain_timeout_seconds = Some(60));
    let mut world = World::new(job);
    world.settings = crate::common::jobs::with_agent();
    world.reconcile();
    world.run_all();
    world.reconcile();
    report(&mut world, saved(130, "100"));
    world.cordon("node-0");
    world.reconcile();
    let uid = world.pod("mnist-worker-0").uid.to_string();
    let saved_all = DrainReport {
        state: DrainState::CheckpointDone,
        step: Some(130),
    };
    world.local.drains.record(&uid, saved_all);
    world.succeed_all();
    world.reconcile();
    let record = incident(&world);
    assert_eq!((record.step, record.checkpoint), (Some(130), Some(130)));
    assert_eq!(record.steps_lost, Some(0));
}
