//! Tokens of service accounts in volumes: requested, cached, and replaced before they expire.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use kube::api::PostParams;
use kube::{Api, Client};

use super::ownership::unless_denied;

const DEFAULT_LIFETIME_SECONDS: i64 = 3600;
/// Tokens are replaced after this time, however long they are valid.
const MAX_USE: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenSpec {
    audience: Option<String>,
    seconds: i64,
}

impl TokenSpec {
    pub fn of(projection: &ServiceAccountTokenProjection) -> Self {
        Self {
            audience: projection
                .audience
                .clone()
                .filter(|audience| !audience.is_empty()),
            seconds: projection.expiration_seconds.unwrap_or(DEFAULT_LIFETIME_SECONDS),
        }
    }
}

pub fn of(pod: &Pod) -> BTreeSet<TokenSpec> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let sources = volumes
        .filter_map(|volume| volume.projected.as_ref())
        .flat_map(|projected| projected.sources.iter().flatten());
    sources
        .filter_map(|source| source.service_account_token.as_ref().map(TokenSpec::of))
        .collect()
}

#[derive(Clone, Debug)]
pub struct IssuedToken {
    pub token: String,
    since: Timestamp,
    pub until: Timestamp,
}

impl IssuedToken {
    /// Whether to replace it: when a fifth of its lifetime is left, so that a late reader can still
    /// use it.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let life = self.until.duration_since(self.since);
        let used = now.duration_since(self.since);
        used >= MAX_USE || used >= life / 5 * 4
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub mode: u32,
    /// The owner, if not the user of this process.
    pub user: Option<u32>,
    pub group: Option<u32>,
}

impl Access {
    pub fn all(mode: u32) -> Self {
        Self {
            mode,
            user: None,
            group: None,
        }
    }

    pub fn give(self, file: &Path) -> io::Result<()> {
        if self.user.is_none() && self.group.is_none() {
            return Ok(());
        }
        unless_denied(chown(file, self.user, self.group))
    }
}

/// Who may read the tokens of a pod: its fsGroup, or the one user of all containers, if it has one;
/// else everyone whom the mode allows.
pub fn access(pod: &Pod, mode: u32) -> Access {
    let number = |id: i64| u32::try_from(id).ok();
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|spec| spec.security_context.as_ref());
    let containers = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let users: BTreeSet<Option<i64>> = containers
        .map(|container| {
            let own = container.security_context.as_ref();
            own.and_then(|own| own.run_as_user)
                .or(of_pod.and_then(|pod| pod.run_as_user))
        })
        .collect();
    let user = match users.len() {
        1 => users.first().copied().flatten().and_then(number),
        _ => None,
    };
    let group = of_pod.and_then(|pod| pod.fs_group).and_then(number);
    let mode = match (user, group) {
        (_, Some(_)) => 0o640,
        (Some(_), None) => 0o600,
        (None, None) => mode,
    };
    Access { mode, user, group }
}

/// Tokens, or errors, by their spec.
pub type Tokens = BTreeMap<TokenSpec, Result<String, String>>;

/// Requests a token that is bound to the pod.
pub async fn request(
    client: Client,
    pod: &Pod,
    wanted: &TokenSpec,
    now: Timestamp,
) -> Result<IssuedToken, kube::Error> {
    let spec = pod.spec.as_ref();
    let account = spec.and_then(|spec| spec.service_account_name.as_deref());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(wanted.audience.clone().into_iter().collect()),
            expiration_seconds: Some(wanted.seconds),
            // A token is invalid when its pod is gone.
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        }),
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client, namespace);
    let account = account.unwrap_or("default");
    let answer: TokenRequest = accounts
        .create_subresource("token", account, &PostParams::default(), &request)
        .await?;
    let status = answer.status.unwrap_or_default();
    Ok(IssuedToken {
        token: status.token.unwrap_or_default(),
        since: now,
        until: status.expiration_timestamp.map_or(now, |end| end.0),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[rstest::rstest]
    #[case(3600, 2879, false)]
    #[case(3600, 2880, true)]
    #[case(600, 480, true)]
    #[case(10_000_000, 24 * 3600 - 1, false)]
    #[case(10_000_000, 24 * 3600, true)]
    fn tokens_are_replaced_in_time(#[case] life: i64, #[case] now: i64, #[case] due: bool) {
        let issued = IssuedToken {
            token: String::new(),
            since: Timestamp::UNIX_EPOCH,
            until: Timestamp::from_second(life).unwrap(),
        };
        assert_eq!(issued.is_due(Timestamp::from_second(now).unwrap()), due);
    }

    #[rstest::rstest]
    #[case(json!({}), &[json!({})], (0o644, None, None))]
    #[case(json!({"fsGroup": 7}), &[json!({})], (0o640, None, Some(7)))]
    #[case(json!({"runAsUser": 5}), &[json!({}), json!({})], (0o600, Some(5), None))]
    #[case(json!({"runAsUser": 5}), &[json!({}), json!({"runAsUser": 6})], (0o644, None, None))]
    #[case(json!({"runAsUser": 5, "fsGroup": 7}), &[json!({})], (0o640, Some(5), Some(7)))]
    fn a_token_is_for_those_who_need_it(
        #[case] pod: Value,
        #[case] containers: &[Value],
        #[case] expected: (u32, Option<u32>, Option<u32>),
    ) {
        let containers: Vec<Value> = containers
            .iter()
            .map(|context| json!({"name": "a", "securityContext": context}))
            .collect();
        let pod = json!({"spec": {"securityContext": pod, "containers": containers}});
        let Access { mode, user, group } = access(&serde_json::from_value(pod).unwrap(), 0o644);
        assert_eq!((mode, user, group), expected);
    }
}
