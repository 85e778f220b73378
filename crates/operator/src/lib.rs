//! The part of Trainyard that reads from and writes to the API server.
//!
//! This crate knows Kubernetes clients, time and the network. It takes no decision about a job:
//! those are in `trainyard_core::plan`.
//!
//! One reconcile goes through these modules:
//!
//! ```text
//! listwatch ─ watch ──> slim ──> index ──> controller ──> reconcile ──> act ──> the API server
//!                                  ^                         │          │
//!                                  └──── answers ────────────┼──────────┘
//!                                                            └──> events
//! ```
//!
//! `controller` runs them while [`leader`] lets it: for TrainingJobs in [`engine`], for ScaleIn and
//! ScaleOut in `scale_requests`, for kinds of other operators in `foreign`. [`observer`] tells pods
//! what the index knows. [`run()`] adds the election, the webhooks and the servers.

mod act;
mod admission;
mod agent;
pub mod backoff;
pub mod budget;
pub mod certs;
pub mod client;
pub mod clock;
mod controller;
mod declarations;
pub mod engine;
mod events;
mod foreign;
mod http;
pub mod identity;
mod index;
pub mod leader;
mod list_scopes;
mod listwatch;
pub mod metrics;
mod nodes;
pub mod observer;
mod open_files;
pub mod options;
mod reconcile;
mod scale_requests;
mod settings;
mod slim;
mod watch;

mod run;

pub use agent::{AGENT, OBSERVER_PORT};
pub use open_files::allow_many_connections;
pub use options::{Options, UnknownKind};
pub use run::{Error, WEBHOOK_SERVICE, run};
