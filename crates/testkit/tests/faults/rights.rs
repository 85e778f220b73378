//! What accounts may do in every mode of `install`, asked of a real API server.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::{AggregationRule, ClusterRole};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams, Request,
};
use kube::core::Selector;
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use trainyard_api::JobPhase;
use trainyard_eventually::eventually_async;
use trainyard_testkit::cluster::Cluster;
use trainyard_testkit::faults::{Faults, run_operator};
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::operator::with_client;
use trainyard_testkit::{lab, namespace};

use super::{client, create, phase, program};

#[path = "../../../cli/tests/cli/variants.rs"]
mod variants;

use variants::VARIANTS;

/// Those of operators, two that are watched in some modes, and two that never are.
const NAMESPACES: [&str; 6] = [
    "trainyard-system",
    "elsewhere",
    "team-a",
    "team-b",
    "default",
    STRANGE,
];
/// No installation knows it, so that whoever has a right there has it everywhere.
const STRANGE: &str = "somebody";
/// The namespace of the users, and of the job with an account.
const TEAM: &str = "team-a";
/// The roles of the cluster that users have.
const USER_ROLES: [&str; 3] = ["view", "edit", "admin"];

const RBAC: &str = "rbac.authorization.k8s.io";
const ALL_VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
/// What an attacker would like to do in the whole cluster.
const QUESTIONS: [(&str, &str); 22] = [
    ("", "nodes"),
    ("", "nodes/proxy"),
    ("", "namespaces"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "pods/exec"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("apps", "daemonsets"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    (RBAC, "clusterroles"),
    (RBAC, "clusterrolebindings"),
    (RBAC, "roles"),
    ("trainyard.dev", "frameworks"),
    ("trainyard.dev", "trainingjobs"),
];

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    /// That of a URL is `url`.
    group: String,
    resource: String,
    /// The one object that it is about; empty: all.
    name: String,
    verb: String,
}

type Rights = BTreeSet<Right>;

/// The rights of a rule: each combination of its groups, resources, names and verbs.
fn expand(groups: &[String], resources: &[String], names: &[String], verbs: &[String]) -> Rights {
    let any = [String::new()];
    let names = if names.is_empty() { &any } else { names };
    let mut rights = Rights::new();
    for (group, resource) in groups.iter().flat_map(|g| resources.iter().map(move |r| (g, r))) {
        for (name, verb) in names.iter().flat_map(|n| verbs.iter().map(move |v| (n, v))) {
            rights.insert(Right {
                group: group.clone(),
                resource: resource.clone(),
                name: name.clone(),
                verb: verb.clone(),
            });
        }
    }
    rights
}

fn of_role(role: &ClusterRole) -> Rights {
    let mut rights = Rights::new();
    for rule in role.rules.iter().flatten() {
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let (groups, resources) = (list(&rule.api_groups), list(&rule.resources));
        rights.extend(expand(
            &groups,
            &resources,
            &list(&rule.resource_names),
            &rule.verbs,
        ));
    }
    rights
}

/// Somebody who asks the server.
struct Account {
    /// As the list calls it.
    title: String,
    user: String,
    groups: Vec<String>,
}

impl Account {
    fn user(name: &str) -> Self {
        Self {
            title: format!("user with {name}"),
            user: format!("rights-{name}"),
            groups: vec!["system:authenticated".to_owned()],
        }
    }

    fn service_account(title: &str, namespace: &str, name: &str) -> Self {
        Self {
            title: title.to_owned(),
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]
            .into(),
        }
    }

    /// What it may do in a namespace, as the server tells it itself.
    async fn rights(&self, client: &Client, namespace: &str) -> Rights {
        let review = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let body = serde_json::to_vec(&review).unwrap();
        let mut request = Request::new(path).create(&PostParams::default(), body).unwrap();
        let headers = request.headers_mut();
        headers.insert("Impersonate-User", self.user.parse().unwrap());
        for group in &self.groups {
            headers.append("Impersonate-Group", group.parse().unwrap());
        }
        let answer: SelfSubjectRulesReview = client.request(request).await.unwrap();
        let status = answer.status.unwrap();
        let mut rights = Rights::new();
        for rule in status.resource_rules {
            let (groups, resources) = (rule.api_groups.unwrap(), rule.resources.unwrap());
            let names = rule.resource_names.unwrap_or_default();
            rights.extend(expand(&groups, &resources, &names, &rule.verbs));
        }
        for rule in status.non_resource_rules {
            let urls = rule.non_resource_urls.unwrap_or_default();
            rights.extend(expand(&["url".to_owned()], &urls, &[], &rule.verbs));
        }
        rights
    }

    /// What it may do in each namespace.
    async fn all_rights(&self, client: &Client) -> Vec<Rights> {
        futures::future::join_all(NAMESPACES.map(|namespace| self.rights(client, namespace))).await
    }

    /// Whether it may do something in the whole cluster.
    async fn may(&self, client: &Client, right: &Right) -> bool {
        let (resource, subresource) = match right.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (&*right.resource, None),
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(self.user.clone()),
                groups: Some(self.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(right.group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    name: Some(right.name.clone()),
                    verb: Some(right.verb.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        answer.unwrap().status.unwrap().allowed
    }

    /// What it may do in the whole cluster is what it may do in a namespace that nobody has heard
    /// of.
    async fn check_cluster(&self, client: &Client, everywhere: &Rights) {
        let mut asked = everywhere.clone();
        asked.retain(|right| right.group != "url");
        for (group, resource) in QUESTIONS {
            let [group, resource] = [group, resource].map(|text| vec![text.to_owned()]);
            asked.extend(expand(&group, &resource, &[], &ALL_VERBS.map(ToOwned::to_owned)));
        }
        let answers = futures::stream::iter(asked).map(|right| async move {
            let expected = everywhere.contains(&right);
            assert_eq!(
                self.may(client, &right).await,
                expected,
                "{}: {right:?}",
                self.user
            );
        });
        answers.buffer_unordered(16).collect::<()>().await;
    }
}

/// An account, and what it may do without the installation.
type Known = (Account, Vec<Rights>);

/// Lines of what an account may do that it might not do before.
fn describe(account: &Account, before: &[Rights], now: &[Rights]) -> String {
    let given = before.iter().zip(now).map(|(before, now)| now - before);
    let given: Vec<Rights> = given.collect();
    let everywhere = given[NAMESPACES.len() - 1].clone();
    let mut text = lines(&account.title, "everywhere", &everywhere);
    for (namespace, rights) in NAMESPACES.iter().zip(&given) {
        assert!(rights.is_superset(&everywhere), "{namespace}: {rights:?}");
        text += &lines(
            &account.title,
            &format!("in {namespace}"),
            &(rights - &everywhere),
        );
    }
    text
}

/// A line for each resource and name.
fn lines(title: &str, place: &str, rights: &Rights) -> String {
    let mut text = String::new();
    let of = |right: &Right| (right.group.clone(), right.resource.clone(), right.name.clone());
    let resources: BTreeSet<_> = rights.iter().map(of).collect();
    for resource in resources {
        let here = rights.iter().filter(|right| of(right) == resource);
        let verbs: Vec<&str> = here.map(|right| &*right.verb).collect();
        let (group, resource, name) = &resource;
        let group = if group.is_empty() { "core" } else { group };
        let only = if name.is_empty() {
            String::new()
        } else {
            format!(" of {name}")
        };
        let verbs = verbs.join(",");
        writeln!(text, "{title} {place}: {group} {resource}{only}: {verbs}").unwrap();
    }
    text
}

/// The controller that gives `view`, `edit` and `admin` the rules of the roles with their labels.
struct Aggregation(Child);

impl Aggregation {
    fn start(cluster: &Cluster) -> Self {
        let mut command = Command::new(cluster.state().programs.go("kube-controller-manager"));
        command
            .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
            .args([
                "--controllers=clusterrole-aggregation-controller",
                "--leader-elect=false",
            ])
            .arg("--secure-port=0")
            .envs(cluster.environment());
        let log = [Stdio::null(), Stdio::null(), Stdio::null()];
        let [input, output, errors] = log;
        Self(
            command
                .stdin(input)
                .stdout(output)
                .stderr(errors)
                .spawn()
                .unwrap(),
        )
    }

    /// Waits until a role of users has what the selected roles have, besides what it had.
    async fn settle(client: &Client, name: &str, before: &Rights) {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        eventually_async(&format!("{name} has the rights of others"), async || {
            let role = roles.get(name).await.unwrap();
            let expected = aggregated(&roles, role.aggregation_rule.as_ref()).await;
            let (found, expected) = (&of_role(&role) - before, &expected - before);
            if found == expected {
                Ok(())
            } else {
                Err(format!("{} of {} rights", found.len(), expected.len()))
            }
        })
        .await;
    }
}

async fn aggregated(roles: &Api<ClusterRole>, rule: Option<&AggregationRule>) -> Rights {
    let mut rights = Rights::new();
    let selectors = rule.and_then(|rule| rule.cluster_role_selectors.clone());
    for selector in selectors.into_iter().flatten() {
        let selector = Selector::try_from(selector).unwrap();
        let selected = ListParams::default().labels_from(&selector);
        let selected = roles.list(&selected).await.unwrap();
        rights.extend(selected.iter().flat_map(of_role));
    }
    rights
}

impl Drop for Aggregation {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn api_of(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref().unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let resource = ApiResource::from_gvk(&kind);
    match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn apply(client: &Client, object: &DynamicObject) {
    let api = api_of(client, object);
    match api.create(&PostParams::default(), object).await {
        // An earlier run was ended before it could remove it.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            remove(client, object).await;
            api.create(&PostParams::default(), object).await.unwrap();
        }
        created => drop(created.unwrap()),
    }
}

async fn remove(client: &Client, object: &DynamicObject) {
    let name = object.metadata.name.as_deref().unwrap();
    let api = api_of(client, object);
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

fn object(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

/// The objects of a mode that say who may do what, and their accounts.
fn objects(line: &str) -> Vec<DynamicObject> {
    let printed = Command::new(program()).args(line.split(' ')).output().unwrap();
    assert!(printed.status.success(), "{line}");
    let text = String::from_utf8(printed.stdout).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let is_account = |object: &Value| {
        let version = object["apiVersion"].as_str().unwrap();
        version.starts_with(RBAC) || object["kind"] == "ServiceAccount"
    };
    objects.into_iter().filter(is_account).map(object).collect()
}

/// Somebody who has one right by each kind of object. When they have all of them, the server has
/// seen everything that was written before.
fn marker(number: usize) -> Vec<DynamicObject> {
    let name = format!("rights-marker-{number}");
    let mut objects = Vec::new();
    for (kind, place) in [("ClusterRole", None), ("Role", Some(STRANGE))] {
        let rule = json!({"apiGroups": ["marker"], "resources": [format!("{kind}s")], "verbs": ["get"]});
        let metadata = json!({"name": name, "namespace": place});
        let version = format!("{RBAC}/v1");
        objects.push(object(
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": [rule]}),
        ));
        objects.push(object(json!({
            "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
        })));
    }
    objects
}

/// Waits until the server decides by all that was written.
async fn seen(client: &Client, number: usize) {
    let objects = marker(number);
    for object in &objects {
        apply(client, object).await;
    }
    let account = Account {
        title: String::new(),
        user: format!("rights-marker-{number}"),
        groups: Vec::new(),
    };
    eventually_async("the server decides by what was written", async || {
        let rights = account.rights(client, STRANGE).await;
        let marks = rights.iter().filter(|right| right.group == "marker").count();
        if marks == 2 {
            Ok(())
        } else {
            Err(format!("{marks} marks"))
        }
    })
    .await;
    for object in &objects {
        remove(client, object).await;
    }
}

/// A job whose launcher may run commands in its workers, carried out by an operator that may do
/// what it is installed with.
async fn run_job(client: &Client, operator: &Account) -> (Account, Vec<DynamicObject>) {
    let mut config = Config::infer().await.unwrap();
    config.auth_info.impersonate = Some(operator.user.clone());
    config.auth_info.impersonate_groups = Some(operator.groups.clone());
    let own = Client::try_from(config).unwrap();
    let start = with_client(
        Arc::new(move || own.clone()),
        &["--allow-exec", "--agent-image=registry.example/trainyard:dev"],
    );
    let operator = run_operator(&start, TEAM, Faults::none()).unwrap();
    let _player = Player::start(client.clone(), &Scope::namespace(TEAM), Script::run());
    let roles = [
        lab::Role {
            name: "launcher",
            ..lab::Role::worker(1, "true")
        },
        lab::Role::worker(2, "true"),
    ];
    let mut job: Value = serde_json::from_str(&lab::job("train", "mpi", &roles, "")).unwrap();
    job["spec"]["framework"]["mpi"] = json!({"attach": "Exec"});
    create(client, TEAM, &job.to_string()).await.unwrap();
    phase(client, TEAM, "train", JobPhase::Running).await.unwrap();
    operator.stop().await.unwrap();
    let left = ["RoleBinding", "Role", "ServiceAccount"].map(|kind| {
        let version = if kind == "ServiceAccount" {
            "v1".to_owned()
        } else {
            format!("{RBAC}/v1")
        };
        object(json!({"apiVersion": version, "kind": kind, "metadata": {"name": "train-mpi", "namespace": TEAM}}))
    });
    let account = Account::service_account("job with attach Exec", TEAM, "train-mpi");
    (account, left.into())
}

async fn with_rights_before(client: &Client, account: Account) -> Known {
    let rights = account.all_rights(client).await;
    (account, rights)
}

/// What every account may do in every mode, as it was reviewed. A difference is something that
/// somebody may do or not do any more: review `effective-rights.txt` with it.
#[tokio::test(flavor = "multi_thread")]
async fn accounts_may_do_what_was_reviewed_and_nothing_else() {
    let client = client().await;
    let _aggregation = Aggregation::start(&Cluster::from_env().unwrap());
    let mut applied = Vec::new();
    for name in NAMESPACES {
        namespace::create(&client, name).await.unwrap();
    }
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let mut user_roles = Vec::new();
    for name in USER_ROLES {
        let binding = object(json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": format!("rights-{name}"), "namespace": TEAM},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": format!("rights-{name}")}],
        }));
        apply(&client, &binding).await;
        applied.push(binding);
        Aggregation::settle(&client, name, &Rights::new()).await;
        user_roles.push(of_role(&roles.get(name).await.unwrap()));
    }
    seen(&client, 0).await;
    let users = futures::stream::iter(USER_ROLES)
        .then(|name| with_rights_before(&client, Account::user(name)))
        .collect::<Vec<Known>>()
        .await;
    let mut found = String::new();
    for (number, line) in VARIANTS.iter().enumerate() {
        writeln!(found, "# trainyard {line}").unwrap();
        let objects = objects(line);
        let account = objects.iter().find(|object| {
            object
                .types
                .as_ref()
                .is_some_and(|types| types.kind == "ServiceAccount")
        });
        let metadata = &account.unwrap().metadata;
        let (own, name) = (
            metadata.namespace.as_deref().unwrap(),
            metadata.name.as_deref().unwrap(),
        );
        let operator = Account::service_account("operator", own, name);
        let (operator, before) = with_rights_before(&client, operator).await;
        for object in &objects {
            apply(&client, object).await;
        }
        for (name, before) in USER_ROLES.into_iter().zip(&user_roles) {
            Aggregation::settle(&client, name, before).await;
        }
        seen(&client, 2 * number + 1).await;
        let now = operator.all_rights(&client).await;
        operator.check_cluster(&client, &now[NAMESPACES.len() - 1]).await;
        found += &describe(&operator, &before, &now);
        if line.contains("--exec") {
            let (account, left) = run_job(&client, &operator).await;
            seen(&client, 2 * number + 2).await;
            let now = account.all_rights(&client).await;
            account.check_cluster(&client, &now[NAMESPACES.len() - 1]).await;
            namespace::empty(&client, TEAM).await.unwrap();
            for object in &left {
                remove(&client, object).await;
            }
            // It has what every account has that is like it.
            found += &describe(&account, &before, &now);
        }
        for (user, before) in &users {
            found += &describe(user, before, &user.all_rights(&client).await);
        }
        found.push('\n');
        for object in &objects {
            remove(&client, object).await;
        }
    }
    for object in &applied {
        remove(&client, object).await;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/effective-rights.txt");
    if std::env::var_os("UPDATE_RIGHTS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let reviewed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        found, reviewed,
        "review the difference, then run this with UPDATE_RIGHTS=1"
    );
}
