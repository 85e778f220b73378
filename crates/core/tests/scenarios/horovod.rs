//! Elastic jobs of `horovod`.

use trainyard_api::JobPhase::{Running, Succeeded};
use trainyard_api::{Elastic, HorovodController, Refill, TrainingJob};

use crate::common::World;
use crate::common::jobs::{Change, job, with_agent};

fn elastic(replicas: i32) -> TrainingJob {
    job("horovod", &[("launcher", 1), ("worker", 1)]).spec(|spec| {
        let options = spec.framework.horovod.get_or_insert_default();
        options.controller = Some(HorovodController::Gloo);
        spec.roles[1].replicas = None;
        spec.elastic = Some(Elastic {
            replicas,
            ..Elastic::default()
        });
    })
}

fn running(job: TrainingJob) -> World {
    let mut world = World::new(job);
    world.settings = with_agent();
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    world
}

/// The indices of the workers that exist and are not asked to go.
fn workers(world: &World) -> Vec<String> {
    let names = world.names(|row| !row.terminating);
    let short = names.iter().filter_map(|name| name.strip_prefix("mnist-worker-"));
    let mut indices: Vec<String> = short.map(str::to_owned).collect();
    indices.sort();
    indices
}

fn scale(world: &mut World, replicas: i32) {
    world.tick(3);
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = replicas);
}

/// horovodrun never again uses a host that has failed.
#[test]
fn a_lost_worker_is_replaced_under_another_name() {
    let mut world = running(elastic(3));
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(
        (workers(&world).join(" "), world.phase()),
        ("0 2 3".to_owned(), Some(Running))
    );
    assert_eq!(world.restarts(), (1, 0));
    assert_eq!(world.status().retired_indices.as_deref(), Some("1"));
    scale(&mut world, 4);
    world.settle();
    assert_eq!(workers(&world).join(" "), "0 2 3 4", "1 is never used again");
}

#[test]
fn a_worker_that_was_lost_with_its_node_is_replaced_under_another_name() {
    let mut world = running(elastic(2));
    world.evict("mnist-worker-1");
    world.settle();
    assert_eq!(workers(&world).join(" "), "0 2");
    assert_eq!(world.restarts(), (0, 1));
}

#[test]
fn the_name_of_a_worker_that_left_in_order_is_used_again() {
    let mut world = running(elastic(3));
    scale(&mut world, 2);
    world.reconcile();
    world.fail("mnist-worker-2", 143);
    world.settle();
    assert_eq!(
        (workers(&world).join(" "), world.restarts()),
        ("0 1".to_owned(), (0, 0))
    );
    scale(&mut world, 3);
    world.settle();
    assert_eq!(workers(&world).join(" "), "0 1 2");
    assert_eq!(world.status().retired_indices, None);
}

#[test]
fn a_job_that_was_suspended_uses_all_names_again() {
    let mut world = running(elastic(2));
    world.fail("mnist-worker-0", 1);
    world.settle();
    assert_eq!(workers(&world).join(" "), "1 2");
    world.edit(|spec| spec.suspend = Some(true));
    world.settle();
    world.edit(|spec| spec.suspend = Some(false));
    world.settle();
    assert_eq!(
        (workers(&world).join(" "), world.phase()),
        ("0 1".to_owned(), Some(Running))
    );
}

#[test]
fn nobody_takes_the_place_of_a_lost_worker_where_nobody_refills() {
    let mut world = running(elastic(3).spec(|spec| {
        spec.elastic.as_mut().unwrap().refill = Some(Refill::Never);
    }));
    world.fail("mnist-worker-1", 1);
    world.settle();
    assert_eq!(
        (workers(&world).join(" "), world.phase()),
        ("0 2".to_owned(), Some(Running))
    );
}

#[test]
fn the_launcher_decides() {
    let mut world = running(elastic(2));
    world.succeed("mnist-launcher-0");
    world.settle();
    assert_eq!(world.phase(), Some(Succeeded));
}
