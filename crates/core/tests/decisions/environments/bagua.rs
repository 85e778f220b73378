//! `bagua`, with and without an etcd.

use super::{job, table, values};

#[test]
fn master_and_workers() {
    let options = "ports: [2222, 2223, 2224, 2225]";
    insta::assert_snapshot!(table(&job("bagua", options, &[("master", 1), ("worker", 1)])), @r"
    master-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      BAGUA_SSH_PORT=2222
      SERVICE_DOMAIN_NAME=mnist.team.svc.cluster.local
      WORLD_SIZE=2
      MASTER_ADDR=mnist-master-0~
      MASTER_PORT=2223
      RANK=0
      BAGUA_AVAILABLE_PORTS=2224,2225
      BAGUA_NODE_DOMAIN_NAMES=mnist-master-0~,mnist-worker-0~
      LOCAL_IP from status.podIP
      port bagua-2222 2222
      port bagua-2223 2223
      port bagua-2224 2224
      port bagua-2225 2225
    worker-0: OnFailure, AllPods, after master
      PYTHONUNBUFFERED=1
      BAGUA_SSH_PORT=2222
      SERVICE_DOMAIN_NAME=mnist.team.svc.cluster.local
      WORLD_SIZE=2
      MASTER_ADDR=mnist-master-0~
      MASTER_PORT=2223
      RANK=1
      BAGUA_AVAILABLE_PORTS=2224,2225
      BAGUA_NODE_DOMAIN_NAMES=mnist-master-0~,mnist-worker-0~
      LOCAL_IP from status.podIP
      port bagua-2222 2222
      port bagua-2223 2223
      port bagua-2224 2224
      port bagua-2225 2225
    Service: mnist
    succeeds: master and worker
    fails: master, or worker
    ");
}

#[test]
fn nodes_are_named_by_rank() {
    let values = values(&job("bagua", "", &[("worker", 2), ("master", 1)]), 0, 1);
    let hosts =
        ["master-0", "worker-0", "worker-1"].map(|pod| format!("mnist-{pod}.mnist.team.svc.cluster.local"));
    assert_eq!(values["BAGUA_NODE_DOMAIN_NAMES"], hosts.join(","));
    assert_eq!(values["RANK"], "2");
    assert_eq!(
        values["BAGUA_AVAILABLE_PORTS"],
        "29502,29503,29504,29505,29506,29507,29508,29509"
    );
}

#[test]
fn one_alone_has_no_others_to_wait_for() {
    let values = values(&job("bagua", "", &[("worker", 1)]), 0, 0);
    let found = ["WORLD_SIZE", "RANK", "MASTER_PORT", "BAGUA_SSH_PORT"].map(|name| &*values[name]);
    assert_eq!(found, ["1", "0", "29501", "29500"]);
}

/// Each worker has ports that no other has, because they may share a node and its network.
#[test]
fn with_an_etcd() {
    let options = "ports: [1, 2, 3, 4, 5, 6, 7], minReplicas: 1, maxReplicas: 2";
    insta::assert_snapshot!(table(&job("bagua", options, &[("etcd", 1), ("worker", 2)])), @r"
    etcd-0: OnFailure, AllPods
      PYTHONUNBUFFERED=1
      ETCD_CLIENT_PORT=1
      ETCD_SERVER_PORT=2
      port bagua-1 1
      port bagua-2 2
    worker-0: OnFailure, AllPods, after etcd
      PYTHONUNBUFFERED=1
      ETCD_CLIENT_PORT=1
      ETCD_SERVER_PORT=2
      SERVICE_DOMAIN_NAME=mnist.team.svc.cluster.local
      MIN_SIZE=1
      MAX_SIZE=2
      JOB_ID=mnist
      ETCD_HOST=mnist-etcd-0~
      BAGUA_SSH_PORT=3
      BAGUA_AVAILABLE_PORTS=4
      port bagua-3 3
      port bagua-4 4
    worker-1: OnFailure, AllPods, after etcd
      PYTHONUNBUFFERED=1
      ETCD_CLIENT_PORT=1
      ETCD_SERVER_PORT=2
      SERVICE_DOMAIN_NAME=mnist.team.svc.cluster.local
      MIN_SIZE=1
      MAX_SIZE=2
      JOB_ID=mnist
      ETCD_HOST=mnist-etcd-0~
      BAGUA_SSH_PORT=5
      BAGUA_AVAILABLE_PORTS=6
      port bagua-5 5
      port bagua-6 6
    Service: mnist
    succeeds: worker
    fails: etcd, or worker
    ");
}

#[test]
fn ports_with_an_etcd_that_the_user_does_not_name() {
    let job = job("bagua", "", &[("worker", 2), ("etcd", 1)]);
    let found = |index| {
        let values = values(&job, 0, index);
        let names = [
            "ETCD_CLIENT_PORT",
            "ETCD_SERVER_PORT",
            "BAGUA_SSH_PORT",
            "BAGUA_AVAILABLE_PORTS",
        ];
        names.map(|name| values[name].clone()).join(" ")
    };
    assert_eq!(found(0), "2379 2380 29500 29501,29502,29503");
    assert_eq!(found(1), "2379 2380 29504 29505,29506,29507");
    let values = values(&job, 0, 0);
    assert_eq!((&*values["MIN_SIZE"], &*values["MAX_SIZE"]), ("2", "2"));
}
