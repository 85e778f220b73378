//! The hands of Trainyard: it watches, keeps an index, asks `trainyard-core` what to do, and does it.
//!
//! This crate knows Kubernetes clients, time and the network, and takes no decision about a job: those are in
//! `trainyard_core::plan`.

pub mod admission;
pub mod certs;
pub mod client;
pub mod http;
pub mod leader;
pub mod metrics;
