//! The cost of decisions alone: one plan for a job whose pods know of each other, what all its pods
//! find, and all its pods, built. Nothing here needs a cluster.

mod declared;

use std::fs;
use std::time::Instant;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use trainyard_api::TrainingJob;
use trainyard_core::job::{Env, Job};
use trainyard_core::local_state::LocalState;
use trainyard_core::plan::{Step, plan};
use trainyard_core::registry::Registry;
use trainyard_core::view::{AllUp, Settings, View};
use trainyard_core::{admission, build};
use trainyard_testkit::proc::memory_mib;

use super::session::Session;
use super::stats::{median, spread};

/// One measurement, in milliseconds, and in MiB.
struct Cost {
    /// The plan of a new job, which reviews it.
    plan: f64,
    /// The plan of the same job once it is accepted.
    again: f64,
    /// The variables of all pods, for which a plan has no need.
    variables: f64,
    build: f64,
    memory: f64,
}

impl Session {
    /// TensorFlow, whose variable TF_CONFIG names all pods in each of them.
    pub(super) fn planning(&mut self) -> Result<()> {
        for pods in self.sizes.planned {
            // No variable can be as long as that of 5,000 pods which all know of each other.
            let is_dynamic = pods > 1000;
            let costs: Vec<Cost> = (0..self.rounds.max(5))
                .map(|_| cost(&tensorflow(pods, is_dynamic)?, &Registry::default()))
                .collect::<Result<_>>()?;
            let name = format!("planning tensorflow, {pods} pods");
            let of = |part: fn(&Cost) -> f64| costs.iter().map(part).collect::<Vec<f64>>();
            let (plans, builds, memory) = (of(|c| c.plan), of(|c| c.build), of(|c| c.memory));
            let variables = of(|c| c.variables);
            let target = (pods <= 1000).then_some(20.0);
            let told = if is_dynamic { "dynamicWorkers; " } else { "" };
            let detail = |all: &[f64]| format!("{told}{}", spread(all));
            self.figure(&name, "plan", median(&plans), "ms", target, detail(&plans));
            self.figure(
                &name,
                "variables of all pods",
                median(&variables),
                "ms",
                target,
                detail(&variables),
            );
            self.figure(
                &name,
                "all pods, built",
                median(&builds),
                "ms",
                None,
                detail(&builds),
            );
            let target = (pods <= 1000).then_some(50.0);
            self.figure(
                &name,
                "memory of both",
                median(&memory),
                "MiB",
                target,
                detail(&memory),
            );
        }
        self.declared()
    }
}

fn tensorflow(pods: u32, is_dynamic: bool) -> Result<TrainingJob> {
    let framework = json!({"name": "tensorflow", "tensorflow": {"dynamicWorkers": is_dynamic}});
    let servers = pods / 10;
    let mut job = job(&framework, &[("ps", servers), ("worker", pods - servers)])?;
    admission::default(&mut job);
    Ok(job)
}

fn job(framework: &Value, roles: &[(&str, u32)]) -> Result<TrainingJob> {
    let template = json!({"spec": {"containers": [{"name": "train", "image": "example/train"}]}});
    let role =
        |(name, replicas): &(&str, u32)| json!({"name": name, "replicas": replicas, "template": template});
    let roles: Vec<Value> = roles.iter().map(role).collect();
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "mnist", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"framework": framework, "roles": roles},
    }))?)
}

fn cost(job: &TrainingJob, registry: &Registry) -> Result<Cost> {
    let (settings, local) = (Settings::default(), LocalState::default());
    // From here on the most memory that the process had is what it has now.
    fs::write("/proc/self/clear_refs", "5")?;
    let before = memory_mib(std::process::id(), "VmRSS")?;
    let started = Instant::now();
    let frameworks = registry.for_job(job);
    let view = View {
        job,
        frameworks: &frameworks,
        pods: &[],
        services: &[],
        departed: &[],
        conflicts: &[],
        local: &local,
        absence_is_confirmed: false,
        refusal: None,
        progress: None,
        nodes: &AllUp,
        budgets: None,
        settings: &settings,
        now: Timestamp::now(),
        instant: Instant::now(),
    };
    let first = plan(&view);
    let planned = started.elapsed();
    let mut accepted = job.clone();
    accepted.status = first.status().cloned();
    ensure!(!matches!(first.step(), Step::Done), "nothing to do for a new job");

    let started = Instant::now();
    let second = plan(&View {
        job: &accepted,
        ..view
    });
    let again = started.elapsed();
    ensure!(second.actions().next().is_some(), "no pods to create");

    let parse = || Job::parse_with(job, &frameworks).map_err(|errors| anyhow::anyhow!("{errors:?}"));
    let started = Instant::now();
    let parsed = parse()?;
    for key in parsed.keys() {
        let found = parsed.framework.contribution(&parsed, &settings, key);
        ensure!(found.env != Env::default(), "no variables");
    }
    let told = started.elapsed();

    let started = Instant::now();
    let parsed = parse()?;
    let mut bytes = 0;
    // The operator has one request for each of its 32 permits in hand, not all of them.
    for key in parsed.keys() {
        let pod = build::pod(&parsed, &settings, key);
        bytes += serde_json::to_vec(&pod)?.len();
    }
    let built = started.elapsed();
    ensure!(bytes > 0, "no pods");
    let most = memory_mib(std::process::id(), "VmHWM")?;
    Ok(Cost {
        plan: planned.as_secs_f64() * 1e3,
        again: again.as_secs_f64() * 1e3,
        variables: told.as_secs_f64() * 1e3,
        build: built.as_secs_f64() * 1e3,
        memory: (most - before).max(0.0),
    })
}
