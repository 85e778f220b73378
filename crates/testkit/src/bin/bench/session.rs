//! One run of the benchmark: all scenarios and their figures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use trainyard_testkit::program::Requests;

use super::Sizes;
use super::report::{Figure, Report};
use super::scenarios::{Bench, Floor, Run, Size};
use super::stats::{median, spread};

pub struct Session {
    pub bench: Bench,
    pub sizes: Sizes,
    pub rounds: usize,
    pub smoke: bool,
    pub only: Vec<String>,
    pub agent: Option<PathBuf>,
    pub report: Report,
}

struct Targets {
    ratio: f64,
    cpu: f64,
    memory: Option<f64>,
    /// The processor time of API server and etcd, as a multiple of that of the floor.
    server: Option<f64>,
}

impl Session {
    pub(super) fn wanted(&self, scenario: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == scenario)
    }

    /// Adds a figure. With `--smoke`, times and sizes mean nothing and are left out.
    pub(super) fn figure(
        &mut self,
        scenario: &str,
        measure: &str,
        value: f64,
        unit: &'static str,
        target: Option<f64>,
        detail: String,
    ) {
        if !self.smoke {
            self.report.figures.push(Figure {
                scenario: scenario.to_owned(),
                measure: measure.to_owned(),
                value,
                unit,
                target,
                exact: false,
                detail,
            });
        }
    }

    /// Adds a count, which is the same on every machine.
    pub(super) fn count(&mut self, scenario: &str, measure: &str, value: f64, target: f64, detail: String) {
        self.report.figures.push(Figure {
            scenario: scenario.to_owned(),
            measure: measure.to_owned(),
            value,
            unit: "",
            target: Some(target),
            exact: true,
            detail,
        });
    }

    /// Runs all scenarios that are wanted.
    pub async fn all(&mut self) -> Result<()> {
        if self.wanted("planning") {
            self.planning()?;
        }
        if self.wanted("embedded") {
            self.embedded().await?;
        }
        let is_local = |only: &String| only == "embedded" || only == "planning";
        if !self.only.is_empty() && self.only.iter().all(is_local) {
            return Ok(());
        }
        // Counts are the same on a cold server.
        let is_count = |only: &String| matches!(&**only, "compat" | "mpijobs" | "drain");
        if self.only.iter().any(|only| !is_local(only) && !is_count(only)) || self.only.is_empty() {
            log("warming up");
            self.bench.floor(self.sizes.a).await?;
            self.bench.run(self.sizes.a, None).await?;
        }
        let Sizes { a, b, c, .. } = self.sizes;
        if self.wanted("a") {
            let targets = Targets {
                ratio: 1.5,
                cpu: 0.5,
                memory: Some(25.0),
                server: None,
            };
            self.jobs("a", a, &targets).await?;
            self.unbound("a", a).await?;
        }
        if self.wanted("b") {
            let targets = Targets {
                ratio: 2.0,
                cpu: 2.0,
                memory: Some(40.0),
                // A quarter less than the 2.37 x of jobs that wrote two statuses each.
                server: Some(1.77),
            };
            self.jobs("b", b, &targets).await?;
            self.unbound("b", b).await?;
        }
        if self.wanted("c") {
            let targets = Targets {
                ratio: 1.15,
                cpu: 0.3,
                memory: None,
                server: None,
            };
            self.jobs("c", c, &targets).await?;
            self.unbound("c", c).await?;
        }
        if self.wanted("completion") {
            self.completion(a).await?;
        }
        if self.wanted("recovery") {
            self.recovery().await?;
        }
        if self.wanted("group") {
            self.group().await?;
        }
        if self.wanted("drain") {
            self.drain().await?;
        }
        if self.wanted("steady") || self.wanted("restart") {
            self.rest(&[a, b, c]).await?;
        }
        if self.wanted("compat") || self.wanted("mpijobs") {
            self.define_served().await?;
        }
        if self.wanted("compat") {
            self.compat().await?;
        }
        if self.wanted("mpijobs") {
            self.mpi_jobs().await?;
        }
        if self.wanted("scaling") {
            self.scaling().await?;
        }
        if self.wanted("departures") && !self.smoke {
            self.departures().await?;
        }
        if self.wanted("memory") {
            self.memory().await?;
        }
        if let Some(agent) = self.agent.clone() {
            self.agents(&agent).await
        } else {
            log("no agent (TRAINYARD_AGENT): what it does is not measured");
            Ok(())
        }
    }

    async fn agents(&mut self, agent: &Path) -> Result<()> {
        if self.wanted("waiting") {
            self.waiting(agent).await?;
        }
        if self.wanted("shell") {
            self.shell(agent).await?;
        }
        Ok(())
    }

    async fn jobs(&mut self, scenario: &str, size: Size, targets: &Targets) -> Result<()> {
        let name = format!("({scenario}) {} x {}", size.jobs, size.pods);
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            let floor = self.bench.floor(size).await?;
            let run = self.bench.run(size, None).await?;
            log_run(&name, floor, &run);
            self.report.raw.push(run.raw(&name, floor));
            rounds.push((floor, run));
        }
        let ratios: Vec<f64> = rounds
            .iter()
            .map(|(floor, run)| run.seconds / floor.seconds)
            .collect();
        let of = |value: fn(&Run) -> f64| rounds.iter().map(|(_, run)| value(run)).collect::<Vec<f64>>();
        let seconds = of(|run| run.seconds);
        let floors: Vec<f64> = rounds.iter().map(|(floor, _)| floor.seconds).collect();
        let detail = format!(
            "{:.2} s against {:.2} s; {}",
            median(&seconds),
            median(&floors),
            spread(&ratios)
        );
        self.figure(
            &name,
            "all Running, x floor",
            median(&ratios),
            "x",
            Some(targets.ratio),
            detail,
        );
        let cpu = of(|run| run.cpu);
        self.figure(
            &name,
            "operator CPU",
            median(&cpu),
            "s",
            Some(targets.cpu),
            spread(&cpu),
        );
        let floors: Vec<f64> = rounds.iter().map(|(floor, _)| floor.others.server).collect();
        self.server_cpu(&name, size, &of(|run| run.others.server), &floors, targets.server);
        let memory = of(|run| run.peak_mib);
        self.figure(
            &name,
            "peak memory",
            median(&memory),
            "MiB",
            targets.memory,
            spread(&memory),
        );
        let Some((_, run)) = rounds.last() else {
            return Ok(());
        };
        let per_job = |count: u64| as_f64(count) / as_f64(size.jobs as u64);
        let detail = by_verb(run, size.jobs);
        self.count(
            &name,
            "writes per job",
            per_job(run.metrics.writes()),
            as_f64(size.pods as u64 + 3),
            detail,
        );
        self.count(
            &name,
            "events per job",
            per_job(run.metrics.events()),
            2.0,
            String::new(),
        );
        Ok(())
    }

    /// What a job costs the API server and etcd, which is most of what a job costs.
    fn server_cpu(&mut self, name: &str, size: Size, seconds: &[f64], floors: &[f64], target: Option<f64>) {
        let per_job = |seconds: f64| seconds * 1000.0 / as_f64(size.jobs as u64);
        let ratios: Vec<f64> = seconds
            .iter()
            .zip(floors)
            .map(|(seconds, floor)| seconds / floor)
            .collect();
        let costs: Vec<f64> = seconds.iter().map(|seconds| per_job(*seconds)).collect();
        let what = "CPU of API server and etcd per job";
        self.figure(name, what, median(&costs), "ms", None, spread(&costs));
        let floor = per_job(median(floors));
        let detail = format!("{floor:.1} ms of the floor; {}", spread(&ratios));
        self.figure(
            name,
            "CPU of API server and etcd, x floor",
            median(&ratios),
            "x",
            target,
            detail,
        );
    }

    /// The same with pods that are not bound, which is less work that does not depend on the
    /// operator.
    async fn unbound(&mut self, scenario: &str, size: Size) -> Result<()> {
        let name = format!("({scenario}) {} x {}", size.jobs, size.pods);
        let nodes = std::mem::take(&mut self.bench.nodes);
        let floor = self.bench.floor(size).await?;
        let run = self.bench.run(size, None).await?;
        self.bench.nodes = nodes;
        log_run(&format!("{name}, pods not bound"), floor, &run);
        self.report
            .raw
            .push(run.raw(&format!("{name}, pods not bound"), floor));
        let detail = format!("{:.2} s against {:.2} s", run.seconds, floor.seconds);
        self.figure(
            &name,
            "the same, pods not bound",
            run.seconds / floor.seconds,
            "x",
            None,
            detail,
        );
        Ok(())
    }

    async fn completion(&mut self, size: Size) -> Result<()> {
        let name = format!("completion {} x {}", size.jobs, size.pods);
        let after = Duration::from_secs(2);
        let mut times = Vec::new();
        let mut targets = Vec::new();
        let (mut server, mut server_floors) = (Vec::new(), Vec::new());
        let mut last = None;
        for _ in 0..self.rounds {
            let floor = self.bench.floor(size).await?;
            let run = self.bench.run(size, Some(after)).await?;
            server.push(run.others.server);
            server_floors.push(floor.others.server);
            log(&format!(
                "{name}: floor {:.2} s, all Succeeded after {:.2} s, cpu {:.2} s",
                floor.seconds, run.seconds, run.cpu
            ));
            self.report.raw.push(run.raw(&name, floor));
            times.push(run.seconds);
            targets.push(2.0 + 2.0 * floor.seconds);
            last = Some(run);
        }
        let detail = format!("pods end after 2 s; 2 s + 2 x floor; {}", spread(&times));
        self.figure(
            &name,
            "all Succeeded",
            median(&times),
            "s",
            Some(median(&targets)),
            detail,
        );
        self.server_cpu(&name, size, &server, &server_floors, None);
        if let Some(run) = last {
            self.figure(
                &name,
                "operator CPU",
                run.cpu,
                "s",
                None,
                by_verb(&run, size.jobs),
            );
        }
        Ok(())
    }
}

fn log_run(name: &str, floor: Floor, run: &Run) {
    log(&format!(
        "{name}: floor {:.2} s (cpu: server {:.2}, bench {:.2}), jobs {:.2} s (created in {:.2} s; \
         cpu: server {:.2}, bench {:.2}, operator {:.2}), peak {:.1} MiB",
        floor.seconds,
        floor.others.server,
        floor.others.bench,
        run.seconds,
        run.creating,
        run.others.server,
        run.others.bench,
        run.cpu,
        run.peak_mib
    ));
}

pub(super) fn log(text: &str) {
    eprintln!("bench: {text}");
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Requests per job by verb and kind, but for watches.
fn by_verb(run: &Run, jobs: usize) -> String {
    let mut text = per_job(&run.metrics.of_jobs(), jobs);
    if !run.metrics.failed.is_empty() {
        let failed: u64 = run.metrics.failed.values().sum();
        let _ = write!(text, ", {failed} not answered well");
    }
    text
}

/// Requests per job by verb and kind.
pub(super) fn per_job(requests: &Requests, jobs: usize) -> String {
    let line = |((verb, kind), count): (&(String, String), &u64)| {
        let share = as_f64(*count) / as_f64(jobs as u64);
        (share >= 0.01).then(|| format!("{verb} {kind} {share:.2}"))
    };
    requests.iter().filter_map(line).collect::<Vec<_>>().join(", ")
}

pub(super) fn requests_of(requests: &Requests) -> Value {
    let pairs = requests
        .iter()
        .map(|((verb, kind), count)| (format!("{verb} {kind}"), json!(count)));
    Value::Object(pairs.collect())
}

/// The requests of `after` that `before` does not have.
pub(super) fn requests_since(after: &Requests, before: &Requests) -> Requests {
    let since = |(key, count): (&(String, String), &u64)| {
        let since = count.saturating_sub(before.get(key).copied().unwrap_or_default());
        (since > 0).then(|| (key.clone(), since))
    };
    after.iter().filter_map(since).collect()
}
