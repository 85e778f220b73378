//! The scenarios of jobs that already run: recovery, rest, restart, and what many pods cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::Sizes;
use super::jobs::with_single_restarts;
use super::scenarios::{Size, Testbed};
use super::session::{Session, as_f64, log, requests_of};
use super::stats::{median, p99, spread};

impl Session {
    pub(super) async fn recovery(&mut self) -> Result<()> {
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
        let (operator, testbed) = self.bench.start_each(&[size, many], with_single_restarts).await?;
        let testbed = Arc::new(testbed);
        let mut alone = Vec::new();
        for number in 0..singles {
            let pod = format!("s0-{}-worker-1", number % size.jobs);
            alone.extend(self.bench.recover(&testbed, &[pod]).await?);
        }
        operator.wait_until_idle(Duration::from_mins(1)).await?;
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
            let mut times = self.bench.recover(&testbed, &pods).await?;
            times.sort_by(f64::total_cmp);
            operator.wait_until_idle(Duration::from_mins(1)).await?;
            log(&format!(
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
                Some(250.0),
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
        let metrics = operator.metrics().await?;
        let replaced = singles + 2 * failing;
        let created = metrics.count(|verb, kind| verb == "create" && kind == "Pod");
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
        self.clear(testbed).await
    }

    pub(super) async fn clear(&self, testbed: Arc<Testbed>) -> Result<()> {
        let namespace = testbed.namespace.clone();
        drop(testbed);
        trainyard_testkit::namespace::remove(&self.bench.client, &namespace).await
    }

    pub(super) async fn rest(&mut self, sizes: &[Size]) -> Result<()> {
        let (operator, testbed) = self.bench.start_all(sizes).await?;
        let jobs: usize = sizes.iter().map(|size| size.jobs).sum();
        let pods: usize = sizes.iter().map(|size| size.total()).sum();
        let what = format!("{jobs} jobs, {pods} pods");
        log(&format!("steady state with {what}"));
        let (before, cpu) = (operator.metrics().await?, operator.cpu_of_threads()?);
        tokio::time::sleep(self.sizes.steady).await;
        let (cpu, after) = (operator.cpu_of_threads()? - cpu, operator.metrics().await?);
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
        while !converged(operator.metrics().await?.reconciles) && begun.elapsed() < Duration::from_mins(1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let metrics = operator.wait_until_idle(Duration::from_mins(1)).await?;
        let name = "(f) restart";
        self.count(
            name,
            "writes and events",
            as_f64(metrics.writes() + metrics.events()),
            0.0,
            what.clone(),
        );
        let detail = format!(
            "from the start of the process until {} reconciles",
            metrics.reconciles
        );
        self.figure(name, "converged", seconds, "s", None, detail);
        self.figure(name, "operator CPU", operator.cpu()?, "s", None, String::new());
        self.figure(name, "peak memory", operator.peak_memory()?, "MiB", None, what);
        self.report
            .raw
            .push(json!({"scenario": name, "requests": requests_of(&metrics.requests)}));
        operator.stop().await?;
        self.clear(Arc::new(testbed)).await
    }

    pub(super) async fn memory(&mut self) -> Result<()> {
        let [first, second] = self.sizes.memory;
        log(&format!("memory with {} pods", first.total() + second.total()));
        let (operator, testbed) = self.bench.start_all(&[first]).await?;
        let base = (operator.current_memory()?, operator.peak_memory()?);
        self.bench
            .submit(
                &testbed,
                second.manifests("more-"),
                "Running",
                first.jobs + second.jobs,
            )
            .await?;
        operator.wait_until_idle(Duration::from_mins(5)).await?;
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
        operator.wait_until_idle(Duration::from_mins(1)).await?;
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
        self.clear(Arc::new(testbed)).await
    }
}
