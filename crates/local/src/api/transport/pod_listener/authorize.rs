//! Authorizes requests: a caller may do what a Role allows that is bound to it, and nothing else.

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::authenticate::Caller;
use crate::api::Shared;
use crate::api::store::key;

const API: &str = "rbac.authorization.k8s.io/v1";
const ANY: &str = "*";

/// What authorization looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestAttributes<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    /// With the subresource, if there is one.
    pub(super) resource: &'a str,
    /// Empty for kinds without namespaces, and for all namespaces.
    pub(super) namespace: &'a str,
    pub(super) name: Option<&'a str>,
}

/// Whether a Role allows the request. There are no ClusterRoles here: nothing is allowed in all
/// namespaces, and a binding to a ClusterRole allows nothing.
pub(super) fn is_allowed(shared: &Shared, caller: &Caller, request: &RequestAttributes<'_>) -> bool {
    if request.namespace.is_empty() {
        return false;
    }
    let bindings = shared.kinds.get(API, "rolebindings");
    let bindings =
        bindings.and_then(|kind| shared.store.list(kind.table, request.namespace, None, None).ok());
    let bindings = bindings.into_iter().flat_map(|page| page.objects);
    bindings
        .filter_map(|stored| typed::<RoleBinding>(stored.object()))
        .filter(|binding| binds(binding, caller, request.namespace))
        .filter_map(|binding| role(shared, &binding, request.namespace))
        .flat_map(|role| role.rules.unwrap_or_default())
        .any(|rule| permits(&rule, request))
}

fn typed<T: DeserializeOwned>(object: serde_json::Map<String, Value>) -> Option<T> {
    serde_json::from_value(Value::Object(object)).ok()
}

fn binds(binding: &RoleBinding, caller: &Caller, namespace: &str) -> bool {
    let mut subjects = binding.subjects.iter().flatten();
    subjects.any(|subject| match &*subject.kind {
        "ServiceAccount" => {
            let of = subject.namespace.as_deref().filter(|of| !of.is_empty());
            subject.name == caller.account && of.unwrap_or(namespace) == caller.namespace
        }
        // These have no namespace.
        "User" => subject.name == caller.to_string(),
        "Group" => caller.is_in(&subject.name),
        _ => false,
    })
}

fn role(shared: &Shared, binding: &RoleBinding, namespace: &str) -> Option<Role> {
    let named = Some(&binding.role_ref).filter(|named| named.kind == "Role")?;
    let kind = shared.kinds.get(API, "roles")?;
    let stored = shared.store.get(kind.table, &key(namespace, &named.name))?;
    typed(stored.object())
}

fn permits(rule: &PolicyRule, request: &RequestAttributes<'_>) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|item| item == wanted || item == ANY);
    let listed = |list: &Option<Vec<String>>, wanted: &str| has(list.as_deref().unwrap_or_default(), wanted);
    // `*/status` allows that subresource of every resource.
    let part = request
        .resource
        .split_once('/')
        .map(|(_, part)| format!("*/{part}"));
    let names = rule.resource_names.as_deref().unwrap_or_default();
    has(&rule.verbs, request.verb)
        && listed(&rule.api_groups, request.group)
        && (listed(&rule.resources, request.resource)
            || part.is_some_and(|part| listed(&rule.resources, &part)))
        && (names.is_empty()
            || request
                .name
                .is_some_and(|name| names.iter().any(|known| known == name)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({}), true)]
    #[case(json!({"verbs": ["get"]}), false)]
    #[case(json!({"verbs": ["*"]}), true)]
    #[case(json!({"apiGroups": ["apps"]}), false)]
    #[case(json!({"resources": ["pods"]}), false)]
    #[case(json!({"resources": ["*"]}), true)]
    #[case(json!({"resources": ["*/exec"]}), true)]
    #[case(json!({"resources": ["*/log"]}), false)]
    #[case(json!({"resources": ["pods/*"]}), false)]
    #[case(json!({"resourceNames": ["w-1"]}), false)]
    #[case(json!({"resourceNames": []}), true)]
    fn a_rule_permits_what_it_names(#[case] change: Value, #[case] expected: bool) {
        let mut rule = json!({
            "verbs": ["create", "get"], "apiGroups": [""], "resources": ["pods/exec"], "resourceNames": ["w-0", "w-2"],
        });
        for (field, value) in change.as_object().unwrap() {
            rule[field] = value.clone();
        }
        let request = RequestAttributes {
            verb: "create",
            group: "",
            resource: "pods/exec",
            namespace: "ns",
            name: Some("w-0"),
        };
        let rule = serde_json::from_value(rule).unwrap();
        assert_eq!(permits(&rule, &request), expected);
    }
}
