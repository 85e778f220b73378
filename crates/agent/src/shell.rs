//! The remote shell: runs commands in another pod of the same job, as `ssh` would, without an
//! account or a key of a person.
//!
//! Both sides have a certificate of an authority that was made for this job alone, and accept no
//! other, nor one of another attempt of the job. Or the Kubernetes API connects and authorizes
//! them. Either way they exchange frames. Each stream has a window, so that both sides can always
//! read: a heartbeat or a signal never waits behind an output that is not read.

pub mod client;
mod error;
mod frame;
mod identity;
mod link;
mod poll;
pub mod server;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use trainyard_contract::directories;
use trainyard_contract::environment::{IDENTITY, SHELL_ATTEMPT, SHELL_IDLE_TIMEOUT, SHELL_PORT};
use trainyard_contract::shell::{IDLE_TIMEOUT_SECONDS, PORT};

use crate::settings::{self, Environment, SettingError};

pub use error::LinkError;
pub use frame::{Decoder, Frame, FrameError, PROTOCOL, Stream, WINDOW};
pub use identity::{Identity, IdentityError};
pub use link::Link;

/// How often each side sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The most that is sent of a stream at once. With its header it fits into one TLS record.
const MAX_CHUNK: usize = 16 * 1024 - 64;

fn port(environment: Environment<'_>) -> Result<u16, SettingError> {
    let port = settings::optional(environment, SHELL_PORT, "a port from 0 to 65535")?;
    Ok(port.unwrap_or(PORT))
}

/// How often all pods of the job have started anew together.
fn attempt(environment: Environment<'_>) -> Result<u32, SettingError> {
    let attempt = settings::optional(environment, SHELL_ATTEMPT, "a whole number")?;
    Ok(attempt.unwrap_or_default())
}

/// How long the other side may send nothing, if the environment says so.
fn idle_timeout(environment: Environment<'_>) -> Result<Option<Duration>, SettingError> {
    let (least, most) = (IDLE_TIMEOUT_SECONDS.start(), IDLE_TIMEOUT_SECONDS.end());
    let what = format!("a whole number of seconds from {least} to {most}");
    match settings::optional(environment, SHELL_IDLE_TIMEOUT, &what)? {
        Some(seconds) if !IDLE_TIMEOUT_SECONDS.contains(&seconds) => Err(SettingError::Senseless {
            name: SHELL_IDLE_TIMEOUT,
            problem: format!("must be {what}; it is {seconds}"),
        }),
        seconds => Ok(seconds.map(Duration::from_secs)),
    }
}

fn identity_directory(environment: Environment<'_>) -> PathBuf {
    settings::file(environment, IDENTITY, directories::identity::DIRECTORY)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", Ok(None))]
    #[case("2", Ok(Some(2)))]
    #[case("86400", Ok(Some(86_400)))]
    #[case("1", Err("it is 1"))]
    #[case("86401", Err("it is 86401"))]
    #[case("-3", Err("it is \"-3\""))]
    #[case("4s", Err("it is \"4s\""))]
    fn idle_timeout_has_bounds(#[case] value: &str, #[case] expected: Result<Option<u64>, &str>) {
        let found = idle_timeout(&|name| (name == SHELL_IDLE_TIMEOUT).then(|| value.into()));
        let found = found.map(|time| time.map(|time| time.as_secs()));
        let begin = "TRAINYARD_SHELL_SILENCE_SECONDS must be a whole number of seconds from 2 to 86400; ";
        let expected = expected.map_err(|end| format!("{begin}{end}"));
        assert_eq!(found.map_err(|error| error.to_string()), expected);
    }
}
