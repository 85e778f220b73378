//! Creation.

use std::sync::Arc;

use super::garbage::Garbage;
use super::{Target, WriteOptions, namespace};
use crate::api::admission::Operation;
use crate::api::error::StatusError;
use crate::api::meta;
use crate::api::rules::Source;
use crate::api::status;
use crate::api::store::{Object, Stored};

const MAX_NAME_ATTEMPTS: u32 = 8;

impl Target<'_> {
    pub(crate) fn create(
        &self,
        source: Source<'_>,
        options: WriteOptions,
    ) -> Result<Arc<Stored>, StatusError> {
        let object = self.shaped(source, options)?;
        self.create_shaped(object, options)
    }

    /// Creates an object that is already decoded.
    pub(crate) fn create_shaped(
        &self,
        mut object: Object,
        options: WriteOptions,
    ) -> Result<Arc<Stored>, StatusError> {
        self.settle_namespace(&mut object)?;
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(status::version_given());
        }
        meta::clear_servers_own(&mut object);
        let base = meta::text(&object, "generateName").to_owned();
        let generate = meta::text(&object, "name").is_empty() && !base.is_empty();
        if generate {
            self.generate(&mut object, &base);
        }
        namespace::must_take_more(self, meta::text(&object, "name"))?;
        self.shared
            .admit(self.kind, Operation::Create, &mut object, None)?;
        let metadata = meta::metadata(&mut object);
        metadata.insert("uid".into(), self.shared.environment.uuid().into());
        let now = meta::time(self.shared.environment.now());
        metadata.insert("creationTimestamp".into(), now.into());
        if self.kind.traits.counts_generations {
            metadata.insert("generation".into(), 1.into());
        }
        let rules = &self.kind.rules;
        rules.prepare(&mut object, self.shared)?;
        let name = meta::text(&object, "name").to_owned();
        let mut errors = meta::check(self.kind, &object);
        errors.extend(rules.check(&object));
        let created = if errors.is_empty() {
            self.insert(&mut object, generate.then_some(&*base), options)
        } else {
            Err(status::invalid(self.kind, &name, &errors))
        };
        match created {
            Ok(stored) if !options.dry_run => {
                rules.after(Some(&object), self.shared);
                if self.shared.store.lacks_an_owner(&stored.head) {
                    self.collect(Garbage::may_lack_owner(self.kind.table, stored.head.key()));
                }
                Ok(stored)
            }
            other => {
                rules.abandon(&object, self.shared);
                other
            }
        }
    }

    fn insert(
        &self,
        object: &mut Object,
        generate: Option<&str>,
        options: WriteOptions,
    ) -> Result<Arc<Stored>, StatusError> {
        for _ in 0..MAX_NAME_ATTEMPTS {
            let draft = self.draft(object);
            let taken = if options.dry_run {
                match self.shared.store.get(self.kind.table, &draft.head.key()) {
                    None => return Ok(Arc::new(draft.unversioned())),
                    Some(_) => true,
                }
            } else {
                match self.shared.store.insert(self.kind.table, &draft) {
                    Ok(stored) => return Ok(stored),
                    Err(_) => true,
                }
            };
            match generate {
                Some(base) if taken => self.generate(object, base),
                _ => break,
            }
        }
        Err(status::already_exists(self.kind, meta::text(object, "name")))
    }

    fn generate(&self, object: &mut Object, base: &str) {
        let name = meta::generated(base, self.shared.environment.number());
        meta::metadata(object).insert("name".into(), name.into());
    }

    /// Sets the namespace of the path; an object with another one is refused.
    pub(super) fn settle_namespace(&self, object: &mut Object) -> Result<(), StatusError> {
        let given = meta::text(object, "namespace");
        if !self.kind.namespaced {
            meta::metadata(object).remove("namespace");
            return Ok(());
        }
        if !given.is_empty() && given != self.namespace {
            return Err(status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta::metadata(object).insert("namespace".into(), self.namespace.into());
        Ok(())
    }
}
