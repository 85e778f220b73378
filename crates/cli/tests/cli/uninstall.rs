//! What is deleted, and in which order.

use std::collections::BTreeSet;

use super::{id, objects, printed, text};

#[test]
fn everything_that_install_makes_is_deleted() {
    for flags in [
        "",
        "--namespace elsewhere",
        "--watch-namespace team-a --watch-namespace team-b",
        "--ares-observer",
    ] {
        let made = objects(&format!("install {flags}"));
        let made: BTreeSet<_> = made.iter().map(id).collect();
        let deleted = objects(&format!("uninstall --crds --delete-namespace {flags}"));
        let deleted: BTreeSet<_> = deleted.iter().map(id).collect();
        let left: Vec<_> = made.difference(&deleted).collect();
        assert!(left.is_empty(), "{flags}: {left:?}");
    }
}

#[test]
fn jobs_and_the_namespace_stay_unless_asked_for() {
    let kinds = |line: &str| {
        objects(line)
            .iter()
            .map(|o| text(o, "/kind").to_owned())
            .collect::<Vec<_>>()
    };
    let kept = kinds("uninstall");
    assert!(
        !kept.contains(&"CustomResourceDefinition".to_owned()) && !kept.contains(&"Namespace".to_owned())
    );
    assert!(printed("uninstall").starts_with("# The definition of TrainingJob is kept"));
    assert!(kinds("uninstall --crds").contains(&"CustomResourceDefinition".to_owned()));
    assert!(kinds("uninstall --delete-namespace").contains(&"Namespace".to_owned()));
}

#[test]
fn callers_go_before_the_operator_and_its_rights_after_it() {
    let objects = objects("uninstall --crds --delete-namespace");
    let position = |kind: &str| objects.iter().position(|o| text(o, "/kind") == kind).unwrap();
    assert!(position("ValidatingWebhookConfiguration") < position("CustomResourceDefinition"));
    assert!(position("CustomResourceDefinition") < position("Deployment"));
    assert!(position("Deployment") < position("ClusterRoleBinding"));
    assert_eq!(position("Namespace"), objects.len() - 1);
}

#[test]
fn what_the_operator_made_itself_is_deleted_too() {
    let objects = objects("uninstall");
    for wanted in [
        ("Secret", "trainyard-webhook-tls"),
        ("Lease", "trainyard-operator"),
    ] {
        assert!(
            objects
                .iter()
                .any(|o| (text(o, "/kind"), text(o, "/metadata/name")) == wanted),
            "{wanted:?}"
        );
    }
}
