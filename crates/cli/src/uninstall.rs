//! `trainyard uninstall`: what to delete, and in which order.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use crate::install::names::{
    ARES_OBSERVER_SERVICE, DEFAULT_NAMESPACE, EDIT_ROLE, EVENTS_NAMESPACE, EVENTS_ROLE, JOBS_ROLE,
    OBSERVER_SERVICE, OPERATOR, VIEW_ROLE, WEBHOOK_CONFIGURATION, WEBHOOK_SECRET, WEBHOOK_SERVICE,
};
use crate::install::{distinct, namespace_name};
use crate::output;

const CRDS: [&str; 4] = [
    "trainingjobs.trainyard.dev",
    "frameworks.trainyard.dev",
    "scaleins.trainyard.dev",
    "scaleouts.trainyard.dev",
];
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Print the objects to delete in order to remove the operator from a cluster.
///
/// Pods of jobs keep running, and jobs stay, unless --crds is given: a job lives as long as the
/// definition of its kind. The namespace stays too, because other things may be in it, unless
/// --delete-namespace is given.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  # Remove the operator and keep the jobs:
  trainyard uninstall | kubectl delete --ignore-not-found -f -

  # Remove everything, with every job in the cluster:
  trainyard uninstall --crds --delete-namespace | kubectl delete --ignore-not-found -f -")]
pub struct Args {
    /// The namespace of the operator.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAMESPACE, value_parser = namespace_name)]
    namespace: String,

    /// A namespace that the operator was told to watch; give the same as to install.
    #[arg(long = "watch-namespace", value_name = "NAME", value_parser = namespace_name)]
    watch_namespaces: Vec<String>,

    /// Delete the Service ares-observer, too; give it if you gave it to install. Without it, one
    /// that AresOperator brought to the same namespace is left alone.
    #[arg(long)]
    ares_observer: bool,

    /// Delete the custom resource definitions too. This deletes every job in the cluster, and the
    /// jobs' pods.
    #[arg(long)]
    crds: bool,

    /// Delete the operator's namespace too, with all that is in it.
    #[arg(long)]
    delete_namespace: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut text = String::new();
    if !args.crds {
        text.push_str("# The definition of TrainingJob is kept, and with it every job. Add --crds to delete them all.\n");
    }
    if !args.delete_namespace {
        text.push_str(
            "# The namespace is kept. Add --delete-namespace to delete it, with all that is in it.\n",
        );
    }
    text.push_str(&output::yaml_documents(&objects(args))?);
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// In the order of deletion: the webhooks, then the jobs while the operator runs, then the
/// operator, then its roles.
fn objects(args: &Args) -> Vec<Value> {
    let own = Some(args.namespace.as_str());
    let admission = "admissionregistration.k8s.io/v1";
    let mut objects = vec![
        object(
            admission,
            "ValidatingWebhookConfiguration",
            WEBHOOK_CONFIGURATION,
            None,
        ),
        object(
            admission,
            "MutatingWebhookConfiguration",
            WEBHOOK_CONFIGURATION,
            None,
        ),
    ];
    if args.crds {
        let api = "apiextensions.k8s.io/v1";
        objects.extend(CRDS.map(|name| object(api, "CustomResourceDefinition", name, None)));
    }
    objects.extend([
        object("apps/v1", "Deployment", OPERATOR, own),
        object("policy/v1", "PodDisruptionBudget", OPERATOR, own),
        object("networking.k8s.io/v1", "NetworkPolicy", OPERATOR, own),
        object("v1", "Service", WEBHOOK_SERVICE, own),
        object("v1", "Service", OBSERVER_SERVICE, own),
    ]);
    if args.ares_observer {
        objects.push(object("v1", "Service", ARES_OBSERVER_SERVICE, own));
    }
    objects.extend([
        // The operator has created these two.
        object("v1", "Secret", WEBHOOK_SECRET, own),
        object("coordination.k8s.io/v1", "Lease", OPERATOR, own),
    ]);
    // Which of these exist depends on how it was installed.
    for watched in &distinct(&args.watch_namespaces) {
        objects.push(object(RBAC, "RoleBinding", JOBS_ROLE, Some(watched)));
        objects.push(object(RBAC, "Role", JOBS_ROLE, Some(watched)));
    }
    if !args.watch_namespaces.is_empty() {
        objects.push(object(RBAC, "RoleBinding", EVENTS_ROLE, Some(EVENTS_NAMESPACE)));
        objects.push(object(RBAC, "Role", EVENTS_ROLE, Some(EVENTS_NAMESPACE)));
    }
    for name in [JOBS_ROLE, OPERATOR] {
        objects.push(object(RBAC, "ClusterRoleBinding", name, None));
        objects.push(object(RBAC, "ClusterRole", name, None));
    }
    objects.extend([
        object(RBAC, "RoleBinding", OPERATOR, own),
        object(RBAC, "Role", OPERATOR, own),
        object(RBAC, "ClusterRole", EDIT_ROLE, None),
        object(RBAC, "ClusterRole", VIEW_ROLE, None),
        object("v1", "ServiceAccount", OPERATOR, own),
    ]);
    if args.delete_namespace {
        objects.push(object("v1", "Namespace", &args.namespace, None));
    }
    objects
}

fn object(api: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let metadata = namespace.map_or_else(
        || json!({"name": name}),
        |namespace| json!({"name": name, "namespace": namespace}),
    );
    json!({"apiVersion": api, "kind": kind, "metadata": metadata})
}
