//! Jobs that `trainyard run` trains on this machine, while the benchmark changes their size.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use trainyard_local::cluster::{base_directory, user_socket};

use super::super::session::{Session, log};
use super::{TIMEOUT, example, set_target};

/// A `trainyard run` with directories of its own.
pub struct Training {
    child: Child,
    place: TempDir,
}

impl Training {
    /// Runs `job.yaml` in a directory with these files.
    pub fn start(binary: &Path, files: &[(&str, String)], more: &[&str]) -> Result<Self> {
        let place = tempfile::tempdir()?;
        for (name, content) in files {
            std::fs::write(place.path().join(name), content)?;
        }
        let log = std::fs::File::create(place.path().join("log"))?;
        let child = Command::new(std::path::absolute(binary)?)
            .args(["run", "job.yaml"])
            .args(more)
            .current_dir(place.path())
            .env("TRAINYARD_CACHE", place.path().join("cache"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("trainyard run")?;
        Ok(Self { child, place })
    }

    /// A file in its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// A client of its API, as soon as it is served and has a job.
    pub async fn client(&self) -> Result<Client> {
        let base = base_directory(&self.file("cache"));
        let begun = Instant::now();
        loop {
            for run in user_socket::find(&base) {
                if let Some(run) = run.open().await? {
                    self.until("Running after").await?;
                    return Ok(run.client);
                }
            }
            ensure!(begun.elapsed() < TIMEOUT, "the run has no socket: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it has printed a text.
    pub async fn until(&self, text: &str) -> Result<()> {
        self.until_in_order(&[text]).await
    }

    /// Waits until it has printed these texts, one after the other.
    pub async fn until_in_order(&self, texts: &[&str]) -> Result<()> {
        let begun = Instant::now();
        while !has_in_order(&self.log(), texts) {
            ensure!(
                begun.elapsed() < TIMEOUT,
                "the run does not say {texts:?}: {}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Ends it as Ctrl-C does.
    pub async fn interrupt(mut self) -> Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).context("the run has ended")?;
        kill_process(pid, Signal::INT)?;
        self.child.wait().await?;
        Ok(())
    }

    /// Waits until it has ended well, and returns what it has printed.
    pub async fn end(mut self) -> Result<String> {
        let status = self.child.wait().await?;
        ensure!(
            status.success(),
            "trainyard run ended with {status}: {}",
            self.log()
        );
        Ok(self.log())
    }
}

impl Session {
    /// `examples/elastic` trains, and a worker is removed.
    pub(super) async fn steps_lost(&mut self) -> Result<()> {
        let files = files_of("elastic")?;
        let options = ["SIZES=3 2", "PRINT_EVERY=1", "PAUSE=0.02", "STEPS=300"];
        let options: Vec<&str> = options.iter().flat_map(|one| ["--env", one]).collect();
        let training = Training::start(&self.bench.program.binary, &files, &options)?;
        let client = training.client().await?;
        training.until("rank 0 of 3 goes on").await?;
        set_target(&client, "default", "elastic", 2).await?;
        let said = training.end().await?;
        let (saved, lost) = saved_and_lost(&said, "worker-0 |");
        ensure!(
            said.contains("rank 0 of 2 goes on") && saved > 0,
            "nobody has left, or nothing was saved: {said}"
        );
        log(&format!(
            "a worker removed from a training: {lost} of {saved} steps lost"
        ));
        let detail = format!("examples/elastic, {saved} steps");
        self.count("a worker removed", "committed steps lost", lost, 0.0, detail);
        Ok(())
    }
}

fn has_in_order(said: &str, texts: &[&str]) -> bool {
    let rest = |said, text: &&str| str::split_once(said, *text).map(|(_, rest)| rest);
    texts.iter().try_fold(said, rest).is_some()
}

/// The files that a run of an example needs.
pub fn files_of(name: &str) -> Result<Vec<(&'static str, String)>> {
    let files = ["job.yaml", "train.py"].into_iter();
    files
        .map(|file| Ok((file, example(&format!("{name}/{file}"))?)))
        .collect()
}

/// The last step that the training has saved, and by how many steps it ever went behind one that it
/// had saved. Lines of rank 0 have this prefix.
pub fn saved_and_lost(said: &str, rank_zero: &str) -> (u32, f64) {
    let step = |line: &str| {
        let rest = ["goes on after step ", "saved step "]
            .iter()
            .find_map(|before| line.split_once(before))?
            .1;
        rest.split([' ', ',']).next()?.parse::<u32>().ok()
    };
    let (mut saved, mut lost) = (0_u32, 0);
    for line in said.lines().filter(|line| line.starts_with(rank_zero)) {
        if let Some(step) = step(line) {
            lost = lost.max(saved.saturating_sub(step));
            saved = saved.max(step);
        }
    }
    (saved, f64::from(lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_done_again_was_lost() {
        let line = |text: &str| format!("worker-0 | {text}\n");
        let well = line("rank 0 of 3 goes on after step 0") + &line("loss 0.5, saved step 7");
        assert_eq!(saved_and_lost(&well, "worker-0 |"), (7, 0.0));
        let badly = well + &line("rank 0 of 2 goes on after step 4") + "worker-1 | saved step 1\n";
        assert_eq!(saved_and_lost(&badly, "worker-0 |"), (7, 3.0));
    }
}
