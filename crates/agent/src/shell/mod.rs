//! The remote shell: runs commands in another pod of the same job, as `ssh` would, without an account or a key of a person.
//!
//! Both sides have the identity of the job, a certificate that an authority has signed which was made for this job alone,
//! and take nobody else. Or the Kubernetes API carries what they say, and knows who may. Either way they speak in frames. Whoever sends data may send no more than the other side has room
//! for, stream by stream, so that both sides can always read: a heartbeat or a signal never waits behind an output
//! that nobody takes.

pub mod client;
mod frame;
mod identity;
mod link;
pub mod server;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::{self, Environment, SettingError};

pub use frame::{Decoder, Frame, FrameError, PROTOCOL, Stream, WINDOW};
pub use identity::{Identity, IdentityError};
pub use link::{Link, LinkError};

/// How often each side shows that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The port, where nothing else is said.
const DEFAULT_PORT: u16 = 7522;
/// Where the identity of the job is, where nothing else is said.
const DEFAULT_IDENTITY: &str = "/var/run/trainyard-identity";

/// What is sent at once of a stream. It fits into one record of TLS with its head.
const CHUNK: usize = 16 * 1024 - 64;

const PORT: &str = "TRAINYARD_SHELL_PORT";

fn port(environment: Environment<'_>) -> Result<u16, SettingError> {
    let port = settings::optional(environment, PORT, "a port from 0 to 65535")?;
    Ok(port.unwrap_or(DEFAULT_PORT))
}

fn identity_directory(environment: Environment<'_>) -> PathBuf {
    settings::file(environment, "TRAINYARD_IDENTITY", DEFAULT_IDENTITY)
}
