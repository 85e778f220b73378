//! `spec.framework`: which framework trains, and what it may be told.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::launchers::{DeepspeedOptions, HorovodOptions};

/// The framework that trains. `name` says which; options go into the field of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrameworkSpec {
    /// The framework's name: `pytorch`, `mpi`, `horovod`, `deepspeed` or `custom`. It decides the roles a job may have, the
    /// environment its containers find, and when the job is done. It can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message(Message::Expression(
        r#""can't be changed from \"" + oldSelf + "\": create a new job instead""#.into()
    )))]
    pub name: String,

    /// Options of the framework `pytorch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pytorch: Option<PytorchOptions>,

    /// Options of the framework `mpi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<MpiOptions>,

    /// Options of the framework `horovod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horovod: Option<HorovodOptions>,

    /// Options of the framework `deepspeed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deepspeed: Option<DeepspeedOptions>,
}

impl FrameworkSpec {
    /// The frameworks of which options are given.
    pub fn given_options(&self) -> Vec<&'static str> {
        // Taken apart, so that a new field can't be forgotten here.
        let Self {
            name: _,
            pytorch,
            mpi,
            horovod,
            deepspeed,
        } = self;
        let given = [
            ("pytorch", pytorch.is_some()),
            ("mpi", mpi.is_some()),
            ("horovod", horovod.is_some()),
            ("deepspeed", deepspeed.is_some()),
        ];
        given
            .into_iter()
            .filter_map(|(name, given)| given.then_some(name))
            .collect()
    }
}

/// Options of PyTorch's distributed training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PytorchOptions {
    /// How many training processes torchrun starts in each pod. Default: the number of accelerators that the main
    /// container asks for, else 1. `WORLD_SIZE` is the number of pods times this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub procs_per_node: Option<i32>,

    /// The port on which rank 0 serves the rendezvous (`MASTER_PORT`). Default: 29500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,

    /// How the other pods find rank 0. Headless: by the pod's own name, which follows the pod when it is replaced.
    /// ClusterIP: by a Service with an address of its own, which stays the same for the whole life of the job, also for
    /// programs that resolve MASTER_ADDR only once. Default: Headless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MasterService")]
    pub master_service: Option<MasterService>,
}

/// How the other pods find rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MasterService {
    /// By the name of the pod that has rank 0.
    #[default]
    Headless,
    /// By a Service with a stable address of its own.
    ClusterIP,
}

/// Options of MPI.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MpiOptions {
    /// Whose mpirun the launcher calls: OpenMPI, MPICH or Intel. It decides the variables that the launcher finds, and the
    /// format of /etc/mpi/hostfile. Default: OpenMPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MpiImplementation")]
    pub implementation: Option<MpiImplementation>,

    /// How many processes mpirun may start in each worker. Default: the number of accelerators that the worker's main
    /// container asks for, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots_per_worker: Option<i32>,

    /// How mpirun starts processes in workers. Agent: through the operator's agent, which is put into the pods, over mutual
    /// TLS with an identity of this job alone; images need neither an SSH server nor keys. Ssh: through the SSH server and
    /// client of the image, with a key of this job alone. Exec: through the API server, as `kubectl exec` would, with an
    /// account of this job alone that may do that in its workers and nothing else; the operator must be installed with --exec.
    /// Default: Agent.
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

    /// True: the launcher is the first in the list of hosts, and mpirun starts processes there too. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_as_worker: Option<bool>,

    /// Lists of the job's hosts that the launcher finds besides /etc/mpi/hostfile, for programs that want them in a certain
    /// place or format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub host_files: Option<Vec<HostFile>>,
}

/// An implementation of MPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MpiImplementation {
    /// Open MPI 4 and 5.
    #[default]
    OpenMPI,
    /// MPICH, and others that start processes with Hydra.
    MPICH,
    /// Intel MPI.
    Intel,
}

/// How mpirun starts processes in workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MpiAttach {
    /// Through the operator's agent.
    #[default]
    Agent,
    /// Through the image's own SSH.
    Ssh,
    /// Through the API server.
    Exec,
}

/// A file with the hosts of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostFile {
    /// Where the launcher's containers find it: an absolute path. Its directory holds host files and nothing else.
    #[schemars(length(min = 2, max = 255))]
    pub path: String,

    /// How hosts are written. OpenMPI and DeepSpeed: `host slots=N`. MPICH and Intel: `host:N`. Hosts: `host` alone, on as many
    /// lines as it may have processes.
    pub format: HostFileFormat,
}

/// How a file lists hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostFileFormat {
    /// `host slots=N`.
    #[default]
    OpenMPI,
    /// `host:N`.
    MPICH,
    /// `host:N`.
    Intel,
    /// `host slots=N`.
    DeepSpeed,
    /// `host`, N times, each on a line of its own.
    Hosts,
}

impl HostFileFormat {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenMPI => "OpenMPI",
            Self::MPICH => "MPICH",
            Self::Intel => "Intel",
            Self::DeepSpeed => "DeepSpeed",
            Self::Hosts => "Hosts",
        }
    }
}
