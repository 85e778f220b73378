//! What the operator tells the agent when it makes the pod: variables of the environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use trainyard_contract::directories::agent::paths;
use trainyard_contract::environment::{AUTHORITY, OBSERVER};

use crate::observer::{ObserverClient, Timeouts, authorities};

/// The longest name that Kubernetes has.
const MAX_NAME: usize = 253;

/// Where variables come from: their value by their name.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Why the agent can't begin.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A variable is not there.
    #[error("{0} is not set; set it as the operator does for the containers that it adds to a pod")]
    Missing(&'static str),
    /// A variable makes no sense.
    #[error("{name} {problem}")]
    Senseless {
        /// Its name.
        name: &'static str,
        /// What it must be.
        problem: String,
    },
}

/// A variable that must be there. An empty one counts as missing.
pub fn required(environment: Environment<'_>, name: &'static str) -> Result<String, SettingError> {
    let value = environment(name).filter(|value| !value.is_empty());
    let value = value.ok_or(SettingError::Missing(name))?;
    value.into_string().map_err(|_| senseless(name, "must be UTF-8"))
}

/// A variable that must be the name of an object of Kubernetes, so that it can be part of a path as
/// it is.
pub fn object_name(environment: Environment<'_>, name: &'static str) -> Result<String, SettingError> {
    let value = required(environment, name)?;
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_name = value.len() <= MAX_NAME
        && value.bytes().all(is_allowed)
        // `.` and `..` mean something else in a path.
        && value.bytes().any(|byte| byte != b'.');
    if is_name {
        Ok(value)
    } else {
        let problem = format!(
            "must be a name of lower case letters, digits, dashes and dots, at most {MAX_NAME} bytes long; it is {value:?}"
        );
        Err(SettingError::Senseless { name, problem })
    }
}

/// A variable that names a file, or else the file that it is by default.
pub fn file(environment: Environment<'_>, name: &str, default: &str) -> PathBuf {
    let named = environment(name).filter(|value| !value.is_empty());
    named.map_or_else(|| default.into(), PathBuf::from)
}

/// A variable that may be there, and must then be what it is to be.
pub fn optional<T: FromStr>(
    environment: Environment<'_>,
    name: &'static str,
    what: &str,
) -> Result<Option<T>, SettingError> {
    if environment(name).is_none_or(|value| value.is_empty()) {
        return Ok(None);
    }
    let value = required(environment, name)?;
    let parsed = value.parse().map_err(|_| SettingError::Senseless {
        name,
        problem: format!("must be {what}; it is {value:?}"),
    })?;
    Ok(Some(parsed))
}

/// How the operator is reached: what every mode that asks it needs.
pub fn observer(environment: Environment<'_>) -> Result<ObserverClient, SettingError> {
    let address = required(environment, OBSERVER)?;
    let address = address.parse().map_err(|problem| {
        let problem = format!("{problem}; it is {address:?}");
        SettingError::Senseless {
            name: OBSERVER,
            problem,
        }
    })?;
    let authority = required(environment, AUTHORITY)?;
    let tls = authorities(&authority).map_err(|problem| senseless(AUTHORITY, &problem.to_string()))?;
    Ok(ObserverClient {
        address,
        tls,
        token_file: file(environment, "TRAINYARD_TOKEN_FILE", paths::TOKEN),
        timeouts: Timeouts::default(),
    })
}

fn senseless(name: &'static str, problem: &str) -> SettingError {
    SettingError::Senseless {
        name,
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("mnist", None)]
    #[case("a-1.b", None)]
    #[case(
        "",
        Some("X is not set; set it as the operator does for the containers that it adds to a pod")
    )]
    #[case("..", Some(r#"it is "..""#))]
    #[case("a/b", Some("X must be a name of lower case letters"))]
    #[case("a?b", Some("X must be a name of lower case letters"))]
    #[case("a\r\nb", Some(r#"it is "a\r\nb""#))]
    #[case("Mnist", Some("lower case"))]
    #[case(&"a".repeat(254), Some("at most 253 bytes"))]
    fn names_can_stand_in_a_path(#[case] value: &str, #[case] problem: Option<&str>) {
        let result = object_name(&|_| Some(value.into()), "X");
        match problem {
            None => assert_eq!(result.unwrap(), value),
            Some(problem) => {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(problem), "{error}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let error = required(&|_| Some(OsString::from_vec(vec![0xff])), "X").unwrap_err();
        assert_eq!(error.to_string(), "X must be UTF-8");
    }

    #[rstest]
    #[case("", Ok(None))]
    #[case("7522", Ok(Some(7522)))]
    #[case("65536", Err("X must be a port; it is \"65536\""))]
    fn what_may_be_missing_is_read(#[case] value: &str, #[case] expected: Result<Option<u16>, &str>) {
        let result = optional::<u16>(&|_| Some(value.into()), "X", "a port");
        let result = result.map_err(|error| error.to_string());
        assert_eq!(result, expected.map_err(str::to_owned));
    }

    #[test]
    fn files_have_defaults() {
        assert_eq!(file(&|_| None, "X", "/a"), Path::new("/a"));
        assert_eq!(file(&|_| Some("".into()), "X", "/a"), Path::new("/a"));
        assert_eq!(file(&|_| Some("/b".into()), "X", "/a"), Path::new("/b"));
    }
}
