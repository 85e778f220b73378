//! `spec.framework`: which framework trains, and what it may be told.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::launchers::{DeepspeedOptions, HorovodOptions, MpiOptions};

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
