//! Deletion: at once, after a grace period, or when all finalizers are gone.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;

use super::Target;
use super::garbage::Garbage;
use crate::api::error::{FieldError, StatusError};
use crate::api::meta;
use crate::api::status;
use crate::api::store::{Object, Stored};

pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Removal {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) dry_run: bool,
}

pub(crate) enum Removed {
    /// It was removed; this was its last state.
    Gone(Arc<Stored>),
    /// It is terminating.
    Going(Arc<Stored>),
}

impl Removal {
    pub(crate) fn new(options: DeleteOptions) -> Result<Self, StatusError> {
        let propagation = match (options.propagation_policy.as_deref(), options.orphan_dependents) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan"];
                let error = FieldError::unsupported("propagationPolicy", &other.into(), supported);
                let kind = "DeleteOptions";
                return Err(status::invalid_named(
                    "DeleteOptions.meta.k8s.io",
                    "meta.k8s.io",
                    kind,
                    "",
                    &[error],
                ));
            }
            (None, None) => None,
        };
        let preconditions = options.preconditions.unwrap_or_default();
        Ok(Self {
            // A negative grace period counts as 1 s, as in Kubernetes.
            grace: options
                .grace_period_seconds
                .map(|seconds| if seconds < 0 { 1 } else { seconds }),
            uid: preconditions.uid,
            version: preconditions.resource_version,
            propagation,
            dry_run: options.dry_run.is_some_and(|dry_run| !dry_run.is_empty()),
        })
    }

    /// Deletion of the object with this UID, in the background.
    pub(crate) fn of(uid: &str, propagation: Propagation) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            propagation: Some(propagation),
            ..Self::default()
        }
    }
}

/// What a deletion has to write.
enum Step {
    /// Nothing: the object is already terminating.
    Pending,
    /// The object becomes terminating.
    Mark,
    /// The object becomes terminating and is then removed.
    MarkAndRemove,
    Remove,
}

impl Target<'_> {
    /// Deletes an object, and its dependents.
    pub(crate) fn delete(&self, name: &str, removal: &Removal) -> Result<Removed, StatusError> {
        let mut garbage = Garbage::default();
        let removed = self.delete_into(name, removal, &mut garbage);
        self.collect(garbage);
        removed
    }

    /// Deletes an object, and adds what follows from that to `garbage`.
    pub(super) fn delete_into(
        &self,
        name: &str,
        removal: &Removal,
        garbage: &mut Garbage,
    ) -> Result<Removed, StatusError> {
        loop {
            let old = self.stored(name)?;
            self.check_preconditions(&old, removal)?;
            let mut object = old.object();
            self.kind
                .rules
                .may_go(&object)
                .map_err(|why| status::forbidden(self.kind, name, why))?;
            self.shared.admit_removal(self.kind, &object)?;
            let step = self.step(&mut object, removal);
            if matches!(step, Step::Pending) {
                return Ok(Removed::Going(old));
            }
            let draft = self.draft(&object);
            if removal.dry_run {
                let tried = Arc::new(draft.stored(old.version));
                return Ok(match step {
                    Step::Mark => Removed::Going(tried),
                    _ => Removed::Gone(tried),
                });
            }
            let marked = match step {
                Step::Remove => old,
                _ => match self.shared.store.replace(self.kind.table, &old, &draft) {
                    Ok(marked) => marked,
                    Err(_) => continue,
                },
            };
            if matches!(step, Step::Mark) {
                garbage.marked(self, &marked);
                return Ok(Removed::Going(marked));
            }
            if let Some(last) = self.remove(&marked, garbage) {
                return Ok(Removed::Gone(last));
            }
            // A kubelet may have removed it meanwhile.
            let is_there = self.stored(name).is_ok_and(|now| now.head.uid == marked.head.uid);
            if !matches!(step, Step::Remove) && !is_there {
                return Ok(Removed::Gone(marked));
            }
        }
    }

    pub(super) fn check_preconditions(&self, old: &Stored, removal: &Removal) -> Result<(), StatusError> {
        let name = &*old.head.name;
        if let Some(uid) = removal.uid.as_deref().filter(|uid| **uid != *old.head.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
                 been deleted and then recreated",
                old.head.uid
            );
            return Err(status::conflict_named(
                &self.kind.group,
                &self.kind.kind,
                name,
                &why,
            ));
        }
        let version = old.version.to_string();
        if let Some(wanted) = removal.version.as_deref().filter(|wanted| **wanted != version) {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            );
            return Err(status::conflict_named(
                &self.kind.group,
                &self.kind.kind,
                name,
                &why,
            ));
        }
        Ok(())
    }

    fn step(&self, object: &mut Object, removal: &Removal) -> Step {
        let now = self.shared.environment.now();
        let rules = &self.kind.rules;
        let terminating = meta::is_terminating(object);
        let left = meta::number(object, "deletionGracePeriodSeconds").unwrap_or(0);
        let grace = match (terminating, removal.grace) {
            (true, _) if left == 0 => None,
            (true, Some(wanted)) if wanted < left => Some(shorten(object, left, wanted, now)),
            (true, _) => return Step::Pending,
            (false, wanted) => {
                let grace = rules.grace(object, wanted);
                if let Some(seconds) = grace {
                    mark(object, now, seconds);
                }
                grace
            }
        };
        let touched = settle_finalizers(object, removal.propagation);
        let waits = !meta::finalizers(object).is_empty() || rules.lingers(object);
        match grace {
            Some(0) if !waits => Step::MarkAndRemove,
            Some(_) => Step::Mark,
            None if !waits => Step::Remove,
            None if terminating && !touched => Step::Pending,
            None => {
                if !terminating {
                    mark(object, now, 0);
                    rules.goes(object);
                }
                Step::Mark
            }
        }
    }

    /// Removes a version of an object. None if it is not the latest.
    pub(super) fn remove(&self, old: &Arc<Stored>, garbage: &mut Garbage) -> Option<Arc<Stored>> {
        let last = self.shared.store.remove(self.kind.table, old).ok()?;
        self.kind.rules.release(&old.object(), self.shared);
        garbage.removed(&old.head);
        Some(last)
    }
}

fn mark(object: &mut Object, now: Timestamp, seconds: i64) {
    let at = now
        .saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(now);
    if meta::number(object, "generation").is_some() {
        meta::bump_generation(object);
    }
    write_mark(object, at, seconds);
}

fn write_mark(object: &mut Object, at: Timestamp, seconds: i64) {
    let metadata = meta::metadata(object);
    metadata.insert("deletionTimestamp".into(), meta::time(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
}

/// Shortens a grace period, but not into the past.
fn shorten(object: &mut Object, left: i64, wanted: i64, now: Timestamp) -> i64 {
    let end: Timestamp = meta::text(object, "deletionTimestamp").parse().unwrap_or(now);
    let sooner = end
        .saturating_sub(SignedDuration::from_secs(left - wanted))
        .unwrap_or(now);
    let (end, seconds) = match (sooner < now, wanted) {
        (false, _) => (sooner, wanted),
        (true, 0) => (now, 0),
        // The kubelet still has to see it and confirm the deletion.
        (true, _) => (now, 1),
    };
    write_mark(object, end, seconds);
    seconds
}

/// Sets the finalizers of a propagation policy. Returns whether they changed.
fn settle_finalizers(object: &mut Object, propagation: Option<Propagation>) -> bool {
    let Some(propagation) = propagation else {
        return false;
    };
    let before: Vec<String> = meta::finalizers(object)
        .into_iter()
        .map(ToOwned::to_owned)
        .collect();
    let mut after: Vec<String> = before.clone();
    after.retain(|one| one != ORPHAN && one != FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => after.push(FOREGROUND.to_owned()),
        Propagation::Orphan => after.push(ORPHAN.to_owned()),
    }
    let touched = after != before;
    if touched {
        meta::set_finalizers(object, after);
    }
    touched
}
