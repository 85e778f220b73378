//! Logs of containers.

use futures::StreamExt;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, Either, StreamBody};
use jiff::{SignedDuration, Timestamp};
use tower::BoxError;

use super::container_location::ContainerLocation;
use super::query::Query;
use super::{Answer, encode};
use crate::api::Api;
use crate::api::access::LogOptions;
use crate::api::error::StatusError;
use crate::api::semantics::Target;
use crate::api::status;

pub(super) fn log(api: &Api, target: &Target<'_>, name: &str, query: &Query) -> Result<Answer, StatusError> {
    let location = ContainerLocation::find(api, target, name, query.container.as_deref())?;
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
    let log = location
        .node
        .logs(location.pod(), &location.container, options)
        .map_err(status::bad_request)?;
    let frames = log.map(|piece| piece.map(Frame::data).map_err(BoxError::from));
    let body = Either::Right(StreamBody::new(frames).boxed_unsync());
    Ok(encode::with(StatusCode::OK, "text/plain", body))
}
