//! `dask`.

use trainyard_api::{Elastic, TrainingJob};
use trainyard_core::build;
use trainyard_core::job::Job;
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use super::{job, table, values};
use crate::jobs::Change;

#[test]
fn all_roles() {
    let roles = &[
        ("scheduler", 1),
        ("leadworker", 1),
        ("worker", 1),
        ("launcher", 1),
    ];
    insta::assert_snapshot!(table(&job("dask", "", roles)), @r"
    scheduler-0: Always, AllPods
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:8786
      MY_IP from status.podIP
      port dask 8786
      port dashboard 8787
    leadworker-0: Always, AllPods, after scheduler
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:8786
      DASK_SCHEDULER_ADDRESS=tcp://mnist-scheduler-0~:8786
      SchedulerAddress=mnist-scheduler-0~
      SchedulerPort=8786
      RANK=0
      WORLD_SIZE=3
      MASTER_ADDR=mnist-leadworker-0~
      MASTER_PORT=29500
      port master 29500
    worker-0: Always, AllPods, after scheduler and leadworker
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:8786
      DASK_SCHEDULER_ADDRESS=tcp://mnist-scheduler-0~:8786
      SchedulerAddress=mnist-scheduler-0~
      SchedulerPort=8786
      RANK=1
      WORLD_SIZE=3
      MASTER_ADDR=mnist-leadworker-0~
      MASTER_PORT=29500
    launcher-0: OnFailure, AllPods, after scheduler and leadworker and worker
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:8786
      DASK_SCHEDULER_ADDRESS=tcp://mnist-scheduler-0~:8786
      SchedulerAddress=mnist-scheduler-0~
      SchedulerPort=8786
      RANK=2
      WORLD_SIZE=3
      MASTER_ADDR=mnist-leadworker-0~
      MASTER_PORT=29500
    Service: mnist
    succeeds: launcher
    fails: scheduler, or leadworker, or worker, or launcher
    ");
}

#[test]
fn without_a_lead_worker_worker_0_has_rank_0() {
    let options = "port: 1, dashboardPort: 2, masterPort: 3";
    let roles = &[("launcher", 1), ("scheduler", 1), ("worker", 2)];
    insta::assert_snapshot!(table(&job("dask", options, roles)), @r"
    launcher-0: OnFailure, AllPods, after scheduler and worker
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:1
      DASK_SCHEDULER_ADDRESS=tcp://mnist-scheduler-0~:1
      SchedulerAddress=mnist-scheduler-0~
      SchedulerPort=1
      RANK=2
      WORLD_SIZE=3
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=3
    scheduler-0: Always, AllPods
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:1
      MY_IP from status.podIP
      port dask 1
      port dashboard 2
    worker-0: Always, AllPods, after scheduler
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:1
      DASK_SCHEDULER_ADDRESS=tcp://mnist-scheduler-0~:1
      SchedulerAddress=mnist-scheduler-0~
      SchedulerPort=1
      RANK=0
      WORLD_SIZE=3
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=3
      port master 3
    worker-1: Always, AllPods, after scheduler
      PYTHONUNBUFFERED=1
      SCHEDULER=tcp://mnist-scheduler-0~:1
      DASK_SCHEDULER_ADDRESS=tcp://mnist-scheduler-0~:1
      SchedulerAddress=mnist-scheduler-0~
      SchedulerPort=1
      RANK=1
      WORLD_SIZE=3
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=3
    Service: mnist
    succeeds: launcher
    fails: launcher, or scheduler, or worker
    ");
}

#[test]
fn a_launcher_without_workers_has_rank_0() {
    let values = values(&job("dask", "", &[("launcher", 1), ("scheduler", 1)]), 0, 0);
    let found = ["RANK", "WORLD_SIZE", "MASTER_ADDR"].map(|name| &*values[name]);
    assert_eq!(found, ["0", "1", "mnist-launcher-0.mnist.team.svc.cluster.local"]);
}

/// The value of a variable of the first pod of a role.
fn find(job: &TrainingJob, role: usize, name: &str) -> Option<String> {
    let job = Job::parse(job).unwrap();
    let pod = build::pod(&job, &Settings::default(), PodKey { role, index: 0 }).unwrap();
    let env = pod.spec.unwrap().containers.remove(0).env.unwrap_or_default();
    env.into_iter().find(|variable| variable.name == name)?.value
}

/// An elastic job with these options.
fn elastic(options: &str) -> TrainingJob {
    let roles = &[
        ("scheduler", 1),
        ("launcher", 1),
        ("leadworker", 1),
        ("worker", 1),
    ];
    job("dask", options, roles).spec(|spec| {
        spec.roles[3].replicas = None;
        spec.elastic = Some(Elastic {
            replicas: 2,
            ..Elastic::default()
        });
    })
}

/// Ranks change with the size, so nobody is told one. Workers run the program by which they leave.
#[test]
fn workers_of_elastic_jobs_give_their_data_away_before_they_leave() {
    let job = elastic("");
    let find = |role, name| find(&job, role, name);
    for (role, leaves) in [(0, false), (1, false), (2, true), (3, true)] {
        let preload = find(role, "DASK_DISTRIBUTED__WORKER__PRELOAD");
        let runs = r#"import os; exec(os.environ["TRAINYARD_DASK_LEAVE"])"#;
        assert_eq!(preload.as_deref(), leaves.then_some(runs), "{role}");
        let program = find(role, "TRAINYARD_DASK_LEAVE");
        assert_eq!(
            program.is_some_and(|text| text.contains("def dask_setup(")),
            leaves
        );
        for rank in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
            assert_eq!(find(role, rank), None, "{role}");
        }
    }
    let address = find(3, "DASK_SCHEDULER_ADDRESS").unwrap();
    assert_eq!(
        address,
        "tcp://mnist-scheduler-0.mnist.team.svc.cluster.local:8786"
    );
}

/// The scheduler alone has the program that writes the target, and only where it was asked for.
#[test]
fn the_scheduler_of_an_adaptive_job_knows_where_its_job_is() {
    for (options, adapts) in [("", None), ("adaptive: false", None), ("adaptive: true", Some(0))] {
        let job = elastic(options);
        for role in 0..4 {
            let preload = find(&job, role, "DASK_DISTRIBUTED__SCHEDULER__PRELOAD");
            let runs = r#"import os; exec(os.environ["TRAINYARD_DASK_ADAPT"])"#;
            let adapts = adapts == Some(role);
            assert_eq!(preload.as_deref(), adapts.then_some(runs), "{options} {role}");
            let program = find(&job, role, "TRAINYARD_DASK_ADAPT");
            assert_eq!(
                program.is_some_and(|text| text.contains("async def dask_setup(scheduler")),
                adapts
            );
            let path = "/apis/trainyard.dev/v1alpha1/namespaces/team/trainingjobs/mnist";
            let found = find(&job, role, "TRAINYARD_DASK_JOB");
            assert_eq!(found.as_deref(), adapts.then_some(path));
        }
    }
}
