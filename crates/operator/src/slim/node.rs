//! The fields of a node that decisions need.

use serde::Deserialize;
use trainyard_core::view::NodeState;

use super::Meta;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimNode {
    #[serde(default)]
    pub metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    taints: Option<Vec<Taint>>,
    #[serde(default)]
    unschedulable: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Taint {
    key: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: Box<str>,
    status: Box<str>,
}

impl SlimNode {
    /// Returns true if no more pods come to the node, because somebody has cordoned it.
    pub fn is_cordoned(&self) -> bool {
        self.spec.unschedulable == Some(true)
    }

    /// Returns the state, by the node's condition and by the taints that the cluster sets.
    pub fn state(&self) -> NodeState {
        let tainted = |key: &str| self.spec.taints.iter().flatten().any(|taint| &*taint.key == key);
        if tainted("node.kubernetes.io/out-of-service") {
            return NodeState::Gone;
        }
        let mut conditions = self.status.conditions.iter().flatten();
        let unready =
            conditions.any(|condition| &*condition.type_ == "Ready" && &*condition.status != "True");
        if unready || tainted("node.kubernetes.io/unreachable") {
            NodeState::Down
        } else {
            NodeState::Up
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(json: &str) -> NodeState {
        serde_json::from_str::<SlimNode>(json).unwrap().state()
    }

    #[test]
    fn a_node_is_up_down_or_gone() {
        let with = |taints: &str, ready: &str| {
            state(&format!(
                r#"{{"metadata":{{"name":"n"}},"spec":{{"taints":{taints}}},
                "status":{{"conditions":[{{"type":"MemoryPressure","status":"False"}},{{"type":"Ready","status":"{ready}"}}]}}}}"#
            ))
        };
        assert_eq!(with("null", "True"), NodeState::Up);
        assert_eq!(
            with(r#"[{"key":"gpu","effect":"NoSchedule"}]"#, "True"),
            NodeState::Up
        );
        assert_eq!(with("[]", "False"), NodeState::Down);
        assert_eq!(with("[]", "Unknown"), NodeState::Down);
        assert_eq!(
            with(r#"[{"key":"node.kubernetes.io/unreachable"}]"#, "True"),
            NodeState::Down
        );
        assert_eq!(
            with(r#"[{"key":"node.kubernetes.io/out-of-service"}]"#, "Unknown"),
            NodeState::Gone
        );
        assert_eq!(state(r#"{"metadata":{"name":"new"}}"#), NodeState::Up);
    }

    #[test]
    fn a_cordoned_node_is_up() {
        let json = r#"{"metadata":{"name":"n"},"spec":{"unschedulable":true}}"#;
        let node: SlimNode = serde_json::from_str(json).unwrap();
        assert_eq!((node.state(), node.is_cordoned()), (NodeState::Up, true));
        assert!(!SlimNode::default().is_cordoned());
    }
}
