//! `paddle`.

use super::{job, table};

/// The launcher of rank 0 compares the address with its own, and knows no names.
#[test]
fn collective() {
    insta::assert_snapshot!(table(&job("paddle", "", &[("worker", 2)])), @r"
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      PADDLE_JOB_ID=mnist
      PADDLE_NNODES=2
      PADDLE_RANK=0
      POD_IP from status.podIP
      PADDLE_MASTER=$(POD_IP):36543
      port paddle 36543
    worker-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      PADDLE_JOB_ID=mnist
      PADDLE_NNODES=2
      PADDLE_RANK=1
      POD_IP from status.podIP
      PADDLE_MASTER=mnist-worker-0~:36543
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}

#[test]
fn parameter_servers() {
    insta::assert_snapshot!(table(&job("paddle", "port: 1234", &[("master", 2), ("worker", 1)])), @r"
    master-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      PADDLE_JOB_ID=mnist
      PADDLE_NNODES=3
      PADDLE_RANK=0
      POD_IP from status.podIP
      PADDLE_MASTER=$(POD_IP):1234
      PADDLE_SERVER_NUM=1
      port paddle 1234
    master-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      PADDLE_JOB_ID=mnist
      PADDLE_NNODES=3
      PADDLE_RANK=1
      POD_IP from status.podIP
      PADDLE_MASTER=mnist-master-0~:1234
      PADDLE_SERVER_NUM=1
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      PADDLE_JOB_ID=mnist
      PADDLE_NNODES=3
      PADDLE_RANK=2
      POD_IP from status.podIP
      PADDLE_MASTER=mnist-master-0~:1234
      PADDLE_TRAINER_NUM=1
    Service: mnist
    succeeds: worker
    fails: master, or worker
    ");
}

#[test]
fn one_alone() {
    insta::assert_snapshot!(table(&job("paddle", "", &[("worker", 1)])), @r"
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      PADDLE_JOB_ID=mnist
      PADDLE_NNODES=1
      PADDLE_RANK=0
      POD_IP from status.podIP
      PADDLE_MASTER=$(POD_IP):36543
      port paddle 36543
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}
