//! `deepspeed` without a launcher: its workers are nodes of torchrun.

use super::{job, table, values};

#[test]
fn workers() {
    insta::assert_snapshot!(table(&job("deepspeed", "slotsPerWorker: 2", &[("worker", 2)])), @r"
    worker-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=29500
      WORLD_SIZE=4
      RANK=0
      PET_MASTER_ADDR=mnist-worker-0~
      PET_MASTER_PORT=29500
      PET_NODE_RANK=0
      PET_NNODES=2
      PET_NPROC_PER_NODE=2
      port pytorch 29500
    worker-1: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      MASTER_ADDR=mnist-worker-0~
      MASTER_PORT=29500
      WORLD_SIZE=4
      RANK=1
      PET_MASTER_ADDR=mnist-worker-0~
      PET_MASTER_PORT=29500
      PET_NODE_RANK=1
      PET_NNODES=2
      PET_NPROC_PER_NODE=2
    Service: mnist
    succeeds: worker
    fails: worker
    ");
}

#[test]
fn processes_follow_accelerators() {
    let mut job = job("deepspeed", "", &[("worker", 3)]);
    let pod = job.spec.roles[0].template.spec.as_mut().unwrap();
    pod.containers[0].resources = Some(serde_saphyr::from_str("{limits: {nvidia.com/gpu: '8'}}").unwrap());
    let values = values(&job, 0, 1);
    assert_eq!(
        (&*values["PET_NPROC_PER_NODE"], &*values["WORLD_SIZE"]),
        ("8", "24")
    );
}

#[test]
fn with_a_launcher_workers_are_not_nodes_of_torchrun() {
    let workers = job("deepspeed", "", &[("worker", 2)]);
    assert!(values(&workers, 0, 0).contains_key("MASTER_ADDR"));
    let both = job("deepspeed", "", &[("launcher", 1), ("worker", 2)]);
    let framework = trainyard_core::frameworks::of(&both).unwrap();
    assert!(framework.remote_access.is_some());
    let framework = trainyard_core::frameworks::of(&workers).unwrap();
    assert!(framework.remote_access.is_none());
}
