//! `jax`.

use super::{job, table};

#[test]
fn workers() {
    insta::assert_snapshot!(table(&job("jax", "", &[("worker", 2)])), @r"
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      JAX_COORDINATOR_ADDRESS=mnist-worker-0~:6666
      JAX_NUM_PROCESSES=2
      JAX_PROCESS_ID=0
      COORDINATOR_ADDRESS=mnist-worker-0~
      COORDINATOR_PORT=6666
      NUM_PROCESSES=2
      PROCESS_ID=0
      port jax 6666
    worker-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      JAX_COORDINATOR_ADDRESS=mnist-worker-0~:6666
      JAX_NUM_PROCESSES=2
      JAX_PROCESS_ID=1
      COORDINATOR_ADDRESS=mnist-worker-0~
      COORDINATOR_PORT=6666
      NUM_PROCESSES=2
      PROCESS_ID=1
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}

#[test]
fn one_alone_with_a_port_of_its_own() {
    insta::assert_snapshot!(table(&job("jax", "port: 1234", &[("worker", 1)])), @r"
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      JAX_COORDINATOR_ADDRESS=mnist-worker-0~:1234
      JAX_NUM_PROCESSES=1
      JAX_PROCESS_ID=0
      COORDINATOR_ADDRESS=mnist-worker-0~
      COORDINATOR_PORT=1234
      NUM_PROCESSES=1
      PROCESS_ID=0
      port jax 1234
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}
