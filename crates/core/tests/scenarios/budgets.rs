//! The disruption budget, by which evictions wait until pods have left in order.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rstest::rstest;
use serde_json::{Value, json};
use trainyard_api::JobPhase::{Failed, Paused, Restarting, Running, Succeeded, Suspended};
use trainyard_api::{Accepted, Elastic, RestartPolicy, TrainingJob};
use trainyard_core::view::{BudgetRow, Budgets, Settings};

use crate::common::World;
use crate::common::jobs::{Change, custom, job, set_image, with_agent, with_silent_agent};

/// A job of a store and workers, whose number may change.
fn elastic() -> TrainingJob {
    let mut job = custom(&[("store", 1), ("worker", 1)]).role("worker", |role| {
        role.replicas = None;
        role.restart_policy = Some(RestartPolicy::OnFailure);
    });
    job.spec.elastic = Some(Elastic {
        replicas: 3,
        min_replicas: Some(2),
        drain_timeout_seconds: Some(300),
        ..Elastic::default()
    });
    job
}

/// A job whose pods all start anew when their number changes.
fn rigid() -> TrainingJob {
    let mut job = job("jax", &[("worker", 1)]);
    job.spec.roles[0].replicas = None;
    job.spec.elastic = Some(Elastic {
        replicas: 2,
        drain_timeout_seconds: Some(300),
        ..Elastic::default()
    });
    job
}

/// A job that does not run yet, of an operator that sees nodes and budgets.
fn pending(job: TrainingJob, settings: Settings) -> World {
    let mut world = World::new(job);
    world.settings = settings;
    world.budgets = Some(Budgets {
        sees_all: true,
        ..Budgets::default()
    });
    world.reconcile();
    world
}

fn running(job: TrainingJob) -> World {
    let mut world = pending(job, with_agent());
    world.run_all();
    world.reconcile();
    assert_eq!(world.phase(), Some(Running));
    world
}

fn own(world: &World) -> Vec<BudgetRow> {
    world.budgets.as_ref().unwrap().own.to_vec()
}

fn spec(json: Value) -> PodDisruptionBudgetSpec {
    serde_json::from_value(json).unwrap()
}

/// Somebody makes a budget that selects some pods.
fn add_foreign(world: &mut World, name: &str, selector: &Value) {
    let row = BudgetRow {
        name: name.into(),
        uid: name.into(),
        terminating: false,
        is_orphan: false,
        spec: spec(json!({"maxUnavailable": 1, "selector": selector})),
    };
    Arc::make_mut(&mut world.budgets.as_mut().unwrap().foreign).push(row);
}

#[test]
fn a_job_that_runs_has_a_budget_that_no_eviction_satisfies() {
    let mut world = pending(elastic(), with_agent());
    assert_eq!(own(&world), [], "a job that starts has no work to save");
    world.run_all();
    world.reconcile();
    let [row] = &own(&world)[..] else {
        panic!("{:?}", own(&world))
    };
    assert_eq!(&*row.name, "mnist-drain");
    let expected = spec(json!({"minAvailable": i32::MAX, "selector": {
        "matchLabels": {"trainyard.dev/job": "mnist"},
        "matchExpressions": [{"key": "trainyard.dev/role", "operator": "In", "values": ["worker"]}]}}));
    assert_eq!(row.spec, expected);
    world.tick(3);
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 5);
    world.settle();
    assert_eq!(
        (world.log.budgets, world.log.deleted_budgets),
        (1, 0),
        "it is the same at any size"
    );
}

#[test]
fn all_pods_of_a_rigid_job_leave_in_order() {
    assert_eq!(own(&running(rigid())).len(), 1);
}

#[test]
fn a_job_that_says_how_long_a_drain_may_take_has_one_whatever_it_is() {
    let mut plain = job("pytorch", &[("worker", 2)]).role("worker", |role| {
        role.restart_policy = Some(RestartPolicy::OnFailure);
    });
    plain
        .spec
        .run_policy
        .get_or_insert_default()
        .drain_timeout_seconds = Some(60);
    assert_eq!(own(&running(plain.clone())).len(), 1);
    let never = plain.role("worker", |role| role.restart_policy = Some(RestartPolicy::Never));
    assert_eq!(own(&running(never)), [], "nobody would take its pods off a node");
}

#[rstest]
#[case::job_without_drains(custom(&[("worker", 2)]), with_agent())]
#[case::job_without_a_time_for_drains(
    {
        let mut job = elastic();
        job.spec.elastic.as_mut().unwrap().drain_timeout_seconds = None;
        job
    },
    with_agent()
)]
#[case::without_an_agent(elastic(), Settings::default())]
#[case::without_an_observer(elastic(), with_silent_agent())]
#[case::pods_that_stay_on_a_cordoned_node(
    elastic().role("worker", |role| {
        let tolerations = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
        role.template.spec.as_mut().unwrap().tolerations = Some(serde_json::from_value(tolerations).unwrap());
    }),
    with_agent()
)]
#[case::pods_made_for_a_node(
    elastic().role("worker", |role| role.template.spec.as_mut().unwrap().node_name = Some("n".to_owned())),
    with_agent()
)]
fn pods_that_nobody_would_take_off_a_node_may_be_evicted(
    #[case] job: TrainingJob,
    #[case] settings: Settings,
) {
    let mut world = pending(job, settings);
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), own(&world)), (Some(Running), Vec::new()));
}

#[test]
fn without_sight_of_nodes_there_is_no_budget() {
    let mut world = running(elastic());
    world.budgets.as_mut().unwrap().sees_all = false;
    world.reconcile();
    assert_eq!(
        own(&world),
        [],
        "nobody would free a node, and evictions wait for ever"
    );
    world.budgets.as_mut().unwrap().sees_all = true;
    world.reconcile();
    assert_eq!(own(&world).len(), 1);
}

#[test]
fn what_is_not_known_is_not_touched() {
    let mut world = running(elastic());
    let known = world.budgets.take();
    world.settle();
    assert_eq!(world.phase(), Some(Running));
    world.budgets = known;
    world.reconcile();
    assert_eq!((world.log.budgets, world.log.deleted_budgets), (1, 0));
}

#[test]
fn a_job_that_ends_has_none() {
    for phase in [Succeeded, Failed] {
        let mut world = running(elastic());
        match phase {
            Succeeded => world.succeed_all(),
            _ => world.edit(|spec| {
                spec.run_policy.get_or_insert_default().active_deadline_seconds = Some(60);
            }),
        }
        world.tick(100);
        world.settle();
        assert_eq!((world.phase(), own(&world)), (Some(phase), Vec::new()));
    }
}

#[test]
fn a_job_that_is_suspended_has_none_and_has_one_when_it_runs_again() {
    let mut world = running(elastic());
    world.suspend(true);
    world.reconcile();
    assert_eq!(own(&world).len(), 1, "its pods save their work");
    for _ in 0..4 {
        world.tick(100);
        world.settle();
    }
    assert_eq!((world.phase(), own(&world)), (Some(Suspended), Vec::new()));
    world.suspend(false);
    world.settle();
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), own(&world).len()), (Some(Running), 1));
}

#[test]
fn a_job_that_waits_for_pods_keeps_its_budget() {
    let mut world = running(elastic());
    for pod in ["mnist-worker-1", "mnist-worker-2"] {
        world.fail(pod, 1);
    }
    world.reconcile();
    assert!(
        matches!(world.phase(), Some(Paused | Restarting)),
        "{:?}",
        world.phase()
    );
    assert_eq!(own(&world).len(), 1);
}

#[rstest]
#[case(json!({"matchLabels": {"trainyard.dev/job": "mnist"}}), 0)]
#[case(json!({}), 0)]
#[case(json!({"matchLabels": {"trainyard.dev/role": "worker", "trainyard.dev/index": "1"}}), 0)]
#[case(json!({"matchLabels": {"trainyard.dev/role": "store"}}), 1)]
#[case(json!({"matchLabels": {"app": "other"}}), 1)]
fn a_budget_of_the_user_wins(#[case] selector: Value, #[case] expected: usize) {
    let mut world = running(elastic());
    add_foreign(&mut world, "theirs", &selector);
    world.reconcile();
    assert_eq!(
        own(&world).len(),
        expected,
        "pods of two budgets can't be evicted at all"
    );
    world.budgets.as_mut().unwrap().foreign = Arc::default();
    world.reconcile();
    assert_eq!(own(&world).len(), 1);
}

/// Whoever may make budgets in a namespace could hold up the jobs of all others by them.
#[test]
fn so_many_budgets_that_comparing_them_takes_long_win_too() {
    let mut world = running(elastic());
    let indices: Vec<String> = (1000..1255).map(|index| index.to_string()).collect();
    let selector =
        json!({"matchExpressions": [{"key": "trainyard.dev/index", "operator": "In", "values": indices}]});
    add_foreign(&mut world, "theirs", &selector);
    world.reconcile();
    assert_eq!(own(&world).len(), 1, "it selects none of the pods");
    let foreign = Arc::make_mut(&mut world.budgets.as_mut().unwrap().foreign);
    *foreign = vec![foreign[0].clone(); 2000];
    world.reconcile();
    assert_eq!(own(&world).len(), 0, "nobody compares for so long");
}

#[test]
fn one_that_somebody_has_changed_is_made_anew() {
    let mut world = running(elastic());
    let rows = Arc::make_mut(&mut world.budgets.as_mut().unwrap().own);
    rows[0].spec.min_available = Some(IntOrString::Int(1));
    world.reconcile();
    assert_eq!((world.log.budgets, world.log.deleted_budgets), (2, 1));
    assert_eq!(
        own(&world)[0].spec.min_available,
        Some(IntOrString::Int(i32::MAX))
    );
}

#[rstest]
#[case::evictions_of_pods_that_are_not_ready(|spec: &mut PodDisruptionBudgetSpec| {
    spec.unhealthy_pod_eviction_policy = Some("AlwaysAllow".to_owned());
})]
#[case::another_label(|spec: &mut PodDisruptionBudgetSpec| {
    let labels = spec.selector.as_mut().unwrap().match_labels.as_mut().unwrap();
    labels.insert("tenant".to_owned(), "a".to_owned());
})]
fn what_a_policy_of_the_cluster_adds_stays(#[case] mutate: fn(&mut PodDisruptionBudgetSpec)) {
    let mut world = running(elastic());
    mutate(&mut Arc::make_mut(&mut world.budgets.as_mut().unwrap().own)[0].spec);
    world.tick(600);
    world.reconcile();
    assert_eq!((world.log.budgets, world.log.deleted_budgets), (1, 0));
}

#[test]
fn one_that_is_changed_at_once_again_is_made_anew_once_a_minute() {
    let mut world = running(elastic());
    for minute in 1..=3 {
        for _ in 0..5 {
            if let Some(row) = Arc::make_mut(&mut world.budgets.as_mut().unwrap().own).first_mut() {
                row.spec.min_available = Some(IntOrString::Int(1));
            }
            world.reconcile();
        }
        assert_eq!(
            (world.log.budgets, world.log.deleted_budgets),
            (minute + 1, minute)
        );
        world.tick(60);
    }
}

#[test]
fn a_job_whose_pods_start_anew_together_has_none_until_they_run() {
    let together = job("pytorch", &[("worker", 2)]).spec(|spec| {
        spec.run_policy.get_or_insert_default().drain_timeout_seconds = Some(60);
    });
    let mut world = running(together);
    assert_eq!(own(&world).len(), 1);
    world.fail("mnist-worker-1", 1);
    world.reconcile();
    world.kubelets_remove();
    world.reconcile();
    world.run_on("mnist-worker-0", "a");
    world.tick(600);
    world.reconcile();
    assert_eq!(
        (world.phase(), own(&world)),
        (Some(Restarting), Vec::new()),
        "nobody takes the pod that runs off a node while the other finds none"
    );
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), own(&world).len()), (Some(Running), 1));
}

#[test]
fn a_rigid_job_has_none_while_its_size_changes() {
    let mut world = running(rigid());
    world.edit(|spec| spec.elastic.as_mut().unwrap().replicas = 3);
    world.reconcile();
    assert!(world.status().scaling.is_some());
    assert_eq!(own(&world), [], "nobody would take its pods off a node");
    for _ in 0..4 {
        world.tick(300);
        world.settle();
    }
    world.run_all();
    world.settle();
    assert_eq!((world.phase(), own(&world).len()), (Some(Running), 1));
}

#[rstest]
#[case::invalid(|world: &mut World| world.edit(|spec| set_image(spec, "worker", "example/train:2")))]
#[case::never_accepted(|world: &mut World| {
    world.job.status.as_mut().unwrap().accepted = Accepted::default();
    world.edit(|spec| spec.roles[0].replicas = Some(-1));
})]
#[case::being_deleted(World::begin_deletion)]
fn pods_of_a_job_that_is_not_seen_to_may_be_evicted(#[case] happens: fn(&mut World)) {
    let mut world = running(elastic());
    happens(&mut world);
    world.reconcile();
    assert_eq!(own(&world), [], "nobody would take its pods off a node");
}

#[test]
fn a_role_that_has_ended_is_left_out() {
    let two = custom(&[("worker", 1), ("other", 1)]).spec(|spec| {
        spec.run_policy.get_or_insert_default().drain_timeout_seconds = Some(60);
    });
    let two = ["worker", "other"].into_iter().fold(two, |job, name| {
        job.role(name, |role| role.restart_policy = Some(RestartPolicy::OnFailure))
    });
    let mut world = running(two);
    let roles = |world: &World| {
        let selector = own(world)[0].spec.selector.clone().unwrap();
        selector.match_expressions.unwrap()[0].values.clone().unwrap()
    };
    assert_eq!(roles(&world), ["worker", "other"]);
    world.succeed("mnist-other-0");
    world.tick(60);
    world.settle();
    assert_eq!(
        (world.phase(), roles(&world)),
        (Some(Running), vec!["worker".to_owned()])
    );
}

#[test]
fn one_that_is_about_to_go_is_waited_for() {
    let mut world = running(elastic());
    Arc::make_mut(&mut world.budgets.as_mut().unwrap().own)[0].terminating = true;
    world.reconcile();
    assert_eq!((world.log.budgets, world.log.deleted_budgets), (1, 0));
    Arc::make_mut(&mut world.budgets.as_mut().unwrap().own).clear();
    world.reconcile();
    assert_eq!(own(&world).len(), 1);
}

/// The budget of a former job of the same name has stayed, as by `kubectl delete --cascade=orphan`.
fn orphan(change: impl FnOnce(&mut BudgetRow)) -> BudgetRow {
    let mut row = own(&running(elastic())).remove(0);
    (row.uid, row.is_orphan) = ("former".into(), true);
    change(&mut row);
    row
}

#[test]
fn one_that_a_former_job_has_left_is_deleted() {
    let mut world = pending(elastic(), with_agent());
    world.budgets.as_mut().unwrap().foreign = Arc::new(vec![orphan(|_| ())]);
    world.run_all();
    world.reconcile();
    assert_eq!((world.log.budgets, world.log.deleted_budgets), (1, 1));
    assert_eq!(world.budgets.as_ref().unwrap().foreign.len(), 0);
    assert_eq!(own(&world).len(), 1);
}

#[rstest]
#[case::somebody_owns_it(orphan(|row| row.is_orphan = false))]
#[case::of_another_job(orphan(|row| row.name = "other-drain".into()))]
#[case::another_number(orphan(|row| row.spec.min_available = Some(IntOrString::Int(1))))]
#[case::other_pods(orphan(|row| {
    let labels = row.spec.selector.as_mut().unwrap().match_labels.as_mut().unwrap();
    labels.insert("trainyard.dev/job".to_owned(), "other".to_owned());
}))]
fn one_that_is_of_somebody_else_stays(#[case] row: BudgetRow) {
    let mut world = pending(elastic(), with_agent());
    world.budgets.as_mut().unwrap().foreign = Arc::new(vec![row.clone()]);
    world.run_all();
    world.reconcile();
    assert_eq!(world.budgets.as_ref().unwrap().foreign.to_vec(), [row]);
}

#[test]
fn a_taken_name_is_told_and_the_job_goes_on() {
    let mut world = pending(elastic(), with_agent());
    add_foreign(
        &mut world,
        "mnist-drain",
        &json!({"matchLabels": {"app": "other"}}),
    );
    world.run_all();
    world.reconcile();
    assert_eq!((world.phase(), own(&world).len()), (Some(Running), 0));
    let told = |world: &World| {
        let events = world.log.events.iter();
        events
            .filter(|event| {
                event
                    .message
                    .contains("PodDisruptionBudget \"mnist-drain\" exists")
            })
            .count()
    };
    assert_eq!(told(&world), 1);
    world.tick(60);
    world.settle();
    assert_eq!(told(&world), 1);
    world.budgets.as_mut().unwrap().foreign = Arc::default();
    world.reconcile();
    assert_eq!(own(&world).len(), 1);
}
