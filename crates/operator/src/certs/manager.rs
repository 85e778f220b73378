//! Watches the Secret and the webhook configurations. The leader also writes them.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::bundle::{WebhookConfiguration, trust_patch};
use super::{CertPlan, IssueError, SecretData, ServingCert, Trust, carry_out, plan_certs};
use crate::backoff::{Backoff, WatchBackoff};
use crate::leader::Leadership;

/// The certificates are checked at least so often: the clock may have been set, or the machine
/// suspended.
const RESYNC_INTERVAL: Duration = Duration::from_hours(1);
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(30),
};
const MANAGER: &str = "trainyard-certs";

/// Where the certificates are kept, and who must trust them.
#[derive(Clone, Debug)]
pub struct CertConfig {
    /// The operator's namespace.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The DNS names under which this operator is called.
    pub names: Vec<String>,
    /// Whether webhook configurations must trust the certificates.
    pub webhooks: bool,
    /// The name of the `MutatingWebhookConfiguration`.
    pub mutating: String,
    /// The name of the `ValidatingWebhookConfiguration`.
    pub validating: String,
}

impl CertConfig {
    /// Uses the names of the manifests, for servers behind these Services.
    pub fn new(namespace: impl Into<String>, services: &[&str], webhooks: bool) -> Self {
        let namespace = namespace.into();
        let ends = ["", ".svc", ".svc.cluster.local"];
        let names = services
            .iter()
            .flat_map(|service| ends.map(|end| format!("{service}.{namespace}{end}")));
        Self {
            names: names.collect(),
            webhooks,
            secret: "trainyard-webhook-tls".to_owned(),
            mutating: "trainyard".to_owned(),
            validating: "trainyard".to_owned(),
            namespace,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("the {what} could not be written: {source}")]
    Write { what: &'static str, source: kube::Error },
    #[error(transparent)]
    Issue(#[from] IssueError),
}

impl SyncError {
    /// Returns true if this operator has no right to the write.
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Write { source: kube::Error::Api(status), .. } if status.code == 403)
    }
}

/// Keeps the certificates of one operator.
pub(crate) struct CertManager {
    config: CertConfig,
    leadership: Leadership,
    serving: Arc<ServingCert>,
    secrets: Api<Secret>,
    mutatings: Api<MutatingWebhookConfiguration>,
    validatings: Api<ValidatingWebhookConfiguration>,
    /// The Secret was read, or does not exist.
    pub(super) is_read: bool,
    /// The Secret as last seen or written.
    pub(super) secret: Option<Secret>,
    pub(super) mutating: Option<MutatingWebhookConfiguration>,
    pub(super) validating: Option<ValidatingWebhookConfiguration>,
    loaded: Option<SecretData>,
}

impl CertManager {
    /// Makes a manager. Nothing happens before [`CertManager::run`].
    pub(crate) fn new(
        client: kube::Client,
        config: CertConfig,
        leadership: Leadership,
        serving: Arc<ServingCert>,
    ) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &config.namespace),
            mutatings: Api::all(client.clone()),
            validatings: Api::all(client),
            config,
            leadership,
            serving,
            is_read: false,
            secret: None,
            mutating: None,
            validating: None,
            loaded: None,
        }
    }

    /// Runs until `shutdown`. Needs the rights to get, list, watch, create and update the Secret,
    /// and to get, list, watch and patch the two configurations.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut secrets =
            pin!(watch_object(self.secrets.clone(), &self.config.secret).backoff(WatchBackoff::default()));
        let webhooks = self.config.webhooks;
        let mut mutatings = follow(self.mutatings.clone(), &self.config.mutating, webhooks);
        let mut validatings = follow(self.validatings.clone(), &self.config.validating, webhooks);
        let mut leadership = self.leadership.clone();
        let mut failures = 0;
        let mut wake = Instant::now() + RESYNC_INTERVAL;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(seen) = secrets.next() => match seen {
                    Ok(secret) => (self.is_read, self.secret) = (true, secret),
                    Err(error) => watch_failed("Secret", &self.config.secret, &error),
                },
                Some(seen) = mutatings.next() => match seen {
                    Ok(seen) => self.mutating = seen,
                    Err(error) => watch_failed("MutatingWebhookConfiguration", &self.config.mutating, &error),
                },
                Some(seen) = validatings.next() => match seen {
                    Ok(seen) => self.validating = seen,
                    Err(error) => watch_failed("ValidatingWebhookConfiguration", &self.config.validating, &error),
                },
                _ = leadership.changed() => {}
                () = sleep_until(wake) => {}
            }
            let now = Timestamp::now();
            let wait = match self.sync(now).await {
                Ok(next) => {
                    failures = 0;
                    next.map_or(RESYNC_INTERVAL, |next| {
                        now.duration_until(next).try_into().unwrap_or(BACKOFF.base)
                    })
                }
                Err(error) => {
                    failures += 1;
                    let pause = BACKOFF.pause(failures, 0.0);
                    tracing::warn!(%error, ?pause, "the certificates are not in order; trying again");
                    pause
                }
            };
            wake = Instant::now() + wait.min(RESYNC_INTERVAL);
        }
    }

    /// Serves the leaf of the Secret. The leader also writes what is due. Returns when to look
    /// again.
    pub(super) async fn sync(&mut self, now: Timestamp) -> Result<Option<Timestamp>, SyncError> {
        loop {
            if !self.is_read {
                return Ok(None);
            }
            let secret = self.secret.clone();
            let held = secret.as_ref().map(SecretData::of);
            self.serve(held.as_ref());
            if !self.leadership.may_write() {
                return Ok(None);
            }
            let mut trust = Trust::Written;
            if let Some(held) = held.as_ref().filter(|held| !held.ca_crt.is_empty()) {
                // First, because a leaf is replaced only when its authority is trusted.
                match self.trust(&held.ca_crt).await {
                    Ok(()) => {}
                    // Pods trust the observer by another way: the leaf must not end with it.
                    Err(error) if error.is_forbidden() => {
                        tracing::warn!(%error, "write the certificate to trust yourself: see docs/install.md");
                        trust = Trust::Awaited;
                    }
                    Err(error) => return Err(error),
                }
            }
            let plan = plan_certs(held.as_ref(), now, &self.config.names, trust);
            if let CertPlan::Keep { until } = plan {
                return Ok(Some(until));
            }
            tracing::info!(secret = %self.config.secret, ?plan, "changing the certificates");
            let Some(data) = carry_out(&plan, held.as_ref(), now, &self.config.names)? else {
                return Ok(None);
            };
            // Making keys takes a moment.
            if !self.leadership.may_write() {
                return Ok(None);
            }
            match self.write(secret, &data).await {
                Ok(written) => self.secret = Some(written),
                // Another replica has written it. The watch will show it.
                Err(kube::Error::Api(status)) if status.code == 409 => return Ok(None),
                Err(source) => {
                    return Err(SyncError::Write {
                        what: "Secret",
                        source,
                    });
                }
            }
        }
    }

    fn serve(&mut self, held: Option<&SecretData>) {
        let Some(held) = held.filter(|held| self.loaded.as_ref() != Some(held)) else {
            return;
        };
        match self.serving.load(held) {
            Ok(()) => {
                tracing::info!(secret = %self.config.secret, "serving with a new certificate");
                self.loaded = Some(held.clone());
            }
            Err(error) => {
                tracing::warn!(secret = %self.config.secret, %error, "the certificate can't be served; the leader will make a new one");
            }
        }
    }

    async fn write(&self, secret: Option<Secret>, data: &SecretData) -> kube::Result<Secret> {
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        if let Some(mut secret) = secret {
            // It has the resource version that was seen: at most one of several writers succeeds.
            data.store(&mut secret);
            self.secrets.replace(&self.config.secret, &params, &secret).await
        } else {
            let mut secret = Secret::default();
            secret.metadata.name = Some(self.config.secret.clone());
            secret.metadata.labels = Some([("app.kubernetes.io/part-of".into(), "trainyard".into())].into());
            data.store(&mut secret);
            self.secrets.create(&params, &secret).await
        }
    }

    async fn trust(&mut self, bundle: &str) -> Result<(), SyncError> {
        if let Some(seen) = &self.mutating {
            let what = "caBundle of the MutatingWebhookConfiguration";
            if let Some(written) =
                patch_bundle(&self.mutatings, &self.config.mutating, seen, bundle, what).await?
            {
                self.mutating = Some(written);
            }
        }
        if let Some(seen) = &self.validating {
            let what = "caBundle of the ValidatingWebhookConfiguration";
            if let Some(written) =
                patch_bundle(&self.validatings, &self.config.validating, seen, bundle, what).await?
            {
                self.validating = Some(written);
            }
        }
        Ok(())
    }
}

async fn patch_bundle<K>(
    api: &Api<K>,
    name: &str,
    seen: &K,
    bundle: &str,
    what: &'static str,
) -> Result<Option<K>, SyncError>
where
    K: WebhookConfiguration + Clone + DeserializeOwned + Debug,
{
    let Some(patch) = trust_patch(seen, bundle) else {
        return Ok(None);
    };
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api.patch(name, &params, &Patch::<()>::Json(patch)).await {
        Ok(written) => {
            tracing::info!(name, "the {what} is up to date");
            Ok(Some(written))
        }
        // It was deleted meanwhile. The watch will show it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(source) => Err(SyncError::Write { what, source }),
    }
}

/// Watches an object, if it is wanted. Otherwise no right to it is needed.
fn follow<K>(api: Api<K>, name: &str, wanted: bool) -> BoxStream<'static, Result<Option<K>, watcher::Error>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    if wanted {
        watch_object(api, name).backoff(WatchBackoff::default()).boxed()
    } else {
        futures::stream::pending().boxed()
    }
}

fn watch_failed(kind: &str, name: &str, error: &watcher::Error) {
    tracing::warn!(kind, name, %error, "can't be watched; trying again");
}

#[cfg(test)]
mod tests;
