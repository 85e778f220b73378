//! The modes of `install`, as tests of its manifests and of the rights that they give go through
//! them.

pub const VARIANTS: [&str; 17] = [
    "install",
    "install --namespace elsewhere --image registry.example/t:1 --replicas 3",
    "install --watch-namespace team-a --watch-namespace team-b",
    "install --no-webhooks",
    "install --no-webhooks --no-agent",
    "install --namespace team-a --watch-namespace team-a --no-webhooks --replicas 1",
    "install --compat=kubeflow-mpi,bdap-mpi",
    "install --compat=dl",
    "install --compat=all",
    "install --scripts=off",
    "install --scripts=unreviewed --no-webhooks",
    "install --ares-observer",
    "install --ares-observer --no-webhooks --no-agent",
    "install --watch-namespace team-a --no-cluster-writes --network-policies",
    "install --watch-namespace team-a --no-cluster-writes --no-webhooks",
    "install --exec --network-policies --ares-observer",
    "install --exec --watch-namespace team-a",
];
