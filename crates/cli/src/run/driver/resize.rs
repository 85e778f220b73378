//! Changing the size of the job.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Run, State};
use crate::run::keys::SizeKey;
use crate::run::view::Event;

impl Run<'_> {
    /// Does what a key asks for: writes another target.
    pub(super) async fn resize(&mut self, key: SizeKey) {
        if !matches!(self.state, State::Running) {
            return;
        }
        let size = match self.view.next_size(key) {
            Ok(size) => size,
            Err(why) => return self.record(Event::Note(why)),
        };
        let target = json!({"spec": {"elastic": {"replicas": size}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(target));
        match self.jobs.patch(&self.name, &params, &patch).await {
            // The next key goes on from here, whenever the watch tells of it.
            Ok(job) => self.record(Event::Job(Box::new(job))),
            Err(error) => self.record(Event::Note(format!("the size can't be changed: {error}"))),
        }
    }
}
