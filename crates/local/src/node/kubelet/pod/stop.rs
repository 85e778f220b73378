//! The termination of pods.

use std::time::Duration;

use crate::node::events::EventType;
use crate::node::kubelet::status::{Entry, State};
use crate::node::kubelet::worker::{PodWorker, StartedContainer, Update};

impl PodWorker {
    /// Stops what runs: containers first, then sidecars in reverse order.
    pub(super) async fn terminate(&self) {
        let running: Vec<StartedContainer> = self.started.lock().values().cloned().collect();
        // Also those whose end was not recorded yet.
        let running = running.into_iter().filter(|one| {
            let name = &one.running.spec.name;
            let runs = |entry: &mut Entry| matches!(entry.state, State::Running { .. });
            one.container().exit().is_none() || self.state.lock().entry(name).is_some_and(runs)
        });
        let (mut sidecars, main): (Vec<_>, Vec<_>) =
            running.partition(|one| one.running.spec.restart_policy.as_deref() == Some("Always"));
        let grace = self.grace();
        let begin = tokio::time::Instant::now();
        futures::future::join_all(main.iter().map(|one| self.stop_started(one, grace))).await;
        sidecars.reverse();
        for one in &sidecars {
            self.stop_started(one, grace.saturating_sub(begin.elapsed()))
                .await;
        }
    }

    async fn stop_started(&self, one: &StartedContainer, grace: Duration) {
        let name = &one.running.spec.name;
        self.record_container_event(
            &one.running.spec,
            EventType::Normal,
            "Killing",
            format!("Stopping container {name}"),
        );
        // The grace period may be shortened meanwhile.
        let exit = tokio::select! {
            exit = self.stop(&one.running, grace) => exit,
            () = self.grace_period_shortened(grace) => self.stop(&one.running, Duration::ZERO).await,
        };
        let attempt = u32::try_from(self.update(|state| state.entry(name).map_or(0, |entry| entry.restarts)))
            .unwrap_or(0);
        let end = self.finish(&one.running, exit, &one.id, one.since, attempt);
        self.container_ended(name, end);
    }

    async fn grace_period_shortened(&self, grace: Duration) {
        let mut updates = self.updates.clone();
        let sooner = |update: &Update| {
            let given = update.pod.metadata.deletion_grace_period_seconds;
            update.gone || given.is_some_and(|given| u64::try_from(given).unwrap_or(0) < grace.as_secs())
        };
        if updates.wait_for(sooner).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub fn give_up(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    pub async fn kill(&self) {
        let running: Vec<StartedContainer> = self.started.lock().values().cloned().collect();
        for one in &running {
            one.container().kill();
        }
        for one in &running {
            one.container().wait().await;
        }
        *self.sandbox.lock() = None;
    }
}
