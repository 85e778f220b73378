//! What the operator and the agent have agreed on: each name, place, number and message that both
//! of them know is here, once, and what one side writes is beside how the other side reads it.
//!
//! It may know the text of both sides' messages and nothing else: no Kubernetes types, no IO, no
//! clock, and no dependency that the agent does not have anyway. It takes no decision. What only
//! one side knows stays with that side. What agents say to each other is
//! `crates/agent/src/shell/frame.rs`, which has a version of its own.
//!
//! Start with [`observer`], what an agent asks and is told, and [`environment`], what the operator
//! tells it when it makes a pod. [`directories`] says where files are in pods, [`modes`] how the
//! agent is called, [`start`] how a wait ends, [`drain`] how
//! a pod leaves, [`script`] how a launcher runs a script, [`installation`] and [`host_list`] which
//! lists of hosts a pod has, and [`shell`] how a program is started in another pod.
//!
//! # Who meets whom
//!
//! An agent is as old as its pod, and pods outlive operators. So the two sides meet like this:
//!
//! - An agent of the last release asks this operator: its pod was there before the upgrade.
//! - An agent of this release asks an operator of the last one: every replica serves the observer,
//!   and while they are replaced, or after a rollback, one of the last release may be asked.
//! - Agents of both releases are in one job: a pod was replaced after the upgrade.
//! - An agent of another release reads the variables of this operator: `--agent-image` says so.
//!
//! # What may change within a version
//!
//! These may: a new field in an answer of the observer or in a report, which readers pass over if
//! they do not know it, and which is no loss to them; a new request, if the agent can do without an
//! answer; a new variable, if an agent that does not know it does the right thing. A new field of
//! [`installation::Installation`] may be there only in pods that can't do without it, because
//! agents refuse one that they don't know: to leave a part of their task undone would be worse.
//!
//! These may not: another name, place, number, unit or default; a field, a state or a format that
//! is gone or means something else; a value that the last release refuses.
//!
//! Whatever else has to change needs the next [`VERSION`]. For a release the operator then serves
//! both, and `tests/v1` stays as it is: the recorded texts of version 1, which the tests of this
//! crate, of the operator and of the agent read.
//!
//! Nothing is negotiated, because nobody would choose: a pod's variables are fixed before its agent
//! runs, and a request has the version in its path, so that an operator of two versions has two
//! paths, and one that does not know the version says 404. The release of an agent is in the
//! `User-Agent` of its requests, for people who read logs.

pub mod directories;
pub mod drain;
pub mod environment;
pub mod host_list;
pub mod indices;
pub mod installation;
pub mod modes;
pub mod observer;
pub mod script;
pub mod shell;
pub mod start;

/// The version of everything in this crate.
pub const VERSION: u32 = 1;
