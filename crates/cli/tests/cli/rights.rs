//! What an installation may do, and what users may do with jobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::install::{find, of_kind, rules_on};
use super::variants::VARIANTS;
use super::{list, objects, printed, text};

#[test]
fn rights_are_never_wildcards() {
    for line in VARIANTS {
        for object in &objects(line) {
            for rule in list(object, "/rules") {
                for field in ["/verbs", "/resources", "/apiGroups"] {
                    let words = list(rule, field);
                    assert!(
                        !words.is_empty() && words.iter().all(|word| word != "*"),
                        "{line}: {rule}"
                    );
                }
            }
        }
    }
}

/// Every right that the operator has. What it does with each is in docs/install.md; a right that
/// nothing uses is one that only an attacker would use.
#[test]
fn rights_are_those_that_are_used() {
    let objects = objects("install");
    let read = "get list watch";
    let expected = [
        ("events.k8s.io", "events", "create"),
        ("trainyard.dev", "trainingjobs", "get list watch patch delete"),
        ("trainyard.dev", "scaleins", "get list watch patch delete"),
        ("trainyard.dev", "scaleins/status", "patch"),
        ("trainyard.dev", "scaleouts", "get list watch patch delete"),
        ("trainyard.dev", "scaleouts/status", "patch"),
        ("trainyard.dev", "trainingjobs/status", "update patch"),
        ("trainyard.dev", "trainingjobs/finalizers", "update"),
        ("trainyard.dev", "frameworks", read),
        ("trainyard.dev", "frameworks/status", "update"),
        ("", "pods", "get list watch create patch delete"),
        ("", "pods", "get"),
        ("", "services", "get list watch create patch delete"),
        ("", "nodes", read),
        ("policy", "poddisruptionbudgets", "list watch create delete"),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            "get list watch patch",
        ),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            "get list watch patch",
        ),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
        ("coordination.k8s.io", "leases", "get update"),
        ("coordination.k8s.io", "leases", "create"),
        ("", "secrets", "get list watch update"),
        ("", "secrets", "create"),
        ("", "secrets", "create get"),
    ];
    let words = |rule: &Value, field: &str| -> Vec<String> {
        let words = list(rule, field).iter().filter_map(Value::as_str);
        words.map(ToOwned::to_owned).collect()
    };
    let operators = of_kind(&objects, "ClusterRole")
        .into_iter()
        .chain(of_kind(&objects, "Role"));
    let operators = operators
        .filter(|role| !["trainyard-view", "trainyard-edit"].contains(&text(role, "/metadata/name")));
    let mut granted = BTreeSet::new();
    for rule in operators.flat_map(|role| list(role, "/rules")) {
        for group in words(rule, "/apiGroups") {
            for resource in words(rule, "/resources") {
                granted.insert((group.clone(), resource, words(rule, "/verbs").join(" ")));
            }
        }
    }
    let expected =
        expected.map(|(group, resource, verbs)| (group.to_owned(), resource.to_owned(), verbs.to_owned()));
    assert_eq!(granted, expected.into());
}

#[test]
fn secrets_of_jobs_are_made_and_asked_for_and_no_more() {
    for line in VARIANTS {
        let objects = objects(line);
        let cluster = rules_on(&objects, "ClusterRole", "secrets");
        let everywhere = !line.contains("--watch-namespace") && !line.contains("--no-agent");
        assert_eq!(!cluster.is_empty(), everywhere, "{line}");
        let rules = rules_on(&objects, "Role", "secrets");
        let serves_nothing = line.contains("--no-webhooks") && line.contains("--no-agent");
        assert_eq!(rules.is_empty(), serves_nothing, "{line}");
        let namespace = text(
            find(&objects, "Deployment", "trainyard-operator"),
            "/metadata/namespace",
        );
        for (role, rule) in cluster.into_iter().chain(rules) {
            if text(role, "/metadata/name") == "trainyard-jobs" {
                assert!(!line.contains("--no-agent"), "{line}");
                assert_eq!(rule["verbs"], json!(["create", "get"]), "{line}");
                continue;
            }
            assert_eq!(text(role, "/metadata/namespace"), namespace);
            let by_name = rule["resourceNames"] == json!(["trainyard-webhook-tls"]);
            assert!(by_name || rule["verbs"] == json!(["create"]), "{rule}");
        }
    }
}

#[test]
fn the_lease_is_limited_by_name() {
    let objects = objects("install");
    assert!(rules_on(&objects, "ClusterRole", "leases").is_empty());
    for (_, rule) in rules_on(&objects, "Role", "leases") {
        let by_name = rule["resourceNames"] == json!(["trainyard-operator"]);
        assert!(by_name || rule["verbs"] == json!(["create"]), "{rule}");
    }
}

#[test]
fn webhook_configurations_are_limited_by_name() {
    for (_, rule) in rules_on(
        &objects("install"),
        "ClusterRole",
        "mutatingwebhookconfigurations",
    ) {
        assert_eq!(rule["resourceNames"], json!(["trainyard"]));
        assert!(
            list(rule, "/verbs")
                .iter()
                .all(|verb| verb != "create" && verb != "delete")
        );
    }
    assert!(!printed("install --no-webhooks --no-agent").contains("webhook"));
    assert!(!printed("install --no-agent").contains("observer"));
}

#[test]
fn watching_namespaces_takes_the_rights_elsewhere_away() {
    let objects =
        objects("install --watch-namespace team-b --watch-namespace team-a --watch-namespace team-b");
    let users = ["trainyard-view", "trainyard-edit"];
    for resource in [
        "pods",
        "services",
        "secrets",
        "events",
        "trainingjobs",
        "trainingjobs/status",
    ] {
        let cluster_wide = rules_on(&objects, "ClusterRole", resource).into_iter();
        let operators = cluster_wide.filter(|(role, _)| !users.contains(&text(role, "/metadata/name")));
        assert_eq!(operators.count(), 0, "{resource}");
        // In its own namespace it may look at its own pod and at its own Secret.
        let namespaces: Vec<_> = rules_on(&objects, "Role", resource)
            .iter()
            .filter(|(role, _)| text(role, "/metadata/name") == "trainyard-jobs")
            .map(|(role, _)| text(role, "/metadata/namespace"))
            .collect();
        assert_eq!(namespaces, ["team-b", "team-a"], "{resource}");
    }
    let events = rules_on(&objects, "Role", "events").into_iter();
    let events: Vec<_> = events
        .map(|(role, _)| (text(role, "/metadata/namespace"), text(role, "/metadata/name")))
        .filter(|(_, name)| *name != "trainyard-jobs")
        .collect();
    assert_eq!(
        events,
        [("default", "trainyard-events")],
        "those about Frameworks"
    );
    assert_eq!(rules_on(&objects, "ClusterRole", "nodes").len(), 1);
    let args = list(
        find(&objects, "Deployment", "trainyard-operator"),
        "/spec/template/spec/containers/0/args",
    );
    assert!(args.contains(&json!("--watch-namespace=team-a")), "{args:?}");
    let webhook = &find(&objects, "MutatingWebhookConfiguration", "trainyard")["webhooks"][0];
    assert_eq!(
        webhook["namespaceSelector"]["matchExpressions"][0]["values"],
        json!(["team-b", "team-a"])
    );
}

/// What is left is to read, and to ask the API server a question, which stores nothing.
#[test]
fn without_cluster_writes_nothing_is_changed_outside_of_the_namespaces() {
    for line in VARIANTS
        .into_iter()
        .filter(|line| line.contains("--no-cluster-writes"))
    {
        let objects = objects(line);
        let of_operator = of_kind(&objects, "ClusterRole")
            .into_iter()
            .filter(|role| text(role, "/metadata/name") == "trainyard-operator");
        for rule in of_operator.flat_map(|role| list(role, "/rules")) {
            let asks = rule["resources"] == json!(["subjectaccessreviews"]);
            let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
            assert!(asks || list(rule, "/verbs").iter().all(reads), "{line}: {rule}");
        }
        assert_eq!(of_kind(&objects, "ClusterRoleBinding").len(), 1, "{line}");
        for kind in ["Role", "RoleBinding"] {
            for object in of_kind(&objects, kind) {
                let namespace = text(object, "/metadata/namespace");
                let is_its = ["team-a", "trainyard-system"].contains(&namespace);
                assert!(is_its, "{line}: a {kind} in {namespace}");
            }
        }
    }
}

/// Every right of every account that an installation makes or changes, in every mode, as it was
/// reviewed. A difference is a right that somebody gets or loses: review `rights.txt` with it.
#[test]
fn rights_are_those_that_were_reviewed() {
    let mut found = Vec::new();
    for line in VARIANTS {
        found.push(format!("# trainyard {line}"));
        let objects = objects(line);
        let roles = of_kind(&objects, "ClusterRole")
            .into_iter()
            .chain(of_kind(&objects, "Role"));
        for role in roles {
            let (name, namespace) = (text(role, "/metadata/name"), text(role, "/metadata/namespace"));
            let place = if namespace.is_empty() {
                "cluster"
            } else {
                namespace
            };
            for rule in list(role, "/rules") {
                let words = |field: &str| {
                    let words = list(rule, field).iter().filter_map(Value::as_str);
                    words
                        .map(|word| if word.is_empty() { "core" } else { word })
                        .collect::<Vec<_>>()
                        .join(",")
                };
                let (group, what, verbs, only) = (
                    words("/apiGroups"),
                    words("/resources"),
                    words("/verbs"),
                    words("/resourceNames"),
                );
                let only = if only.is_empty() {
                    only
                } else {
                    format!(" of {only}")
                };
                found.push(format!("{place} {name}: {group} {what}{only}: {verbs}"));
            }
        }
        found.push(String::new());
    }
    let found = found.join("\n") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/rights.txt");
    if std::env::var_os("UPDATE_RIGHTS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let reviewed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        found, reviewed,
        "review the difference, then run this with UPDATE_RIGHTS=1"
    );
}

/// Pods of jobs reach the observers, and nobody else does.
#[test]
fn network_policies_open_the_observers_to_pods_of_jobs_alone() {
    let objects = objects("install --watch-namespace team-a --network-policies --ares-observer");
    let policy = find(&objects, "NetworkPolicy", "trainyard-operator");
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    let rules = list(policy, "/spec/ingress");
    let ports = |rule: &Value| -> Vec<u64> {
        list(rule, "/ports")
            .iter()
            .filter_map(|port| port["port"].as_u64())
            .collect()
    };
    assert_eq!((ports(&rules[0]), rules[0].get("from")), (vec![8080, 9443], None));
    assert_eq!(ports(&rules[1]), [9444, 8081]);
    let from = &rules[1]["from"][0];
    assert_eq!(
        from["podSelector"]["matchLabels"],
        json!({"app.kubernetes.io/managed-by": "trainyard"})
    );
    assert_eq!(
        from["namespaceSelector"]["matchExpressions"][0]["values"],
        json!(["team-a"])
    );
    assert!(of_kind(&super::objects("install"), "NetworkPolicy").is_empty());
}

#[test]
fn every_right_is_bound_to_the_operator() {
    for line in VARIANTS {
        let objects = objects(line);
        for (kind, binding) in [("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")] {
            let bound: BTreeSet<_> = of_kind(&objects, binding)
                .into_iter()
                .map(|b| (text(b, "/metadata/namespace"), text(b, "/roleRef/name")))
                .collect();
            let users = ["trainyard-view", "trainyard-edit"];
            let roles: BTreeSet<_> = of_kind(&objects, kind)
                .into_iter()
                .map(|role| (text(role, "/metadata/namespace"), text(role, "/metadata/name")))
                .filter(|(_, name)| !users.contains(name))
                .collect();
            assert_eq!(bound, roles, "{line}");
        }
    }
}

#[test]
fn users_get_their_rights_by_the_roles_of_the_cluster() {
    let objects = objects("install");
    let aggregates = |name: &str, to: &str| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        find(&objects, "ClusterRole", name)["metadata"]["labels"][label] == "true"
    };
    assert!(aggregates("trainyard-view", "view"));
    assert!(!aggregates("trainyard-edit", "view"));
    assert!(aggregates("trainyard-edit", "edit") && aggregates("trainyard-edit", "admin"));
    for (_, rule) in rules_on(&objects, "ClusterRole", "trainingjobs/status") {
        let writes = list(rule, "/verbs").iter().any(|verb| verb == "update");
        assert!(
            !writes || list(rule, "/resources").len() == 1,
            "only the operator writes status: {rule}"
        );
    }
}
