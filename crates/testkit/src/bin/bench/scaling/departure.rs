//! Real trainings of torchrun and Horovod from which a pod leaves: how soon the others train on,
//! and whether they lose a step.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;
use trainyard_testkit::images;

use super::super::session::{Session, log};
use super::super::stats::{median, spread};
use super::set_target;
use super::training::{Training, files_of, saved_and_lost};

const OF_THREE: &str = "rank 0 of 3 goes on";
const OF_TWO: &str = "rank 0 of 2 goes on";

/// An elastic example, from which one pod of three leaves.
struct Departure {
    example: &'static str,
    /// The image of its pods.
    image: &'static str,
    /// How many pods it starts with.
    first: usize,
    /// The sizes after which it ends.
    sizes: &'static str,
    /// What the lines of rank 0 begin with.
    rank_zero: &'static str,
    /// What is said as soon as nobody waits for the pod that leaves.
    leaves: Option<&'static str>,
    /// Seconds in which the others are to train on, from then.
    target: Option<f64>,
}

const TORCHRUN: Departure = Departure {
    example: "pytorch-elastic",
    image: images::TORCH,
    first: 1,
    sizes: "SIZES=1 3 2",
    rank_zero: "worker-0 |",
    leaves: Some("leaves after step"),
    target: Some(10.0),
};
const HOROVOD: Departure = Departure {
    example: "horovod-elastic",
    image: images::HOROVOD,
    first: 2,
    sizes: "SIZES=2 3 2",
    rank_zero: "launcher-0 | [0]",
    leaves: None,
    target: None,
};

/// What one pod that left has cost.
struct Cost {
    /// Seconds until the training had begun, images and programs in place.
    start: f64,
    /// Seconds from the request until the others had done a step.
    from_request: f64,
    /// Seconds from when the pod left.
    from_departure: Option<f64>,
    saved: u32,
    lost: f64,
}

impl Session {
    /// Needs an image with both frameworks, which takes minutes the first time.
    pub(in super::super) async fn departures(&mut self) -> Result<()> {
        let root = images::horovod_root()?;
        for departure in [TORCHRUN, HOROVOD] {
            let mut costs = Vec::new();
            for _ in 0..self.rounds {
                costs.push(departure.measure(&self.bench.program.binary, &root).await?);
            }
            self.report_departure(&departure, &costs);
        }
        Ok(())
    }

    fn report_departure(&mut self, departure: &Departure, costs: &[Cost]) {
        let example = departure.example;
        let name = format!("one of three leaves, {example}");
        let from_request: Vec<f64> = costs.iter().map(|cost| cost.from_request).collect();
        let from_departure: Vec<f64> = costs.iter().filter_map(|cost| cost.from_departure).collect();
        let lost = costs.iter().map(|cost| cost.lost).fold(0.0, f64::max);
        let saved = costs.iter().map(|cost| cost.saved).min().unwrap_or_default();
        log(&format!(
            "{name}: the others train on {:.1} s after the request; {lost} of {saved} steps lost",
            median(&from_request)
        ));
        self.report.raw.push(json!({
            "scenario": name, "fromRequestSeconds": from_request, "fromDepartureSeconds": from_departure,
        }));
        let measure = "the others train on, from the request";
        self.figure(
            &name,
            measure,
            median(&from_request),
            "s",
            None,
            spread(&from_request),
        );
        if departure.leaves.is_some() {
            let measure = "the others train on, from the departure";
            let value = median(&from_departure);
            let detail = spread(&from_departure);
            self.figure(&name, measure, value, "s", departure.target, detail);
            // A machine that is slow starts processes slowly: nothing else is waited for.
            let starts = costs.iter().zip(&from_departure);
            let ratios: Vec<f64> = starts.map(|(cost, seconds)| seconds / cost.start).collect();
            let measure = "the same, x the first start of one pod";
            self.figure(&name, measure, median(&ratios), "x", None, spread(&ratios));
        }
        let detail = format!("at least {saved} steps");
        self.count(&name, "committed steps lost", lost, 0.0, detail);
    }
}

impl Departure {
    async fn measure(&self, binary: &Path, root: &Path) -> Result<Cost> {
        let files = files_of(self.example)?;
        let image = format!("{}={}", self.image, root.display());
        // What Debian's torchrun needs on Python 3.11.
        let redirection = ["--env", "PET_REDIRECTS=9:1", "--env", "PET_TEE=9:1"];
        let options = [&["--image", &image, "--env", self.sizes], &redirection[..]].concat();
        let begun = Instant::now();
        let training = Training::start(binary, &files, &options)?;
        let client = training.client().await?;
        training
            .until(&format!("rank 0 of {} goes on", self.first))
            .await?;
        let start = begun.elapsed().as_secs_f64();
        set_target(&client, "default", self.example, 3).await?;
        training.until_in_order(&[OF_THREE, "saved step"]).await?;

        let asked = Instant::now();
        set_target(&client, "default", self.example, 2).await?;
        let mut left = None;
        if let Some(leaves) = self.leaves {
            training.until(leaves).await?;
            left = Some(Instant::now());
        }
        training.until_in_order(&[OF_THREE, OF_TWO, "saved step"]).await?;
        let (from_request, from_departure) = (
            asked.elapsed().as_secs_f64(),
            left.map(|left| left.elapsed().as_secs_f64()),
        );
        let said = training.end().await?;
        let (saved, lost) = saved_and_lost(&said, self.rank_zero);
        ensure!(saved > 0, "nothing was saved: {said}");
        Ok(Cost {
            start,
            from_request,
            from_departure,
            saved,
            lost,
        })
    }
}
