//! `trainyard scale`: changes the size of an elastic job, of a run on this machine or on a cluster.

mod find;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trainyard_api::scale_request::{MAX_NAMED, ScriptVariable};
use trainyard_api::{
    JobRef, Reason, ScaleIn, ScaleInSpec, ScaleOut, ScaleOutSpec, ScalePhase, ScalePolicy,
    ScaleRequestStatus, ToAdd, ToDelete, TrainingJob, TrainingJobStatus,
};

use self::find::{FoundJob, Origin};
use crate::output;
use crate::run::humanize;

/// The field manager of what this command writes.
const MANAGER: &str = "trainyard-scale";
/// How often --wait looks.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);
/// The exit code where the job did not come to that size.
const EXIT_FAILED: u8 = 1;

/// Change the size of an elastic job, while it trains.
///
/// The job is one that `trainyard run` trains on this machine. If there is none of that name, it is
/// looked for on the cluster of the current kubeconfig.
///
/// With --to it writes the job's spec.elastic.replicas, as kubectl scale does. With --by,
/// --remove-pod and --remove-node it creates a ScaleOut or a ScaleIn, which the operator carries
/// out after those that were created before. Pods that leave are told first, and have time for a
/// checkpoint.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  trainyard scale search --to 8
  trainyard scale search --by -2 --drain-timeout 5m --wait
  trainyard scale search --remove-pod search-worker-3
  trainyard scale search --remove-node gpu-17
  trainyard scale search --to 8 --context production

Exit codes: 0 done (without --wait: asked for), 1 the job did not come to that size, 2 it could not be asked for.")]
#[command(group = clap::ArgGroup::new("size").required(true))]
pub struct Args {
    /// The job.
    #[arg(value_name = "JOB")]
    job: String,

    /// The number of pods that it is to have.
    #[arg(long, value_name = "N", group = "size", value_parser = clap::value_parser!(i32).range(1..))]
    to: Option<i32>,

    /// How many pods more, or with a minus how many fewer.
    #[arg(long, value_name = "N", group = "size", allow_negative_numbers = true)]
    by: Option<i32>,

    /// A pod that is to leave; can be given several times.
    #[arg(long = "remove-pod", value_name = "POD", group = "size")]
    pods: Vec<String>,

    /// A node whose pods of the job are to leave; can be given several times.
    #[arg(long = "remove-node", value_name = "NODE", group = "size")]
    nodes: Vec<String>,

    /// How long the pods may take to leave, such as 5m. Default: what the job says.
    #[arg(long, value_name = "TIME", value_parser = crate::run::duration, conflicts_with = "to")]
    drain_timeout: Option<Duration>,

    /// Come as near to that size as the job can, instead of not at all.
    #[arg(long, conflicts_with = "to")]
    clamp: bool,

    /// A program of the launcher's container that is run there with the pods that leave, or have
    /// joined, as its last argument. If it fails, the job keeps its size.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    script: Option<String>,

    /// Set an environment variable of the script; can be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::run::pair, requires = "script")]
    env: Vec<(String, String)>,

    /// The namespace of the job. Default: any, of a run on this machine; that of the kubeconfig.
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    /// The run on this machine, where several have a job of that name.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["remote", "context"])]
    run: Option<String>,

    /// On the cluster of the current kubeconfig, whatever runs on this machine.
    #[arg(long)]
    remote: bool,

    /// On the cluster of this context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Wait until it is done, and say what became of it.
    #[arg(long)]
    wait: bool,
}

impl Args {
    /// The variables of the script.
    fn variables(&self) -> Option<Vec<ScriptVariable>> {
        let variables = self.env.iter().map(|(name, value)| ScriptVariable {
            name: name.clone(),
            value: Some(value.clone()),
        });
        Some(variables.collect()).filter(|variables: &Vec<_>| !variables.is_empty())
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let ask = Ask::parse(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(scale(args, ask))
}

/// What is asked for.
#[derive(Debug, PartialEq)]
enum Ask {
    Target(i32),
    Out(ScaleOutSpec),
    In(ScaleInSpec),
}

impl Ask {
    fn parse(args: &Args) -> Result<Self> {
        let job_ref = JobRef {
            name: args.job.clone(),
        };
        let policy = args.clamp.then_some(ScalePolicy::Clamp);
        let to_delete = match (args.to, args.by) {
            (Some(target), _) => return Ok(Self::Target(target)),
            (_, Some(0)) => bail!("--by 0 changes nothing: give a number of pods"),
            (_, Some(by)) if by > 0 && args.drain_timeout.is_some() => {
                bail!("--drain-timeout is for pods that leave, and with --by {by} none does: remove it")
            }
            (_, Some(by)) if by > 0 => {
                return Ok(Self::Out(ScaleOutSpec {
                    job_ref,
                    to_add: Some(ToAdd { count: by }),
                    policy,
                    script: args.script.clone(),
                    env: args.variables(),
                    ..ScaleOutSpec::default()
                }));
            }
            (_, Some(by)) => ToDelete {
                count: Some(by.saturating_neg()),
                ..ToDelete::default()
            },
            (None, None) => {
                let some = |names: &[String]| (!names.is_empty()).then(|| names.to_vec());
                ToDelete {
                    count: None,
                    pod_names: some(&args.pods),
                    node_names: some(&args.nodes),
                }
            }
        };
        if args.pods.len().max(args.nodes.len()) > MAX_NAMED {
            bail!("one request can name at most {MAX_NAMED}: ask several times");
        }
        let seconds = args.drain_timeout.map(|time| i64::try_from(time.as_secs()));
        let spec = ScaleInSpec {
            job_ref,
            to_delete: Some(to_delete),
            policy,
            drain_timeout_seconds: seconds.transpose().context("--drain-timeout is too long")?,
            script: args.script.clone(),
            env: args.variables(),
            ..ScaleInSpec::default()
        };
        match &*trainyard_api::validate::validate_scale_in(None, &spec) {
            [] => Ok(Self::In(spec)),
            [error, ..] => bail!("{error}"),
        }
    }
}

async fn scale(args: &Args, ask: Ask) -> Result<ExitCode> {
    let FoundJob { client, job, origin } = find::find(args).await?;
    let namespace = job.namespace().unwrap_or_default();
    output::warn(format_args!(
        "the job {:?} in namespace {namespace:?} of {origin}",
        args.job
    ));
    if job.spec.elastic.is_none() {
        bail!(
            "the job {:?} can't change its size: it has no spec.elastic",
            args.job
        );
    }
    let name = request_name(&args.job);
    match ask {
        Ask::Target(target) => {
            let jobs = Api::namespaced(client, &namespace);
            set_target(&jobs, &origin, args, target).await
        }
        Ask::Out(spec) => {
            let requests: Api<ScaleOut> = Api::namespaced(client, &namespace);
            create(&requests, &ScaleOut::new(&name, spec)).await?;
            output::print(&format!("scaleout.trainyard.dev/{name} created\n"))?;
            wait(args, &origin, &requests, &name, |request| request.status).await
        }
        Ask::In(spec) => {
            let requests: Api<ScaleIn> = Api::namespaced(client, &namespace);
            create(&requests, &ScaleIn::new(&name, spec)).await?;
            output::print(&format!("scalein.trainyard.dev/{name} created\n"))?;
            wait(args, &origin, &requests, &name, |request| request.status).await
        }
    }
}

/// A name that no other request has. The server does not choose it: a creation that is sent again
/// because its answer was lost must not be a second request.
fn request_name(job: &str) -> String {
    let now = jiff::Timestamp::now().as_microsecond();
    format!("{job}-{now:x}{:x}", std::process::id() & 0xff)
}

async fn create<K>(requests: &Api<K>, request: &K) -> Result<()>
where
    K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let created = requests.create(&params, request).await;
    created.map(drop).context("cannot create the request")
}

/// Writes the target of a job, as kubectl scale does.
async fn set_target(jobs: &Api<TrainingJob>, origin: &Origin, args: &Args, target: i32) -> Result<ExitCode> {
    let patch = Patch::Merge(json!({"spec": {"replicas": target}}));
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    jobs.patch_scale(&args.job, &params, &patch)
        .await
        .context("cannot set spec.elastic.replicas")?;
    output::print(&format!("trainingjob.trainyard.dev/{} scaled\n", args.job))?;
    if !args.wait {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let job = match jobs.get(&args.job).await {
            Err(error) if is_over(origin, &error) => return end(false, "The run has ended."),
            answer => answer.context("cannot read the job")?,
        };
        let elastic = job.spec.elastic.as_ref().map(|elastic| elastic.replicas);
        let status = job.status.unwrap_or_default();
        let is_seen = status.observed_generation == job.metadata.generation;
        if elastic != Some(target) {
            return end(
                false,
                &format!("Somebody has set another size meanwhile: {elastic:?}."),
            );
        }
        if status.phase.is_some_and(trainyard_api::JobPhase::is_terminal) {
            return end(false, "The job has ended.");
        }
        if let Some(refusal) = refusal(&status).filter(|_| is_seen) {
            return end(false, refusal);
        }
        if status.target_replicas == Some(target) && status.scaling.is_none() {
            return end(true, &reached(status.replicas.unwrap_or_default()));
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

fn reached(replicas: i32) -> String {
    let replicas = usize::try_from(replicas).unwrap_or_default();
    format!("The job has {}.", humanize::count(replicas, "pod"))
}

/// Why a job keeps its size.
fn refusal(status: &TrainingJobStatus) -> Option<&str> {
    let refused = Reason::SizeRefused.as_str();
    let mut conditions = status.conditions.iter();
    let condition = conditions.find(|condition| condition.reason == refused)?;
    Some(&condition.message)
}

/// Waits until a request has ended, if that is wanted.
async fn wait<K>(
    args: &Args,
    origin: &Origin,
    requests: &Api<K>,
    name: &str,
    status: impl Fn(K) -> Option<ScaleRequestStatus>,
) -> Result<ExitCode>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    if !args.wait {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let request = match requests.get_opt(name).await {
            Err(error) if is_over(origin, &error) => return end(false, "The run has ended."),
            answer => answer.context("cannot read the request")?,
        };
        let Some(request) = request else {
            return end(false, "The request was deleted before it had ended.");
        };
        let status = status(request).unwrap_or_default();
        if status.has_ended() {
            let message = status.message.unwrap_or_default();
            return end(status.phase == Some(ScalePhase::ScaleSucceeded), &message);
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// Whether an answer is missing because the run has ended that was asked.
fn is_over(origin: &Origin, error: &kube::Error) -> bool {
    origin.is_local() && !matches!(error, kube::Error::Api(_))
}

fn end(is_done: bool, message: &str) -> Result<ExitCode> {
    output::say(&format!("{message}\n"))?;
    Ok(if is_done {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FAILED)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn ask(line: &str) -> Result<Ask, String> {
        let words = std::iter::once("scale").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ask::parse(&line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn one_pod_is_no_pods() {
        assert_eq!(reached(1), "The job has 1 pod.");
        assert_eq!(reached(2), "The job has 2 pods.");
    }

    #[test]
    fn a_line_becomes_a_target_or_a_request() {
        assert_eq!(ask("mnist --to 8"), Ok(Ask::Target(8)));
        let Ok(Ask::Out(spec)) = ask("mnist --by 2 --clamp") else {
            panic!("no ScaleOut")
        };
        assert_eq!(
            (spec.job_ref.name, spec.to_add),
            ("mnist".to_owned(), Some(ToAdd { count: 2 }))
        );
        assert_eq!(spec.policy, Some(ScalePolicy::Clamp));
        let Ok(Ask::In(spec)) = ask("mnist --by -2 --drain-timeout 5m") else {
            panic!("no ScaleIn")
        };
        assert_eq!(
            (spec.to_delete.unwrap().count, spec.drain_timeout_seconds),
            (Some(2), Some(300))
        );
        let Ok(Ask::In(spec)) = ask("mnist --remove-pod a --remove-pod b") else {
            panic!("no ScaleIn")
        };
        let names = spec.to_delete.unwrap().pod_names;
        assert_eq!(names, Some(vec!["a".to_owned(), "b".to_owned()]));
        let Ok(Ask::In(spec)) = ask("mnist --remove-node gpu-17") else {
            panic!("no ScaleIn")
        };
        assert_eq!(
            spec.to_delete.unwrap().node_names,
            Some(vec!["gpu-17".to_owned()])
        );
        let Ok(Ask::In(spec)) = ask("mnist --by -1 --script /before --env A=1 --env B=x=y") else {
            panic!("no ScaleIn")
        };
        let variable = |name: &str, value: &str| ScriptVariable {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        assert_eq!(spec.script.as_deref(), Some("/before"));
        assert_eq!(spec.env, Some(vec![variable("A", "1"), variable("B", "x=y")]));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused() {
        for (line, word) in [
            ("mnist", "--to"),
            ("mnist --to 0", "0"),
            ("mnist --by 0", "changes nothing"),
            ("mnist --by 1 --drain-timeout 5m", "none does"),
            ("mnist --to 1 --drain-timeout 5m", "cannot be used with"),
            ("mnist --to 1 --by 2", "cannot be used with"),
            ("mnist --to 1 --script /before", "cannot be used with"),
            ("mnist --by 1 --env A=1", "--script"),
            ("mnist --by 1 --remove-pod a", "cannot be used with"),
            ("mnist --remove-pod a --remove-node b", "cannot be used with"),
            ("mnist --remove-pod a --remove-pod a", "is given twice"),
            ("mnist --to 1 --run a --remote", "cannot be used with"),
            ("mnist --to 1 --run a --context b", "cannot be used with"),
        ] {
            let said = ask(line).unwrap_err();
            assert!(said.contains(word), "{line}: {said}");
        }
    }
}
