//! `mxnet`.

use super::{job, table, values};

const ALL: &[(&str, i32)] = &[("scheduler", 1), ("server", 1), ("worker", 2)];

#[test]
fn all_roles() {
    insta::assert_snapshot!(table(&job("mxnet", "verbosity: 2", ALL)), @r#"
    scheduler-0: Never, AllPods
      PYTHONUNBUFFERED=1
      DMLC_ROLE=scheduler
      DMLC_PS_ROOT_URI=mnist-scheduler-0~
      DMLC_PS_ROOT_PORT=9091
      DMLC_NUM_SERVER=1
      DMLC_NUM_WORKER=2
      DMLC_USE_KUBERNETES=1
      PS_VERBOSE=2
      DMLC_NODE_HOST from status.podIP
      MX_CONFIG={"cluster":{"scheduler":[{"port":9091,"url":"mnist-scheduler-0~"}],"server":[{"port":9091,"url":"mnist-server-0~"}],"worker":[{"port":9091,"url":"mnist-worker-0~"},{"port":9091,"url":"mnist-worker-1~"}]},"labels":{},"task":{"index":0,"type":"scheduler"}}
      port mxnet 9091
    server-0: Never, AllPods
      PYTHONUNBUFFERED=1
      DMLC_ROLE=server
      DMLC_PS_ROOT_URI=mnist-scheduler-0~
      DMLC_PS_ROOT_PORT=9091
      DMLC_NUM_SERVER=1
      DMLC_NUM_WORKER=2
      DMLC_USE_KUBERNETES=1
      PS_VERBOSE=2
      DMLC_NODE_HOST from status.podIP
      MX_CONFIG={"cluster":{"scheduler":[{"port":9091,"url":"mnist-scheduler-0~"}],"server":[{"port":9091,"url":"mnist-server-0~"}],"worker":[{"port":9091,"url":"mnist-worker-0~"},{"port":9091,"url":"mnist-worker-1~"}]},"labels":{},"task":{"index":0,"type":"server"}}
    worker-0: Never, AllPods
      PYTHONUNBUFFERED=1
      DMLC_ROLE=worker
      DMLC_PS_ROOT_URI=mnist-scheduler-0~
      DMLC_PS_ROOT_PORT=9091
      DMLC_NUM_SERVER=1
      DMLC_NUM_WORKER=2
      DMLC_USE_KUBERNETES=1
      PS_VERBOSE=2
      DMLC_NODE_HOST from status.podIP
      DMLC_WORKER_ID=0
      MX_CONFIG={"cluster":{"scheduler":[{"port":9091,"url":"mnist-scheduler-0~"}],"server":[{"port":9091,"url":"mnist-server-0~"}],"worker":[{"port":9091,"url":"mnist-worker-0~"},{"port":9091,"url":"mnist-worker-1~"}]},"labels":{},"task":{"index":0,"type":"worker"}}
    worker-1: Never, AllPods
      PYTHONUNBUFFERED=1
      DMLC_ROLE=worker
      DMLC_PS_ROOT_URI=mnist-scheduler-0~
      DMLC_PS_ROOT_PORT=9091
      DMLC_NUM_SERVER=1
      DMLC_NUM_WORKER=2
      DMLC_USE_KUBERNETES=1
      PS_VERBOSE=2
      DMLC_NODE_HOST from status.podIP
      DMLC_WORKER_ID=1
      MX_CONFIG={"cluster":{"scheduler":[{"port":9091,"url":"mnist-scheduler-0~"}],"server":[{"port":9091,"url":"mnist-server-0~"}],"worker":[{"port":9091,"url":"mnist-worker-0~"},{"port":9091,"url":"mnist-worker-1~"}]},"labels":{},"task":{"index":1,"type":"worker"}}
    Service: mnist
    succeeds: worker
    fails: scheduler, or server, or worker
    "#);
}

/// The scheduler is found by its name wherever it is in the manifest.
#[test]
fn the_scheduler_may_come_last() {
    let roles = &[("worker", 2), ("server", 1), ("scheduler", 1)];
    let values = values(&job("mxnet", "port: 9000", roles), 0, 1);
    assert_eq!(
        values["DMLC_PS_ROOT_URI"],
        "mnist-scheduler-0.mnist.team.svc.cluster.local"
    );
    assert_eq!(values["DMLC_PS_ROOT_PORT"], "9000");
    assert_eq!(values["PS_VERBOSE"], "0");
}

#[test]
fn hosts_of_very_large_jobs_are_not_listed() {
    let listed = |workers| {
        let roles = &[("scheduler", 1), ("server", 1), ("worker", workers)];
        values(&job("mxnet", "", roles), 2, 0).contains_key("MX_CONFIG")
    };
    assert_eq!((listed(254), listed(255)), (true, false));
}
