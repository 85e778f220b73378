//! Discovery of groups and resources.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{Either, Full};
use serde_json::{Value, json};

use super::{Answer, encode};
use crate::api::Shared;
use crate::api::kinds::{Kind, Kinds};
use crate::api::status;
use crate::api::tokens::{ISSUER, KEYS_PATH};

const VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// The answer to a discovery request; None if the path is that of objects.
pub(super) fn answer(shared: &Shared, path: &str) -> Option<Answer> {
    let kinds = &shared.kinds;
    let path = path.trim_end_matches('/');
    let mut parts = path.split('/').skip(1);
    let value = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        ("healthz" | "livez" | "readyz", ..) => {
            let body = Either::Left(Full::new(Bytes::from_static(b"ok")));
            return Some(encode::with(StatusCode::OK, "text/plain", body));
        }
        ("version", None, ..) => json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0+trainyard", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        }),
        (".well-known", Some("openid-configuration"), None, _) => json!({
            "issuer": ISSUER, "jwks_uri": format!("{ISSUER}{KEYS_PATH}"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
        }),
        ("openid", Some("v1"), Some("jwks"), None) => match shared.signer.published() {
            Ok(keys) => keys,
            Err(error) => return Some(encode::refusal(&status::internal(error.to_string()))),
        },
        ("api", None, ..) => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ("api", Some(version), None, _) => resources(kinds, version)?,
        ("apis", None, ..) => groups(kinds),
        ("apis", Some(group), Some(version), None) => resources(kinds, &format!("{group}/{version}"))?,
        _ => return None,
    };
    Some(encode::json(StatusCode::OK, value.to_string()))
}

fn groups(kinds: &Kinds) -> Value {
    let mut groups: Vec<(Box<str>, Vec<Value>)> = Vec::new();
    for kind in kinds.all().iter().filter(|kind| !kind.group.is_empty()) {
        let version = json!({"groupVersion": kind.api_version, "version": kind.version});
        match groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, versions)) if versions.contains(&version) => {}
            Some((_, versions)) => versions.push(version),
            None => groups.push((kind.group.clone(), vec![version])),
        }
    }
    let groups: Vec<Value> = groups
        .into_iter()
        .map(|(group, versions)| json!({"name": group, "preferredVersion": versions.first(), "versions": versions}))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(kinds: &Kinds, api_version: &str) -> Option<Value> {
    let all = kinds.all();
    let mut resources = Vec::new();
    for kind in all.iter().filter(|kind| *kind.api_version == *api_version) {
        let mut resource = described(kind, &kind.plural, &kind.kind, VERBS);
        resource["singularName"] = kind.singular.to_string().into();
        if !kind.short_names.is_empty() {
            resource["shortNames"] = kind.short_names.clone().into();
        }
        resources.push(resource);
        if kind.is_service_account() {
            let mut token = described(
                kind,
                &format!("{}/token", kind.plural),
                "TokenRequest",
                &["create"],
            );
            token["group"] = "authentication.k8s.io".into();
            token["version"] = "v1".into();
            resources.push(token);
        }
        let mut sub = |name: &str, of: &str, verbs: &[&str]| {
            resources.push(described(kind, &format!("{}/{name}", kind.plural), of, verbs));
        };
        if kind.subresources.status {
            sub("status", &kind.kind, &["get", "patch", "update"]);
        }
        if kind.subresources.scale.is_some() {
            sub("scale", "Scale", &["get", "patch", "update"]);
        }
        if kind.is_pod() {
            sub("binding", "Binding", &["create"]);
            sub("eviction", "Eviction", &["create"]);
            sub("exec", "PodExecOptions", &["create", "get"]);
            sub("log", "Pod", &["get"]);
        }
    }
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources,
    }))
}

fn described(kind: &Kind, name: &str, of: &str, verbs: &[&str]) -> Value {
    json!({"name": name, "singularName": "", "namespaced": kind.namespaced, "kind": of, "verbs": verbs})
}
