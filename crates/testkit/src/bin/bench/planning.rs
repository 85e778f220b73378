//! The cost of decisions alone: one plan for a job whose pods know of each other, and all its pods,
//! built. Nothing here needs a cluster.

use std::fs;
use std::time::Instant;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use trainyard_api::TrainingJob;
use trainyard_core::job::Job;
use trainyard_core::local_state::LocalState;
use trainyard_core::plan::{Step, plan};
use trainyard_core::registry::Frameworks;
use trainyard_core::view::{AllUp, Settings, View};
use trainyard_core::{admission, build};
use trainyard_testkit::proc::memory_mib;

use super::session::{Session, as_f64};
use super::stats::{median, spread};

/// One measurement.
struct Cost {
    plan: f64,
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
                .map(|_| cost(pods, is_dynamic))
                .collect::<Result<_>>()?;
            let name = format!("planning tensorflow, {pods} pods");
            let of = |part: fn(&Cost) -> f64| costs.iter().map(part).collect::<Vec<f64>>();
            let (plans, builds, memory) = (of(|c| c.plan), of(|c| c.build), of(|c| c.memory));
            let target = (pods <= 1000).then_some(20.0);
            let told = if is_dynamic { "dynamicWorkers; " } else { "" };
            let detail = |all: &[f64]| format!("{told}{}", spread(all));
            self.figure(&name, "plan", median(&plans), "ms", target, detail(&plans));
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
        Ok(())
    }
}

fn job(pods: u32, is_dynamic: bool) -> Result<TrainingJob> {
    let template = json!({"spec": {"containers": [{"name": "tensorflow", "image": "example/tensorflow"}]}});
    let servers = pods / 10;
    let mut job: TrainingJob = serde_json::from_value(json!({
        "metadata": {"name": "mnist", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {
            "framework": {"name": "tensorflow", "tensorflow": {"dynamicWorkers": is_dynamic}},
            "roles": [
                {"name": "ps", "replicas": servers, "template": template},
                {"name": "worker", "replicas": pods - servers, "template": template},
            ],
        },
    }))?;
    admission::default(&mut job);
    Ok(job)
}

fn cost(pods: u32, is_dynamic: bool) -> Result<Cost> {
    let job = job(pods, is_dynamic)?;
    let (settings, local) = (Settings::default(), LocalState::default());
    let view = View {
        job: &job,
        frameworks: Frameworks::built_in(),
        pods: &[],
        services: &[],
        departed: &[],
        conflicts: &[],
        local: &local,
        absence_is_confirmed: false,
        refusal: None,
        progress: None,
        nodes: &AllUp,
        settings: &settings,
        now: Timestamp::now(),
        instant: Instant::now(),
    };
    // From here on the most memory that the process had is what it has now.
    fs::write("/proc/self/clear_refs", "5")?;
    let before = memory_mib(std::process::id(), "VmRSS")?;
    let started = Instant::now();
    let step = plan(&view).step();
    let planned = started.elapsed();
    ensure!(!matches!(step, Step::Done), "nothing to do for a new job");

    let started = Instant::now();
    let parsed = Job::parse(&job).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
    let mut bytes = 0;
    // The operator has one request for each of its 32 permits in hand, not all of them.
    for key in parsed.keys() {
        let pod = build::pod(&parsed, &settings, key);
        bytes += serde_json::to_vec(&pod)?.len();
    }
    let built = started.elapsed();
    ensure!(bytes > 0, "no pods");
    let most = memory_mib(std::process::id(), "VmHWM")?;
    let milliseconds =
        |elapsed: std::time::Duration| as_f64(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)) / 1e3;
    Ok(Cost {
        plan: milliseconds(planned),
        build: milliseconds(built),
        memory: (most - before).max(0.0),
    })
}
