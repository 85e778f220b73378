//! Every decision Trainyard takes, as pure functions.
//!
//! Nothing here reads a clock, a socket or a file, and nothing here can fail half-way:
//! [`plan::plan`] takes a [`view::View`] of one job and returns a [`plan::Plan`], which says what
//! to do next. The operator carries it out, on a cluster and on a laptop.
//!
//! The way in: [`admission`] for defaults and validation, [`plan`] for one reconcile,
//! [`frameworks`] for what each framework says, [`deduce`] for the tables by which states are
//! deduced from pods. [`model`] holds the vocabulary; modules depend on each other in one
//! direction, which `make lint` checks.

pub mod admission;
pub mod agent;
mod assess;
pub mod backoff;
pub mod bounds;
pub mod build;
mod cel;
mod container;
pub mod declared;
pub mod deduce;
mod defaults;
pub mod depends;
mod dialect;
pub mod disruption_budget;
pub mod exec;
mod files;
pub mod foreign;
pub mod frameworks;
mod group_restart;
mod immutable;
pub mod indices;
pub mod job;
pub mod local_state;
pub mod members;
mod metadata;
pub mod model;
pub mod notice;
pub mod observe;
mod parse;
pub mod passed_on;
pub mod plan;
pub mod registry;
pub mod remote_shell;
mod replacements;
mod requested_size;
pub mod restart;
pub mod scale_request;
mod scaling;
mod scripts;
mod settings;
mod spot;
mod status;
pub mod view;
