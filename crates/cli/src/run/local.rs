//! The cluster in this process, and the operator on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trainyard_core::view::Settings;
use trainyard_local::cluster::{self, Cluster};
use trainyard_local::yard::Yard;
use trainyard_operator::clock::SystemClock;
use trainyard_operator::engine::{Config, Engine};
use trainyard_operator::leader::Leadership;
use trainyard_operator::metrics::Metrics;

use crate::agent;

/// One job needs no more.
const CONCURRENCY: usize = 16;

/// What a cluster is told.
#[derive(Debug)]
pub struct Options {
    /// How many nodes it seems to have.
    pub nodes: usize,
    /// Directories with the files of images.
    pub images: BTreeMap<String, PathBuf>,
    /// Where the files of pods go instead of being removed.
    pub keep: Option<PathBuf>,
    /// Who hears how far the programs are: the name of a pod and a line.
    pub progress: UnboundedSender<(String, String)>,
}

/// A cluster with an operator.
pub struct Local {
    cluster: Cluster,
    operator: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Local {
    /// Starts both.
    pub async fn start(yard: &Yard, options: Options) -> Result<Self> {
        let options = cluster::Options {
            nodes: options.nodes,
            images: options.images,
            working_directory: std::env::current_dir().context("this directory is gone: go to another")?,
            base_directory: yard.scratch.clone(),
            progress: Some(options.progress),
            keep: options.keep,
            rules: true,
        };
        let cluster = Cluster::start(yard, options).await?;
        let config = Config {
            namespaces: Vec::new(),
            settings: Settings {
                cluster_domain: "cluster.local".to_owned(),
                agent: agent::of(yard),
                allows_exec: cluster.serves_pods(),
            },
            concurrency: CONCURRENCY,
            instance: "trainyard-run".to_owned(),
            clock: Arc::new(SystemClock),
        };
        // Nobody else could lead, and nobody asks how it is.
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(cluster.client(), config, Leadership::always(), metrics);
        let shutdown = CancellationToken::new();
        let operator = tokio::spawn(engine.run(shutdown.clone()));
        Ok(Self {
            cluster,
            operator,
            shutdown,
        })
    }

    /// A client of the cluster.
    pub fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// What differs from a real cluster here.
    pub fn notes(&self) -> &[String] {
        self.cluster.notes()
    }

    /// Ends all pods at once, and both.
    pub async fn stop(self) {
        // First, so that it does not replace what is being ended.
        self.shutdown.cancel();
        // A panic in it has been reported already.
        let _ = self.operator.await;
        self.cluster.stop().await;
    }
}
