//! The cluster in this process, and the operator on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use trainyard_core::view::Settings;
use trainyard_local::cluster::{self, Cluster};
use trainyard_local::yard::Yard;
use trainyard_operator::clock::SystemClock;
use trainyard_operator::engine::{Config, Engine};
use trainyard_operator::leader::Leadership;
use trainyard_operator::metrics::Metrics;

use crate::agent;

/// Enough for one job.
const CONCURRENCY: usize = 16;

#[derive(Debug)]
pub struct Options {
    pub nodes: usize,
    /// Directories of images, by name.
    pub images: BTreeMap<String, PathBuf>,
    /// Whether `hostPath` volumes may be outside of the working directory.
    pub allows_host_paths: bool,
    /// Where the files of pods go instead of being removed.
    pub keep: Option<PathBuf>,
    /// Receives the lines of progress files, each with the name of its pod.
    pub progress: UnboundedSender<(String, String)>,
}

pub struct LocalCluster {
    cluster: Cluster,
    operator: JoinHandle<()>,
    shutdown: CancellationToken,
    /// Ends the observer when it is dropped: when pods do not ask any more.
    _observer: DropGuard,
    notes: Vec<String>,
}

impl LocalCluster {
    pub async fn start(yard: &Yard, options: Options) -> Result<Self> {
        let here = std::env::current_dir().context("this directory is gone: go to another")?;
        let options = cluster::Options {
            nodes: options.nodes,
            images: options.images,
            image_user: None,
            host_paths: (!options.allows_host_paths).then(|| here.clone()),
            working_directory: here,
            base_directory: yard.scratch.clone(),
            progress: Some(options.progress),
            keep: options.keep,
            rules: true,
        };
        let mut cluster = Cluster::start(yard, options).await?;
        let mut notes = cluster.notes().to_vec();
        if let Err(error) = cluster.serve_user() {
            notes.push(format!("`trainyard scale` can not reach this run: {error}"));
        }
        let config = Config {
            namespaces: Vec::new(),
            settings: Settings {
                cluster_domain: "cluster.local".to_owned(),
                agent: agent::for_yard(yard),
                allows_exec: cluster.serves_pods(),
                // It is the user's own machine.
                runs_scripts: true,
                // No image is pulled and pods are bound at once, so creating pods early gains
                // nothing, and they would take what others need.
                waits_inside: false,
                ..Settings::default()
            },
            concurrency: CONCURRENCY,
            instance: "trainyard-run".to_owned(),
            clock: Arc::new(SystemClock),
        };
        // There is no other replica, and the metrics are not served.
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(cluster.client(), config, Leadership::always(), metrics);
        let observer = CancellationToken::new();
        if agent::has_observer(yard)
            && let Err(error) = serve_observer(&cluster, &engine, &observer).await
        {
            notes.push(format!(
                "pods are not told of what happens to their job, and leave by SIGTERM: {error:#}"
            ));
        }
        let shutdown = CancellationToken::new();
        let operator = tokio::spawn(engine.run(shutdown.clone()));
        Ok(Self {
            cluster,
            operator,
            shutdown,
            _observer: observer.drop_guard(),
            notes,
        })
    }

    pub fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// What differs from a real cluster here.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Kills all pods and stops the cluster.
    pub async fn stop(self) {
        // The operator stops first, so that it does not replace pods that are being killed.
        self.shutdown.cancel();
        // A panic in it has been reported already.
        let _ = self.operator.await;
        self.cluster.stop().await;
    }
}

/// Serves the observer where pods of this cluster reach it.
async fn serve_observer(cluster: &Cluster, engine: &Engine, shutdown: &CancellationToken) -> Result<()> {
    let listener = cluster.listen_for_pods().await?;
    let listener = listener.context("pods can't reach this process")?;
    engine.serve_observer(listener, shutdown.clone())?;
    Ok(())
}
