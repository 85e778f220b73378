//! Where the job is whose size is to change: in a run on this machine, or on a cluster.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::join_all;
use kube::api::ListParams;
use kube::config::KubeConfigOptions;
use kube::{Api, ResourceExt};
use tokio::time::timeout;
use trainyard_api::TrainingJob;
use trainyard_local::cluster::user_socket::{self, OpenRun, RunSocket};

use super::Args;
use crate::{output, scratch};

/// How long a run may take to say which jobs it has. One that was stopped with Ctrl-Z never says.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A job, and whom to ask about it.
pub struct FoundJob {
    pub client: kube::Client,
    pub job: TrainingJob,
    pub origin: Origin,
}

/// Who runs a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `trainyard run` on this machine.
    Run {
        name: String,
        working_directory: Option<PathBuf>,
    },
    Cluster {
        address: String,
    },
}

impl Origin {
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Run { .. })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { address } => write!(f, "the cluster at {address}"),
            Self::Run {
                name,
                working_directory,
            } => {
                write!(f, "the run {name} on this machine")?;
                match working_directory {
                    Some(directory) => write!(f, ", in {}", directory.display()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What the runs of this machine have said.
#[derive(Default)]
struct Answers {
    found: Vec<FoundJob>,
    /// The names of runs that did not answer.
    silent: Vec<String>,
}

/// Finds the job that is meant. A run on this machine comes before a cluster that was not asked
/// for.
pub async fn find(args: &Args) -> Result<FoundJob> {
    if args.remote || args.context.is_some() {
        return find_on_cluster(args).await;
    }
    let mut answers = ask_runs(args).await;
    for run in &answers.silent {
        output::warn(format_args!(
            "the run {run} does not answer; if it was stopped with Ctrl-Z, continue it with fg"
        ));
    }
    match (answers.found.len(), &args.run) {
        (1, _) => Ok(answers.found.remove(0)),
        (0, Some(run)) => bail!("there is no run {run} with a job {:?} on this machine", args.job),
        (0, None) => find_on_cluster(args)
            .await
            .with_context(|| format!("no run on this machine has a job {:?}", args.job)),
        _ => bail!(choices(&args.job, &answers.found)),
    }
}

fn choices(job: &str, found: &[FoundJob]) -> String {
    let heading = format!(
        "{} runs on this machine have a job {job:?}; choose one:",
        found.len()
    );
    let runs = found.iter().map(choice);
    std::iter::once(heading)
        .chain(runs)
        .collect::<Vec<_>>()
        .join("\n  ")
}

/// The option that chooses a run, and what the user may know it by.
fn choice(run: &FoundJob) -> String {
    let Origin::Run {
        name,
        working_directory,
    } = &run.origin
    else {
        return run.origin.to_string();
    };
    let place = working_directory.as_ref();
    let place = place.map_or_else(String::new, |place| format!("   in {}", place.display()));
    let since = run.job.creation_timestamp().map_or_else(String::new, |created| {
        let created = created.0.to_zoned(jiff::tz::TimeZone::system());
        format!(", since {}", created.strftime("%H:%M:%S"))
    });
    format!("--run {name}{place}{since}")
}

async fn ask_runs(args: &Args) -> Answers {
    // Where there can be no runs, there are none.
    let runs = scratch::directory().map_or_else(|_| Vec::new(), |directory| user_socket::find(&directory));
    let is_meant = |run: &RunSocket| args.run.as_ref().is_none_or(|name| name == run.name());
    let asked = runs.into_iter().filter(is_meant).map(|run| async {
        let name = run.name().to_owned();
        match timeout(ANSWER_TIMEOUT, ask(run, args)).await {
            Ok(found) => Ok(found),
            Err(_) => Err(name),
        }
    });
    let mut answers = Answers::default();
    for answer in join_all(asked).await {
        match answer {
            Ok(found) => answers.found.extend(found),
            Err(name) => answers.silent.push(name),
        }
    }
    answers
}

/// The job of a run, if it is the one that is meant. A run that ends meanwhile has none.
async fn ask(run: RunSocket, args: &Args) -> Option<FoundJob> {
    let OpenRun {
        name,
        client,
        working_directory,
    } = run.open().await.ok()??;
    let jobs: Api<TrainingJob> = Api::all(client.clone());
    let jobs = jobs.list(&ListParams::default()).await.ok()?;
    let is_meant = |job: &TrainingJob| {
        let namespace = args.namespace.as_deref();
        job.name_any() == args.job
            && namespace.is_none_or(|wanted| job.namespace().as_deref() == Some(wanted))
    };
    Some(FoundJob {
        client,
        job: jobs.items.into_iter().find(is_meant)?,
        origin: Origin::Run {
            name,
            working_directory,
        },
    })
}

async fn find_on_cluster(args: &Args) -> Result<FoundJob> {
    // Fails only if a provider was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = match &args.context {
        None => kube::Config::infer()
            .await
            .context("no cluster: there is no kubeconfig")?,
        Some(context) => {
            let options = KubeConfigOptions {
                context: Some(context.clone()),
                ..KubeConfigOptions::default()
            };
            kube::Config::from_kubeconfig(&options)
                .await
                .with_context(|| format!("the context {context:?} of the kubeconfig can't be used"))?
        }
    };
    let namespace = args.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    let address = config.cluster_url.to_string();
    let client = kube::Client::try_from(config)?;
    let jobs: Api<TrainingJob> = Api::namespaced(client.clone(), &namespace);
    let job = jobs.get_opt(&args.job).await.context("cannot read the job")?;
    let Some(job) = job else {
        bail!(
            "there is no TrainingJob {:?} in namespace {namespace:?} of the cluster at {address}",
            args.job
        );
    };
    Ok(FoundJob {
        client,
        job,
        origin: Origin::Cluster { address },
    })
}
