//! The writer of Trainyard: it watches, keeps an index, asks `trainyard-core` what to do, and does it.
//!
//! This crate knows Kubernetes clients, time and the network, and takes no decision about a job: those are in
//! `trainyard_core::plan`.
//!
//! One reconcile goes through these modules:
//!
//! ```text
//! listwatch ─ watch ──> slim ──> index ──> queue ──> reconcile ──> act ──> the API server
//!                                  ^                     │          │
//!                                  └──── answers ────────┼──────────┘
//!                                                        └──> events
//! ```
//!
//! [`engine`] drives them while [`leader`] lets it; `foreign` does the same for kinds of other operators, beside it; [`observer`] tells pods what the index knows; [`run`] adds what
//! surrounds them.

pub mod act;
pub mod admission;
mod agent;
mod backoff;
pub mod certs;
pub mod client;
pub mod clock;
mod controller;
pub mod engine;
pub mod events;
mod foreign;
pub mod http;
pub mod identity;
pub mod index;
pub mod leader;
pub mod listwatch;
pub mod metrics;
pub mod nodes;
pub mod observer;
mod open_files;
pub mod options;
pub mod reconcile;
pub mod settings;
pub mod slim;
pub mod watch;

mod run;

pub use agent::{AGENT, OBSERVER_PORT};
pub use open_files::allow_many_connections;
pub use options::{Options, UnknownKind};
pub use run::{Error, WEBHOOK_SERVICE, run};
