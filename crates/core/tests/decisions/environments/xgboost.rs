//! `xgboost`, and LightGBM.

use super::{job, table};

#[test]
fn master_and_workers() {
    insta::assert_snapshot!(table(&job("xgboost", "", &[("master", 1), ("worker", 2)])), @r"
    master-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      DMLC_TRACKER_URI=mnist-master-0~
      DMLC_TRACKER_PORT=9999
      DMLC_TASK_ID=0
      DMLC_NUM_WORKER=3
      MASTER_ADDR=mnist-master-0~
      MASTER_PORT=9999
      WORLD_SIZE=3
      RANK=0
      WORKER_PORT=9999
      WORKER_ADDRS=mnist-worker-0~,mnist-worker-1~
      port xgboost 9999
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      DMLC_TRACKER_URI=mnist-master-0~
      DMLC_TRACKER_PORT=9999
      DMLC_TASK_ID=1
      DMLC_NUM_WORKER=3
      MASTER_ADDR=mnist-master-0~
      MASTER_PORT=9999
      WORLD_SIZE=3
      RANK=1
      WORKER_PORT=9999
      WORKER_ADDRS=mnist-worker-0~,mnist-worker-1~
      port xgboost 9999
    worker-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      DMLC_TRACKER_URI=mnist-master-0~
      DMLC_TRACKER_PORT=9999
      DMLC_TASK_ID=2
      DMLC_NUM_WORKER=3
      MASTER_ADDR=mnist-master-0~
      MASTER_PORT=9999
      WORLD_SIZE=3
      RANK=2
      WORKER_PORT=9999
      WORKER_ADDRS=mnist-worker-0~,mnist-worker-1~
      port xgboost 9999
    Service: mnist
    succeeds: master and worker
    fails: master, or worker
    ");
}

#[test]
fn without_a_master_worker_0_has_rank_0() {
    insta::assert_snapshot!(table(&job("xgboost", "port: 1234", &[("worker", 2)])), @r"
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      DMLC_TRACKER_URI=mnist-worker-0~
      DMLC_TRACKER_PORT=1234
      DMLC_TASK_ID=0
      DMLC_NUM_WORKER=2
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=1234
      WORLD_SIZE=2
      RANK=0
      WORKER_PORT=1234
      WORKER_ADDRS=mnist-worker-1~
      port xgboost 1234
    worker-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      DMLC_TRACKER_URI=mnist-worker-0~
      DMLC_TRACKER_PORT=1234
      DMLC_TASK_ID=1
      DMLC_NUM_WORKER=2
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=1234
      WORLD_SIZE=2
      RANK=1
      WORKER_PORT=1234
      WORKER_ADDRS=mnist-worker-1~
      port xgboost 1234
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}

/// LightGBM trains alone where it is told of no other machine.
#[test]
fn a_master_alone_is_told_of_no_workers() {
    insta::assert_snapshot!(table(&job("xgboost", "", &[("master", 1)])), @r"
    master-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      DMLC_TRACKER_URI=mnist-master-0~
      DMLC_TRACKER_PORT=9999
      DMLC_TASK_ID=0
      DMLC_NUM_WORKER=1
      MASTER_ADDR=mnist-master-0~
      MASTER_PORT=9999
      WORLD_SIZE=1
      RANK=0
      port xgboost 9999
    Service: mnist
    succeeds: master
    fails: master
    ");
}
