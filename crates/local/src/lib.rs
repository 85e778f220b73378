//! The embedded cluster: what `trainyard run` runs on where there is no Kubernetes.
//!
//! It has an API server in process ([`api`]), which a [`kube::Client`] drives without sockets, and
//! nodes that run pods as processes ([`node`]). The two know each other only through the API, as in
//! a real cluster, and the operator that reconciles on it is the one that runs in production.
//!
//! It may know the Kubernetes API and this machine; it knows nothing of how a job is decided.
//!
//! # Scope
//!
//! It serves what running a job and testing the operator need, and is frozen there:
//!
//! - the kinds that the operator and its pods read or write, and custom resources with their
//!   schemas, CEL rules, status and scale;
//! - list, watch, create, update, JSON and merge patches, deletion with finalizers and garbage
//!   collection, admission in process, tokens and roles of service accounts;
//! - one scheduler, one disruption controller and one kubelet for all nodes, with the volumes,
//!   probes, hooks, limits and restart policies of pods, their logs and `exec`.
//!
//! Everything else is refused with the code of Kubernetes and a sentence: server-side apply,
//! strategic merge patches, deletion of collections, attach, port forwarding. A feature is added
//! only when a job or a test of the operator can't do without it; who needs more needs a real
//! cluster.

pub mod api;
mod budget;
pub mod cluster;
pub mod env;
mod host;
pub mod node;
mod reenter;
mod rules;
pub mod yard;

pub use reenter::reenter;
