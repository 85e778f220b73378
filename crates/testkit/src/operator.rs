//! The operator in this process, for one namespace, with or without faults.

use std::sync::Arc;

use anyhow::Context;
use clap::{Args, FromArgMatches};
use tokio_util::sync::CancellationToken;
use trainyard_eventually::eventually;
use trainyard_operator::Options;
use trainyard_operator::client::build_with_layer;
use trainyard_operator::metrics::Metrics;

use crate::cluster::Cluster;
use crate::faults::{Faults, Running, Start, run_operator};

/// An operator that ends with the test.
pub struct Operator {
    _running: Running,
}

impl Operator {
    /// Starts an operator in the given way, which watches one namespace.
    ///
    /// # Panics
    /// If it can't be started.
    #[allow(
        clippy::expect_used,
        reason = "this is the vocabulary of tests, which fail by panicking"
    )]
    pub fn start(start: &Start, namespace: &str) -> Self {
        let running = run_operator(start, namespace, Faults::none());
        Self {
            _running: running.expect("an operator in this process"),
        }
    }
}

/// How to start an operator in this process, against the cluster of `KUBECONFIG`.
pub fn in_process() -> Start {
    in_process_with(&[])
}

/// The same, with further arguments.
pub fn in_process_with(more: &'static [&'static str]) -> Start {
    Arc::new(
        move |namespace: String, faults: Faults, shutdown: CancellationToken| {
            Box::pin(async move {
                let config = kube::Config::infer().await.context("no KUBECONFIG")?;
                let metrics = Arc::new(Metrics::new());
                let client = build_with_layer(config, metrics.clone(), &faults)?;
                let known = trainyard_compat::served();
                trainyard_operator::run(client, options(&namespace, more)?, &known, metrics, shutdown)
                    .await?;
                Ok(())
            })
        },
    )
}

/// How to start an operator in this process with a given client.
pub fn with_client(
    client: Arc<dyn Fn() -> kube::Client + Send + Sync>,
    more: &'static [&'static str],
) -> Start {
    Arc::new(move |namespace: String, _: Faults, shutdown: CancellationToken| {
        let client = client.clone();
        Box::pin(async move {
            let metrics = Arc::new(Metrics::new());
            let known = trainyard_compat::served();
            trainyard_operator::run(client(), options(&namespace, more)?, &known, metrics, shutdown).await?;
            Ok(())
        })
    })
}

/// Options of an operator that watches one namespace and has no replicas: the defaults but for
/// that.
fn options(namespace: &str, more: &[&str]) -> anyhow::Result<Options> {
    let command = Options::augment_args(clap::Command::new("operator"));
    let own = [
        "operator",
        "--watch-namespace",
        namespace,
        // Any port, because several run at once.
        "--http-address=127.0.0.1:0",
    ];
    let matches = command.try_get_matches_from(own.iter().chain(more))?;
    Ok(Options::from_arg_matches(&matches)?)
}

/// Puts the definitions into a cluster; does nothing where they are there already.
///
/// # Panics
/// If the cluster refuses them.
#[allow(
    clippy::expect_used,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]
pub fn install_crds(cluster: &Cluster) {
    let install = || {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        for crd in trainyard_api::crd::all()? {
            cluster.kubectl(&apply, Some(&serde_json::to_string(&crd)?))?;
        }
        // `kubectl wait` fails at once where there are no conditions yet.
        let served = ["get", "trainingjobs,frameworks,scaleins,scaleouts", "-A"];
        eventually("the definitions are served", || {
            let found = cluster.kubectl(&served, None);
            found.map_err(|error| format!("{error:#}"))
        });
        Ok(())
    };
    cluster
        .once("definitions", install)
        .expect("the definitions are accepted");
}
