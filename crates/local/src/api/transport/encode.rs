//! Encodes answers.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};
use kube::core::Status;

use super::{Answer, ResponseBody};
use crate::api::error::StatusError;
use crate::api::kinds::Kind;
use crate::api::status;
use crate::api::store::{Object, Stored};

/// Whether a client wants whole objects or metadata only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Metadata,
}

impl Form {
    /// The first supported type in the Accept header.
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let accepted = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        for kind in accepted.split(',') {
            let mut parts = kind.split(';').map(str::trim);
            let format = parts.next().unwrap_or_default();
            let form = parts.find_map(|part| part.strip_prefix("as="));
            match (format, form) {
                ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                    return Self::Metadata;
                }
                ("application/json" | "*/*" | "application/*", None) => return Self::Whole,
                _ => {}
            }
        }
        Self::Whole
    }
}

pub(super) fn write(out: &mut Vec<u8>, kind: &Kind, stored: &Stored, form: Form) {
    match form {
        Form::Metadata => {
            out.extend_from_slice(
                br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
            );
            out.extend_from_slice(&stored.metadata());
            out.push(b'}');
        }
        Form::Whole => match converted(kind, stored) {
            Some(json) => out.extend_from_slice(&json),
            None => out.extend_from_slice(stored.json()),
        },
    }
}

/// The object in its served version; None if it is stored in that version.
fn converted(kind: &Kind, stored: &Stored) -> Option<Vec<u8>> {
    if let Some(outward) = kind.rules.outward() {
        let object: Object = outward(stored.object());
        return serde_json::to_vec(&object).ok();
    }
    if kind.stored_as == kind.api_version {
        return None;
    }
    let head = format!(
        "{{\"kind\":{:?},\"apiVersion\":{:?},",
        kind.kind, kind.api_version
    );
    Some([head.as_bytes(), stored.rest()].concat())
}

/// Writes an item of a list. Items of built-in kinds have no apiVersion and kind.
pub(super) fn write_item(out: &mut Vec<u8>, kind: &Kind, stored: &Stored, form: Form, custom: bool) {
    if form == Form::Whole && !custom && kind.rules.outward().is_none() {
        out.push(b'{');
        out.extend_from_slice(stored.rest());
    } else {
        write(out, kind, stored, form);
    }
}

pub(super) fn object(code: StatusCode, kind: &Kind, stored: &Stored, form: Form) -> Answer {
    if form == Form::Whole && kind.rules.outward().is_none() && kind.stored_as == kind.api_version {
        return json(code, stored.json().clone());
    }
    let mut out = Vec::with_capacity(1024);
    write(&mut out, kind, stored, form);
    json(code, out)
}

pub(super) fn status(code: StatusCode, status: &Status) -> Answer {
    json(code, status::to_json(status).to_string())
}

pub(super) fn refusal(refusal: &StatusError) -> Answer {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = status(code, refusal);
    let pause = refusal
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if pause > 0 {
        answer.headers_mut().insert(header::RETRY_AFTER, pause.into());
    }
    answer
}

pub(super) fn json(code: StatusCode, body: impl Into<Bytes>) -> Answer {
    with(code, "application/json", Either::Left(Full::new(body.into())))
}

pub(super) fn with(code: StatusCode, kind: &'static str, body: ResponseBody) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("", Form::Whole)]
    #[case("application/json", Form::Whole)]
    #[case(
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
        Form::Metadata
    )]
    #[case(
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        Form::Metadata
    )]
    #[case("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form::Whole)]
    #[case("application/json, application/json;as=PartialObjectMetadata", Form::Whole)]
    fn what_is_accepted_first_is_sent(#[case] accept: &'static str, #[case] form: Form) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        assert_eq!(Form::wanted(&headers), form);
    }
}
