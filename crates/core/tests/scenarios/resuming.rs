//! Jobs that are suspended, changed and resumed.

use trainyard_api::JobPhase::Running;
use trainyard_api::MasterService;
use trainyard_api::RestartPolicy::OnFailure;

use crate::common::World;
use crate::common::jobs::{Change, pytorch, set_image, workers};

#[test]
fn what_a_service_says_is_made_anew_when_the_job_resumes() {
    let mut world = World::running(pytorch(&[("worker", 2)]).spec(|spec| {
        let options = spec.framework.pytorch.get_or_insert_default();
        options.master_service = Some(MasterService::ClusterIP);
    }));
    assert_eq!(world.log.services, ["mnist", "mnist-master"]);
    world.suspend(true);
    world.settle();
    assert_eq!(world.log.deleted_services, ["mnist-master"]);
    world.edit(|spec| spec.framework.pytorch.get_or_insert_default().port = Some(29600));
    world.suspend(false);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.log.services, ["mnist", "mnist-master", "mnist-master"]);
}

#[test]
fn a_job_that_is_resumed_waits_for_its_services_to_go() {
    let mut world = World::running(pytorch(&[("worker", 1)]).spec(|spec| {
        let options = spec.framework.pytorch.get_or_insert_default();
        options.master_service = Some(MasterService::ClusterIP);
    }));
    world.suspend(true);
    // The operator dies when it has written the status.
    world.crash_after(1);
    world.pods.clear();
    world.suspend(false);
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    assert_eq!(world.log.services, ["mnist", "mnist-master", "mnist-master"]);
}

#[test]
fn a_job_that_was_changed_is_resumed_only_when_the_operator_has_seen_it_suspended() {
    let mut world = World::running(workers(1, OnFailure));
    let said = |world: &World, old: &trainyard_api::TrainingJob| {
        let errors = trainyard_core::admission::validate(Some(old), &world.job);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let steps: [fn(&mut World); 3] = [
        |world| world.suspend(true),
        |world| world.edit(|spec| set_image(spec, "worker", "example/train:2")),
        |world| world.suspend(false),
    ];
    let mut last = Vec::new();
    for step in steps {
        assert_eq!(last, [""; 0]);
        let old = world.job.clone();
        step(&mut world);
        last = said(&world, &old);
    }
    let expected = "spec.suspend: the job was changed, and the operator has not yet removed the pods made before: wait \
                    until status.phase is Suspended, then resume it";
    assert_eq!(last, [expected]);
    // Both at once is the same, and what was not changed is resumed at any time.
    let mut old = world.job.clone();
    old.spec.suspend = Some(true);
    assert_eq!(said(&world, &old), [expected]);
    world.edit(|spec| set_image(spec, "worker", "example/train:1"));
    assert_eq!(said(&world, &old), [""; 0]);

    world.suspend(true);
    world.settle();
    let old = world.job.clone();
    world.edit(|spec| set_image(spec, "worker", "example/train:2"));
    world.suspend(false);
    assert_eq!(said(&world, &old), [""; 0]);
}
