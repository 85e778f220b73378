//! The states of nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trainyard_core::notice::{Notice, NoticeRules};
use trainyard_core::view::{NodeState, Nodes, PodRow};

use crate::slim::{SlimNode, Version};

/// All nodes of the cluster, if they may be watched.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    nodes: HashMap<Arc<str>, Entry>,
    /// By what nodes say that they are about to go.
    rules: NoticeRules,
    /// One copy of every name that pods refer to.
    names: HashSet<Arc<str>>,
    /// How many names there were after unused ones were last dropped.
    names_kept: usize,
    /// The version that the watch has reached. `None` until nodes have been listed.
    reached: Option<Version>,
}

#[derive(Debug)]
struct Entry {
    state: NodeState,
    notice: Option<Arc<Notice>>,
    version: Version,
    epoch: u32,
}

impl NodeTable {
    pub(crate) fn set_rules(&mut self, rules: NoticeRules) {
        self.rules = rules;
    }

    /// Returns the one copy of a node's name.
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

    /// Takes a node. Returns its name if its state has changed, or what it says about
    /// going.
    pub(crate) fn apply(&mut self, node: &SlimNode, epoch: u32) -> Option<Arc<str>> {
        let (state, notice) = (node.state(), node.notice(&self.rules).map(Arc::new));
        let version = node.metadata.resource_version;
        if let Some(entry) = self.nodes.get_mut(&*node.metadata.name)
            && version < entry.version
        {
            entry.epoch = epoch;
            return None;
        }
        let known = self.nodes.get_key_value(&*node.metadata.name);
        let (name, is_news) = match known {
            Some((name, entry)) => (name.clone(), entry.state != state || entry.notice != notice),
            None => (
                Arc::from(&*node.metadata.name),
                state != NodeState::Up || notice.is_some(),
            ),
        };
        let entry = Entry {
            state,
            notice,
            version,
            epoch,
        };
        self.nodes.insert(name.clone(), entry);
        is_news.then_some(name)
    }

    /// Removes a node. Returns its name if it was known.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Arc<str>> {
        self.nodes.remove_entry(name).map(|(name, _)| name)
    }

    /// The watch has reached a version.
    pub(crate) fn reach(&mut self, version: Version) {
        if let Some(reached) = &mut self.reached {
            *reached = version.max(*reached);
        }
    }

    /// Drops all versions: whatever comes next is newer. Until then no node counts as gone.
    pub(crate) fn forget_versions(&mut self) {
        self.reached = None;
        for entry in self.nodes.values_mut() {
            entry.version = Version(0);
        }
    }

    /// Ends a list. Returns the names of the nodes that are gone.
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

    /// Returns the states of the nodes of some pods.
    pub(crate) fn facts<'a>(&self, pods: impl Iterator<Item = (&'a PodRow, Version)>) -> NodeFacts {
        let mut facts = NodeFacts::default();
        let Some(reached) = self.reached else { return facts };
        facts.are_known = true;
        let mut last: Option<&Arc<str>> = None;
        for (pod, version) in pods {
            let Some(name) = &pod.node else { continue };
            if last.is_some_and(|last| Arc::ptr_eq(last, name)) {
                continue;
            }
            let known = self.nodes.get(name);
            if let Some(notice) = known.and_then(|entry| entry.notice.as_ref()) {
                facts.put_notice(name, notice);
            }
            match known.map(|entry| entry.state) {
                Some(NodeState::Up) => last = Some(name),
                Some(state) => facts.put(name, state),
                // The node is newer than the watch: it is not gone.
                None if version > reached => {}
                None => facts.put(name, NodeState::Gone),
            }
        }
        facts
    }
}

/// The states of the nodes of one job's pods, and what they say about going.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    not_up: HashMap<Arc<str>, NodeState>,
    notices: HashMap<Arc<str>, Arc<Notice>>,
    are_known: bool,
}

impl NodeFacts {
    fn put(&mut self, name: &Arc<str>, state: NodeState) {
        self.not_up.entry(name.clone()).or_insert(state);
    }

    fn put_notice(&mut self, name: &Arc<str>, notice: &Arc<Notice>) {
        let known = self.notices.entry(name.clone());
        known.or_insert_with(|| notice.clone());
    }
}

impl Nodes for NodeFacts {
    fn state(&self, name: &str) -> NodeState {
        self.not_up.get(name).copied().unwrap_or(NodeState::Up)
    }

    fn notice(&self, name: &str) -> Option<&Notice> {
        self.notices.get(name).map(|notice| &**notice)
    }

    fn are_known(&self) -> bool {
        self.are_known
    }
}
