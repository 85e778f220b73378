//! What the observer says about the start of this pod's programs: one line of JSON.

use serde::Deserialize;

use crate::text::one_line;

/// Whether the programs of this pod may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not yet, and why.
    Wait(String),
    /// Now.
    Go,
    /// Never, and why.
    Never(String),
}

/// Fields that are not known are of a newer operator, and none of our business.
#[derive(Deserialize)]
struct Line {
    state: String,
    #[serde(default)]
    message: String,
}

/// Reads a line. `None`: an empty one, which only says that the observer is alive.
pub fn parse(line: &[u8]) -> Result<Option<Verdict>, String> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let Line { state, message } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let said = |default: &str| match one_line(&message) {
        nothing if nothing.is_empty() => default.to_owned(),
        sentence => sentence,
    };
    match &*state {
        "Wait" => Ok(Some(Verdict::Wait(said("waits for other roles")))),
        "Go" => Ok(Some(Verdict::Go)),
        "Never" => Ok(Some(Verdict::Never(said(
            "what this pod waits for can't come any more",
        )))),
        _ => Err(format!("there is no state {state:?}")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", None)]
    #[case(" \r", None)]
    #[case(r#"{"state":"Go"}"#, Some(Verdict::Go))]
    #[case(r#" {"state":"Go","message":"","since":[1]} "#, Some(Verdict::Go))]
    #[case(r#"{"message":"for a","state":"Wait"}"#, Some(Verdict::Wait("for a".to_owned())))]
    #[case(r#"{"state":"Wait"}"#, Some(Verdict::Wait("waits for other roles".to_owned())))]
    #[case(r#"{"state":"Never","message":"a\nb"}"#, Some(Verdict::Never("a b".to_owned())))]
    #[case(
        r#"{"state":"Never","message":"\n"}"#,
        Some(Verdict::Never("what this pod waits for can't come any more".to_owned()))
    )]
    fn understands(#[case] line: &str, #[case] expected: Option<Verdict>) {
        assert_eq!(parse(line.as_bytes()), Ok(expected));
    }

    #[rstest]
    #[case(b"Go", "expected value")]
    #[case(b"{", "EOF")]
    #[case(b"{}", "missing field `state`")]
    #[case(b"{\"state\":1}", "invalid type")]
    #[case(b"{\"state\":\"go\"}", "there is no state \"go\"")]
    #[case(b"{\"state\":\"Go\"} {\"state\":\"Go\"}", "trailing")]
    #[case(b"{\"state\":\"\xff\"}", "invalid unicode")]
    fn refuses(#[case] line: &[u8], #[case] expected: &str) {
        let problem = parse(line).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    }
}
