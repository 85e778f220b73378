//! Leader election: one replica may write, the others keep a warm index.
//!
//! A Lease names its holder, who must renew it in time. The rules are those of client-go, so that
//! replicas of either kind respect each other: what counts is when *this* process saw the record
//! change, never the clock of another machine. `step` decides, `Elector` calls the API server,
//! [`Leadership`] tells the rest of the operator.
//!
//! A leader stops `renew_deadline` after it *began* its last successful renewal. Nobody else starts
//! before `lease_duration` after it *saw* that renewal, which is later. As `renew_deadline` is less
//! than `lease_duration`, two replicas never lead at a time. A write that is still under way when a
//! leader stops is caught by the precondition that every write carries.

mod decide;
mod handle;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use decide::{Claim, Decision, Observation, claim, released, step};
pub use handle::Leadership;
pub(crate) use handle::LeadershipSetter;

use crate::metrics::Metrics;

#[derive(Clone, Debug)]
pub(crate) struct LeaderConfig {
    /// The namespace of the lease: the operator's own.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The name of this process. It must be different for a process that is started again on the
    /// same host: see [`unique_identity`].
    pub identity: String,
    /// How long others wait after a renewal before they take the lease, in whole seconds.
    pub lease_duration: Duration,
    /// How long a leader goes on writing after it began its last successful renewal.
    pub renew_deadline: Duration,
    /// The pause between attempts to renew or to acquire.
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// Uses the times of client-go: 15 s, 10 s and 2 s.
    pub(crate) fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    fn check(&self) -> Result<(), LeaderConfigError> {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if lease.subsec_nanos() != 0 || lease.is_zero() || i32::try_from(lease.as_secs()).is_err() {
            return Err(LeaderConfigError::LeaseDuration(lease));
        }
        if renew >= lease {
            return Err(LeaderConfigError::RenewDeadline { renew, lease });
        }
        // An attempt may take half the deadline. Another must be possible before its end.
        if retry.is_zero() || retry * 2 > renew {
            return Err(LeaderConfigError::RetryPeriod { retry, renew });
        }
        if self.identity.is_empty() {
            return Err(LeaderConfigError::Identity);
        }
        Ok(())
    }
}

/// Why a configuration of the election can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderConfigError {
    /// The duration can't be written into a Lease.
    #[error("the lease duration is {0:?}: give whole seconds, at least 1")]
    LeaseDuration(Duration),
    /// A leader would go on writing when the next may have started.
    #[error("the renew deadline ({renew:?}) must be shorter than the lease duration ({lease:?})")]
    RenewDeadline {
        /// The renew deadline.
        renew: Duration,
        /// The lease's duration.
        lease: Duration,
    },
    /// One failed attempt would cost the leadership.
    #[error("the retry period ({retry:?}) must be positive and at most half the renew deadline ({renew:?})")]
    RetryPeriod {
        /// The retry period.
        retry: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// An empty identity means that the lease is free.
    #[error("the identity is empty: give the pod's name")]
    Identity,
}

/// Returns a name for this process: that of the host or the pod, and a random suffix.
///
/// A process takes a lease with its own name for its own. A container that was restarted in the
/// same pod must not, because the writes of its predecessor may still be under way.
pub(crate) fn unique_identity(host: &str) -> String {
    // The standard library seeds every such hasher differently. No other randomness is needed here.
    let suffix = RandomState::new().build_hasher().finish();
    format!("{host}_{suffix:016x}")
}

/// What came of an attempt to hold the lease.
enum LeaseResult {
    /// The lease is ours since the beginning of the request.
    Held,
    /// Another process holds it.
    Theirs(String),
    /// Another process wrote it at the same time. The next attempt will tell.
    Raced,
}

/// Takes part in the election.
pub(crate) struct Elector {
    leases: Api<Lease>,
    config: LeaderConfig,
    setter: LeadershipSetter,
    metrics: Option<Arc<Metrics>>,
    observation: Option<Observation>,
    /// The lease as we last wrote it. It can be renewed without a read.
    ours: Option<Lease>,
}

impl Elector {
    /// Makes an elector. Nothing happens before [`Elector::run`].
    pub(crate) fn new(client: kube::Client, config: LeaderConfig) -> Result<Self, LeaderConfigError> {
        config.check()?;
        let leases = Api::namespaced(client, &config.namespace);
        Ok(Self {
            leases,
            config,
            setter: LeadershipSetter::new(),
            metrics: None,
            observation: None,
            ours: None,
        })
    }

    /// Sets the metric that tells whether this replica leads.
    #[must_use]
    pub(crate) fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    pub(crate) fn leadership(&self) -> Leadership {
        self.setter.leadership()
    }

    /// Acquires and renews the lease until `shutdown`, then releases it.
    ///
    /// Cancel `shutdown` when the last write has been answered: the next leader may start a moment
    /// later. Dropping the future also ends the leadership here, but the others wait until the
    /// lease expires.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            self.try_lease(begun).await;
            let mut wake = begun + self.config.retry_period;
            if let Some(end) = self.setter.end() {
                wake = wake.min(end);
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = sleep_until(wake) => self.check_expiry(),
            }
        }
        self.release().await;
    }

    async fn try_lease(&mut self, begun: Instant) {
        // Half the deadline, so that there is time for a second attempt if a connection hangs.
        let mut limit = self.config.renew_deadline / 2;
        if let Some(end) = self.setter.end() {
            limit = limit.min(end.saturating_duration_since(begun));
        }
        // The clock is read before the request is sent: others count from a later time.
        let wall = Timestamp::now();
        match timeout(limit, self.acquire_or_renew(begun)).await {
            Ok(Ok(LeaseResult::Held)) => {
                if self.setter.renew(begun, wall, self.config.renew_deadline) {
                    tracing::info!(lease = %self.config.name, identity = %self.config.identity, "leading");
                    self.set_metric(true);
                }
            }
            Ok(Ok(LeaseResult::Theirs(holder))) => self.lose(&format!("the lease is {holder}'s")),
            Ok(Ok(LeaseResult::Raced)) => self.ours = None,
            Ok(Err(error)) => {
                self.ours = None;
                tracing::warn!(lease = %self.config.name, %error, "the lease could not be read or written; trying again");
            }
            Err(_) => {
                self.ours = None;
                tracing::warn!(lease = %self.config.name, ?limit, "no answer about the lease; trying again");
            }
        }
        self.check_expiry();
    }

    /// Renews the lease if it is known to be ours. Otherwise reads it and decides.
    async fn acquire_or_renew(&mut self, now: Instant) -> kube::Result<LeaseResult> {
        let params = PostParams::default();
        let (identity, duration) = (&self.config.identity, self.config.lease_duration);
        if let Some(ours) = self.ours.take() {
            let next = claim(Some(&ours), identity, duration, Claim::Renew, Timestamp::now());
            match self.leases.replace(&self.config.name, &params, &next).await {
                Ok(written) => return Ok(self.hold(written, now)),
                // Another process has changed or deleted it: read it.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        let found = self.leases.get_opt(&self.config.name).await?;
        let (observation, decision) = step(self.observation.take(), found.as_ref(), identity, duration, now);
        self.observation = observation;
        let how = match decision {
            Decision::Wait { holder } => return Ok(LeaseResult::Theirs(holder)),
            Decision::Claim(how) => how,
        };
        let mut next = claim(found.as_ref(), identity, duration, how, Timestamp::now());
        let written = if how == Claim::Create {
            next.metadata.name = Some(self.config.name.clone());
            self.leases.create(&params, &next).await
        } else {
            self.leases.replace(&self.config.name, &params, &next).await
        };
        match written {
            Ok(written) => Ok(self.hold(written, now)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(LeaseResult::Raced),
            Err(error) => Err(error),
        }
    }

    fn hold(&mut self, written: Lease, now: Instant) -> LeaseResult {
        self.observation = Observation::of(&written, now);
        self.ours = Some(written);
        LeaseResult::Held
    }

    fn check_expiry(&mut self) {
        if self.setter.end().is_some_and(|end| Instant::now() >= end) {
            self.lose("it could not be renewed in time");
        }
    }

    fn lose(&mut self, why: &str) {
        self.ours = None;
        if self.setter.leave() {
            tracing::warn!(lease = %self.config.name, identity = %self.config.identity, "no longer leading: {why}");
            self.set_metric(false);
        }
    }

    async fn release(&mut self) {
        let led = self.setter.leave();
        self.set_metric(false);
        if !led && self.ours.is_none() {
            return;
        }
        match timeout(self.config.renew_deadline / 2, self.release_lease()).await {
            Ok(Ok(())) => tracing::info!(lease = %self.config.name, "the lease is given back"),
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.config.name, %error, "the lease could not be given back; it will run out");
            }
            Err(_) => {
                tracing::warn!(lease = %self.config.name, "the lease could not be given back; it will run out");
            }
        }
    }

    async fn release_lease(&mut self) -> kube::Result<()> {
        let mut known = self.ours.take();
        loop {
            let read = known.is_none();
            let lease = match known.take() {
                Some(lease) => lease,
                None => match self.leases.get_opt(&self.config.name).await? {
                    Some(lease) => lease,
                    None => return Ok(()),
                },
            };
            let Some(free) = released(&lease, &self.config.identity, Timestamp::now()) else {
                return Ok(());
            };
            match self
                .leases
                .replace(&self.config.name, &PostParams::default(), &free)
                .await
            {
                // Our copy was stale: read it once.
                Err(kube::Error::Api(status)) if status.code == 409 && !read => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    fn set_metric(&self, leading: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.set_leader(leading);
        }
    }
}

#[cfg(test)]
mod tests;
