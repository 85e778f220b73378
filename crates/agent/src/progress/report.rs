//! How a program says how far it is: lines that it appends to the file named by
//! `TRAINYARD_PROGRESS`.
//!
//! A line is a JSON object, `{"step": 10, "total": 100, "loss": 0.3}`, or the same as words,
//! `step=10 total=100 loss=0.3`. `step` and `total` are whole numbers; every other number is a
//! metric. In JSON, `artifacts` is an object of names and paths or URIs. A later line replaces what
//! it names and leaves the rest. See docs/progress.md.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use trainyard_contract::observer::{
    MAX_ARTIFACTS, MAX_LOCATION, MAX_METRICS, MAX_NAME, is_artifact, is_metric_name,
};

/// Longer lines are not read: they are no report.
const MAX_LINE: usize = 4096;

/// What a program has said so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The step it has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// The step at which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// All other numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// The path or URI of everything that it has made, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub artifacts: BTreeMap<String, String>,
}

/// Reads one line. Nothing for a blank one; otherwise a sentence that says what is wrong with it.
pub fn parse(line: &str) -> Result<Option<Report>, String> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > MAX_LINE {
        return Err(format!("the line is longer than {MAX_LINE} bytes"));
    }
    let report = if line.starts_with('{') {
        from_json(line)?
    } else {
        from_words(line)?
    };
    if report == Report::default() {
        return Err(format!(
            "there is no number in it whose name has 1 to {MAX_NAME} bytes and no control characters"
        ));
    }
    Ok(Some(report))
}

fn from_json(line: &str) -> Result<Report, String> {
    let value: Value = serde_json::from_str(line)
        .or_else(|error| serde_json::from_str(&marked(line)).map_err(|_| error))
        .map_err(|error| format!("it is no JSON: {error}"))?;
    let mut report = Report::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        if name == ARTIFACTS && !value.is_number() {
            report.put_artifacts(value);
            continue;
        }
        let no_number = || value.as_str()?.strip_prefix(MARK)?.parse().ok();
        // Other values may be meant for other readers of the file.
        if let Some(number) = value.as_f64().or_else(no_number) {
            report.put(name, number)?;
        }
    }
    if report == Report::default() && value.get(ARTIFACTS).is_some() {
        return Err(format!(
            "artifacts must be an object of names with 1 to {MAX_NAME} bytes and paths or URIs with 1 to {MAX_LOCATION}, without \
             control characters, quotes and backslashes"
        ));
    }
    Ok(report)
}

/// The member of a JSON object that names what a program has made.
const ARTIFACTS: &str = "artifacts";

/// How Python and others write what JSON has no number for.
const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
/// Begins the text that stands for one of them.
const MARK: char = '\0';
/// The same, as JSON has it.
const QUOTED_MARK: &str = r#""\u0000"#;

/// A line in which what is no number of JSON is a text that begins with the mark. What is in quotes
/// is left as it is.
fn marked(line: &str) -> String {
    let mut marked = String::with_capacity(line.len() + 16);
    let mut rest = line;
    let mut is_quoted = false;
    while let Some(first) = rest.chars().next() {
        let found = NO_NUMBERS.iter().find(|word| rest.starts_with(**word));
        let taken = if let Some(word) = found.filter(|_| !is_quoted) {
            marked.extend([QUOTED_MARK, word, "\""]);
            word.len()
        } else {
            is_quoted ^= first == '"';
            // A quote behind a backslash ends nothing.
            let escape = (is_quoted && first == '\\')
                .then(|| rest.chars().nth(1))
                .flatten();
            let taken = first.len_utf8() + escape.map_or(0, char::len_utf8);
            marked.push_str(rest.get(..taken).unwrap_or_default());
            taken
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    marked
}

fn from_words(line: &str) -> Result<Report, String> {
    let mut report = Report::default();
    let words = line.split(|c: char| c.is_whitespace() || c == ',');
    for word in words.filter(|word| !word.is_empty()) {
        let Some((name, value)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(format!("{word:?} is not of the form name=number"));
        };
        let number: f64 = value
            .parse()
            .map_err(|_| format!("{name} is {value:?}, which is no number"))?;
        report.put(name, number)?;
    }
    Ok(report)
}

impl Report {
    fn put(&mut self, name: &str, number: f64) -> Result<(), String> {
        match name {
            "step" => self.step = Some(whole(name, number)?),
            "total" => self.total = Some(whole(name, number)?),
            // The others of the line count all the same.
            _ if self.metrics.len() < MAX_METRICS && is_metric_name(name) => {
                self.metrics.insert(name.to_owned(), number);
            }
            _ => {}
        }
        Ok(())
    }

    /// What does not fit is left out: the others count all the same.
    fn put_artifacts(&mut self, value: &Value) {
        for (name, location) in value.as_object().into_iter().flatten() {
            let location = location.as_str().filter(|location| is_artifact(name, location));
            if let Some(location) = location.filter(|_| self.artifacts.len() < MAX_ARTIFACTS) {
                self.artifacts.insert(name.clone(), location.to_owned());
            }
        }
    }

    /// Replaces what a later line names.
    pub fn merge(&mut self, later: Report) {
        self.step = later.step.or(self.step);
        self.total = later.total.or(self.total);
        for (name, number) in later.metrics {
            if self.metrics.len() < MAX_METRICS || self.metrics.contains_key(&name) {
                self.metrics.insert(name, number);
            }
        }
        for (name, location) in later.artifacts {
            if self.artifacts.len() < MAX_ARTIFACTS || self.artifacts.contains_key(&name) {
                self.artifacts.insert(name, location);
            }
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is outside of the range has been refused"
)]
fn whole(name: &str, number: f64) -> Result<u64, String> {
    // Beyond this, not every whole number is one in floating point.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && (0.0..=MAX_EXACT).contains(&number) {
        Ok(number as u64)
    } else {
        Err(format!("{name} is {number}, and must be a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Report {
        parse(line).unwrap().unwrap()
    }

    #[test]
    fn json_and_words_say_the_same() {
        let report = read(r#"{"step": 10, "total": 100, "loss": 0.3, "lr": 1e-4}"#);
        assert_eq!((report.step, report.total), (Some(10), Some(100)));
        assert_eq!(report.metrics["loss"].to_string(), "0.3");
        assert_eq!(read("step=10 total=100 loss=0.3 lr=1e-4"), report);
        assert_eq!(read("  step=10, total=100,\tloss=0.3, lr=0.0001\r"), report);
    }

    #[test]
    fn a_training_that_diverges_is_seen() {
        assert!(read("step=3 loss=nan").metrics["loss"].is_nan());
        assert!(read("step=3 loss=inf").metrics["loss"].is_infinite());
    }

    /// `json.dumps` of Python writes them so.
    #[test]
    fn a_training_that_diverges_is_seen_in_json_too() {
        let line = r#"{"a NaN \"": "x", "step": 3, "loss": NaN, "up": Infinity, "down":-Infinity, "say": "\\\"NaN"}"#;
        let report = read(line);
        assert_eq!((report.step, report.metrics.len()), (Some(3), 3), "{report:?}");
        assert!(report.metrics["loss"].is_nan());
        let ends = ["up", "down"].map(|name| report.metrics[name].to_string());
        assert_eq!(ends, ["inf", "-inf"]);
        let odd = read(r#"{"loss": NaN, "NaN": 1, "ö\\": 2}"#);
        assert_eq!(
            (odd.metrics["NaN"].to_string(), odd.metrics.len()),
            ("1".to_owned(), 3)
        );
        for line in [
            r#"{"loss": NaN"#,
            r#"{"loss": aNaN}"#,
            r#"{"loss": NaNs}"#,
            r#"{"loss": "\"#,
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.starts_with("it is no JSON"), "{problem}");
        }
        assert_eq!(
            parse(r#"{"step": NaN}"#).unwrap_err(),
            "step is NaN, and must be a whole number"
        );
    }

    #[test]
    fn text_in_json_is_for_somebody_else() {
        let report = read(r#"{"step": 1.0, "host": "a", "ok": true, "nested": {"x": 1}, "none": null}"#);
        assert_eq!((report.step, report.metrics.len()), (Some(1), 0));
    }

    #[test]
    fn a_name_that_nobody_takes_is_left_out_and_in_nobodys_way() {
        let long = "x".repeat(65);
        for name in ["", "a\\nb", "\\u001b[31m", "\\u007f", "\\u009b", &*long] {
            let report = read(&format!(r#"{{"{name}": 1, "step": 2, "loss": 3}}"#));
            assert_eq!(report, read("step=2 loss=3"), "{name:?}");
            let alone = parse(&format!(r#"{{"{name}": 1}}"#)).unwrap_err();
            assert!(alone.contains("1 to 64 bytes"), "{alone}");
        }
        let fits = "x".repeat(64);
        assert!(read(&format!("{fits}=1")).metrics.contains_key(&fits));
        let many: Vec<String> = (0..MAX_METRICS).map(|i| format!("{i}{long}=1")).collect();
        assert_eq!(read(&format!("{} loss=1", many.join(" "))), read("loss=1"));
    }

    #[test]
    fn what_was_made_is_named_with_its_place() {
        let mut report =
            read(r#"{"step": 3, "artifacts": {"model": "s3://bucket/a b.pt", "log": "/data/log"}}"#);
        assert_eq!(report.step, Some(3));
        assert_eq!(report.artifacts["model"], "s3://bucket/a b.pt");
        report.merge(read(r#"{"artifacts": {"model": "s3://bucket/better.pt"}}"#));
        assert_eq!(
            (&*report.artifacts["model"], &*report.artifacts["log"]),
            ("s3://bucket/better.pt", "/data/log")
        );
        let many: Vec<String> = (0..9).map(|i| format!(r#""a{i}": "/{i}""#)).collect();
        report.merge(read(&format!(r#"{{"artifacts": {{{}}}}}"#, many.join(", "))));
        assert_eq!(report.artifacts.len(), MAX_ARTIFACTS);
        assert_eq!(
            report.artifacts["model"], "s3://bucket/better.pt",
            "what was there stays"
        );
        // A number of that name is what it always was.
        assert_eq!(read("artifacts=3").metrics["artifacts"].to_string(), "3");
        assert_eq!(read(r#"{"artifacts": 3}"#), read("artifacts=3"));
    }

    #[test]
    fn an_artifact_that_nobody_takes_is_left_out_and_in_nobodys_way() {
        let long = "x".repeat(257);
        for bad in [
            r#"{"": "/a"}"#,
            r#"{"a": ""}"#,
            r#"{"a": 3}"#,
            r#"{"a": null}"#,
            r#"{"a": "\u001b[31m"}"#,
            r#"{"a": "say \"hi\""}"#,
            r#"{"a\\": "/a"}"#,
            r#""/a""#,
            r#"["/a"]"#,
            &format!(r#"{{"a": "{long}"}}"#),
        ] {
            let report = read(&format!(r#"{{"artifacts": {bad}, "step": 2}}"#));
            assert_eq!(report, read("step=2"), "{bad}");
            let alone = parse(&format!(r#"{{"artifacts": {bad}}}"#)).unwrap_err();
            assert!(alone.starts_with("artifacts must be an object"), "{alone}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let refused = |line: &str| parse(line).unwrap_err();
        assert!(refused("{\"step\": 1").starts_with("it is no JSON"));
        assert_eq!(refused("hello"), "\"hello\" is not of the form name=number");
        assert_eq!(refused("loss=low"), "loss is \"low\", which is no number");
        assert_eq!(refused("step=1.5"), "step is 1.5, and must be a whole number");
        assert_eq!(refused("step=-1"), "step is -1, and must be a whole number");
        assert_eq!(refused("step=nan"), "step is NaN, and must be a whole number");
        assert!(refused("{}").starts_with("there is no number in it whose name"));
        assert!(refused(&"x".repeat(5000)).contains("longer than"));
        assert_eq!(parse("  \t"), Ok(None));
    }
}
