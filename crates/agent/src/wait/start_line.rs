//! What the observer says about the start of this pod's programs: one line of JSON.

use trainyard_contract::start::Start;

use crate::text::one_line;

/// Reads a line. `None`: an empty one, which only says that the observer is alive.
pub fn parse(line: &[u8]) -> Result<Option<Start>, String> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let message = |message: &str, default: &str| match one_line(message) {
        nothing if nothing.is_empty() => default.to_owned(),
        sentence => sentence,
    };
    Ok(Some(match Start::read(line)? {
        Start::Go => Start::Go,
        Start::Wait(why) => Start::Wait(message(&why, "waits for other roles")),
        Start::Never(why) => Start::Never(message(&why, "what this pod waits for can't come any more")),
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", None)]
    #[case(" \r", None)]
    #[case(r#"{"state":"Go"}"#, Some(Start::Go))]
    #[case(r#" {"state":"Go","message":"","since":[1]} "#, Some(Start::Go))]
    #[case(r#"{"message":"for a","state":"Wait"}"#, Some(Start::Wait("for a".to_owned())))]
    #[case(r#"{"state":"Wait"}"#, Some(Start::Wait("waits for other roles".to_owned())))]
    #[case(r#"{"state":"Never","message":"a\nb"}"#, Some(Start::Never("a b".to_owned())))]
    #[case(
        r#"{"state":"Never","message":"\n"}"#,
        Some(Start::Never("what this pod waits for can't come any more".to_owned()))
    )]
    fn understands(#[case] line: &str, #[case] expected: Option<Start>) {
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
