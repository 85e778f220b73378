//! That a node is about to go: how it says so, until when its pods may stay, and who stays all the
//! same.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PodSpec, Toleration};

/// The annotation that tells when a node goes that is cordoned or tainted, where the operator is
/// not told another. Alone it says nothing: it keeps no pods off, so that those which leave would
/// come again.
const LEAVE_BY: &str = "trainyard.dev/leave-by";
/// The taint that a cordoned node has.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// The taints by which autoscalers, cloud providers and their helpers announce that they take a
/// node away, with the seconds that are left from then on, where the provider says so.
/// `docs/elasticity.md` lists them for users.
const TAINTS: [(&str, Option<i64>); 9] = [
    ("ToBeDeletedByClusterAutoscaler", None),
    ("karpenter.sh/disrupted", None),
    ("karpenter.sh/disruption", None),
    // A spot machine of Google: its kubelet gives pods of users the first 15 of 30 seconds.
    ("cloud.google.com/impending-node-termination", Some(15)),
    ("node.cloudprovider.kubernetes.io/shutdown", None),
    ("aws-node-termination-handler/asg-lifecycle-termination", None),
    ("aws-node-termination-handler/rebalance-recommendation", None),
    ("aws-node-termination-handler/scheduled-maintenance", None),
    ("aws-node-termination-handler/spot-itn", Some(120)),
];

/// By what nodes say that they are about to go, besides being cordoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeRules {
    /// Taints with the effect `NoSchedule` or `NoExecute`.
    pub taints: Vec<TaintRule>,
    /// Names of annotations whose value is the time until which pods may stay.
    pub annotations: Vec<String>,
}

/// A taint by which nodes say that they are about to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintRule {
    /// Its key.
    pub key: String,
    /// How long pods may stay from then on. `None`: as long as their job says.
    pub seconds: Option<i64>,
}

impl Default for NoticeRules {
    fn default() -> Self {
        let rule = |(key, seconds): (&str, Option<i64>)| TaintRule {
            key: key.to_owned(),
            seconds,
        };
        Self {
            taints: TAINTS.into_iter().map(rule).collect(),
            annotations: vec![LEAVE_BY.to_owned()],
        }
    }
}

/// That a node is about to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How it says so. What leaves the least time comes first.
    pub why: NoticeCause,
    /// What it says besides: a pod stays only if it tolerates all.
    pub others: Vec<NoticeCause>,
    /// When it goes, if that is known.
    pub leave_by: Option<Timestamp>,
    /// Otherwise: how many seconds are left from when this was seen first.
    pub seconds: Option<i64>,
}

/// How a node says that it is about to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeCause {
    /// It was cordoned.
    Cordon,
    /// It has this taint.
    Taint(NodeTaint),
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTaint {
    /// Its key.
    pub key: Box<str>,
    /// Its value.
    pub value: Box<str>,
    /// What it does to pods that do not tolerate it.
    pub effect: Box<str>,
    /// When it was added. Most taints do not say so.
    pub added: Option<Timestamp>,
}

impl NoticeRules {
    /// What a node says, by its parts. The one that leaves the least time comes first, and a cordon
    /// last.
    pub fn notice<'n>(
        &self,
        is_cordoned: bool,
        taints: impl Iterator<Item = NodeTaint>,
        annotation: impl Fn(&str) -> Option<&'n str>,
    ) -> Option<Notice> {
        let of_cordon = is_cordoned.then(|| Notice::of(NoticeCause::Cordon));
        let of_taints = taints.filter_map(|taint| self.of_taint(taint));
        let mut all: Vec<Notice> = of_taints.chain(of_cordon).collect();
        all.sort_by_key(Notice::haste);
        let mut all = all.into_iter();
        let notice = all.next()?;
        let others = all.map(|other| other.why).collect();
        let times = self.annotations.iter().filter_map(|name| annotation(name));
        let announced = times.filter_map(|time| time.parse().ok());
        Some(Notice {
            leave_by: notice.leave_by.into_iter().chain(announced).min(),
            others,
            ..notice
        })
    }

    fn of_taint(&self, taint: NodeTaint) -> Option<Notice> {
        if !matches!(&*taint.effect, "NoSchedule" | "NoExecute") {
            return None;
        }
        let rule = self.taints.iter().find(|rule| *rule.key == *taint.key)?;
        let left = rule.seconds.map(SignedDuration::from_secs);
        Some(Notice {
            leave_by: taint
                .added
                .zip(left)
                .and_then(|(added, left)| added.checked_add(left).ok()),
            seconds: rule.seconds,
            ..Notice::of(NoticeCause::Taint(taint))
        })
    }
}

impl Notice {
    /// One that says nothing of a time.
    pub fn of(why: NoticeCause) -> Self {
        Self {
            why,
            others: Vec::new(),
            leave_by: None,
            seconds: None,
        }
    }

    /// By which notices are sorted: those that say when the node goes come first.
    fn haste(&self) -> (bool, Timestamp, i64) {
        let is_open = self.leave_by.is_none() && self.seconds.is_none();
        let at = self.leave_by.unwrap_or(Timestamp::MAX);
        (is_open, at, self.seconds.unwrap_or(i64::MAX))
    }

    /// Until when pods may stay that are told now. `None`: the node does not say. A time that is
    /// over is of another day, or of another clock: the node is still there.
    pub fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let left = self.seconds.map(SignedDuration::from_secs);
        self.leave_by
            .filter(|leave_by| *leave_by > now)
            .or_else(|| left.and_then(|left| now.checked_add(left).ok()))
    }

    /// Returns true if pods of a template stay on the node, because they tolerate all that it says
    /// or were made for this very node.
    pub fn spares(&self, pod: &PodSpec) -> bool {
        let is_tolerated = |cause: &NoticeCause| {
            let (key, value, effect) = match cause {
                NoticeCause::Taint(taint) => (&*taint.key, &*taint.value, &*taint.effect),
                NoticeCause::Cordon => (CORDON, "", "NoSchedule"),
            };
            let mut tolerations = pod.tolerations.iter().flatten();
            tolerations.any(|toleration| tolerates(toleration, key, value, effect))
        };
        let mut causes = std::iter::once(&self.why).chain(&self.others);
        pod.node_name.is_some() || causes.all(is_tolerated)
    }

    /// What is said of a node, as a part of a sentence.
    pub fn describe(&self, node: &str) -> String {
        match &self.why {
            NoticeCause::Cordon => format!("{node} is cordoned"),
            NoticeCause::Taint(taint) => format!("{node} has the taint {}", taint.key),
        }
    }
}

/// Returns true if a toleration matches a taint, as the scheduler has it, and for good.
fn tolerates(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let given = |field: &Option<String>| field.clone().unwrap_or_default();
    let is_any = given(&toleration.key).is_empty();
    let of_effect = given(&toleration.effect);
    let is_value = match &*given(&toleration.operator) {
        "Exists" => true,
        "" | "Equal" => !is_any && given(&toleration.value) == value,
        _ => false,
    };
    let is_for_good = effect != "NoExecute" || toleration.toleration_seconds.is_none();
    let is_meant = is_any || given(&toleration.key) == key;
    is_meant && (of_effect.is_empty() || of_effect == effect) && is_value && is_for_good
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str, added: Option<&str>) -> NodeTaint {
        NodeTaint {
            key: key.into(),
            value: "soon".into(),
            effect: effect.into(),
            added: added.map(|added| added.parse().unwrap()),
        }
    }

    fn notice(is_cordoned: bool, taints: &[NodeTaint], annotations: &[(&str, &str)]) -> Option<Notice> {
        let annotation = |wanted: &str| {
            let found = annotations.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| *value)
        };
        NoticeRules::default().notice(is_cordoned, taints.iter().cloned(), annotation)
    }

    #[test]
    fn a_node_that_is_taken_away_says_so() {
        for (key, seconds) in TAINTS {
            for effect in ["NoSchedule", "NoExecute"] {
                let taints = [taint("gpu", effect, None), taint(key, effect, None)];
                let notice = notice(true, &taints, &[]).unwrap();
                assert_eq!(notice.seconds, seconds);
                assert_eq!(notice.why, NoticeCause::Taint(taint(key, effect, None)));
                assert_eq!(notice.others, [NoticeCause::Cordon]);
            }
            let candidate = [taint(key, "PreferNoSchedule", None)];
            assert_eq!(notice(false, &candidate, &[]), None, "{key} is only a candidate");
        }
        let dedicated = [taint("dedicated", "NoSchedule", None)];
        assert_eq!(notice(false, &dedicated, &[]), None, "it may be there for good");
        let cordoned = notice(true, &dedicated, &[]).unwrap();
        assert_eq!(cordoned.why, NoticeCause::Cordon);
    }

    #[test]
    fn what_leaves_the_least_time_holds() {
        let spot = "aws-node-termination-handler/spot-itn";
        let taints = [
            taint("ToBeDeletedByClusterAutoscaler", "NoSchedule", None),
            taint(spot, "NoExecute", Some("2026-01-01T00:00:00Z")),
        ];
        let by_taint: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let seen = notice(true, &taints, &[]).unwrap();
        assert_eq!((seen.leave_by, seen.seconds), (Some(by_taint), Some(120)));
        let sooner = "2026-01-01T00:01:00Z";
        let seen = notice(true, &taints, &[(LEAVE_BY, sooner)]).unwrap();
        assert_eq!(seen.leave_by, Some(sooner.parse().unwrap()));
        assert_eq!(seen.describe("n"), format!("n has the taint {spot}"));
        let cordoned = notice(true, &[], &[(LEAVE_BY, sooner)]).unwrap();
        assert_eq!(cordoned.leave_by, Some(sooner.parse().unwrap()));
        let cordoned = notice(true, &[], &[(LEAVE_BY, "soon")]).unwrap();
        assert_eq!(cordoned.leave_by, None, "that is no time");
        assert_eq!(
            notice(false, &[], &[(LEAVE_BY, sooner)]),
            None,
            "pods would come there again"
        );
    }

    #[test]
    fn a_time_that_is_over_kills_nobody() {
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        for over in [
            "2025-12-01T00:00:00Z",
            "-009999-01-01T00:00:00Z",
            "2026-01-01T00:00:00Z",
        ] {
            let cordoned = notice(true, &[], &[(LEAVE_BY, over)]).unwrap();
            assert_eq!(cordoned.deadline(now), None, "{over}");
        }
        let spot = "aws-node-termination-handler/spot-itn";
        let old = [taint(spot, "NoExecute", Some("2025-12-01T00:00:00Z"))];
        let old = notice(false, &old, &[]).unwrap();
        assert_eq!(old.deadline(now), Some(at("2026-01-01T00:02:00Z")));
    }

    #[test]
    fn who_tolerates_only_a_part_of_what_the_node_says_leaves() {
        let pod = |json: &str| serde_json::from_str::<PodSpec>(json).unwrap();
        let spot = "aws-node-termination-handler/spot-itn";
        let said = notice(true, &[taint(spot, "NoExecute", None)], &[]).unwrap();
        for (tolerations, stays) in [
            (r#"{"operator": "Exists"}"#, true),
            (r#"{"operator": "Exists", "effect": "NoExecute"}"#, false),
            (r#"{"operator": "Exists", "effect": "NoSchedule"}"#, false),
            (r#"{"operator": "Exists", "tolerationSeconds": 60}"#, false),
        ] {
            let pod = pod(&format!(
                r#"{{"containers": [], "tolerations": [{tolerations}]}}"#
            ));
            assert_eq!(said.spares(&pod), stays, "{tolerations}");
        }
    }

    #[test]
    fn who_tolerates_what_the_node_says_stays() {
        let said = Notice::of;
        let pod = |json: &str| serde_json::from_str::<PodSpec>(json).unwrap();
        let tolerating = |toleration: &str| {
            pod(&format!(
                r#"{{"containers": [], "tolerations": [{{"key": "gpu"}}, {toleration}]}}"#
            ))
        };
        let tainted = said(NoticeCause::Taint(taint("going", "NoExecute", None)));
        let cordoned = said(NoticeCause::Cordon);
        for (toleration, of_taint, of_cordon) in [
            (r#"{"key": "going", "operator": "Exists"}"#, true, false),
            (r#"{"key": "going", "value": "soon"}"#, true, false),
            (r#"{"key": "going", "value": "late"}"#, false, false),
            (
                r#"{"key": "going", "operator": "Exists", "effect": "NoExecute"}"#,
                true,
                false,
            ),
            (
                r#"{"key": "going", "operator": "Exists", "effect": "NoSchedule"}"#,
                false,
                false,
            ),
            (r#"{"operator": "Exists"}"#, true, true),
            (
                r#"{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}"#,
                false,
                true,
            ),
        ] {
            let pod = tolerating(toleration);
            assert_eq!(
                (tainted.spares(&pod), cordoned.spares(&pod)),
                (of_taint, of_cordon),
                "{toleration}"
            );
        }
        let bound = pod(r#"{"containers": [], "nodeName": "n"}"#);
        assert!(tainted.spares(&bound), "another would come to the same node");
    }

    #[test]
    fn the_documentation_lists_what_nodes_say() {
        let page = include_str!("../../../docs/elasticity.md");
        for key in TAINTS.map(|(key, _)| key).into_iter().chain([LEAVE_BY]) {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
