//! Leader election: of all replicas one may write, the others follow with a warm index.
//!
//! A Lease names the holder; holding is renewing in time. The rules are those of client-go, so that replicas of
//! either kind respect each other: what counts is when *this* process saw the record change, never the clock of
//! another machine. [`step`] decides, [`Elector`] asks the API server, [`Leadership`] tells the rest of the operator.
//!
//! A leader stops by itself `renew_deadline` after it *began* its last successful renewal; nobody else starts before
//! `lease_duration` after it *saw* that renewal, which is later. As `renew_deadline < lease_duration`, there is a gap
//! in which nobody leads, and never a time in which two do. What is still under way when a leader stops is caught by
//! the preconditions that every write carries.

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

pub use decide::{Claim, Decision, Observation, claim, released, step};
pub use handle::Leadership;
pub(crate) use handle::Seat;

use crate::metrics::Metrics;

/// Whom to be and which lease to hold.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// The namespace of the lease: the operator's own.
    pub namespace: String,
    /// The name of the lease.
    pub name: String,
    /// The name of this process, different for every process, also for one that was started again under the same
    /// host name: see [`unique_identity`].
    pub identity: String,
    /// How long others wait after a renewal before they take the lease. Whole seconds.
    pub lease_duration: Duration,
    /// How long after the beginning of its last successful renewal a leader goes on writing.
    pub renew_deadline: Duration,
    /// The pause between attempts to renew or to acquire.
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// A configuration with the usual times: 15 s, 10 s and 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
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
        // An attempt may take half the deadline; another must fit in before it is over.
        if retry.is_zero() || retry * 2 > renew {
            return Err(LeaderConfigError::RetryPeriod { retry, renew });
        }
        if self.identity.is_empty() {
            return Err(LeaderConfigError::Identity);
        }
        Ok(())
    }
}

/// Why a configuration can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderConfigError {
    /// The lease's duration can't be written into a Lease.
    #[error("the lease duration is {0:?}: give whole seconds, at least 1")]
    LeaseDuration(Duration),
    /// A leader would go on writing when the next may already have started.
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

/// A name for this process: the host's or pod's name, and something that a process started later will not have.
///
/// A process that sees its own name in the lease takes it for its own; a container that was restarted in the same pod
/// must not, as the writes of its predecessor may still be under way.
pub fn unique_identity(host: &str) -> String {
    // The standard library's hasher is keyed at random: that is all the randomness a name needs.
    let suffix = RandomState::new().build_hasher().finish();
    format!("{host}_{suffix:016x}")
}

/// What an attempt came to.
enum Attempt {
    /// The lease is ours as of the beginning of the request.
    Held,
    /// It is somebody else's.
    Theirs(String),
    /// Somebody was faster; the next attempt will tell.
    Raced,
}

/// Takes part in the election.
pub struct Elector {
    leases: Api<Lease>,
    config: LeaderConfig,
    seat: Seat,
    metrics: Option<Arc<Metrics>>,
    observation: Option<Observation>,
    /// The lease as we last wrote it: renewing it needs no read.
    ours: Option<Lease>,
}

impl Elector {
    /// Takes part with this client. Nothing happens before [`Elector::run`].
    pub fn new(client: kube::Client, config: LeaderConfig) -> Result<Self, LeaderConfigError> {
        config.check()?;
        let leases = Api::namespaced(client, &config.namespace);
        Ok(Self {
            leases,
            config,
            seat: Seat::new(),
            metrics: None,
            observation: None,
            ours: None,
        })
    }

    /// Also shows in these metrics whether this replica leads.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// What the rest of the operator asks before it writes.
    pub fn leadership(&self) -> Leadership {
        self.seat.leadership()
    }

    /// Acquires and renews until `shutdown`, then gives the lease back at once.
    ///
    /// Cancel `shutdown` when the last write has been answered: the next leader may start a moment later. Dropping
    /// the future instead also ends the leadership here, and others wait for the lease to run out.
    pub async fn run(mut self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            self.attempt(begun).await;
            let mut wake = begun + self.config.retry_period;
            if let Some(end) = self.seat.end() {
                wake = wake.min(end);
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = sleep_until(wake) => self.check_expiry(),
            }
        }
        self.release().await;
    }

    async fn attempt(&mut self, begun: Instant) {
        // Half the deadline, so that a connection that hangs leaves time for a second try on another.
        let mut limit = self.config.renew_deadline / 2;
        if let Some(end) = self.seat.end() {
            limit = limit.min(end.saturating_duration_since(begun));
        }
        // The clock is read before the request leaves: the leadership must not outlast what others will grant it.
        let wall = Timestamp::now();
        match timeout(limit, self.acquire_or_renew(begun)).await {
            Ok(Ok(Attempt::Held)) => {
                if self.seat.renew(begun, wall, self.config.renew_deadline) {
                    tracing::info!(lease = %self.config.name, identity = %self.config.identity, "leading");
                    self.show(true);
                }
            }
            Ok(Ok(Attempt::Theirs(holder))) => self.lose(&format!("the lease is {holder}'s")),
            Ok(Ok(Attempt::Raced)) => self.ours = None,
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

    /// One try: a renewal of what we know to be ours, or a look at the lease and what follows from it.
    async fn acquire_or_renew(&mut self, now: Instant) -> kube::Result<Attempt> {
        let params = PostParams::default();
        let (identity, duration) = (&self.config.identity, self.config.lease_duration);
        if let Some(ours) = self.ours.take() {
            let next = claim(Some(&ours), identity, duration, Claim::Renew, Timestamp::now());
            match self.leases.replace(&self.config.name, &params, &next).await {
                Ok(written) => return Ok(self.hold(written, now)),
                // Changed or deleted by somebody: look.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        let found = self.leases.get_opt(&self.config.name).await?;
        let (observation, decision) = step(self.observation.take(), found.as_ref(), identity, duration, now);
        self.observation = observation;
        let how = match decision {
            Decision::Wait { holder } => return Ok(Attempt::Theirs(holder)),
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
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Attempt::Raced),
            Err(error) => Err(error),
        }
    }

    fn hold(&mut self, written: Lease, now: Instant) -> Attempt {
        self.observation = Observation::of(&written, now);
        self.ours = Some(written);
        Attempt::Held
    }

    fn check_expiry(&mut self) {
        if self.seat.end().is_some_and(|end| Instant::now() >= end) {
            self.lose("it could not be renewed in time");
        }
    }

    fn lose(&mut self, why: &str) {
        self.ours = None;
        if self.seat.leave() {
            tracing::warn!(lease = %self.config.name, identity = %self.config.identity, "no longer leading: {why}");
            self.show(false);
        }
    }

    async fn release(&mut self) {
        let led = self.seat.leave();
        self.show(false);
        if !led && self.ours.is_none() {
            return;
        }
        match timeout(self.config.renew_deadline / 2, self.give_back()).await {
            Ok(Ok(())) => tracing::info!(lease = %self.config.name, "the lease is given back"),
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.config.name, %error, "the lease could not be given back; it will run out");
            }
            Err(_) => {
                tracing::warn!(lease = %self.config.name, "the lease could not be given back; it will run out");
            }
        }
    }

    async fn give_back(&mut self) -> kube::Result<()> {
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
                // What we knew was stale: read it once.
                Err(kube::Error::Api(status)) if status.code == 409 && !read => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    fn show(&self, leading: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.set_leader(leading);
        }
    }
}

#[cfg(test)]
mod tests;
