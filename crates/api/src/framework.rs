//! `spec.framework`: which framework trains, and what it may be told.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::launchers::{self, LauncherOptions};

/// The framework that trains. `name` says which; options go into the field of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrameworkSpec {
    /// The framework's name: `pytorch`, `mpi`, `horovod`, `deepspeed` or `custom`. It decides the
    /// roles a job may have, the environment its containers find, and when the job is done. It
    /// can't be changed.
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
    #[schemars(transform = launchers::of_mpi)]
    pub mpi: Option<LauncherOptions>,

    /// Options of the framework `horovod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = launchers::of_horovod)]
    pub horovod: Option<LauncherOptions>,

    /// Options of the framework `deepspeed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = launchers::of_deepspeed)]
    pub deepspeed: Option<LauncherOptions>,
}

impl FrameworkSpec {
    /// The options of the job's framework, if that is one with a launcher.
    pub fn launcher(&self) -> Option<&LauncherOptions> {
        match &*self.name {
            "mpi" => self.mpi.as_ref(),
            "horovod" => self.horovod.as_ref(),
            "deepspeed" => self.deepspeed.as_ref(),
            _ => None,
        }
    }

    /// The frameworks of which options are given: every field but `name` is one.
    pub fn given_options(&self) -> Vec<String> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| name != "name")
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Options of PyTorch's distributed training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PytorchOptions {
    /// How many training processes torchrun starts in each pod. Default: the number of accelerators
    /// that the main container asks for, else 1. `WORLD_SIZE` is the number of pods times this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub procs_per_node: Option<i32>,

    /// The port on which rank 0 serves the rendezvous (`MASTER_PORT`). Default: 29500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,

    /// How the other pods find rank 0. Headless: by the pod's own name, which follows the pod when
    /// it is replaced. ClusterIP: by a Service with an address of its own, which stays the same for
    /// the whole life of the job, also for programs that resolve MASTER_ADDR only once. Default:
    /// Headless.
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
