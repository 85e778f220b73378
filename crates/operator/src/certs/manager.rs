//! Follows the Secret and the webhook configurations; the leader keeps them right.

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

use super::bundle::{WebhookConfiguration, trust};
use super::{CertPlan, IssueError, SecretData, ServingCert, carry_out, desired};
use crate::leader::Leadership;

/// How often to look though nothing happened: the clock may have been set, or the machine suspended.
const LOOK_AGAIN: Duration = Duration::from_hours(1);
/// The backoffs after errors.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const MANAGER: &str = "trainyard-certs";

/// Where certificates are kept and who must trust them.
#[derive(Clone, Debug)]
pub struct CertConfig {
    /// The operator's namespace.
    pub namespace: String,
    /// The name of the Secret.
    pub secret: String,
    /// The DNS names under which this operator is called.
    pub names: Vec<String>,
    /// Whether there are webhooks, which must trust the certificates.
    pub webhooks: bool,
    /// The name of the `MutatingWebhookConfiguration`.
    pub mutating: String,
    /// The name of the `ValidatingWebhookConfiguration`.
    pub validating: String,
}

impl CertConfig {
    /// The usual names, for what is served behind these Services.
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

/// Keeps the certificates of one operator.
pub struct Manager {
    config: CertConfig,
    leadership: Leadership,
    serving: Arc<ServingCert>,
    secrets: Api<Secret>,
    mutatings: Api<MutatingWebhookConfiguration>,
    validatings: Api<ValidatingWebhookConfiguration>,
    /// Whether the Secret was looked for yet.
    pub(super) looked: bool,
    /// The Secret as last seen or written.
    pub(super) secret: Option<Secret>,
    pub(super) mutating: Option<MutatingWebhookConfiguration>,
    pub(super) validating: Option<ValidatingWebhookConfiguration>,
    loaded: Option<SecretData>,
}

impl Manager {
    /// Keeps certificates with this client, and writes while this replica leads. Nothing happens before
    /// [`Manager::run`].
    pub fn new(
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
            looked: false,
            secret: None,
            mutating: None,
            validating: None,
            loaded: None,
        }
    }

    /// Runs until `shutdown`. Needs the rights to get, list, watch, create and update the Secret, and to get, list,
    /// watch and patch the two configurations.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut secrets = pin!(watch_object(self.secrets.clone(), &self.config.secret).default_backoff());
        let webhooks = self.config.webhooks;
        let mut mutatings = follow(self.mutatings.clone(), &self.config.mutating, webhooks);
        let mut validatings = follow(self.validatings.clone(), &self.config.validating, webhooks);
        let mut leadership = self.leadership.clone();
        let mut pause = FIRST_PAUSE;
        let mut wake = Instant::now() + LOOK_AGAIN;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(seen) = secrets.next() => match seen {
                    Ok(secret) => (self.looked, self.secret) = (true, secret),
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
                    pause = FIRST_PAUSE;
                    next.map_or(LOOK_AGAIN, |next| {
                        now.duration_until(next).try_into().unwrap_or(FIRST_PAUSE)
                    })
                }
                Err(error) => {
                    tracing::warn!(%error, ?pause, "the certificates are not in order; trying again");
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            wake = Instant::now() + wait.min(LOOK_AGAIN);
        }
    }

    /// Serves what is there; as the leader also puts right what is not. Returns when to look again, where known.
    pub(super) async fn sync(&mut self, now: Timestamp) -> Result<Option<Timestamp>, SyncError> {
        loop {
            if !self.looked {
                return Ok(None);
            }
            let secret = self.secret.clone();
            let held = secret.as_ref().map(SecretData::of);
            self.serve(held.as_ref());
            if !self.leadership.may_write() {
                return Ok(None);
            }
            if let Some(held) = held.as_ref().filter(|held| !held.ca_crt.is_empty()) {
                // First of all: a leaf is only replaced when its authority is trusted.
                self.trust(&held.ca_crt).await?;
            }
            let plan = desired(held.as_ref(), now, &self.config.names);
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
                // Somebody else was faster; the watch will bring what they wrote.
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
            // With the resource version that was seen: of several leaders at most one succeeds.
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
                trust_in(&self.mutatings, &self.config.mutating, seen, bundle, what).await?
            {
                self.mutating = Some(written);
            }
        }
        if let Some(seen) = &self.validating {
            let what = "caBundle of the ValidatingWebhookConfiguration";
            if let Some(written) =
                trust_in(&self.validatings, &self.config.validating, seen, bundle, what).await?
            {
                self.validating = Some(written);
            }
        }
        Ok(())
    }
}

async fn trust_in<K>(
    api: &Api<K>,
    name: &str,
    seen: &K,
    bundle: &str,
    what: &'static str,
) -> Result<Option<K>, SyncError>
where
    K: WebhookConfiguration + Clone + DeserializeOwned + Debug,
{
    let Some(patch) = trust(seen, bundle) else {
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
        // Deleted in between; the watch will say so.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(source) => Err(SyncError::Write { what, source }),
    }
}

/// Follows an object, or, where it is not wanted, nothing: then no right to it is needed either.
fn follow<K>(api: Api<K>, name: &str, wanted: bool) -> BoxStream<'static, Result<Option<K>, watcher::Error>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    if wanted {
        watch_object(api, name).default_backoff().boxed()
    } else {
        futures::stream::pending().boxed()
    }
}

fn watch_failed(kind: &str, name: &str, error: &watcher::Error) {
    tracing::warn!(kind, name, %error, "can't be watched; trying again");
}

#[cfg(test)]
mod tests;
