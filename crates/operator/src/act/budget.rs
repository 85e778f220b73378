//! Creates disruption budgets, and deletes those of jobs that can't be read.

use http::Method;
use trainyard_api::names;
use trainyard_core::disruption_budget::budget;
use trainyard_core::job::Job;
use trainyard_core::view::BudgetRow;

use super::request::{Answer, Path, request};
use super::{Class, Result, Target, Writer};
use crate::index::{Kind, Source};
use crate::slim::SlimBudget;

impl Writer {
    /// Deletes the budget of a job that can't be read: nobody has its pods leave nodes, and
    /// evictions would be refused for ever.
    pub async fn withdraw_budget(&self, target: Target<'_>) -> Result<()> {
        let name = names::disruption_budget(&target.key.name);
        let rows = self.index.own_budgets(target.uid);
        let is_left = |row: &&BudgetRow| *row.name == *name && !row.terminating;
        for row in rows.iter().filter(is_left) {
            let path = Path::budget(&target.key.namespace, &name);
            let _permit = self.limiter.enter(Class::Urgent).await;
            self.delete_child(target, Kind::Budget, path, &name, &row.uid, None)
                .await?;
        }
        Ok(())
    }

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
