//! What is known of nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trainyard_core::view::{NodeState, Nodes, PodRow};

use crate::slim::{SlimNode, Version};

/// All nodes of the cluster, as far as they may be watched.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    nodes: HashMap<Arc<str>, Entry>,
    /// One copy of every name that pods refer to.
    names: HashSet<Arc<str>>,
    /// How many names there were after the last time unused ones were dropped.
    names_kept: usize,
    /// How far the watch has come; `None` until nodes have been listed once, or if they may not be.
    reached: Option<Version>,
}

#[derive(Debug)]
struct Entry {
    state: NodeState,
    version: Version,
    epoch: u32,
}

impl NodeTable {
    /// The one copy of a node's name.
    pub(crate) fn intern(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(&name) {
            return known.clone();
        }
        if self.names.len() > 2 * self.names_kept + 64 {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.names_kept = self.names.len();
        }
        self.names.insert(name.clone());
        name
    }

    /// Takes a node in. The node's name, if its state has changed.
    pub(crate) fn apply(&mut self, node: &SlimNode, epoch: u32) -> Option<Arc<str>> {
        let state = node.state();
        let version = node.metadata.resource_version;
        if let Some(entry) = self.nodes.get_mut(&*node.metadata.name)
            && version < entry.version
        {
            entry.epoch = epoch;
            return None;
        }
        if let Some((name, entry)) = self.nodes.get_key_value(&*node.metadata.name) {
            let name = name.clone();
            let changed = entry.state != state;
            self.nodes.insert(
                name.clone(),
                Entry {
                    state,
                    version,
                    epoch,
                },
            );
            return changed.then_some(name);
        }
        let name: Arc<str> = Arc::from(&*node.metadata.name);
        self.nodes.insert(
            name.clone(),
            Entry {
                state,
                version,
                epoch,
            },
        );
        (state != NodeState::Up).then_some(name)
    }

    /// Removes a node. Its name, if it was there.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Arc<str>> {
        self.nodes.remove_entry(name).map(|(name, _)| name)
    }

    /// How far the watch has come.
    pub(crate) fn reach(&mut self, version: Version) {
        if let Some(reached) = &mut self.reached {
            *reached = version.max(*reached);
        }
    }

    /// Forgets all versions: whatever comes next is newer. Until it has come, no node is taken for gone.
    pub(crate) fn forget_versions(&mut self) {
        self.reached = None;
        for entry in self.nodes.values_mut() {
            entry.version = Version(0);
        }
    }

    /// Ends a list. The names of nodes that are gone.
    pub(crate) fn sweep(&mut self, epoch: u32, listed: Version) -> Vec<Arc<str>> {
        let gone: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, e)| e.epoch != epoch)
            .map(|(name, _)| name.clone())
            .collect();
        for name in &gone {
            self.nodes.remove(name);
        }
        self.reached = Some(listed);
        gone
    }

    /// The facts that matter for some pods.
    pub(crate) fn facts<'a>(&self, pods: impl Iterator<Item = (&'a PodRow, Version)>) -> NodeFacts {
        let mut facts = NodeFacts::default();
        let Some(reached) = self.reached else { return facts };
        let mut last: Option<&Arc<str>> = None;
        for (pod, version) in pods {
            let Some(name) = &pod.node else { continue };
            if last.is_some_and(|last| Arc::ptr_eq(last, name)) {
                continue;
            }
            match self.nodes.get(name).map(|entry| entry.state) {
                Some(NodeState::Up) => last = Some(name),
                Some(state) => facts.put(name, state),
                // A node that our watch has not reached yet is not one that was removed.
                None if version > reached => {}
                None => facts.put(name, NodeState::Gone),
            }
        }
        facts
    }
}

/// What is known of the nodes of one job's pods.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    not_up: Vec<(Arc<str>, NodeState)>,
}

impl NodeFacts {
    fn put(&mut self, name: &Arc<str>, state: NodeState) {
        if !self.not_up.iter().any(|(known, _)| known == name) {
            self.not_up.push((name.clone(), state));
        }
    }
}

impl Nodes for NodeFacts {
    fn state(&self, name: &str) -> NodeState {
        let known = self.not_up.iter().find(|(known, _)| &**known == name);
        known.map_or(NodeState::Up, |(_, state)| *state)
    }
}
