//! Namespaces: their content is deleted with them, and nothing is created in a terminating one.

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::{Target, WriteOptions};
use crate::api::Shared;
use crate::api::error::StatusError;
use crate::api::meta;
use crate::api::rules::{Rules, Source, restore, through};
use crate::api::status;
use crate::api::store::Object;

/// Namespaces that can't be deleted.
pub(crate) const PERMANENT: &[&str] = &["default", "kube-system", "kube-public"];

/// The ConfigMap with the certificate of the cluster, in every namespace.
pub(super) const AUTHORITY: &str = "kube-root-ca.crt";

/// The rules of namespaces.
pub(crate) struct Namespaces;

impl Rules for Namespaces {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<Namespace>(source)
    }

    fn default(&self, object: &mut Object) {
        let name = meta::text(object, "name").to_owned();
        if !name.is_empty() {
            let labels = meta::member(meta::metadata(object), "labels");
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }

    fn prepare(&self, object: &mut Object, _: &Shared) -> Result<(), StatusError> {
        self.default(object);
        object.insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
        object.insert("status".into(), json!({"phase": "Active"}));
        Ok(())
    }

    fn change(&self, new: &mut Object, old: &Object, _: &Shared) -> Result<(), StatusError> {
        restore(new, old, "spec");
        Ok(())
    }

    fn may_go(&self, object: &Object) -> Result<(), &'static str> {
        if PERMANENT.contains(&meta::text(object, "name")) {
            return Err("this namespace may not be deleted");
        }
        Ok(())
    }

    fn goes(&self, object: &mut Object) {
        meta::member(object, "status").insert("phase".into(), "Terminating".into());
    }

    fn lingers(&self, object: &Object) -> bool {
        let spec = object.get("spec");
        let finalizers = spec.and_then(|spec| spec.get("finalizers")?.as_array());
        finalizers.is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn after(&self, now: Option<&Object>, shared: &Shared) {
        let Some(name) = now
            .filter(|now| !meta::is_terminating(now))
            .map(|now| meta::text(now, "name"))
        else {
            return;
        };
        // Every namespace has a default service account and the certificate of the cluster.
        let account = json!({"metadata": {"name": "default"}});
        provide(shared, name, "serviceaccounts", account);
        if let Some(certificate) = shared.authority.certificate() {
            let authority = json!({"metadata": {"name": AUTHORITY}, "data": {"ca.crt": certificate}});
            provide(shared, name, "configmaps", authority);
        }
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}

/// Creates an object, unless it exists.
fn provide(shared: &Shared, namespace: &str, plural: &str, object: Value) {
    let Some(kind) = shared.kinds.get("v1", plural) else {
        return;
    };
    let target = Target {
        shared,
        kind: &kind,
        namespace,
    };
    let created = target.create(Source::Value(object), WriteOptions::default());
    let refused = created.err().filter(|refusal| refusal.code != 409);
    debug_assert!(refused.is_none(), "{refused:?}");
}

/// Refuses a creation if the namespace does not exist or is terminating.
pub(super) fn must_take_more(target: &Target<'_>, name: &str) -> Result<(), StatusError> {
    if !target.kind.namespaced {
        return Ok(());
    }
    let namespaces = target.shared.kinds.get("v1", "namespaces");
    let namespace = namespaces.and_then(|kind| target.shared.store.get(kind.table, target.namespace));
    match namespace {
        None => Err(status::namespace_not_found(target.namespace)),
        Some(namespace) if namespace.head.terminating => {
            Err(status::namespace_terminates(target.kind, name, target.namespace))
        }
        Some(_) => Ok(()),
    }
}

/// Creates the namespaces and priority classes of a new cluster.
pub(crate) fn furnish(shared: &Shared) {
    let objects = PERMANENT
        .iter()
        .chain(&["kube-node-lease"])
        .map(|name| ("v1", "namespaces", json!({"metadata": {"name": name}})))
        .chain(
            [
                ("system-cluster-critical", 2_000_000_000),
                ("system-node-critical", 2_000_001_000),
            ]
            .map(|(name, value)| {
                let class = json!({"metadata": {"name": name}, "value": value});
                ("scheduling.k8s.io/v1", "priorityclasses", class)
            }),
        );
    for (api_version, plural, object) in objects {
        create(shared, api_version, plural, object);
    }
}

fn create(shared: &Shared, api_version: &str, plural: &str, object: Value) {
    let Some(kind) = shared.kinds.get(api_version, plural) else {
        return;
    };
    let target = Target {
        shared,
        kind: &kind,
        namespace: "",
    };
    let created = target.create(Source::Value(object), WriteOptions::default());
    debug_assert!(created.is_ok(), "{:?}", created.err());
}
