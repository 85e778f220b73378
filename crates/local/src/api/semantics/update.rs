//! Updates and patches of objects and their status.

use std::sync::Arc;

use serde_json::Value;

use super::garbage::Garbage;
use super::patch::Patch;
use super::{Target, WriteOptions};
use crate::api::admission::Operation;
use crate::api::error::{FieldError, StatusError};
use crate::api::meta;
use crate::api::rules::{Source, restore};
use crate::api::status;
use crate::api::store::{Object, Stored};

pub(crate) enum Change<'a> {
    /// The new object.
    Put(&'a [u8]),
    Patch(&'a Patch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, if that is a subresource.
    Whole,
    Status,
}

pub(crate) struct Changed {
    pub(crate) stored: Arc<Stored>,
    pub(crate) created: bool,
}

impl Target<'_> {
    pub(crate) fn update(
        &self,
        name: &str,
        part: Part,
        change: &Change<'_>,
        options: WriteOptions,
    ) -> Result<Changed, StatusError> {
        loop {
            let old = match (self.stored(name), change) {
                (Ok(old), _) => old,
                (Err(_), Change::Put(text)) if self.kind.traits.create_on_update && part == Part::Whole => {
                    return self.create_instead(name, text, options);
                }
                (Err(refusal), _) => return Err(refusal),
            };
            let before = old.object();
            let mut new = match change {
                Change::Put(text) => self.shaped(Source::Text(text), options)?,
                Change::Patch(patch) => self.patched(&before, part, patch, options)?,
            };
            self.settle_namespace(&mut new)?;
            self.check_identity(name, &new, &old, matches!(change, Change::Put(_)))?;
            let unconditional = match change {
                Change::Put(_) => meta::text(&new, "resourceVersion").is_empty(),
                Change::Patch(patch) => !patch.names_version(),
            };
            match self.write_change(&before, &old, new, part, options)? {
                Some(stored) => {
                    return Ok(Changed {
                        stored,
                        created: false,
                    });
                }
                None if unconditional => {}
                None => return Err(status::modified(self.kind, name)),
            }
        }
    }

    fn patched(
        &self,
        before: &Object,
        part: Part,
        patch: &Patch,
        options: WriteOptions,
    ) -> Result<Object, StatusError> {
        let rules = &self.kind.rules;
        if let Some(outward) = rules.outward() {
            let patched = patch.apply(Value::Object(outward(before.clone())))?;
            return self.shaped(Source::Value(patched), options);
        }
        // Most patches are of the status. The spec is stored and valid, so it is not decoded again.
        let spec = before
            .get("spec")
            .filter(|_| part == Part::Status && !patch.mentions("spec"));
        let members = before
            .iter()
            .filter(|(name, _)| spec.is_none() || *name != "spec");
        let members = members.map(|(name, value)| (name.clone(), value.clone()));
        let patched = patch.apply(Value::Object(members.collect()))?;
        let mut new = self.shaped(Source::Value(patched), options)?;
        if let Some(spec) = spec {
            new.insert("spec".into(), spec.clone());
        }
        Ok(new)
    }

    fn create_instead(&self, name: &str, text: &[u8], options: WriteOptions) -> Result<Changed, StatusError> {
        let mut object = self.shaped(Source::Text(text), options)?;
        if meta::text(&object, "name") != name {
            return Err(name_differs(meta::text(&object, "name"), name));
        }
        if !meta::text(&object, "uid").is_empty() {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: ",
                meta::text(&object, "uid")
            );
            return Err(status::conflict(self.kind, name, &why));
        }
        // A resourceVersion is ignored, because there is no stored object.
        meta::metadata(&mut object).remove("resourceVersion");
        let stored = self.create_shaped(object, options)?;
        Ok(Changed {
            stored,
            created: true,
        })
    }

    /// Changes an object on behalf of the server, without validation.
    pub(crate) fn amend(
        &self,
        name: &str,
        change: impl Fn(&mut Object) -> Result<(), StatusError>,
        options: WriteOptions,
    ) -> Result<Arc<Stored>, StatusError> {
        loop {
            let old = self.stored(name)?;
            let mut object = old.object();
            change(&mut object)?;
            let draft = self.draft(&object);
            if options.dry_run {
                return Ok(Arc::new(draft.stored(old.version)));
            }
            if draft.says_the_same_as(&old) {
                return Ok(old);
            }
            if let Ok(stored) = self.shared.store.replace(self.kind.table, &old, &draft) {
                self.kind.rules.after(Some(&object), self.shared);
                return Ok(stored);
            }
        }
    }

    fn check_identity(&self, name: &str, new: &Object, old: &Stored, put: bool) -> Result<(), StatusError> {
        let given = meta::text(new, "name");
        if given != name {
            return Err(name_differs(given, name));
        }
        let uid = meta::text(new, "uid");
        if !uid.is_empty() && *uid != *old.head.uid {
            if !put {
                let error = FieldError::invalid("metadata.uid", &uid.into(), "field is immutable");
                return Err(status::invalid(self.kind, name, &[error]));
            }
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.head.uid
            );
            return Err(status::conflict(self.kind, name, &why));
        }
        let version = meta::text(new, "resourceVersion");
        if version.is_empty() && put && !self.kind.traits.unconditional_update {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &0.into(),
                "must be specified for an update",
            );
            // Servers name the resource here instead of the kind.
            let kind = self.kind;
            return Err(status::invalid_named(
                &kind.qualified(),
                &kind.group,
                &kind.plural,
                name,
                &[error],
            ));
        }
        if !version.is_empty() && version != old.version.to_string() {
            return Err(status::modified(self.kind, name));
        }
        Ok(())
    }

    /// None if the object was changed meanwhile.
    fn write_change(
        &self,
        before: &Object,
        old: &Arc<Stored>,
        mut new: Object,
        part: Part,
        options: WriteOptions,
    ) -> Result<Option<Arc<Stored>>, StatusError> {
        let rules = &self.kind.rules;
        let name = &*old.head.name;
        meta::restore_servers_own(&mut new, before);
        let mut errors = Vec::new();
        match part {
            Part::Whole => {
                if self.kind.subresources.status {
                    restore(&mut new, before, "status");
                }
                self.shared
                    .admit(self.kind, Operation::Update, &mut new, Some(before))?;
                rules.change(&mut new, before, self.shared)?;
                errors.extend(meta::check(self.kind, &new));
                errors.extend(rules.check_update(&new, before));
                if self.kind.traits.counts_generations && differs(&new, before) {
                    meta::bump_generation(&mut new);
                }
            }
            Part::Status => {
                rules.change_status(&mut new, before);
                errors.extend(rules.check_status(&new, before));
            }
        }
        check_new_finalizers(&new, before, &mut errors);
        if !errors.is_empty() {
            return Err(status::invalid(self.kind, name, &errors));
        }
        let draft = self.draft(&new);
        if options.dry_run {
            return Ok(Some(Arc::new(draft.stored(old.version))));
        }
        if draft.says_the_same_as(old) {
            return Ok(Some(old.clone()));
        }
        let waits_no_more = meta::finalizers(&new).is_empty()
            && meta::number(before, "deletionGracePeriodSeconds") == Some(0);
        if waits_no_more && meta::is_terminating(before) && !rules.lingers(&new) {
            let mut garbage = Garbage::default();
            if self.remove(old, &mut garbage).is_none() {
                return Ok(None);
            }
            self.collect(garbage);
            return Ok(Some(Arc::new(draft.stored(old.version))));
        }
        let Ok(stored) = self.shared.store.replace(self.kind.table, old, &draft) else {
            return Ok(None);
        };
        rules.after(Some(&new), self.shared);
        if old.head.owners != stored.head.owners {
            let mut garbage = Garbage::may_lack_owner(self.kind.table, stored.head.key());
            garbage.owners_changed(&old.head);
            self.collect(garbage);
        }
        Ok(Some(stored))
    }
}

fn name_differs(given: &str, name: &str) -> StatusError {
    let why = format!("the name of the object ({given}) does not match the name on the URL ({name})");
    status::bad_request(why)
}

/// Whether the generation has to be increased.
fn differs(new: &Object, old: &Object) -> bool {
    let counted = |(name, _): &(&String, &Value)| !matches!(name.as_str(), "metadata" | "status");
    !new.iter().filter(counted).eq(old.iter().filter(counted))
}

fn check_new_finalizers(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if !meta::is_terminating(old) {
        return;
    }
    let known = meta::finalizers(old);
    let added: Vec<&str> = meta::finalizers(new)
        .into_iter()
        .filter(|one| !known.contains(one))
        .collect();
    if !added.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
        );
        errors.push(FieldError::forbidden("metadata.finalizers", &why));
    }
}
