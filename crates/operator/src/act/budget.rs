//! Creates disruption budgets.

use http::Method;
use trainyard_core::disruption_budget::budget;
use trainyard_core::job::Job;

use super::request::{Answer, Path, request};
use super::{Result, Target, Writer};
use crate::index::Source;
use crate::slim::SlimBudget;

impl Writer {
    /// Creates the budget of a job. If its name is taken, the watch tells by whom: by us, by a
    /// former job, or by somebody else.
    pub(super) async fn create_budget(&self, target: Target<'_>, job: &Job<'_>) -> Result<()> {
        let Some(budget) = budget(job, &self.settings.now()) else {
            return Ok(());
        };
        let path = Path::budget(&target.key.namespace, "").by_us();
        let request = request(Method::POST, &path, Answer::Whole, Some(&budget))?;
        let created: SlimBudget = self.send(target.term, request).await?;
        self.index.apply_budget(created, Source::Answer);
        Ok(())
    }
}
