//! The built-in kinds of Kubernetes that are served here.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::rbac::v1 as rbac;

use super::crd::DefinitionRules;
use super::kinds::{DEFAULT_TRAITS, Kind, KindTraits, Kinds, NameFormat, Subresources};
use super::rules::{Plain, Rules};
use super::semantics::{claim, config, event, lease, namespace, pod, policy, service, slice};
use super::store::Store;

struct Row {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
    status: bool,
    traits: KindTraits,
    rules: Arc<dyn Rules>,
    shares_table_with: Option<(&'static str, &'static str)>,
}

impl Row {
    fn new(
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        rules: impl Rules + 'static,
    ) -> Self {
        Self {
            api_version,
            kind,
            plural,
            short_names: &[],
            namespaced: true,
            status: false,
            traits: DEFAULT_TRAITS,
            rules: Arc::new(rules),
            shares_table_with: None,
        }
    }

    fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn status(mut self) -> Self {
        self.status = true;
        self
    }

    fn traits(mut self, traits: KindTraits) -> Self {
        self.traits = traits;
        self
    }
}

const RETURNS_DELETED: KindTraits = KindTraits {
    returns_deleted: true,
    ..DEFAULT_TRAITS
};
const COUNTS_GENERATIONS: KindTraits = KindTraits {
    counts_generations: true,
    ..DEFAULT_TRAITS
};
const CONDITIONAL: KindTraits = KindTraits {
    unconditional_update: false,
    ..COUNTS_GENERATIONS
};
const CREATES_ON_UPDATE: KindTraits = KindTraits {
    create_on_update: true,
    ..DEFAULT_TRAITS
};
const POD: KindTraits = KindTraits {
    counts_generations: true,
    ..RETURNS_DELETED
};
const SERVICE: KindTraits = KindTraits {
    name_format: NameFormat::Label,
    create_on_update: true,
    ..RETURNS_DELETED
};
const NAMESPACE: KindTraits = KindTraits {
    name_format: NameFormat::Label,
    ..RETURNS_DELETED
};
const LEASE: KindTraits = KindTraits {
    unconditional_update: false,
    ..CREATES_ON_UPDATE
};
const ROLE: KindTraits = KindTraits {
    name_format: NameFormat::Segment,
    ..CREATES_ON_UPDATE
};

pub(super) fn serve(kinds: &Kinds, store: &Store) {
    for row in table() {
        let table = match row.shares_table_with {
            Some((api_version, plural)) => kinds.get(api_version, plural).map(|kind| kind.table),
            None => None,
        };
        let stored_as = row
            .shares_table_with
            .map_or(row.api_version, |(api_version, _)| api_version);
        let (group, version) = row.api_version.split_once('/').unwrap_or(("", row.api_version));
        let kind = Kind {
            group: group.into(),
            version: version.into(),
            api_version: row.api_version.into(),
            stored_as: stored_as.into(),
            kind: row.kind.into(),
            plural: row.plural.into(),
            singular: row.kind.to_lowercase().into(),
            short_names: row.short_names.iter().map(|name| (*name).to_owned()).collect(),
            namespaced: row.namespaced,
            subresources: Subresources {
                status: row.status,
                scale: None,
            },
            traits: row.traits,
            table: table.unwrap_or_else(|| store.add_table()),
            rules: row.rules,
        };
        kinds.add(kind);
    }
}

/// All rows. A row that shares a table with another comes after it.
fn table() -> Vec<Row> {
    let mut rows = of_core();
    rows.extend(of_groups());
    rows
}

fn of_core() -> Vec<Row> {
    let nodes = Plain::<core::Node>::selecting(&["spec.unschedulable"]);
    let accounts = Plain::<core::ServiceAccount>::new();
    vec![
        Row::new("v1", "Pod", "pods", pod::Pods)
            .short(&["po"])
            .status()
            .traits(POD),
        Row::new("v1", "Service", "services", service::Services)
            .short(&["svc"])
            .status()
            .traits(SERVICE),
        Row::new("v1", "ConfigMap", "configmaps", config::ConfigMaps).short(&["cm"]),
        Row::new("v1", "Secret", "secrets", config::Secrets),
        Row::new("v1", "Node", "nodes", nodes)
            .short(&["no"])
            .cluster()
            .status(),
        Row::new("v1", "Namespace", "namespaces", namespace::Namespaces)
            .short(&["ns"])
            .cluster()
            .status()
            .traits(NAMESPACE),
        Row::new("v1", "Event", "events", event::CoreEvents)
            .short(&["ev"])
            .traits(CREATES_ON_UPDATE),
        Row::new("v1", "ServiceAccount", "serviceaccounts", accounts)
            .short(&["sa"])
            .traits(RETURNS_DELETED),
        Row::new(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            claim::Claims,
        )
        .short(&["pvc"])
        .status()
        .traits(RETURNS_DELETED),
    ]
}

fn of_groups() -> Vec<Row> {
    let mut events = Row::new("events.k8s.io/v1", "Event", "events", event::NewEvents);
    events.shares_table_with = Some(("v1", "events"));
    let roles = Plain::<rbac::Role>::new();
    vec![
        events.short(&["ev"]).traits(CREATES_ON_UPDATE),
        Row::new("coordination.k8s.io/v1", "Lease", "leases", lease::Leases).traits(LEASE),
        Row::new("rbac.authorization.k8s.io/v1", "Role", "roles", roles).traits(ROLE),
        Row::new(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "rolebindings",
            policy::RoleBindings,
        )
        .traits(ROLE),
        Row::new(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            slice::Slices,
        )
        .traits(COUNTS_GENERATIONS),
        Row::new(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            policy::Budgets,
        )
        .short(&["pdb"])
        .status()
        .traits(CONDITIONAL),
        Row::new(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            policy::PriorityClasses,
        )
        .short(&["pc"])
        .cluster()
        .traits(COUNTS_GENERATIONS),
        Row::new(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            DefinitionRules,
        )
        .short(&["crd", "crds"])
        .cluster()
        .status()
        .traits(CONDITIONAL),
    ]
}
