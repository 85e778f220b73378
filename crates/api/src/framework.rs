//! `spec.framework`: which framework trains, and what it may be told.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::launchers::{self, LauncherOptions};

/// The framework that trains. `name` says which; options go into the field of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrameworkSpec {
    /// The framework's name: `pytorch`, `tensorflow`, `mpi`, `horovod`, `deepspeed`, `mxnet`,
    /// `jax`, `xgboost`, `paddle`, `bagua`, `dask`, `standalone` or `custom`, or that of a
    /// `Framework` object. It decides the roles a job may have, the environment its containers
    /// find, and when the job is done. It can't be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message(Message::Expression(
        r#""can't be changed from \"" + oldSelf + "\": create a new job instead""#.into()
    )))]
    pub name: String,

    /// What a declared framework may be told: its `Framework` says which names there are, and
    /// which values. Frameworks that are built in have options of their own instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"x-kubernetes-preserve-unknown-fields": true}))]
    pub params: BTreeMap<String, Value>,

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

    /// Options of the framework `tensorflow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensorflow: Option<TensorflowOptions>,

    /// Options of the framework `mxnet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mxnet: Option<MxnetOptions>,

    /// Options of the framework `jax`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jax: Option<JaxOptions>,

    /// Options of the framework `xgboost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xgboost: Option<XgboostOptions>,

    /// Options of the framework `paddle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paddle: Option<PaddleOptions>,

    /// Options of the framework `bagua`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bagua: Option<BaguaOptions>,

    /// Options of the framework `dask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dask: Option<DaskOptions>,
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

    /// The frameworks of which options are given: every field but `name` and `params` is one.
    pub fn given_options(&self) -> Vec<String> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields
                .into_iter()
                .map(|(name, _)| name)
                .filter(|name| !matches!(&**name, "name" | "params"))
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

/// Options of TensorFlow's distribution strategies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TensorflowOptions {
    /// True: workers come and go while parameter servers run. A worker is told of the parameter
    /// servers, the chief and itself, and a parameter server of itself alone, so that the number of
    /// workers can be changed. Default: false, every pod is told of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_workers: Option<bool>,

    /// The port on which every pod serves the others, unless its main container has a port named
    /// `tfjob-port`. Default: 2222.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Options of MXNet's parameter server, and of BytePS, which takes its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MxnetOptions {
    /// The port on which the scheduler serves the others (`DMLC_PS_ROOT_PORT`). Default: 9091.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,

    /// How much the parameter server logs (`PS_VERBOSE`): 1 says what connects, 2 every message.
    /// Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2))]
    pub verbosity: Option<i32>,
}

/// Options of JAX's distributed runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JaxOptions {
    /// The port on which process 0 coordinates the others. Default: 6666.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Options of XGBoost's tracker, and of LightGBM, which has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct XgboostOptions {
    /// The port of the tracker in rank 0, and on which LightGBM's processes listen. Default: 9999.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Options of PaddlePaddle's distributed training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaddleOptions {
    /// The port on which rank 0 serves the rendezvous (`PADDLE_MASTER`). Default: 36543.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Options of Bagua.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaguaOptions {
    /// The ports that the job may use. Without an etcd: the first is for SSH, the second for the
    /// master, the others are Bagua's own. With an etcd: the first two are etcd's, and each worker
    /// gets an equal share of the others, of which the first is for SSH. Default: ten ports from
    /// 29500 on; with an etcd 2379, 2380, and four ports for each worker from 29500 on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096), inner(range(min = 1, max = 65535)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub ports: Vec<i32>,

    /// With an etcd: the fewest workers that train (`MIN_SIZE`). Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub min_replicas: Option<i32>,

    /// With an etcd: the most workers that train (`MAX_SIZE`). Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_replicas: Option<i32>,
}

/// Options of Dask's distributed scheduler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaskOptions {
    /// The port on which the scheduler serves clients and workers. Default: 8786.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,

    /// The port of the scheduler's dashboard. Default: 8787.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub dashboard_port: Option<i32>,

    /// The port on which programs of workers and launcher may find each other (`MASTER_PORT`).
    /// Default: 29500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub master_port: Option<i32>,

    /// Only with `spec.elastic`: whether the scheduler sets `spec.elastic.replicas`, within its
    /// bounds, by the work that waits. The service account of its pod must be allowed to get the
    /// job and to patch `trainingjobs/scale`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<bool>,
}
