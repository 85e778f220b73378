//! Fills in what users leave out, by the rules of every job and those of its framework.

use std::borrow::Cow;

use trainyard_api::TrainingJob;

use crate::registry::Frameworks;

/// Writes the defaults into a job. It is idempotent, and changes nothing that the user wrote.
pub fn default_with(job: &mut TrainingJob, frameworks: &Frameworks) {
    if let Some(framework) = frameworks.of(job) {
        let names: Vec<String> = job.spec.roles.iter().map(|role| role.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for role in &mut job.spec.roles {
            role.succeeded_when
                .get_or_insert_with(|| framework.pod_quorum(&role.name));
            role.restart_policy
                .get_or_insert_with(|| framework.restart_policy(&role.name));
            if role.depends_on.is_none() {
                let dependencies = framework.dependencies(&role.name, &names);
                role.depends_on = (!dependencies.is_empty()).then_some(dependencies);
            }
            if role.depends_on.as_ref().is_some_and(|on| !on.is_empty()) {
                role.create_policy.get_or_insert_default();
            }
        }
    }
    trainyard_api::default(&mut job.spec);
}

/// Writes the defaults into a job of a framework that is built in.
pub fn default(job: &mut TrainingJob) {
    default_with(job, Frameworks::built_in());
}

/// Returns true if the job, of a framework that is built in, has everything that [`default`] would
/// write.
pub fn is_defaulted(job: &TrainingJob) -> bool {
    is_defaulted_with(job, Frameworks::built_in())
}

fn is_defaulted_with(job: &TrainingJob, frameworks: &Frameworks) -> bool {
    let spec = &job.spec;
    if !trainyard_api::default::is_defaulted(spec) {
        return false;
    }
    let Some(framework) = frameworks.of(job) else {
        return true;
    };
    let names: Vec<&str> = spec.roles.iter().map(|role| &*role.name).collect();
    spec.roles.iter().all(|role| {
        let has_dependencies = match &role.depends_on {
            Some(given) => given.is_empty() || role.create_policy.is_some(),
            None => framework.dependencies(&role.name, &names).is_empty(),
        };
        has_dependencies && role.restart_policy.is_some()
    })
}

/// The job with its defaults. A copy has no status.
pub(crate) fn defaulted<'a>(job: &'a TrainingJob, frameworks: &Frameworks) -> Cow<'a, TrainingJob> {
    // Jobs are parsed often and templates are large. Jobs that came through the webhooks need no
    // copy.
    if is_defaulted_with(job, frameworks) {
        return Cow::Borrowed(job);
    }
    let mut copy = TrainingJob {
        metadata: job.metadata.clone(),
        spec: job.spec.clone(),
        status: None,
    };
    default_with(&mut copy, frameworks);
    Cow::Owned(copy)
}
