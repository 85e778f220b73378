//! What programs say of their progress, as the agent sends it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The largest report that is read, in bytes.
pub const MAX_BODY: usize = 8 * 1024;
/// The most metrics that a report has.
pub const MAX_METRICS: usize = 32;
/// The longest name of a metric, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest text of a number, in bytes.
pub const MAX_NUMBER: usize = 32;

/// The most artifacts that a report has.
pub const MAX_ARTIFACTS: usize = 8;
/// The longest path or URI of an artifact, in bytes.
pub const MAX_LOCATION: usize = 256;

/// The latest values that programs have said. The operator refuses a report that is beyond the
/// limits as a whole, so that agents leave out what is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReport {
    /// Every other number, as [`number_text`] writes it.
    #[serde(default)]
    pub metrics: BTreeMap<String, String>,
    /// The path or URI of everything that programs have made, by its name. A report without any is
    /// that of the first release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub artifacts: BTreeMap<String, String>,
    /// The step that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// The step at which the training ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// Whether a metric may have this name, which may also be shown on a terminal.
pub fn is_metric_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Whether an artifact may have this name and this path or URI. Neither needs an escape in JSON, so
/// that the largest report is not longer than [`MAX_BODY`].
pub fn is_artifact(name: &str, location: &str) -> bool {
    let is_plain = |text: &str| !text.contains(|c: char| c.is_control() || c == '"' || c == '\\');
    let fits = (1..=MAX_LOCATION).contains(&location.len());
    is_metric_name(name) && fits && is_plain(name) && is_plain(location)
}

/// A number as text, which may also say that there is none: `NaN`, `inf`.
///
/// As it is mostly written, unless that is too long: a small one would be all zeros.
pub fn number_text(number: f64) -> String {
    let plain = number.to_string();
    if plain.len() <= MAX_NUMBER {
        return plain;
    }
    format!("{number:e}")
}

impl ProgressReport {
    /// Writes it as JSON.
    pub fn write(&self) -> String {
        // Text and numbers can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a report that is within the limits. Fields that are not known are passed over.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let no_progress = |error: serde_json::Error| format!("that is no progress: {error}");
        // As an object alone: serde would take a list for the fields in their order, too.
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(no_progress)?;
        let report: Self = serde_json::from_value(Value::Object(object)).map_err(no_progress)?;
        report.check().map(|()| report)
    }

    fn check(&self) -> Result<(), String> {
        let is_number = |text: &String| text.len() <= MAX_NUMBER && text.parse::<f64>().is_ok();
        let mut metrics = self.metrics.iter();
        let mut artifacts = self.artifacts.iter();
        if [self.step, self.total]
            .into_iter()
            .flatten()
            .any(|number| number < 0)
        {
            Err("step and total must not be negative".to_owned())
        } else if self.metrics.len() > MAX_METRICS {
            Err(format!("there are more than {MAX_METRICS} metrics"))
        } else if !metrics.all(|(name, number)| is_metric_name(name) && is_number(number)) {
            Err(format!(
                "metrics must have names of at most {MAX_NAME} bytes, and numbers of at most {MAX_NUMBER}, as text"
            ))
        } else if self.artifacts.len() > MAX_ARTIFACTS {
            Err(format!("there are more than {MAX_ARTIFACTS} artifacts"))
        } else if !artifacts.all(|(name, location)| is_artifact(name, location)) {
            Err(format!(
                "artifacts must have names of at most {MAX_NAME} bytes, and paths or URIs of at most {MAX_LOCATION}"
            ))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_largest_report_is_written_and_read() {
        let name = |number: usize| format!("{number:0>2}{}", "\"".repeat(MAX_NAME - 2));
        let value = number_text(-1.234_567_890_123_456_8e-300);
        let report = ProgressReport {
            metrics: (0..MAX_METRICS)
                .map(|number| (name(number), value.clone()))
                .collect(),
            artifacts: (0..MAX_ARTIFACTS)
                .map(|number| (format!("{number:x>MAX_NAME$}"), "/".repeat(MAX_LOCATION)))
                .collect(),
            step: Some(i64::MAX),
            total: Some(i64::MAX),
        };
        let body = report.write();
        assert!(body.len() <= MAX_BODY, "{}", body.len());
        assert_eq!(ProgressReport::read(body.as_bytes()), Ok(report));
    }

    #[test]
    fn every_number_has_a_text_that_is_not_too_long() {
        for (number, expected) in [
            (f64::EPSILON, "2.220446049250313e-16"),
            (-1.234_567_890_123_456_8e-300, "-1.2345678901234568e-300"),
            (3.4e38, "3.4e38"),
            (f64::MIN, "-1.7976931348623157e308"),
            (f64::from_bits(1), "5e-324"),
            (0.000_012_345_678_901_234_567, "0.000012345678901234568"),
            (1e31, "10000000000000000000000000000000"),
            (-1e31, "-1e31"),
            (-0.0, "-0"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            let text = number_text(number);
            assert_eq!(text, expected);
            assert!(text.len() <= MAX_NUMBER);
            let read: f64 = text.parse().unwrap();
            assert_eq!(read.to_string(), number.to_string(), "nothing of it is lost");
        }
    }

    #[test]
    fn what_is_said_is_taken_but_for_the_time() {
        let said = r#"{"step": 3, "metrics": {"loss": "NaN", "lr": "0.1"}, "time": "2026-01-01T00:00:00Z", "more": 1}"#;
        let said = ProgressReport::read(said.as_bytes()).unwrap();
        assert_eq!((said.step, said.total), (Some(3), None));
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
            assert_eq!(
                ProgressReport::read(said.as_bytes()).unwrap().metrics["loss"],
                text
            );
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
    #[case(r#"{"artifacts": {"": "/a"}}"#, "artifacts")]
    #[case(r#"{"artifacts": {"model": ""}}"#, "artifacts")]
    #[case(r#"{"artifacts": {"model": "a\nb"}}"#, "artifacts")]
    #[case(r#"{"artifacts": {"model": "a\"b"}}"#, "artifacts")]
    #[case(r#"{"artifacts": {"model": 3}}"#, "no progress")]
    #[case(&format!(r#"{{"artifacts": {{"a": "{}"}}}}"#, "1".repeat(257)), "artifacts")]
    fn what_does_not_fit_is_refused(#[case] body: &str, #[case] problem: &str) {
        let said = ProgressReport::read(body.as_bytes()).unwrap_err();
        assert!(said.contains(problem), "{said}");
    }

    #[test]
    fn there_are_not_too_many_metrics() {
        let many: std::collections::BTreeMap<String, &str> =
            (0..33).map(|i| (format!("m{i}"), "1")).collect();
        let body = serde_json::json!({"metrics": many}).to_string();
        assert!(
            ProgressReport::read(body.as_bytes())
                .unwrap_err()
                .contains("more than 32")
        );
        let many: std::collections::BTreeMap<String, &str> =
            (0..9).map(|i| (format!("m{i}"), "/a")).collect();
        let body = serde_json::json!({"artifacts": many}).to_string();
        let problem = ProgressReport::read(body.as_bytes()).unwrap_err();
        assert!(problem.contains("more than 8"), "{problem}");
    }
}
