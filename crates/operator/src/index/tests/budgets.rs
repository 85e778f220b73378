//! What is known of disruption budgets.

use super::*;

fn budget(name: &str, owner: Option<(&str, &str)>, version: u64) -> SlimBudget {
    let owners: Vec<_> = owner
        .iter()
        .map(|(name, uid)| {
            json!({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": name, "uid": uid,
            "controller": true})
        })
        .collect();
    let json = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(),
            "labels": {"trainyard.dev/job": "a"}, "ownerReferences": owners},
        "spec": {"minAvailable": 1},
        "status": {"currentHealthy": version},
    });
    serde_json::from_str(&json.to_string()).unwrap()
}

const OWN: Option<(&str, &str)> = Some(("a", "u1"));

/// An index that has one job, `a`, which runs, and has listed all but budgets.
fn running() -> Index {
    let index = index();
    index.apply_job(job_in("Running", "a", "u1", 6), Source::Watch);
    index
}

fn list_budgets(index: &Index, version: u64) -> Vec<JobKey> {
    index.listed(Kind::Budget, 0, Version(version), Instant::now())
}

/// The names of the job's own budgets and of those of others.
fn known(index: &Index) -> Option<(Vec<String>, Vec<String>)> {
    let names = |rows: &[BudgetRow]| rows.iter().map(|row| row.name.to_string()).collect();
    let budgets = snapshot(index, "a").budgets?;
    Some((names(&budgets.own), names(&budgets.foreign)))
}

#[test]
fn budgets_are_known_when_they_and_nodes_have_been_listed() {
    let index = Index::new(&[]);
    for kind in [Kind::Job, Kind::Pod, Kind::Service] {
        index.listed(kind, 0, Version(5), Instant::now());
    }
    index.apply_job(job_in("Running", "a", "u1", 6), Source::Watch);
    assert!(index.apply_budget(budget("a-drain", OWN, 4), Source::List) == [key("a")]);
    assert_eq!(known(&index), None);
    assert_eq!(list_budgets(&index, 5), [key("a")], "it can have its budget now");
    assert_eq!(known(&index), None, "nobody knows yet whether nodes are seen");
    let sees_all = || snapshot(&index, "a").budgets.map(|budgets| budgets.sees_all);
    assert_eq!(index.refused(Kind::Node, 0), [key("a")]);
    assert_eq!(sees_all(), Some(false));
    assert!(index.refused(Kind::Node, 0).is_empty(), "it is no news");
    assert_eq!(
        index.listed(Kind::Node, 0, Version(7), Instant::now()),
        [key("a")]
    );
    assert_eq!(sees_all(), Some(true));
    assert!(index.listed(Kind::Node, 0, Version(8), Instant::now()).is_empty());
    index.apply_budget(budget("theirs", None, 9), Source::Watch);
    assert_eq!(index.refused(Kind::Budget, 0), [key("a")]);
    assert_eq!(
        (known(&index), sees_all()),
        (Some((vec!["a-drain".into()], vec![])), Some(false)),
        "the job gives up the one that it has"
    );
    index.delete_budget(&budget("a-drain", OWN, 10).metadata);
    assert_eq!(known(&index), None, "what may not be watched is not known");
}

#[test]
fn only_changes_of_what_a_budget_says_wake_jobs() {
    let index = running();
    list_budgets(&index, 5);
    let apply = |budget| index.apply_budget(budget, Source::Watch);
    assert_eq!(apply(budget("a-drain", OWN, 10)), [key("a")]);
    assert!(
        apply(budget("a-drain", OWN, 11)).is_empty(),
        "its status has changed"
    );
    assert_eq!(apply(budget("theirs", None, 12)), [key("a")]);
    assert!(apply(budget("theirs", None, 13)).is_empty());
    assert_eq!(
        known(&index),
        Some((vec!["a-drain".into()], vec!["theirs".into()]))
    );
    assert_eq!(
        index.delete_budget(&budget("theirs", None, 14).metadata),
        [key("a")]
    );
    assert_eq!(
        index.delete_budget(&budget("a-drain", OWN, 15).metadata),
        [key("a")]
    );
    assert_eq!(known(&index), Some((vec![], vec![])));
}

#[test]
fn a_job_that_has_ended_hears_of_its_own_budgets_only() {
    let index = running();
    index.apply_job(job_in("Succeeded", "a", "u1", 7), Source::Watch);
    list_budgets(&index, 5);
    assert!(
        index
            .apply_budget(budget("theirs", None, 12), Source::Watch)
            .is_empty()
    );
    assert_eq!(
        index.apply_budget(budget("a-drain", OWN, 13), Source::Watch),
        [key("a")]
    );
}

#[test]
fn a_budget_may_become_a_jobs_or_nobodys() {
    let index = running();
    list_budgets(&index, 5);
    index.apply_budget(budget("x", None, 10), Source::Watch);
    index.apply_budget(budget("x", OWN, 11), Source::Watch);
    assert_eq!(known(&index), Some((vec!["x".into()], vec![])));
    index.apply_budget(budget("x", None, 12), Source::Watch);
    assert_eq!(known(&index), Some((vec![], vec!["x".into()])));
}

#[test]
fn what_a_list_does_not_show_is_gone() {
    let index = running();
    list_budgets(&index, 5);
    index.apply_budget(budget("a-drain", OWN, 10), Source::Watch);
    index.apply_budget(budget("theirs", None, 11), Source::Watch);
    index.listing(Kind::Budget, 0, Version(20));
    assert!(list_budgets(&index, 20).contains(&key("a")));
    assert_eq!(known(&index), Some((vec![], vec![])));
}

#[test]
fn budgets_of_another_namespace_or_job_do_not_concern_a_job() {
    let index = running();
    list_budgets(&index, 5);
    index.apply_budget(budget("b-drain", Some(("b", "u2")), 10), Source::Watch);
    let mut elsewhere = budget("theirs", None, 11);
    elsewhere.metadata.namespace = "other".into();
    assert!(index.apply_budget(elsewhere, Source::Watch).is_empty());
    assert_eq!(known(&index), Some((vec![], vec![])));
}

#[test]
fn one_without_an_owner_may_be_of_a_former_job() {
    let index = running();
    list_budgets(&index, 5);
    let is_orphan = |name, labels, version| {
        let mut budget = budget(name, None, version);
        budget.metadata.labels = serde_json::from_value(labels).unwrap();
        index.apply_budget(budget, Source::Watch);
        let foreign = snapshot(&index, "a").budgets.unwrap().foreign;
        foreign.iter().any(|row| *row.name == *name && row.is_orphan)
    };
    let ours = || json!({"app.kubernetes.io/managed-by": "trainyard", "trainyard.dev/job": "a"});
    assert!(is_orphan("a-drain", ours(), 10));
    assert!(!is_orphan("theirs", ours(), 11), "another name");
    assert!(!is_orphan("a-drain", json!({"trainyard.dev/job": "a"}), 12));
    assert!(!is_orphan("a-drain", Value::Null, 13));
}

#[test]
fn a_job_that_can_not_be_read_hears_of_its_own_budgets() {
    let index = running();
    index.apply_budget(budget("a-drain", OWN, 10), Source::Watch);
    let bad = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "11"},
        "spec": {"framework": {"name": "custom"}, "roles": "many"},
    });
    index.apply_job(JobObject::decode(&bad.to_string()).unwrap(), Source::Watch);
    assert_eq!(list_budgets(&index, 5), [key("a")]);
}
