//! The kinds that Kubernetes has built in, as far as they are served here.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::rbac::v1 as rbac;

use super::crd::DefinitionRules;
use super::kinds::{Habits, Kind, Kinds, Names, Subresources, USUAL};
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
    habits: Habits,
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
            habits: USUAL,
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

    fn habits(mut self, habits: Habits) -> Self {
        self.habits = habits;
        self
    }
}

const RETURNED: Habits = Habits {
    returns_deleted: true,
    ..USUAL
};
const COUNTED: Habits = Habits {
    counts_generations: true,
    ..USUAL
};
const CONDITIONAL: Habits = Habits {
    unconditional_update: false,
    ..COUNTED
};
const LAX: Habits = Habits {
    create_on_update: true,
    ..USUAL
};
const POD: Habits = Habits {
    counts_generations: true,
    ..RETURNED
};
const SERVICE: Habits = Habits {
    names: Names::Label,
    create_on_update: true,
    ..RETURNED
};
const NAMESPACE: Habits = Habits {
    names: Names::Label,
    ..RETURNED
};
const LEASE: Habits = Habits {
    unconditional_update: false,
    ..LAX
};
const ROLE: Habits = Habits {
    names: Names::Segment,
    ..LAX
};

/// Serves what Kubernetes has built in, as far as it is served here.
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
            habits: row.habits,
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
            .habits(POD),
        Row::new("v1", "Service", "services", service::Services)
            .short(&["svc"])
            .status()
            .habits(SERVICE),
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
            .habits(NAMESPACE),
        Row::new("v1", "Event", "events", event::CoreEvents)
            .short(&["ev"])
            .habits(LAX),
        Row::new("v1", "ServiceAccount", "serviceaccounts", accounts)
            .short(&["sa"])
            .habits(RETURNED),
        Row::new(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            claim::Claims,
        )
        .short(&["pvc"])
        .status()
        .habits(RETURNED),
    ]
}

fn of_groups() -> Vec<Row> {
    let mut events = Row::new("events.k8s.io/v1", "Event", "events", event::NewEvents);
    events.shares_table_with = Some(("v1", "events"));
    let roles = Plain::<rbac::Role>::new();
    vec![
        events.short(&["ev"]).habits(LAX),
        Row::new("coordination.k8s.io/v1", "Lease", "leases", lease::Leases).habits(LEASE),
        Row::new("rbac.authorization.k8s.io/v1", "Role", "roles", roles).habits(ROLE),
        Row::new(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "rolebindings",
            policy::RoleBindings,
        )
        .habits(ROLE),
        Row::new(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            slice::Slices,
        )
        .habits(COUNTED),
        Row::new(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            policy::Budgets,
        )
        .short(&["pdb"])
        .status()
        .habits(CONDITIONAL),
        Row::new(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            policy::PriorityClasses,
        )
        .short(&["pc"])
        .cluster()
        .habits(COUNTED),
        Row::new(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            DefinitionRules,
        )
        .short(&["crd", "crds"])
        .cluster()
        .status()
        .habits(CONDITIONAL),
    ]
}
