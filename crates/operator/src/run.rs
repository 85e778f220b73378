//! The operator and what surrounds it.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock::SystemClock;
use crate::engine::{Config, Engine};
use crate::http::{self, BindError, Probes};
use crate::leader::{Elector, LeaderConfig, LeaderConfigError, Leadership, unique_identity};
use crate::metrics::Metrics;
use crate::options::Options;

/// An engine that has not moved for so long never will.
const LIFELESS: Duration = Duration::from_mins(1);

/// Why the operator could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The election is configured so that it can't work.
    #[error(transparent)]
    Leader(#[from] LeaderConfigError),
    /// An address can't be served.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Runs the operator until `shutdown`, and then until what was begun has ended.
pub async fn run(
    client: kube::Client,
    options: Options,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let host = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let identity = unique_identity(host.as_deref().unwrap_or("trainyard"));

    let listener = http::bind(options.http_address).await?;

    let (leadership, elector) = if options.leader_elect {
        let config = LeaderConfig::new(&namespace, &options.lease_name, &identity);
        let elector = Elector::new(client.clone(), config)?.with_metrics(metrics.clone());
        (elector.leadership(), Some(elector))
    } else {
        metrics.set_leader(true);
        (Leadership::always(), None)
    };
    // The lease is given back only when the last write has been answered.
    let release = CancellationToken::new();
    let elector = elector.map(|elector| tokio::spawn(elector.run(release.clone())));

    let config = Config {
        namespaces: options.namespaces(),
        settings: options.settings(),
        concurrency: options.concurrency,
        instance: identity,
        clock: Arc::new(SystemClock),
    };
    let engine = Engine::new(client, config, leadership, metrics.clone());
    // Until the very end, so that it can be seen how it ends.
    let serving = CancellationToken::new();
    let server = tokio::spawn(http::serve(listener, metrics, probes(&engine), serving.clone()));
    engine.run(shutdown).await;
    release.cancel();
    if let Some(elector) = elector {
        // It ends by itself, also if the server can't be reached; a panic in it has been reported already.
        let _ = elector.await;
    }
    serving.cancel();
    let _ = server.await;
    Ok(())
}

fn probes(engine: &Engine) -> Probes {
    let (index, pulse) = (engine.index(), engine.pulse());
    Probes {
        live: Arc::new(move || match pulse.silent() {
            silent if silent < LIFELESS => Ok(()),
            silent => Err(format!("the engine has not moved for {} s", silent.as_secs())),
        }),
        ready: Arc::new(move || {
            let warm = index.is_listed_since(None);
            if warm { Ok(()) } else { Err("jobs, pods and Services have not been listed yet".to_owned()) }
        }),
    }
}
