//! TokenRequests of service accounts.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value, json};

use super::Target;
use crate::api::error::{FieldError, StatusError};
use crate::api::status;
use crate::api::store::Object;
use crate::api::tokens::ISSUER;

const DEFAULT_LIFETIME_SECONDS: i64 = 3600;
const MIN_LIFETIME_SECONDS: i64 = 600;
const MAX_LIFETIME_SECONDS: i64 = 1 << 32;

pub(crate) fn issue(target: &Target<'_>, name: &str, body: &[u8]) -> Result<Value, StatusError> {
    let mut request: TokenRequest = serde_json::from_slice(body)
        .map_err(|error| status::bad_request(format!("the body is no TokenRequest: {error}")))?;
    let account = target.stored(name)?;
    let given = request.metadata.name.as_deref().unwrap_or(name);
    if given != name {
        let why = "must match the service account name if specified";
        let error = FieldError::invalid("metadata.name", &given.into(), why);
        return Err(invalid(name, error));
    }
    let mut spec = request.spec.take().unwrap_or_default();
    let seconds = *spec.expiration_seconds.get_or_insert(DEFAULT_LIFETIME_SECONDS);
    check(seconds)?;
    if spec.audiences.as_ref().is_none_or(Vec::is_empty) {
        spec.audiences = Some(vec![ISSUER.to_owned()]);
    }
    let mut holder = json!({
        "namespace": target.namespace,
        "serviceaccount": {"name": name, "uid": *account.head.uid},
    });
    if let (Some(bound), Some(holder)) = (&spec.bound_object_ref, holder.as_object_mut()) {
        bind(target, name, bound, holder)?;
    }
    let now = target.shared.environment.now();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let end = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
    let claims = json!({
        "aud": spec.audiences,
        "exp": end.as_second(),
        "iat": now.as_second(),
        "iss": ISSUER,
        "jti": target.shared.environment.uuid(),
        "kubernetes.io": holder,
        "nbf": now.as_second(),
        "sub": format!("system:serviceaccount:{}:{name}", target.namespace),
    });
    let token = target.shared.signer.sign(&claims);
    request.status = Some(TokenRequestStatus {
        expiration_timestamp: Some(Time(end)),
        token: Some(token.map_err(|error| status::internal(error.to_string()))?),
    });
    request.spec = Some(spec);
    request.metadata.name = Some(name.to_owned());
    request.metadata.namespace = Some(target.namespace.to_owned());
    request.metadata.uid = Some(account.head.uid.to_string());
    request.metadata.creation_timestamp = Some(Time(now));
    serde_json::to_value(request).map_err(|error| status::internal(error.to_string()))
}

fn check(seconds: i64) -> Result<(), StatusError> {
    let why = if seconds < MIN_LIFETIME_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MAX_LIFETIME_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), why);
    Err(invalid("", error))
}

fn invalid(name: &str, error: FieldError) -> StatusError {
    let (group, kind) = ("authentication.k8s.io", "TokenRequest");
    status::invalid_named(&format!("{kind}.{group}"), group, kind, name, &[error])
}

/// Binds a token to an object.
fn bind(
    target: &Target<'_>,
    account: &str,
    bound: &BoundObjectReference,
    holder: &mut Map<String, Value>,
) -> Result<(), StatusError> {
    let kind = bound.kind.as_deref().unwrap_or_default();
    let version = bound.api_version.as_deref().unwrap_or_default();
    let plural = match (version, kind) {
        ("v1", "Pod") => "pods",
        ("v1", "Secret") => "secrets",
        _ => {
            return Err(status::bad_request(format!(
                "cannot bind token to object of type /{version}, Kind={kind}"
            )));
        }
    };
    let Some(kinds) = target.shared.kinds.get("v1", plural) else {
        return Ok(());
    };
    let name = bound.name.as_deref().unwrap_or_default();
    let of_kind = Target {
        kind: &kinds,
        ..*target
    };
    let stored = of_kind.stored(name)?;
    let object = stored.object();
    if kind == "Pod" && of_pod(&object, "serviceAccountName") != account {
        return Err(status::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let uid = &*stored.head.uid;
    if let Some(wanted) = bound
        .uid
        .as_deref()
        .filter(|wanted| *wanted != uid && !wanted.is_empty())
    {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(status::conflict_named("", kind, name, &why));
    }
    holder.insert(kind.to_lowercase(), json!({"name": name, "uid": uid}));
    let node = of_pod(&object, "nodeName");
    if !node.is_empty() {
        let nodes = target.shared.kinds.get("v1", "nodes");
        let found = nodes.and_then(|nodes| target.shared.store.get(nodes.table, node));
        let uid = found.map(|found| found.head.uid.to_string());
        let mut claim = json!({"name": node});
        if let Some(uid) = uid {
            claim["uid"] = uid.into();
        }
        holder.insert("node".to_owned(), claim);
    }
    Ok(())
}

fn of_pod<'a>(object: &'a Object, field: &str) -> &'a str {
    let spec = object.get("spec");
    spec.and_then(|spec| spec.get(field)?.as_str())
        .unwrap_or_default()
}
