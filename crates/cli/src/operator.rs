//! `trainyard operator`: the operator.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use trainyard_operator::metrics::Metrics;
use trainyard_operator::{Options, client};

/// Run the operator: it watches TrainingJobs and runs them as pods.
///
/// It works on the cluster of the current kubeconfig, or, in a pod, on the pod's own. Every option
/// can also be given as an environment variable.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,

    /// How log lines are written. Without it: text to a terminal, else JSON.
    #[arg(long, env = "TRAINYARD_LOG_FORMAT", value_enum)]
    log_format: Option<LogFormat>,

    /// What is logged, such as `debug` or `info,trainyard_operator=debug`. `RUST_LOG` does the
    /// same.
    #[arg(long, env = "TRAINYARD_LOG", value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

pub fn run(args: Args) -> Result<ExitCode> {
    init_logging(args.log_format, args.log.as_deref())?;
    trainyard_operator::allow_many_connections();
    // Fails only if a provider was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The operator mostly waits for the API server: a second thread costs a fifth more CPU.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(run_operator(args.options))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_operator(options: Options) -> Result<()> {
    let config = kube::Config::infer()
        .await
        .context("no cluster: neither a kubeconfig nor a pod's own account")?;
    tracing::info!(server = %config.cluster_url, version = env!("CARGO_PKG_VERSION"), "starting");
    let known = trainyard_compat::served();
    let metrics = Arc::new(Metrics::new().with_kinds(&known));
    let client = client::build(config, metrics.clone())?;
    let shutdown = CancellationToken::new();
    stop_on_signals(shutdown.clone())?;
    trainyard_operator::run(client, options, &known, metrics, shutdown).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Stops properly on the first signal, and at once on the second.
fn stop_on_signals(shutdown: CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if shutdown.is_cancelled() {
                tracing::warn!("stopping at once");
                std::process::exit(1);
            }
            tracing::info!("stopping");
            shutdown.cancel();
        }
    });
    Ok(())
}

fn init_logging(format: Option<LogFormat>, filter: Option<&str>) -> Result<()> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter).with_context(|| format!("{filter:?} is no log filter"))?,
        None => EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")),
    };
    let terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal {
        LogFormat::Text
    } else {
        LogFormat::Json
    });
    // https://no-color.org
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
    }
    Ok(())
}
