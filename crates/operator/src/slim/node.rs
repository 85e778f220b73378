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
    #[serde(default)]
    effect: Box<str>,
}

/// Taints by which autoscalers, cloud providers and their helpers announce that they take a node
/// away. `docs/elasticity.md` lists them for users.
const ABOUT_TO_GO: [&str; 9] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
];

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
    /// Returns true if no more pods come to the node, because somebody has cordoned it or has
    /// announced by a taint that it is taken away. Other taints may be there for good.
    pub fn is_cordoned(&self) -> bool {
        let keeps_off = |taint: &Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
        let mut taints = self.spec.taints.iter().flatten();
        self.spec.unschedulable == Some(true)
            || taints.any(|taint| keeps_off(taint) && ABOUT_TO_GO.contains(&&*taint.key))
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

    #[test]
    fn a_node_that_is_taken_away_counts_as_cordoned() {
        let with = |key: &str, effect: &str| {
            let taints =
                format!(r#"[{{"key":"gpu","effect":"NoSchedule"}},{{"key":"{key}","effect":"{effect}"}}]"#);
            let json = format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"taints":{taints}}}}}"#);
            let node: SlimNode = serde_json::from_str(&json).unwrap();
            assert_eq!(node.state(), NodeState::Up);
            node.is_cordoned()
        };
        for key in ABOUT_TO_GO {
            assert!(with(key, "NoSchedule") && with(key, "NoExecute"), "{key}");
            assert!(!with(key, "PreferNoSchedule"), "{key} is only a candidate");
        }
        assert!(!with("dedicated", "NoSchedule"), "it may be there for good");
    }

    #[test]
    fn the_documentation_lists_the_taints() {
        let page = include_str!("../../../../docs/elasticity.md");
        for key in ABOUT_TO_GO {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
