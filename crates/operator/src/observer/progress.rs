//! Takes the progress that programs report.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::time::timeout;
use trainyard_api::Progress;

use super::caller::Caller;
use super::{ErrorResponse, JobPath, Observer};
use crate::index::{JobKey, TooOften};

const MAX_BODY: usize = 8 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_METRICS: usize = 32;
const MAX_NAME_BYTES: usize = 64;
const MAX_NUMBER_BYTES: usize = 32;

pub(super) async fn put_progress(
    State(observer): State<Arc<Observer>>,
    Path(JobPath { namespace, name }): Path<JobPath>,
    caller: Caller,
    body: Body,
) -> Result<Response, ErrorResponse> {
    let key = JobKey::new(&namespace, &name);
    let pod = observer.authorize(&caller, &key).await?;
    let Some((_, wake)) = observer.leader.as_ref().filter(|(leader, _)| leader.may_write()) else {
        let other = "another replica leads: ask again on another connection".to_owned();
        return Err(ErrorResponse(StatusCode::MISDIRECTED_REQUEST, other));
    };
    let progress = receive(body).await?;
    let recorded = observer.index.record_progress(&key, &pod.pod, progress);
    let changed = recorded.map_err(|TooOften| {
        let problem = "this pod has spoken a moment ago: wait a second".to_owned();
        ErrorResponse(StatusCode::TOO_MANY_REQUESTS, problem)
    })?;
    if let Some(key) = changed {
        wake(key);
    }
    Ok("\n".into_response())
}

/// Reads a body. Only a pod of the job is waited for: others could take long on purpose.
async fn receive(body: Body) -> Result<Progress, ErrorResponse> {
    let body: Bytes = match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            let problem = format!("the body can't be read: {error}; it may have {MAX_BODY} bytes");
            return Err(ErrorResponse(StatusCode::PAYLOAD_TOO_LARGE, problem));
        }
        Err(_) => {
            let problem = "the body did not come in time".to_owned();
            return Err(ErrorResponse(StatusCode::REQUEST_TIMEOUT, problem));
        }
    };
    read(&body).map_err(|problem| ErrorResponse(StatusCode::BAD_REQUEST, problem))
}

/// Reads progress, within the limits of the status.
fn read(body: &[u8]) -> Result<Progress, String> {
    let no_progress = |error: serde_json::Error| format!("that is no progress: {error}");
    // As an object first: serde would also take a list, for the fields in their order.
    let said: serde_json::Map<String, Value> = serde_json::from_slice(body).map_err(no_progress)?;
    let said: Progress = serde_json::from_value(Value::Object(said)).map_err(no_progress)?;
    let negative = [said.step, said.total]
        .into_iter()
        .flatten()
        .any(|number| number < 0);
    let is_number = |text: &String| text.len() <= MAX_NUMBER_BYTES && text.parse::<f64>().is_ok();
    let is_name =
        |name: &String| (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
    if negative {
        Err("step and total must not be negative".to_owned())
    } else if said.metrics.len() > MAX_METRICS {
        Err(format!("there are more than {MAX_METRICS} metrics"))
    } else if !said
        .metrics
        .iter()
        .all(|(name, number)| is_name(name) && is_number(number))
    {
        Err(format!(
            "metrics must have names of at most {MAX_NAME_BYTES} bytes, and numbers of at most {MAX_NUMBER_BYTES}, as text"
        ))
    } else {
        Ok(Progress { time: None, ..said })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn what_is_said_is_taken_but_for_the_time() {
        let said = r#"{"step": 3, "metrics": {"loss": "NaN", "lr": "0.1"}, "time": "2026-01-01T00:00:00Z", "more": 1}"#;
        let said = read(said.as_bytes()).unwrap();
        assert_eq!((said.step, said.total, said.time), (Some(3), None, None));
        assert_eq!(said.metrics["loss"], "NaN");
    }

    /// The agent writes them so when they would be too long.
    #[test]
    fn numbers_may_have_exponents_and_be_none() {
        for text in [
            "2.220446049250313e-16",
            "-1.7976931348623157e308",
            "inf",
            "-inf",
            "NaN",
        ] {
            let said = serde_json::json!({"metrics": {"loss": text}}).to_string();
            assert_eq!(read(said.as_bytes()).unwrap().metrics["loss"], text);
        }
    }

    #[rstest]
    #[case("", "no progress")]
    #[case("[1]", "no progress")]
    #[case(r#"{"step": 1.5}"#, "no progress")]
    #[case(r#"{"step": -1}"#, "negative")]
    #[case(r#"{"metrics": {"loss": "low"}}"#, "numbers")]
    #[case(r#"{"metrics": {"": "1"}}"#, "names")]
    #[case(&format!(r#"{{"metrics": {{"{}": "1"}}}}"#, "x".repeat(65)), "names")]
    #[case(&format!(r#"{{"metrics": {{"a": "{}"}}}}"#, "1".repeat(33)), "numbers")]
    fn what_does_not_fit_is_refused(#[case] body: &str, #[case] problem: &str) {
        let said = read(body.as_bytes()).unwrap_err();
        assert!(said.contains(problem), "{said}");
    }

    #[test]
    fn there_are_not_too_many_metrics() {
        let many: std::collections::BTreeMap<String, &str> =
            (0..33).map(|i| (format!("m{i}"), "1")).collect();
        let body = serde_json::json!({"metrics": many}).to_string();
        assert!(read(body.as_bytes()).unwrap_err().contains("more than 32"));
    }
}
