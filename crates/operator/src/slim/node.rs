//! The fields of a node that decisions need.

use std::collections::HashMap;

use serde::Deserialize;
use trainyard_core::notice::{NodeTaint, Notice, NoticeRules};
use trainyard_core::view::NodeState;

use super::Version;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimNode {
    #[serde(default)]
    pub metadata: NodeMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// The metadata of a node. Any annotation may tell when it goes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMeta {
    #[serde(default)]
    pub name: Box<str>,
    #[serde(default)]
    pub resource_version: Version,
    #[serde(default)]
    annotations: Option<HashMap<Box<str>, Box<str>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    taints: Option<Vec<Taint>>,
    #[serde(default)]
    unschedulable: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Taint {
    key: Box<str>,
    #[serde(default)]
    value: Option<Box<str>>,
    #[serde(default)]
    effect: Box<str>,
    #[serde(default)]
    time_added: Option<Box<str>>,
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
    /// Returns what the node says about going, by these rules.
    pub fn notice(&self, rules: &NoticeRules) -> Option<Notice> {
        let taint = |taint: &Taint| NodeTaint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
            added: taint.time_added.as_deref().and_then(|added| added.parse().ok()),
        };
        let taints = self.spec.taints.iter().flatten().map(taint);
        let annotations = self.metadata.annotations.as_ref();
        rules.notice(self.spec.unschedulable == Some(true), taints, |name| {
            annotations?.get(name).map(|value| &**value)
        })
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
    use trainyard_core::notice::NoticeCause;

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
    fn a_node_that_is_about_to_go_is_up_and_says_so() {
        let notice = |json: &str| {
            let node: SlimNode = serde_json::from_str(json).unwrap();
            assert_eq!(node.state(), NodeState::Up);
            node.notice(&NoticeRules::default())
        };
        let cordoned = notice(r#"{"metadata":{"name":"n"},"spec":{"unschedulable":true}}"#).unwrap();
        assert_eq!(cordoned.why, NoticeCause::Cordon);
        let spot = r#"{"key":"aws-node-termination-handler/spot-itn","value":"i-1","effect":"NoExecute",
            "timeAdded":"2026-01-01T00:00:00Z"}"#;
        let tainted = format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"taints":[{spot}]}}}}"#);
        let at = |time: &str| Some(time.parse().unwrap());
        assert_eq!(
            notice(&tainted).and_then(|notice| notice.leave_by),
            at("2026-01-01T00:02:00Z")
        );
        let annotated = r#"{"metadata":{"name":"n","annotations":{"a":"b",
            "trainyard.dev/leave-by":"2026-01-01T00:01:00Z"}},"spec":{"unschedulable":true}}"#;
        assert_eq!(
            notice(annotated).and_then(|notice| notice.leave_by),
            at("2026-01-01T00:01:00Z")
        );
        assert_eq!(notice(r#"{"metadata":{"name":"n"}}"#), None);
    }
}
