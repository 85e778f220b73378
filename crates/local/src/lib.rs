//! The embedded cluster: what `trainyard run` runs on where there is no Kubernetes.
//!
//! It has an API server in process ([`api`]), which a [`kube::Client`] drives without sockets, and
//! nodes that run pods as processes ([`node`]). The two know each other only through the API, as in
//! a real cluster, and the operator that reconciles on it is the one that runs in production.
//!
//! It may know the Kubernetes API and this machine; it knows nothing of how a job is decided.

pub mod api;
pub mod cluster;
pub mod env;
mod host;
pub mod node;
mod reenter;
mod rules;
pub mod yard;

pub use reenter::reenter;
