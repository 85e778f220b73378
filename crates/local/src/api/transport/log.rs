//! Logs: what a node has of them.

use futures::StreamExt;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, Either, StreamBody};
use jiff::{SignedDuration, Timestamp};
use tower::BoxError;

use super::super::Api;
use super::super::access::{LogOptions, PodRef};
use super::super::semantics::Target;
use super::super::status::{self, Refusal};
use super::super::store::Object;
use super::query::Query;
use super::{Answer, encode};

/// Answers with the log of a container.
pub(super) fn log(api: &Api, target: &Target<'_>, name: &str, query: &Query) -> Result<Answer, Refusal> {
    let stored = target.stored(name)?;
    let pod = stored.object();
    let container = container(name, &pod, query.container.as_deref())?;
    let node = pod
        .get("spec")
        .and_then(|spec| spec.get("nodeName")?.as_str())
        .unwrap_or_default();
    if node.is_empty() {
        return Err(status::bad_request(format!(
            "pod {name} does not have a host assigned"
        )));
    }
    let Some(access) = api.node(node) else {
        return Err(status::internal(format!(
            "node {node:?} can't be asked for logs: it is not there"
        )));
    };
    let since = match (&query.since_time, query.since_seconds) {
        (Some(time), None) => {
            let time: Result<Timestamp, _> = time.parse();
            Some(time.map_err(|error| status::bad_request(format!("sinceTime: {error}")))?)
        }
        (None, Some(seconds)) => {
            let now = target.shared.environment.now();
            now.checked_sub(SignedDuration::from_secs(seconds)).ok()
        }
        (None, None) => None,
        (Some(_), Some(_)) => {
            return Err(status::bad_request(
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            ));
        }
    };
    let options = LogOptions {
        follow: query.follow,
        previous: query.previous,
        timestamps: query.timestamps,
        tail_lines: query.tail_lines,
        since,
        limit_bytes: query.limit_bytes,
    };
    let pod = PodRef {
        namespace: &stored.head.namespace,
        name,
        uid: &stored.head.uid,
    };
    let log = access
        .logs(pod, &container, options)
        .map_err(status::bad_request)?;
    let frames = log.map(|piece| piece.map(Frame::data).map_err(BoxError::from));
    let body = Either::Right(StreamBody::new(frames).boxed_unsync());
    Ok(encode::with(StatusCode::OK, "text/plain", body))
}

fn container(name: &str, pod: &Object, wanted: Option<&str>) -> Result<String, Refusal> {
    let named = |list: &str| -> Vec<String> {
        let containers = pod
            .get("spec")
            .and_then(|spec| spec.get(list)?.as_array())
            .into_iter()
            .flatten();
        let names = containers.filter_map(|container| container.get("name")?.as_str());
        names.map(ToOwned::to_owned).collect()
    };
    let (usual, init) = (named("containers"), named("initContainers"));
    match (wanted, usual.as_slice()) {
        (Some(wanted), _) if usual.iter().chain(&init).any(|one| one == wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => Err(status::bad_request(format!(
            "container {wanted} is not valid for pod {name}"
        ))),
        (None, [only]) if init.is_empty() => Ok(only.clone()),
        (None, _) => {
            let (usual, init) = (usual.join(" "), init.join(" "));
            let others = if init.is_empty() {
                String::new()
            } else {
                format!(" or one of the init containers: [{init}]")
            };
            Err(status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{usual}]{others}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_only_container_need_not_be_named() {
        let pod = |spec: Value| json!({"spec": spec}).as_object().unwrap().clone();
        let one = pod(json!({"containers": [{"name": "a"}]}));
        assert_eq!(container("p", &one, None).unwrap(), "a");
        let two = pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(container("p", &two, None).unwrap_err().code, 400);
        assert_eq!(container("p", &two, Some("b")).unwrap(), "b");
        assert_eq!(container("p", &two, Some("c")).unwrap_err().code, 400);
    }
}
