//! `pytorch` with `spec.elastic`: nodes of torchrun that come and go.

use trainyard_api::TrainingJob;
use trainyard_core::admission;

use super::{job, table, values};
use crate::jobs::Change;

fn elastic(roles: &[(&str, i32)], elastic: &str) -> TrainingJob {
    job("pytorch", "", roles).spec(|spec| {
        spec.elastic = Some(serde_saphyr::from_str(elastic).unwrap());
        let worker = spec.roles.iter_mut().find(|role| role.name == "worker");
        worker.unwrap().replicas = None;
    })
}

#[test]
fn elastic_workers() {
    let job = elastic(&[("worker", 1)], "{replicas: 2, minReplicas: 2, maxReplicas: 8}");
    insta::assert_snapshot!(table(&job), @r"
    worker-0: OnFailure, AnyPod
      PYTHONUNBUFFERED=1
      PET_NNODES=2:8
      PET_RDZV_BACKEND=c10d
      PET_RDZV_ENDPOINT=mnist-worker-0~:29500
      PET_RDZV_ID=mnist
      PET_RDZV_CONF=is_host=1,join_timeout=600,last_call_timeout=3,read_timeout=600
      PET_MAX_RESTARTS=100
      PET_MONITOR_INTERVAL=1
      PET_NPROC_PER_NODE=1
      TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
      TORCH_ELASTIC_SHUTDOWN_TIMEOUT=25
      port pytorch 29500
    worker-1: OnFailure, AnyPod
      PYTHONUNBUFFERED=1
      PET_NNODES=2:8
      PET_RDZV_BACKEND=c10d
      PET_RDZV_ENDPOINT=mnist-worker-0~:29500
      PET_RDZV_ID=mnist
      PET_RDZV_CONF=is_host=0,join_timeout=600,last_call_timeout=3,read_timeout=600
      PET_MAX_RESTARTS=100
      PET_MONITOR_INTERVAL=1
      PET_NPROC_PER_NODE=1
      TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
      TORCH_ELASTIC_SHUTDOWN_TIMEOUT=25
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}

/// A master is one more node, and has the store: workers may all be replaced.
#[test]
fn a_master_holds_the_store_of_elastic_workers() {
    let job = elastic(&[("master", 1), ("worker", 1)], "{replicas: 2, maxReplicas: 8}");
    let (master, worker) = (values(&job, 0, 0), values(&job, 1, 0));
    for pod in [&master, &worker] {
        assert_eq!(pod["PET_NNODES"], "2:9");
        assert_eq!(
            pod["PET_RDZV_ENDPOINT"],
            "mnist-master-0.mnist.team.svc.cluster.local:29500"
        );
    }
    assert!(master["PET_RDZV_CONF"].starts_with("is_host=1,"));
    assert!(worker["PET_RDZV_CONF"].starts_with("is_host=0,"));
}

#[test]
fn processes_are_killed_before_the_grace_period_of_their_pod_is_over() {
    for (grace, timeout) in [(None, "25"), (Some(120), "115"), (Some(3), "1")] {
        let job = elastic(&[("worker", 1)], "{replicas: 1}").role("worker", |role| {
            role.template
                .spec
                .as_mut()
                .unwrap()
                .termination_grace_period_seconds = grace;
        });
        assert_eq!(values(&job, 0, 0)["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"], timeout);
    }
}

/// What a user gives torchrun holds, but what would give it a fixed place.
#[test]
fn elastic_pods_have_no_fixed_rank() {
    let with = |name: &str| {
        elastic(&[("worker", 1)], "{replicas: 1}").role("worker", |role| {
            let spec = role.template.spec.as_mut().unwrap();
            let variable = serde_json::from_value(serde_json::json!({"name": name, "value": "7"}));
            spec.containers[0].env = Some(vec![variable.unwrap()]);
        })
    };
    for name in [
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "PET_NODE_RANK",
        "PET_RDZV_ID",
    ] {
        let errors = admission::review(None, &mut with(name));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].to_string().contains(name), "{errors:?}");
    }
    for name in ["PET_MAX_RESTARTS", "PET_RDZV_CONF", "PET_MONITOR_INTERVAL"] {
        assert_eq!(values(&with(name), 0, 0)[name], "7");
    }
}

/// Every pod was told the bounds when it started.
#[test]
fn the_bounds_change_only_while_the_job_is_suspended() {
    let old = elastic(&[("worker", 1)], "{replicas: 2, minReplicas: 1, maxReplicas: 4}");
    let review = |change: &str, suspended: bool| {
        let mut new = elastic(&[("worker", 1)], change);
        new.spec.suspend = suspended.then_some(true);
        let errors = admission::review(Some(old.clone()), &mut new);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        review("{replicas: 3, minReplicas: 1, maxReplicas: 4}", false),
        [""; 0]
    );
    let other = "{replicas: 3, minReplicas: 2, maxReplicas: 8}";
    let why = "pytorch tells every pod at its start between which sizes it may train, so that this can be changed only \
               while the job is suspended: set spec.suspend to true first";
    assert_eq!(
        review(other, false),
        [
            format!("spec.elastic.minReplicas: {why}"),
            format!("spec.elastic.maxReplicas: {why}")
        ]
    );
    assert_eq!(review(other, true), [""; 0]);
}
