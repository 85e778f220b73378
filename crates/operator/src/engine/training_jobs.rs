//! TrainingJobs, as a kind of the controller.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Pulse;
use crate::act::Writer;
use crate::controller::{Context, Queue, Reconcile, ReconcileResult};
use crate::index::{Index, JobKey};
use crate::metrics::{Kind, Metrics, Subject};
use crate::reconcile::Reconciler;
use crate::settings::SharedSettings;
use crate::watch::Watches;

/// How often the gauges are set.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a term waits to know which frameworks are declared.
const DECLARATIONS_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct TrainingJobs {
    reconciler: Reconciler,
    watches: Watches,
    settings: SharedSettings,
    pub(super) pulse: Arc<Pulse>,
}

impl TrainingJobs {
    pub(super) fn new(writer: Writer, context: &Context) -> Self {
        let Context {
            client, namespaces, ..
        } = context;
        let index = context.index.clone();
        Self {
            watches: Watches::new(client.clone(), namespaces.clone(), index.clone()),
            reconciler: Reconciler {
                writer,
                index,
                recorder: context.recorder.clone(),
                metrics: context.metrics.clone(),
                clock: context.clock.clone(),
            },
            settings: context.settings.clone(),
            pulse: Arc::new(Pulse::new()),
        }
    }
}

impl Reconcile for TrainingJobs {
    type Key = JobKey;

    fn kind(&self) -> Subject {
        Kind::TrainingJob.into()
    }

    fn watch(&self, queue: &Arc<Queue<JobKey>>) -> JoinSet<()> {
        let Reconciler { index, metrics, .. } = &self.reconciler;
        let mut tasks = self.watches.start(queue, metrics);
        let (index, queue) = (index.clone(), queue.clone());
        let gauges = set_gauges(index.clone(), queue.clone(), metrics.clone(), self.pulse.clone());
        tasks.spawn(gauges);
        tasks.spawn(follow_agent(&self.settings, index, queue));
        tasks
    }

    async fn catch_up(&self, began: Instant) {
        self.watches.catch_up(began).await;
        // Jobs that name a declared framework are not refused before it is known.
        let known = self.reconciler.index.wait_for_declarations();
        let _ = tokio::time::timeout(DECLARATIONS_TIMEOUT, known).await;
        self.reconciler.index.forget_former_terms();
    }

    fn keys(&self) -> Vec<JobKey> {
        self.reconciler.index.keys()
    }

    async fn reconcile(&self, key: &JobKey, term: &CancellationToken) -> ReconcileResult {
        self.reconciler.reconcile(key, term).await
    }
}

async fn set_gauges(index: Arc<Index>, queue: Arc<Queue<JobKey>>, metrics: Arc<Metrics>, pulse: Arc<Pulse>) {
    loop {
        metrics.set_queue_depth(queue.depth());
        metrics.set_jobs(index.phases());
        // This task has been given a thread, the queue and the index: nothing is stuck.
        pulse.beat();
        tokio::time::sleep(GAUGE_INTERVAL).await;
    }
}

/// Has all jobs reconciled when there is an agent where there was none: some may wait for it.
/// Changes are seen from this call on, not from the first poll.
fn follow_agent(
    settings: &SharedSettings,
    index: Arc<Index>,
    queue: Arc<Queue<JobKey>>,
) -> impl Future<Output = ()> + use<> {
    let mut settings = settings.follow();
    let mut had = settings.borrow_and_update().agent.is_some();
    async move {
        while settings.changed().await.is_ok() {
            let has = settings.borrow_and_update().agent.is_some();
            if has && !had {
                queue.extend(index.keys());
            }
            had = has;
        }
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::view::Agent;

    use super::*;
    use crate::index::Source;
    use crate::slim::JobObject;

    #[tokio::test(start_paused = true)]
    async fn jobs_are_looked_at_again_when_there_is_an_agent_and_not_at_every_change_of_it() {
        let (index, queue) = (Arc::new(Index::new(&[])), Arc::new(Queue::default()));
        let shared = SharedSettings::default();
        let job = r#"{"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
            "spec": {"framework": {"name": "mpi"}, "roles": []}}"#;
        let job = JobObject::decode(job).unwrap();
        index.apply_job(job, Source::Watch);
        queue.with(|core| core.open([]));
        let agent = |image: &str| {
            Some(Agent {
                image: image.to_owned(),
                image_pull_policy: None,
                may_be_root: false,
                command: Vec::new(),
                observer: None,
            })
        };
        let mut following = std::pin::pin!(follow_agent(&shared, index.clone(), queue.clone()));
        let mut depth_after = async |change: Option<Agent>| {
            shared.set_agent(change);
            assert!(futures::poll!(&mut following).is_pending());
            queue.depth()
        };
        assert_eq!(depth_after(None).await, 0);
        assert_eq!(depth_after(agent("one")).await, 1);
        queue.next().await;
        queue.with(|core| core.done(&JobKey::new("ns", "a"), None));
        assert_eq!(depth_after(agent("two")).await, 0, "it had one before");
    }
}
