//! What tests are told about a cluster: `state.json` in its directory.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::node;
use super::plan::{Layout, NODES, Plan};
use crate::cluster_programs::Programs;

/// A cluster, described.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server's URL.
    pub server: String,
    /// The programs of the cluster, with kubectl.
    pub programs: Programs,
    /// Under which address pods and the API server reach processes of the host; none without nodes.
    pub host_address: Option<String>,
    /// The pods' network; none without nodes.
    pub pod_cidr: Option<String>,
    /// The network of Services; none without nodes.
    pub service_cidr: Option<String>,
    /// The nodes.
    pub nodes: Vec<NodeState>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// The socket of its containerd.
    pub containerd_socket: PathBuf,
    /// The component that is its kubelet.
    pub kubelet: String,
}

impl State {
    /// The description of a plan.
    pub fn new(plan: &Plan) -> Self {
        let addresses = plan.addresses();
        let nodes = addresses.into_iter().flat_map(|addresses| {
            NODES.iter().enumerate().map(move |(index, name)| NodeState {
                name: (*name).to_owned(),
                address: addresses.node(index).to_string(),
                containerd_socket: node::socket(&plan.dir, name),
                kubelet: node::kubelet_name(name),
            })
        });
        Self {
            kubeconfig: plan.layout().kubeconfig(),
            server: plan.server(),
            programs: plan.programs.clone(),
            host_address: addresses.map(|addresses| addresses.host().to_string()),
            pod_cidr: addresses.map(super::plan::Addresses::pods),
            service_cidr: addresses.map(super::plan::Addresses::services),
            nodes: nodes.collect(),
        }
    }

    /// Reads it from a cluster's directory.
    pub fn read(layout: &Layout) -> Result<Self> {
        let path = layout.state();
        let content = fs::read(&path)
            .with_context(|| format!("there is no cluster: {} can't be read", path.display()))?;
        serde_json::from_slice(&content).with_context(|| {
            format!(
                "{} can't be understood; end that cluster and start it again",
                path.display()
            )
        })
    }

    /// Writes it to a cluster's directory.
    pub fn write(&self, layout: &Layout) -> Result<()> {
        fs::write(layout.state(), serde_json::to_vec_pretty(self)?)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Ports;
    use super::*;

    fn plan(dir: &std::path::Path, slot: Option<u8>) -> Plan {
        Plan {
            dir: dir.to_path_buf(),
            programs: Programs {
                bin: "/bin".into(),
                system: PathBuf::new(),
            },
            slot,
            ports: Ports::OWN_NETWORK,
            controllers: true,
            gang: true,
            images: Vec::new(),
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path(), Some(1));
        State::new(&plan).write(&plan.layout()).unwrap();
        let state = State::read(&plan.layout()).unwrap();
        assert_eq!(state.server, "https://10.89.0.1:6443");
        assert_eq!(state.nodes[1].name, "node-b");
        assert_eq!(state.nodes[1].address, "10.89.0.3");
        assert_eq!(state.nodes[1].kubelet, "kubelet-node-b");
        assert_eq!(state.service_cidr.as_deref(), Some("10.97.0.0/16"));
    }

    #[test]
    fn without_nodes_it_is_on_the_loopback() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(&plan(dir.path(), None));
        assert_eq!(state.server, "https://127.0.0.1:6443");
        assert!(state.nodes.is_empty() && state.host_address.is_none());
    }

    #[test]
    fn no_cluster_is_said_plainly() {
        let dir = tempfile::tempdir().unwrap();
        let error = State::read(&Layout::new(dir.path())).unwrap_err();
        assert!(error.to_string().contains("no cluster"), "{error}");
    }
}
