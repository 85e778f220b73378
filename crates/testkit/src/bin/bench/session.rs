//! One run of the benchmark: the scenarios in their order, and the figures they give.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::Sizes;
use super::operator::Requests;
use super::report::{Figure, Report};
use super::scenarios::{Bench, Place, Run, Size};
use super::stats::{median, p99, spread};

/// One run of the benchmark.
pub struct Session {
    pub bench: Bench,
    pub sizes: Sizes,
    pub rounds: usize,
    pub smoke: bool,
    pub only: Vec<String>,
    pub report: Report,
}

/// What a scenario of jobs is held to.
struct Targets {
    ratio: f64,
    cpu: f64,
    memory: Option<f64>,
}

impl Session {
    fn wanted(&self, scenario: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == scenario)
    }

    /// Adds a figure. Times and sizes mean nothing with small sizes, and are left out then.
    fn figure(
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
    fn count(&mut self, scenario: &str, measure: &str, value: f64, target: f64, detail: String) {
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
        say("warming up");
        self.bench.floor(self.sizes.a.total()).await?;
        self.bench.run(self.sizes.a, None).await?;
        let Sizes { a, b, c, .. } = self.sizes;
        if self.wanted("a") {
            let targets = Targets {
                ratio: 1.5,
                cpu: 0.5,
                memory: Some(25.0),
            };
            self.jobs("a", a, &targets).await?;
        }
        if self.wanted("b") {
            let targets = Targets {
                ratio: 1.7,
                cpu: 2.0,
                memory: Some(40.0),
            };
            self.jobs("b", b, &targets).await?;
        }
        if self.wanted("c") {
            let targets = Targets {
                ratio: 1.15,
                cpu: 0.3,
                memory: None,
            };
            self.jobs("c", c, &targets).await?;
        }
        if self.wanted("completion") {
            self.completion(a).await?;
        }
        if self.wanted("recovery") {
            self.recovery().await?;
        }
        if self.wanted("steady") || self.wanted("restart") {
            self.rest(&[a, b, c]).await?;
        }
        if self.wanted("memory") {
            self.memory().await?;
        }
        Ok(())
    }

    async fn jobs(&mut self, scenario: &str, size: Size, targets: &Targets) -> Result<()> {
        let name = format!("({scenario}) {} x {}", size.jobs, size.pods);
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            let floor = self.bench.floor(size.total()).await?;
            let run = self.bench.run(size, None).await?;
            say(&format!(
                "{name}: floor {:.2} s (cpu: server {:.2}, bench {:.2}), jobs {:.2} s (created in {:.2} s; cpu: server {:.2}, bench {:.2}, operator {:.2}), peak {:.1} MiB",
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
            per_job(run.told.writes()),
            as_f64(size.pods as u64 + 3),
            detail,
        );
        self.count(
            &name,
            "events per job",
            per_job(run.told.events()),
            2.0,
            String::new(),
        );
        Ok(())
    }

    async fn completion(&mut self, size: Size) -> Result<()> {
        let name = format!("completion {} x {}", size.jobs, size.pods);
        let after = Duration::from_secs(2);
        let mut times = Vec::new();
        let mut targets = Vec::new();
        let mut last = None;
        for _ in 0..self.rounds {
            let floor = self.bench.floor(size.total()).await?;
            let run = self.bench.run(size, Some(after)).await?;
            say(&format!(
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

    async fn recovery(&mut self) -> Result<()> {
        let Sizes {
            a, failing, singles, ..
        } = self.sizes;
        let size = Size {
            jobs: a.jobs,
            pods: a.pods,
        };
        let many = Size {
            jobs: 1,
            pods: failing * 2,
        };
        let (operator, place) = self.bench.all_in_place(&[size, many]).await?;
        let place = Arc::new(place);
        let mut alone = Vec::new();
        for number in 0..singles {
            let pod = format!("s0-{}-worker-1", number % size.jobs);
            alone.extend(self.bench.recover(&place, &[pod]).await?);
        }
        operator.settled(Duration::from_mins(1)).await?;
        let detail = format!("{singles} pods, one after the other; {}", spread(&alone));
        self.figure(
            "(d) recovery",
            "one pod, median",
            median(&alone),
            "ms",
            Some(25.0),
            detail,
        );
        let spread_out: Vec<String> = (0..failing)
            .map(|n| format!("s0-{}-worker-2", n % size.jobs))
            .collect();
        let together: Vec<String> = (0..failing).map(|n| format!("s1-0-worker-{n}")).collect();
        for (what, pods) in [("of as many jobs", spread_out), ("of one job", together)] {
            let mut times = self.bench.recover(&place, &pods).await?;
            times.sort_by(f64::total_cmp);
            operator.settled(Duration::from_mins(1)).await?;
            say(&format!(
                "(d) {} pods {what}: median {:.0} ms, p99 {:.0} ms",
                pods.len(),
                median(&times),
                p99(&times)
            ));
            let name = format!("(d) {} pods {what}", pods.len());
            self.figure(
                &name,
                "replaced, median",
                median(&times),
                "ms",
                Some(100.0),
                spread(&times),
            );
            self.figure(
                &name,
                "replaced, p99",
                p99(&times),
                "ms",
                Some(250.0),
                String::new(),
            );
            self.report
                .raw
                .push(json!({"scenario": name, "milliseconds": times}));
        }
        let told = operator.told().await?;
        let replaced = singles + 2 * failing;
        let created = told.count(|verb, kind| verb == "create" && kind == "Pod");
        let expected = size.total() + many.total() + replaced;
        let detail = format!("{replaced} replacements");
        self.count(
            "(d) recovery",
            "pods created",
            as_f64(created),
            as_f64(expected as u64),
            detail,
        );
        operator.stop().await?;
        self.clear(place).await
    }

    async fn clear(&self, place: Arc<Place>) -> Result<()> {
        let namespace = place.namespace.clone();
        drop(place);
        trainyard_testkit::namespace::remove(&self.bench.client, &namespace).await
    }

    async fn rest(&mut self, sizes: &[Size]) -> Result<()> {
        let (operator, place) = self.bench.all_in_place(sizes).await?;
        let jobs: usize = sizes.iter().map(|size| size.jobs).sum();
        let pods: usize = sizes.iter().map(|size| size.total()).sum();
        let what = format!("{jobs} jobs, {pods} pods");
        say(&format!("steady state with {what}"));
        let (before, cpu) = (operator.told().await?, operator.cpu_of_threads()?);
        tokio::time::sleep(self.sizes.steady).await;
        let (cpu, after) = (operator.cpu_of_threads()? - cpu, operator.told().await?);
        let requests = after.other_than_watches_and_leases() - before.other_than_watches_and_leases();
        let name = format!("(e) steady {} s", self.sizes.steady.as_secs());
        self.count(
            &name,
            "requests but watches and leases",
            as_f64(requests),
            0.0,
            what.clone(),
        );
        self.figure(&name, "operator CPU", cpu, "s", Some(0.02), String::new());
        self.figure(
            &name,
            "memory",
            operator.current_memory()?,
            "MiB",
            None,
            format!("peak {:.1} MiB", operator.peak_memory()?),
        );
        operator.stop().await?;

        let begun = Instant::now();
        let operator = self.bench.program.start().await?;
        let converged = |reconciles: u64| reconciles >= jobs as u64;
        while !converged(operator.told().await?.reconciles) && begun.elapsed() < Duration::from_mins(1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let told = operator.settled(Duration::from_mins(1)).await?;
        let name = "(f) restart";
        self.count(
            name,
            "writes and events",
            as_f64(told.writes() + told.events()),
            0.0,
            what.clone(),
        );
        let detail = format!(
            "from the start of the process until {} reconciles",
            told.reconciles
        );
        self.figure(name, "converged", seconds, "s", None, detail);
        self.figure(name, "operator CPU", operator.cpu()?, "s", None, String::new());
        self.figure(name, "peak memory", operator.peak_memory()?, "MiB", None, what);
        self.report
            .raw
            .push(json!({"scenario": name, "requests": requests_of(&told.requests)}));
        operator.stop().await?;
        self.clear(Arc::new(place)).await
    }

    async fn memory(&mut self) -> Result<()> {
        let [first, second] = self.sizes.memory;
        say(&format!("memory with {} pods", first.total() + second.total()));
        let (operator, place) = self.bench.all_in_place(&[first]).await?;
        let base = (operator.current_memory()?, operator.peak_memory()?);
        self.bench
            .submit(&place, second, "more-", "Running", first.jobs + second.jobs)
            .await?;
        operator.settled(Duration::from_mins(5)).await?;
        let top = (operator.current_memory()?, operator.peak_memory()?);
        let pods = as_f64(second.total() as u64);
        let kib = |from: f64, to: f64| (to - from) * 1024.0 / pods;
        let name = format!("memory to {} pods", first.total() + second.total());
        let detail = format!("peak {:.1} -> {:.1} MiB", base.1, top.1);
        self.figure(
            &name,
            "growth a pod",
            kib(base.1, top.1),
            "KiB",
            Some(4.0),
            detail,
        );
        let detail = format!("now {:.1} -> {:.1} MiB", base.0, top.0);
        self.figure(
            &name,
            "growth a pod, at rest",
            kib(base.0, top.0),
            "KiB",
            None,
            detail,
        );
        self.figure(&name, "operator CPU", operator.cpu()?, "s", None, String::new());
        operator.stop().await?;
        let operator = self.bench.program.start().await?;
        operator.settled(Duration::from_mins(1)).await?;
        let detail = format!("{:.1} MiB at rest", operator.current_memory()?);
        self.figure(
            &name,
            "peak memory of a restart",
            operator.peak_memory()?,
            "MiB",
            None,
            detail,
        );
        operator.stop().await?;
        self.clear(Arc::new(place)).await
    }
}

fn say(text: &str) {
    eprintln!("bench: {text}");
}

#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Requests per job by verb and kind, but for watches.
fn by_verb(run: &Run, jobs: usize) -> String {
    let parts = run
        .told
        .requests
        .iter()
        .filter(|((verb, kind), _)| verb != "watch" && kind != "Lease");
    let line = |((verb, kind), count): (&(String, String), &u64)| {
        let share = as_f64(*count) / as_f64(jobs as u64);
        (share >= 0.01).then(|| format!("{verb} {kind} {share:.2}"))
    };
    let mut lines: Vec<String> = parts.filter_map(line).collect();
    if !run.told.failed.is_empty() {
        let failed: u64 = run.told.failed.values().sum();
        lines.push(format!("{failed} not answered well"));
    }
    lines.join(", ")
}

fn requests_of(requests: &Requests) -> Value {
    let pairs = requests
        .iter()
        .map(|((verb, kind), count)| (format!("{verb} {kind}"), json!(count)));
    Value::Object(pairs.collect())
}
