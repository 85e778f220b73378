//! How tests name what they ask for.

#![allow(
    clippy::panic,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
    Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, GroupVersionKind, TypeMeta};
use kube::core::Resource;
use trainyard_api::{DeclaredFramework, ScaleIn, ScaleOut, TrainingJob};

/// An object, or all of a kind.
pub(super) struct Query<'a> {
    /// The kind, as users write it.
    pub kind: &'a str,
    /// The object's name.
    pub name: Option<&'a str>,
    /// Only those with labels.
    pub selector: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Parses `KIND`, `KIND NAME` and `KIND -l SELECTOR`.
    pub(super) fn parse(what: &'a str) -> Self {
        let words: Vec<&str> = what.split_whitespace().collect();
        match words[..] {
            [kind] => Self {
                kind,
                name: None,
                selector: None,
            },
            [kind, "-l", selector] => Self {
                kind,
                name: None,
                selector: Some(selector),
            },
            [kind, name] => Self {
                kind,
                name: Some(name),
                selector: None,
            },
            _ => panic!("{what:?} is not KIND, KIND NAME or KIND -l SELECTOR"),
        }
    }
}

/// How tests name the kind of a manifest: kinds of other operators have their group behind them.
pub(super) fn kind_of(types: &TypeMeta) -> String {
    let group = types.api_version.split_once('/').map_or("", |(group, _)| group);
    let is_foreign = trainyard_compat::served()
        .iter()
        .any(|kind| (kind.group(), kind.kind()) == (group, &*types.kind));
    if is_foreign {
        format!("{}.{group}", types.kind)
    } else {
        types.kind.clone()
    }
}

/// The resource of a kind of another operator.
fn foreign(kind: &str) -> ApiResource {
    let served = trainyard_compat::served();
    let found = served
        .iter()
        .find(|known| format!("{}.{}", known.kind(), known.group()).to_lowercase() == kind);
    let found = found.unwrap_or_else(|| panic!("no operator serves a {kind}"));
    let kind = GroupVersionKind::gvk(found.group(), found.version(), found.kind());
    ApiResource::from_gvk_with_plural(&kind, found.plural())
}

/// The resource of a kind, and whether its objects are in namespaces.
pub(super) fn resource_of(kind: &str) -> (ApiResource, bool) {
    fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    match kind.to_lowercase().as_str() {
        "tj" | "trainingjob" => (of::<TrainingJob>(), true),
        "scalein" => (of::<ScaleIn>(), true),
        "scaleout" => (of::<ScaleOut>(), true),
        "pod" | "pods" => (of::<Pod>(), true),
        "service" | "services" => (of::<Service>(), true),
        "pdb" => (of::<PodDisruptionBudget>(), true),
        "role" => (of::<Role>(), true),
        "rolebinding" => (of::<RoleBinding>(), true),
        "statefulset" => (of::<StatefulSet>(), true),
        "secret" => (of::<Secret>(), true),
        "configmap" => (of::<ConfigMap>(), true),
        "serviceaccount" => (of::<ServiceAccount>(), true),
        "resourcequota" => (of::<ResourceQuota>(), true),
        "event" | "events" => (of::<Event>(), true),
        "persistentvolumeclaim" => (of::<PersistentVolumeClaim>(), true),
        "persistentvolume" => (of::<PersistentVolume>(), false),
        "framework" => (of::<DeclaredFramework>(), false),
        "namespace" => (of::<Namespace>(), false),
        "node" | "nodes" => (of::<Node>(), false),
        "customresourcedefinition" => (of::<CustomResourceDefinition>(), false),
        kind if kind.contains('.') => (foreign(kind), true),
        _ => panic!("tests have not asked for a {kind} so far"),
    }
}
