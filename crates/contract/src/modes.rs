//! What the agent is called to do: its first argument.

/// Waits until the programs of the pod may start.
pub const WAIT: &str = "wait";
/// Puts itself and lists of hosts into the pod.
pub const INSTALL: &str = "install";
/// Keeps the lists of hosts current.
pub const HOSTS: &str = "hosts";
/// Reports the progress of programs.
pub const PROGRESS: &str = "progress";
/// Tells the program beside it to leave, when the operator says so.
pub const DRAIN: &str = "drain";
/// Runs commands for other pods.
pub const SERVE: &str = "serve";
/// Runs the command after `--`.
pub const RUN: &str = "run";
/// The option of [`RUN`] that does what [`SERVE`] does beside the command.
pub const RUN_SERVE: &str = "--serve";
/// Runs one command for who speaks on standard input and output.
pub const ATTEND: &str = "attend";
/// Does nothing but what the first process of a container has to.
pub const STAY: &str = "stay";
