//! What an installation consists of.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::variants::VARIANTS;
use super::{id, list, objects, printed, text};

pub fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|o| text(o, "/kind") == kind && text(o, "/metadata/name") == name);
    let object = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "two of {kind} {name}");
    object
}

pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects
        .iter()
        .filter(|object| text(object, "/kind") == kind)
        .collect()
}

pub fn rules_on<'a>(objects: &'a [Value], kind: &str, resource: &str) -> Vec<(&'a Value, &'a Value)> {
    let roles = of_kind(objects, kind).into_iter();
    let granted = roles.flat_map(|role| list(role, "/rules").iter().map(move |rule| (role, rule)));
    granted
        .filter(|(_, rule)| list(rule, "/resources").iter().any(|r| r == resource))
        .collect()
}

/// Reading into Kubernetes' own types drops what these do not know: nothing may be lost.
fn round_trip<T: Serialize + DeserializeOwned>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), *object);
}

#[test]
fn every_object_is_what_kubernetes_expects() {
    for line in VARIANTS {
        for object in &objects(line) {
            match text(object, "/kind") {
                "Namespace" => round_trip::<Namespace>(object),
                "CustomResourceDefinition" => round_trip::<CustomResourceDefinition>(object),
                "ServiceAccount" => round_trip::<ServiceAccount>(object),
                "ClusterRole" => round_trip::<ClusterRole>(object),
                "NetworkPolicy" => round_trip::<NetworkPolicy>(object),
                "ClusterRoleBinding" => round_trip::<ClusterRoleBinding>(object),
                "Role" => round_trip::<Role>(object),
                "RoleBinding" => round_trip::<RoleBinding>(object),
                "Deployment" => round_trip::<Deployment>(object),
                "PodDisruptionBudget" => round_trip::<PodDisruptionBudget>(object),
                "Service" => round_trip::<Service>(object),
                "MutatingWebhookConfiguration" => round_trip::<MutatingWebhookConfiguration>(object),
                "ValidatingWebhookConfiguration" => round_trip::<ValidatingWebhookConfiguration>(object),
                other => panic!("unexpected kind {other}"),
            }
        }
    }
}

#[test]
fn no_object_is_there_twice_and_all_are_labelled() {
    for line in VARIANTS {
        let objects = objects(line);
        let ids: BTreeSet<_> = objects.iter().map(id).collect();
        assert_eq!(ids.len(), objects.len(), "{line}");
        for object in &objects {
            let labels = &object["metadata"]["labels"];
            assert_eq!(
                labels["app.kubernetes.io/name"],
                "trainyard",
                "{line}: {:?}",
                id(object)
            );
            assert_eq!(
                labels["app.kubernetes.io/part-of"],
                "trainyard",
                "{line}: {:?}",
                id(object)
            );
        }
    }
}

/// The operator watches what carries this label, as the children of jobs.
#[test]
fn nothing_is_labelled_like_a_child_of_a_job() {
    for line in VARIANTS {
        let mut objects = objects(line);
        // A policy only names them.
        objects.retain(|object| object["kind"] != "NetworkPolicy");
        let text = json!(objects).to_string();
        assert!(!text.contains("app.kubernetes.io/managed-by"), "{line}");
    }
}

#[test]
fn everything_is_in_the_namespace_asked_for() {
    let objects = objects("install --namespace elsewhere");
    assert!(!printed("install --namespace elsewhere").contains("trainyard-system"));
    for object in &objects {
        assert!(
            ["", "elsewhere"].contains(&text(object, "/metadata/namespace")),
            "{:?}",
            id(object)
        );
    }
    find(&objects, "Namespace", "elsewhere");
    let webhooks = find(&objects, "ValidatingWebhookConfiguration", "trainyard");
    assert_eq!(
        webhooks["webhooks"][0]["clientConfig"]["service"]["namespace"],
        "elsewhere"
    );
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        for binding in of_kind(&objects, kind) {
            assert_eq!(binding["subjects"][0]["namespace"], "elsewhere");
        }
    }
}

/// The namespace is labelled so that only pods of the restricted profile start in it: that must not
/// happen to a namespace in which others run.
#[test]
fn namespaces_of_the_cluster_are_not_taken() {
    for namespace in ["kube-system", "kube-public", "kube-anything", "default"] {
        for command in [
            "install",
            "install --output-dir /nonexistent",
            "install --no-webhooks",
        ] {
            let output = super::trainyard(&format!("{command} --namespace {namespace}"));
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{namespace}");
            assert!(said.contains("a namespace of its own"), "{said}");
        }
        // It may have been installed there before.
        printed(&format!("uninstall --namespace {namespace}"));
        printed(&format!("install --watch-namespace {namespace}"));
    }
    assert!(printed("install --help").contains("restricted"));
}

#[test]
fn webhooks_see_only_new_specs_of_living_jobs() {
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let objects = objects("install --scripts=off");
        let configuration = find(&objects, kind, "trainyard");
        let kinds = match kind {
            "MutatingWebhookConfiguration" => vec!["trainingjobs"],
            _ => vec!["trainingjobs", "frameworks", "scaleins", "scaleouts"],
        };
        assert_eq!(list(configuration, "/webhooks").len(), kinds.len());
        for (webhook, kind) in list(configuration, "/webhooks").iter().zip(kinds) {
            check_webhook(webhook, kind);
        }
    }
}

fn check_webhook(webhook: &Value, kind: &str) {
    let rule = &webhook["rules"][0];
    assert_eq!(list(webhook, "/rules").len(), 1);
    assert_eq!(rule["operations"], json!(["CREATE", "UPDATE"]));
    assert_eq!(rule["resources"], json!([kind]));
    let scope = if kind == "frameworks" {
        "Cluster"
    } else {
        "Namespaced"
    };
    assert_eq!(rule["scope"], scope);
    assert_eq!(webhook["failurePolicy"], "Ignore");
    assert_eq!(webhook["sideEffects"], "None");
    assert_eq!(webhook["timeoutSeconds"], 5);
    assert_eq!(
        webhook["clientConfig"].get("caBundle"),
        None,
        "it would fight with the operator's"
    );
    let conditions = webhook["matchConditions"].to_string();
    assert!(
        conditions.contains("deletionTimestamp") && conditions.contains("oldObject.spec"),
        "{conditions}"
    );
}

/// Who has asked for a script is known at admission alone.
#[test]
fn no_request_with_a_script_comes_past_its_webhook() {
    for line in [
        "install",
        "install --watch-namespace team-a",
        "install --scripts=reviewed",
    ] {
        let objects = objects(line);
        let validating = find(&objects, "ValidatingWebhookConfiguration", "trainyard");
        let hooks = list(validating, "/webhooks").iter();
        let hooks: Vec<&Value> = hooks
            .filter(|hook| text(hook, "/name").starts_with("script."))
            .collect();
        let kinds: Vec<&str> = hooks
            .iter()
            .map(|hook| text(hook, "/rules/0/resources/0"))
            .collect();
        assert_eq!(kinds, ["scaleins", "scaleouts"], "{line}");
        for hook in hooks {
            assert_eq!(
                (&hook["failurePolicy"], text(hook, "/clientConfig/service/path")),
                (&json!("Fail"), "/scripts")
            );
            assert_eq!(hook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
            let conditions = list(hook, "/matchConditions");
            let [condition] = conditions else {
                panic!("{conditions:?}")
            };
            let expression = text(condition, "/expression");
            assert!(expression.starts_with("has(object.spec.script) && (request.operation == 'CREATE'"));
        }
        // They are there before anybody can ask for a script.
        let place = |kind: &str| objects.iter().position(|object| text(object, "/kind") == kind);
        assert!(
            place("ValidatingWebhookConfiguration") < place("CustomResourceDefinition"),
            "{line}"
        );
        let args = list(
            find(&objects, "Deployment", "trainyard-operator"),
            "/spec/template/spec/containers/0/args",
        );
        assert!(args.contains(&json!("--scripts=reviewed")), "{line}");
    }
}

/// The operator creates those of ours that belong to others, whose users were reviewed.
#[test]
fn requests_of_other_operators_with_a_script_are_reviewed_in_the_place_of_ours() {
    let objects = objects("install --compat=et --namespace here");
    let validating = find(&objects, "ValidatingWebhookConfiguration", "trainyard");
    let hooks = list(validating, "/webhooks").iter();
    let hooks = hooks.filter(|hook| text(hook, "/name").starts_with("script."));
    let conditions = hooks.map(|hook| {
        assert_eq!(hook["failurePolicy"], "Fail");
        let conditions = list(hook, "/matchConditions").iter();
        let about_user = conditions.filter(|one| text(one, "/expression").contains("userInfo"));
        let about_user: Vec<&str> = about_user.map(|one| text(one, "/expression")).collect();
        (text(hook, "/name"), about_user.join(" "))
    });
    let not_the_operator = "request.userInfo.username != 'system:serviceaccount:here:trainyard-operator'";
    assert_eq!(
        conditions.collect::<Vec<_>>(),
        [
            ("script.scaleins.trainyard.dev", not_the_operator.to_owned()),
            ("script.scaleouts.trainyard.dev", not_the_operator.to_owned()),
            ("script.scaleins.kai.alibabacloud.com", String::new()),
            ("script.scaleouts.kai.alibabacloud.com", String::new()),
        ]
    );
}

#[test]
fn without_who_reviews_them_scripts_are_off_or_asked_for() {
    for (line, flag) in [
        ("install --scripts=off", None),
        ("install --no-webhooks", None),
        ("install --no-agent", None),
        (
            "install --no-webhooks --scripts=unreviewed",
            Some("--scripts=unreviewed"),
        ),
    ] {
        let objects = objects(line);
        let args = json!(find(&objects, "Deployment", "trainyard-operator")).to_string();
        assert_eq!(args.contains("--scripts"), flag.is_some(), "{line}");
        assert!(flag.is_none_or(|flag| args.contains(flag)), "{line}");
        assert!(
            !json!(objects).to_string().contains("subjectaccessreviews"),
            "{line}"
        );
        let hooks = of_kind(&objects, "ValidatingWebhookConfiguration");
        assert!(!json!(hooks).to_string().contains("/scripts"), "{line}");
    }
    for (line, sentence) in [
        ("install --no-webhooks --scripts=reviewed", "needs the webhooks"),
        ("install --no-agent --scripts=unreviewed", "needs the agent"),
    ] {
        let output = super::trainyard(line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains(sentence),
            "{line}: {said}"
        );
    }
}

#[test]
fn the_operator_satisfies_the_restricted_profile() {
    for line in VARIANTS {
        let objects = objects(line);
        let pod = &find(&objects, "Deployment", "trainyard-operator")["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        for container in list(pod, "/containers") {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["readOnlyRootFilesystem"], true);
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
            assert!(container["resources"]["requests"]["cpu"].is_string());
            assert!(container["resources"]["limits"]["memory"].is_string());
        }
        let namespace = of_kind(&objects, "Namespace")[0];
        assert_eq!(
            namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
            "restricted"
        );
    }
}

#[test]
fn selectors_select_the_operators_pods() {
    let objects = objects("install --image registry.example/t:1 --replicas 3");
    let deployment = find(&objects, "Deployment", "trainyard-operator");
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example/t:1"
    );
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selectors = [
        &deployment["spec"]["selector"]["matchLabels"],
        &find(&objects, "Service", "trainyard-webhook")["spec"]["selector"],
        &find(&objects, "PodDisruptionBudget", "trainyard-operator")["spec"]["selector"]["matchLabels"],
    ];
    for selector in selectors {
        for (key, value) in selector.as_object().unwrap() {
            assert_eq!(labels.get(key), Some(value));
        }
    }
    let ports = list(deployment, "/spec/template/spec/containers/0/ports");
    assert!(
        ports
            .iter()
            .any(|port| port["name"] == "webhook" && port["containerPort"] == 9443)
    );
}

/// The definitions of all kinds of Trainyard's.
const DEFINITIONS: [&str; 4] = [
    "trainingjobs.trainyard.dev",
    "frameworks.trainyard.dev",
    "scaleins.trainyard.dev",
    "scaleouts.trainyard.dev",
];

#[test]
fn definitions_can_be_had_alone() {
    let objects = objects("install --crds-only");
    assert!(
        objects
            .iter()
            .all(|object| text(object, "/kind") == "CustomResourceDefinition")
    );
    let names: Vec<_> = objects
        .iter()
        .map(|object| text(object, "/metadata/name"))
        .collect();
    assert_eq!(names, DEFINITIONS);
}

/// The operator must know every flag it is started with. A flag that it does not know would stop
/// the parser before it comes to `--help`.
#[test]
fn the_operator_knows_its_arguments() {
    for line in VARIANTS {
        let objects = objects(line);
        let args = list(
            find(&objects, "Deployment", "trainyard-operator"),
            "/spec/template/spec/containers/0/args",
        );
        let args: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
        printed(&format!("{} --help", args.join(" ")));
    }
}

/// The names that the operator uses for itself are those of the manifests.
#[test]
fn names_are_those_of_the_operator() {
    let names = trainyard_operator::certs::CertConfig::new("trainyard-system", &["trainyard-webhook"], true);
    let objects = objects("install");
    find(&objects, "Service", "trainyard-webhook");
    let observer = find(
        &objects,
        "Service",
        trainyard_operator::observer::OBSERVER_SERVICE,
    );
    assert_eq!(
        observer["spec"]["ports"][0]["port"],
        trainyard_operator::OBSERVER_PORT
    );
    find(&objects, "MutatingWebhookConfiguration", &names.mutating);
    find(&objects, "ValidatingWebhookConfiguration", &names.validating);
    let secrets = rules_on(&objects, "Role", "secrets");
    assert!(
        secrets
            .iter()
            .any(|(_, rule)| rule["resourceNames"] == json!([names.secret]))
    );
}

/// A definition that is there belongs to another operator.
#[test]
fn definitions_of_other_operators_are_printed_apart() {
    let installed = objects("install --compat=kubeflow-mpi,bdap-mpi,kubeflow-mpi");
    let ours = of_kind(&installed, "CustomResourceDefinition").into_iter();
    let ours: Vec<_> = ours.map(|object| text(object, "/metadata/name")).collect();
    assert_eq!(ours, DEFINITIONS);
    let apart = objects("install --compat=kubeflow-mpi,bdap-mpi --compat-crds-only");
    let names: Vec<_> = apart
        .iter()
        .map(|object| text(object, "/metadata/name"))
        .collect();
    assert_eq!(names, ["mpijobs.batch.test.bdap.com", "mpijobs.kubeflow.org"]);
    let all = objects("install --compat=all --compat-crds-only");
    let names: Vec<_> = all.iter().map(|object| text(object, "/metadata/name")).collect();
    assert!(names.contains(&"aresjobs.ares.io"), "{names:?}");
    assert!(names.len() > apart.len());
    all.iter().for_each(round_trip::<CustomResourceDefinition>);
    apart.iter().for_each(round_trip::<CustomResourceDefinition>);
    // A word may stand for several kinds of one operator.
    let both = objects("install --compat=dl --compat-crds-only");
    let names: Vec<_> = both.iter().map(|object| text(object, "/metadata/name")).collect();
    assert_eq!(names, ["mxjobs.mpba.fbk.eu", "tfjobs.mpba.fbk.eu"]);
    both.iter().for_each(round_trip::<CustomResourceDefinition>);
    let all = json!(installed).to_string();
    assert!(
        !all.contains("customresourcedefinitions"),
        "no right to definitions"
    );
}

#[test]
fn other_operators_kinds_cost_rights_only_where_they_are_served() {
    let plain = objects("install");
    let served = objects("install --compat=bdap-mpi");
    assert!(rules_on(&plain, "ClusterRole", "mpijobs").is_empty());
    let rules = rules_on(&served, "ClusterRole", "mpijobs/status");
    let mut groups = rules.iter().flat_map(|(_, rule)| list(rule, "/apiGroups"));
    assert!(!rules.is_empty() && groups.all(|group| group == "batch.test.bdap.com"));
    let creates = |objects: &[Value]| {
        let rules = rules_on(objects, "ClusterRole", "trainingjobs");
        let ours = rules
            .iter()
            .filter(|(role, _)| text(role, "/metadata/name") == "trainyard-jobs");
        ours.flat_map(|(_, rule)| list(rule, "/verbs"))
            .any(|verb| verb == "create")
    };
    assert!(creates(&served) && !creates(&plain));
    // Users of one kind look for the hosts in a ConfigMap.
    let configs = |objects: &[Value]| {
        let rules = rules_on(objects, "ClusterRole", "configmaps");
        rules
            .iter()
            .map(|(_, rule)| rule["verbs"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(configs(&plain), [""; 0]);
    assert_eq!(configs(&served), [""; 0]);
    let kubeflow = objects("install --compat=kubeflow-mpi");
    assert_eq!(configs(&kubeflow), [json!(["create", "get", "update"])]);
    let flags = |objects: &[Value]| {
        let operator = find(objects, "Deployment", "trainyard-operator");
        list(operator, "/spec/template/spec/containers/0/args").to_vec()
    };
    assert!(flags(&served).contains(&json!("--compat=bdap-mpi")));
    assert!(!json!(flags(&plain)).to_string().contains("compat"));
    let several = objects("install --compat=dl,bdap-mpi");
    assert!(flags(&several).contains(&json!("--compat=bdap-mpi,dl")));
    for resource in ["mxjobs/status", "tfjobs/status"] {
        assert!(
            !rules_on(&several, "ClusterRole", resource).is_empty(),
            "{resource}"
        );
    }
}

#[test]
fn an_operator_is_told_by_what_nodes_say_that_they_go() {
    let args = |line: &str| {
        let objects = objects(line);
        let operator = find(&objects, "Deployment", "trainyard-operator");
        list(operator, "/spec/template/spec/containers/0/args").to_vec()
    };
    let told = args(
        "install --node-notice=going=90,leaving --node-notice=gone --node-notice-annotation=until --spot-label=spot=true",
    );
    for flag in [
        "--node-notice=going=90,leaving,gone",
        "--node-notice-annotation=until",
        "--spot-label=spot=true",
    ] {
        assert!(told.contains(&json!(flag)), "{flag}: {told:?}");
    }
    let plain = json!(args("install")).to_string();
    assert!(!plain.contains("node-notice") && !plain.contains("spot"));
}

#[test]
fn objects_of_other_operators_are_checked_by_the_webhook() {
    let objects = objects("install --compat=kubeflow-mpi");
    let validating = find(&objects, "ValidatingWebhookConfiguration", "trainyard");
    let names: Vec<_> = list(validating, "/webhooks")
        .iter()
        .map(|hook| text(hook, "/name"))
        .collect();
    assert_eq!(
        names,
        [
            "validate.trainingjobs.trainyard.dev",
            "validate.frameworks.trainyard.dev",
            "validate.scaleins.trainyard.dev",
            "validate.scaleouts.trainyard.dev",
            "validate.mpijobs.kubeflow.org",
            "script.scaleins.trainyard.dev",
            "script.scaleouts.trainyard.dev"
        ]
    );
    let hook = &list(validating, "/webhooks")[4];
    assert_eq!(hook["failurePolicy"], "Ignore");
    let defaulting = find(&objects, "MutatingWebhookConfiguration", "trainyard");
    assert_eq!(
        list(defaulting, "/webhooks").len(),
        1,
        "what they wrote is not changed"
    );
}
