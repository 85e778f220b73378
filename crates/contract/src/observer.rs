//! What agents ask the operator, and what it answers.
//!
//! `GET` of [`start_of`], [`hosts`], [`drain`] and [`script`] is answered by lines of JSON, one for
//! each change, with empty lines as heartbeats; `PUT` of [`progress`] takes a [`ProgressReport`],
//! that of [`drain`] a [`DrainReport`](crate::drain::DrainReport), that of [`script`] a
//! [`ScriptReport`](crate::script::ScriptReport). Who asks shows the token of its pod.

mod job_hosts;
mod progress_report;

use std::time::Duration;

use serde::Deserialize;

use crate::VERSION;
pub use job_hosts::{JobHosts, RoleHosts};
pub use progress_report::{
    MAX_ARTIFACTS, MAX_BODY, MAX_LOCATION, MAX_METRICS, MAX_NAME, MAX_NUMBER, ProgressReport, is_artifact,
    is_metric_name, number_text,
};

/// For whom the token of an agent is: nobody else takes it.
pub const AUDIENCE: &str = "trainyard";

/// What a connection is upgraded to if the agent asks for it: lines from the operator, nothing from
/// the agent.
pub const LINES: &str = "trainyard-lines";
/// The media type of lines.
pub const LINES_TYPE: &str = "application/x-ndjson";

/// How long the operator is silent at most.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// After how much silence an agent takes the connection for lost.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The status of an answer of a replica that does not lead and can't take a report: the agent asks
/// again on another connection.
pub const NOT_LEADING: u16 = 421;

/// The path of a job. This and the others need no escapes where both are names of Kubernetes.
pub fn job(namespace: &str, job: &str) -> String {
    format!("/v{VERSION}/jobs/{namespace}/{job}")
}

/// The path below which it is told whether programs may start.
pub fn start(namespace: &str, job: &str) -> String {
    self::job(namespace, job) + "/start"
}

/// The same for the programs of one role, with its [`StartQuery`].
pub fn start_of(namespace: &str, job: &str, role: &str) -> String {
    format!("{}?role={role}", start(namespace, job))
}

/// What comes after the path in [`start_of`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StartQuery {
    /// The role whose programs are to start.
    pub role: String,
}

/// The path below which [`JobHosts`] are told.
pub fn hosts(namespace: &str, job: &str) -> String {
    self::job(namespace, job) + "/hosts"
}

/// The path below which a pod is told whether it is to leave, and to which it sends a
/// [`DrainReport`](crate::drain::DrainReport).
pub fn drain(namespace: &str, job: &str) -> String {
    self::job(namespace, job) + "/drain"
}

/// The path below which a launcher is told which script to run, by the replica that leads, and to
/// which it sends a [`ScriptReport`](crate::script::ScriptReport).
pub fn script(namespace: &str, job: &str) -> String {
    self::job(namespace, job) + "/script"
}

/// The path to which a [`ProgressReport`] is sent.
pub fn progress(namespace: &str, job: &str) -> String {
    self::job(namespace, job) + "/progress"
}
