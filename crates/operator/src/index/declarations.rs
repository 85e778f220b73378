//! The frameworks that were declared, as far as jobs need them.

use trainyard_api::{DeclaredFramework, FieldError, TrainingJob};
use trainyard_core::registry::Frameworks;

use super::{Index, JobKey, entry};

impl Index {
    /// Returns the frameworks that a job can name.
    pub fn frameworks_for(&self, job: &TrainingJob) -> Frameworks {
        self.declarations.read().for_job(job)
    }

    /// Takes a declaration. Returns what is wrong with it.
    pub(crate) fn declare(&self, object: &DeclaredFramework) -> Vec<FieldError> {
        self.declarations.write().declare(object)
    }

    /// Takes the name of a declaration that can't be read.
    pub(crate) fn declare_unreadable(&self, framework: &str, error: FieldError) {
        self.declarations
            .write()
            .declare_unreadable(framework, vec![error]);
    }

    pub(crate) fn remove_declaration(&self, framework: &str) {
        self.declarations.write().remove(framework);
    }

    /// Records that declarations were listed, or that they may not be.
    pub(crate) fn set_declarations_known(&self, are_known: bool) {
        self.declarations.write().set_forbidden(!are_known);
        self.declarations_listed.send_replace(true);
    }

    /// Waits until it is known which frameworks are declared, or that this can't be known.
    pub(crate) async fn wait_for_declarations(&self) {
        let mut listed = self.declarations_listed.subscribe();
        // The sender is a field of this: it can't be gone.
        let _ = listed.wait_for(|listed| *listed).await;
    }

    /// Returns the keys of the jobs that name a framework.
    pub(crate) fn keys_of_framework(&self, framework: &str) -> Vec<JobKey> {
        let inner = self.lock();
        let names = inner.names.iter().filter(|(_, uid)| {
            let job = inner.owners.get(*uid).and_then(|owner| owner.job.as_ref());
            job.is_some_and(|entry| match &entry.job {
                entry::Job::Ok(job) => job.spec.framework.name == framework,
                entry::Job::Malformed(_) => false,
            })
        });
        names.map(|(key, _)| key.clone()).collect()
    }
}
