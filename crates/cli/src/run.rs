//! `trainyard run`: trains, shows how it goes, and says how it went.

mod args;
mod command;
mod driver;
mod fit;
mod foreign;
mod host_paths;
mod ignored;
mod images;
mod keys;
mod local;
mod manifest;
mod needs;
mod outcome;
mod ports;
mod programs;
mod progress;
mod set;
mod show;
mod signals;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use trainyard_local::cluster;
use trainyard_local::yard::{self, Entered, Isolation, Keys, Network, Yard};

pub use self::args::{Args, duration, pair};
use self::driver::Plan;
use self::local::LocalCluster;
use self::manifest::{Changes, Manifest};
use self::outcome::Outcome;
use self::show::Show;
pub use self::view::humanize;
use self::view::{Summary, View};
use crate::validate::checker::Checker;
use crate::{agent, output, scratch, validate};

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.print {
        let manifest = prepare(args)?;
        let objects: Vec<&Value> = std::iter::once(&manifest.job)
            .chain(&manifest.companions)
            .collect();
        output::print(&output::yaml_documents(&objects)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let yard = if args.remote {
        None
    } else {
        // Before anything else: the rest happens in another process.
        match enter(args) {
            Ok(Entered::Inside(yard)) => Some(yard),
            Ok(Entered::Over(code)) => return Ok(code),
            Err(error) => return report_broken(args, None, &error),
        }
    };
    let mut manifest = prepare(args)?;
    if let Some(yard) = &yard {
        adapt_to_machine(args, yard, &mut manifest)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run_job(args, manifest, yard))
}

fn enter(args: &Args) -> Result<Entered> {
    if let Some(yard) = yard::inside()? {
        return Ok(Entered::Inside(yard));
    }
    let scratch = scratch::directory()?;
    cluster::sweep(&scratch);
    Ok(yard::enter(args.yard(), &scratch)?)
}

/// Reports that this machine or the cluster can't run the job. With `--output`, the summary needs
/// the job, which is read now if it was not read before.
fn report_broken(args: &Args, job: Option<Value>, error: &anyhow::Error) -> Result<ExitCode> {
    let message = format!("{error:#}");
    output::warn(&message);
    if let Some(format) = args.output {
        let job = match job {
            Some(job) => job,
            None => prepare(args)?.job,
        };
        let summary =
            View::new(&serde_json::from_value(job)?).summary(Duration::ZERO, Outcome::Broken, Some(message));
        output::print_document(format, &summary)?;
    }
    Ok(ExitCode::from(Outcome::Broken.exit_code()))
}

/// What every run by root is told.
const AS_ROOT: &str = "pods are run by root and without a user namespace: a program that breaks out of its pod is root of \
                       this machine; run what you do not trust as an ordinary user";

/// Checks that this machine can run the job, and notes what differs from a real cluster.
fn adapt_to_machine(args: &Args, yard: &Yard, manifest: &mut Manifest) -> Result<()> {
    let directories = images::resolve(&args.image)?;
    let is_mapped = |image: &str| args.image.iter().any(|(name, _)| name == image);
    programs::check(&manifest.job, &manifest.registry, agent::for_yard(yard))?;
    needs::check(manifest)?;
    if !args.allow_host_path {
        let here = std::env::current_dir().context("this directory is gone: go to another")?;
        host_paths::check(&manifest.job, &here)?;
    }
    let images = images::unmapped(&manifest.job, is_mapped);
    if !images.is_empty() {
        manifest.notes.push(format!(
            "containers run on this machine's own files, and not on {}; --image NAME=DIRECTORY changes that",
            images.join(", ")
        ));
    }
    manifest.notes.extend(images::unused_notes(
        &manifest.job,
        args.image.iter().map(|(name, _)| name),
    ));
    let job = &manifest.job;
    let mut notes = images::hidden_notes(job, &directories);
    // Of an ordinary user, all pods are that user's.
    if yard.isolation == Isolation::Root {
        notes.extend(images::closed_notes(job, &directories));
        notes.push(AS_ROOT.to_owned());
    }
    manifest.notes.extend(notes);
    if let Some(reason) = yard
        .report
        .cgroups
        .reason()
        .filter(|_| manifest::has_limits(&manifest.job))
    {
        manifest.notes.push(format!(
            "limits of memory and processors are not enforced here ({reason})"
        ));
    }
    manifest.notes.extend(ignored::notes(&manifest.job, yard));
    if yard.network == Network::Host {
        manifest
            .notes
            .extend(ports::note(&manifest.job, &manifest.registry));
    }
    // A new cluster does not have the job's namespace.
    if let Some(namespace) = validate::text(&manifest.job, "/metadata/namespace") {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        manifest.companions.insert(0, namespace);
    }
    Ok(())
}

/// The job with the changes of the command line, validated.
fn prepare(args: &Args) -> Result<Manifest> {
    if let Some(directory) = &args.directory {
        std::env::set_current_dir(directory)
            .with_context(|| format!("cannot work in {}", directory.display()))?;
    }
    let mut manifest = match &args.file {
        Some(file) => manifest::parse(file, &validate::read(file)?)?,
        None => Manifest::default(),
    };
    for file in &args.framework_file {
        let frameworks = manifest::parse_frameworks(file, &validate::read(file)?)?;
        manifest.companions.extend(frameworks);
    }
    let mut checker = Checker::new()?;
    manifest::declare(&manifest, &mut checker)?;
    if args.file.is_none() {
        let role = command::role(&args.framework, checker.registry())?;
        let (replicas, name) = (args.replicas, args.name.as_deref());
        manifest.job = command::job(&args.command, replicas, &args.framework, &role, name);
    }
    let changes = Changes {
        set: &args.set,
        env: &args.env,
    };
    manifest::apply_changes(&mut manifest, &checker, &changes)?;
    manifest.registry = checker.into_registry();
    Ok(manifest)
}

async fn run_job(args: &Args, mut manifest: Manifest, yard: Option<Yard>) -> Result<ExitCode> {
    let start = Instant::now();
    let interrupts = signals::interrupts()?;
    let mut show = show::choose(show::OutputStreams::detect(), args.output.is_some(), args.quiet);
    let kept = yard
        .as_ref()
        .filter(|_| args.keep)
        .map(|yard| scratch::kept_directory(&yard.scratch, &manifest.job));
    let keyboard = keyboard(yard.as_ref(), show.as_ref(), &mut manifest);
    let (progress, mut reported) = mpsc::unbounded_channel();
    let (client, local) = match yard {
        None => (connect().await?, None),
        Some(yard) => {
            let options = local::Options {
                allows_host_paths: args.allow_host_path,
                nodes: args.nodes,
                images: images::resolve(&args.image)?,
                keep: kept.clone(),
                progress,
            };
            match start_cluster(&yard, options, &mut manifest).await {
                Ok(local) => (local.client(), Some(local)),
                Err(error) => {
                    drop(show);
                    return report_broken(args, Some(manifest.job), &error);
                }
            }
        }
    };
    manifest
        .notes
        .extend(local.iter().flat_map(|local| local.notes().to_vec()));
    let plan = Plan {
        job: serde_json::from_value(manifest.job.clone())?,
        companions: manifest.companions,
        notes: manifest.notes,
        timeout: args.timeout,
        has_keys: keyboard.is_some(),
    };
    let progress = futures::stream::poll_fn(|context| reported.poll_recv(context));
    let keys = keys::size_keys(keyboard);
    let driven = driver::drive(
        client.clone(),
        plan,
        start,
        show.as_mut(),
        interrupts,
        keys,
        progress,
    );
    let ended = Box::pin(driven).await;
    if let (Ok(summary), None, false) = (&ended, &local, args.keep) {
        driver::delete(&client, summary).await?;
    }
    if let Some(local) = local {
        local.stop().await;
    }
    let summary = match ended {
        Ok(summary) => summary,
        Err(error @ driver::Error::Broken(_)) => {
            drop(show);
            return report_broken(args, Some(manifest.job), &error.into());
        }
        Err(error) => {
            drop(show);
            output::warn(error);
            return Ok(ExitCode::from(Outcome::Refused.exit_code()));
        }
    };
    report_end(args, show.as_mut(), summary, kept)
}

/// The keyboard, for a job whose size it changes in a live view.
fn keyboard(yard: Option<&Yard>, show: &dyn Show, manifest: &mut Manifest) -> Option<Keys> {
    if !show.is_live() || manifest.job.pointer("/spec/elastic").is_none_or(Value::is_null) {
        return None;
    }
    Keys::read(yard).unwrap_or_else(|error| {
        let note = format!("the keys of the terminal can't be read: {error}");
        manifest.notes.push(note);
        None
    })
}

/// Starts the embedded cluster, if the job fits on it.
async fn start_cluster(
    yard: &Yard,
    options: local::Options,
    manifest: &mut Manifest,
) -> Result<LocalCluster> {
    let local = LocalCluster::start(yard, options).await?;
    match fit::check(&local.client(), &manifest.job, &manifest.registry).await {
        Ok(note) => {
            manifest.notes.extend(note);
            Ok(local)
        }
        Err(error) => {
            local.stop().await;
            Err(error)
        }
    }
}

/// Shows how the job ended, and prints the summary if it is wanted.
fn report_end(
    args: &Args,
    show: &mut dyn Show,
    mut summary: Summary,
    kept: Option<PathBuf>,
) -> Result<ExitCode> {
    if let Err(error) = show.end(&summary) {
        // A reader that closed our output, and so ended the job, knows about it. A success that
        // could not be printed is an error.
        if summary.outcome == Outcome::Succeeded {
            return Err(error.into());
        }
    }
    if let Some(kept) = kept.filter(|kept| kept.exists()) {
        output::warn(format_args!(
            "the logs and volumes of its pods are in {}",
            kept.display()
        ));
        summary.kept = Some(kept);
    }
    if let Some(format) = args.output {
        output::print_document(format, &summary)?;
    }
    Ok(ExitCode::from(summary.exit_code))
}

/// The cluster of the current kubeconfig.
async fn connect() -> Result<kube::Client> {
    // Fails only if a provider was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = kube::Config::infer()
        .await
        .context("--remote needs a cluster, and there is neither a kubeconfig nor a pod's own account")?;
    Ok(kube::Client::try_from(config)?)
}
