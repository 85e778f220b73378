//! What the controllers of all kinds share.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::act::request::send_while_leading;
use crate::act::{Class, Result, WriteLimiter};
use crate::clock::Clock;
use crate::events::Recorder;
use crate::index::Index;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::settings::SharedSettings;

#[derive(Clone)]
pub(crate) struct Context {
    pub client: kube::Client,
    /// The namespaces to watch; all, if empty.
    pub namespaces: Vec<String>,
    /// The TrainingJobs and their children. It is warm once [`Index::is_listed_since`] says so.
    pub index: Arc<Index>,
    pub leadership: Leadership,
    pub limiter: WriteLimiter,
    /// The engine ends only when the last copy is dropped.
    pub recorder: Recorder,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub settings: SharedSettings,
}

impl Context {
    /// Sends a request when the limiter lets it, and only while this replica leads.
    pub async fn send<T: DeserializeOwned>(
        &self,
        class: Class,
        request: http::Request<Vec<u8>>,
        term: &CancellationToken,
    ) -> Result<T> {
        let _permit = self.limiter.enter(class).await;
        send_while_leading(&self.client, &self.leadership, term, request).await
    }
}
