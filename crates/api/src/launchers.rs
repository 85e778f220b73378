//! Options of the frameworks that start their processes from a launcher as MPI does.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::framework::{HostFile, MpiAttach, MpiImplementation};

/// Options of Horovod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HorovodOptions {
    /// By what the processes agree on what to do next. MPI: they are started by mpirun, which horovodrun calls or the launcher
    /// itself; the image has an MPI. Gloo: horovodrun starts them, called with --gloo; the image needs no MPI, and the pods get
    /// no variables of MPI but the one by which horovodrun finds the agent. Default: MPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HorovodController")]
    pub controller: Option<HorovodController>,

    /// Whose mpirun is called: OpenMPI, MPICH or Intel. Only with the controller MPI. Default: OpenMPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MpiImplementation")]
    pub implementation: Option<MpiImplementation>,

    /// How many processes may be started in each worker. Default: the number of accelerators that the worker's main container
    /// asks for, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots_per_worker: Option<i32>,

    /// How processes are started in workers, as for the framework mpi. Default: Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MpiAttach")]
    pub attach: Option<MpiAttach>,

    /// Where the main containers find the key with attach Ssh: the directory `.ssh` of the user that they run as.
    /// Default: /root/.ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 255))]
    pub ssh_auth_mount_path: Option<String>,

    /// With attach Ssh: a Secret of yours with the key, in its entries `ssh-privatekey` and `ssh-publickey`, such as one of type
    /// kubernetes.io/ssh-auth. It is never changed or deleted; pods wait as long as it is not there. Default: the operator
    /// makes a key for this job alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ssh_auth_secret_name: Option<String>,

    /// True: the launcher is the first in the list of hosts, and gets processes too. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_as_worker: Option<bool>,

    /// Lists of the job's hosts that the launcher finds besides /etc/mpi/hostfile, for programs that want them in a certain
    /// place or format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub host_files: Option<Vec<HostFile>>,
}

/// By what the processes of Horovod agree on what to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HorovodController {
    /// MPI, by processes that mpirun has started.
    #[default]
    MPI,
    /// Gloo, by processes that horovodrun has started.
    Gloo,
}

/// Options of `DeepSpeed`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeepspeedOptions {
    /// How many processes are started in each worker. Default: the number of accelerators that the worker's main container
    /// asks for, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots_per_worker: Option<i32>,

    /// How processes are started in workers, as for the framework mpi. With Agent the launcher finds an `ssh` and a `pdsh` that
    /// are the operator's agent; with Ssh they are those of the image. Default: Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MpiAttach")]
    pub attach: Option<MpiAttach>,

    /// Where the main containers find the key with attach Ssh: the directory `.ssh` of the user that they run as.
    /// Default: /root/.ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 255))]
    pub ssh_auth_mount_path: Option<String>,

    /// With attach Ssh: a Secret of yours with the key, in its entries `ssh-privatekey` and `ssh-publickey`, such as one of type
    /// kubernetes.io/ssh-auth. It is never changed or deleted; pods wait as long as it is not there. Default: the operator
    /// makes a key for this job alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ssh_auth_secret_name: Option<String>,

    /// Lists of the job's hosts that the launcher finds besides /job/hostfile, for programs that want them in a certain place
    /// or format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub host_files: Option<Vec<HostFile>>,
}
