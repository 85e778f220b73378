//! What the running pods of a job were made from and are counted by.
//!
//! `status.accepted` has it as one string, which is JSON without the names of fields and with `'`
//! in place of `"`, which would have to be escaped:
//!
//! ```text
//! [1,[['spec.roles[worker]','6f1c...'],...],[[['worker',4,null,'Never',...]],[['worker']],[['worker']],'Running']]
//! ```

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::completion::RoleSet;
use crate::role::{Dependency, DependencyState, NodeDownPolicy, PodQuorum, RestartPolicy, RestartScope};
use crate::run_policy::CleanPodPolicy;

/// The most characters of the string: 64 KiB of indices, and the rest of the largest job.
pub const MAX_ACCEPTED: usize = 128 * 1024;
/// The version of the string. What has another one is not read.
const VERSION: u8 = 1;

/// What the running pods of a job were made from and are counted by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Fingerprints of the parts of the spec that the running pods were made from, so that a change
    /// that is possible only while the job is suspended is noticed also where admission did not see
    /// it.
    pub spec: Vec<Fingerprint>,
    /// The rules that the running pods are counted by: those of the spec when it was last accepted.
    pub rules: Option<AcceptedRules>,
}

impl Accepted {
    /// Returns true if nothing was accepted.
    pub fn is_empty(&self) -> bool {
        self.spec.is_empty() && self.rules.is_none()
    }

    fn encode(&self) -> String {
        let spec = self.spec.iter();
        let encoded = Encoded(
            VERSION,
            spec.map(|part| (borrow(&part.field), borrow(&part.hash)))
                .collect(),
            self.rules.as_ref().map(EncodedRules::from),
        );
        swap_quotes(&serde_json::to_string(&encoded).unwrap_or_default())
    }

    /// Reads a string. `None` if it is none of this version: anybody may have edited the status.
    fn decode(text: &str) -> Option<Self> {
        let json = swap_quotes(text);
        let Encoded(version, spec, rules) = serde_json::from_str(&json).ok()?;
        let fingerprint = |(field, hash): (Cow<'_, str>, Cow<'_, str>)| Fingerprint {
            field: field.into_owned(),
            hash: hash.into_owned(),
        };
        (version == VERSION).then(|| Self {
            spec: spec.into_iter().map(fingerprint).collect(),
            rules: rules.map(AcceptedRules::from),
        })
    }
}

impl Serialize for Accepted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for Accepted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Ok(Self::decode(&text).unwrap_or_default())
    }
}

/// [`Accepted`] without names: its version, `spec` and `rules`.
#[derive(Serialize, Deserialize)]
struct Encoded<'a>(u8, Vec<(Cow<'a, str>, Cow<'a, str>)>, Option<EncodedRules<'a>>);

/// [`AcceptedRules`] without names.
#[derive(Serialize, Deserialize)]
struct EncodedRules<'a>(
    Vec<EncodedRole<'a>>,
    Vec<Cow<'a, [String]>>,
    Vec<Cow<'a, [String]>>,
    CleanPodPolicy,
);

/// [`AcceptedRole`] without names.
#[derive(Serialize, Deserialize)]
struct EncodedRole<'a>(
    Cow<'a, str>,
    i32,
    Option<Cow<'a, str>>,
    RestartPolicy,
    RestartScope,
    PodQuorum,
    PodQuorum,
    NodeDownPolicy,
    Vec<(Cow<'a, str>, DependencyState)>,
);

impl<'a> From<&'a AcceptedRules> for EncodedRules<'a> {
    fn from(rules: &'a AcceptedRules) -> Self {
        let sets = |sets: &'a [RoleSet]| sets.iter().map(|set| Cow::Borrowed(&*set.all_of)).collect();
        Self(
            rules.roles.iter().map(EncodedRole::from).collect(),
            sets(&rules.succeeded_when),
            sets(&rules.failed_when),
            rules.clean_pod_policy,
        )
    }
}

impl From<EncodedRules<'_>> for AcceptedRules {
    fn from(EncodedRules(roles, succeeded_when, failed_when, clean_pod_policy): EncodedRules<'_>) -> Self {
        let sets = |sets: Vec<Cow<'_, [String]>>| {
            let sets = sets.into_iter().map(Cow::into_owned);
            sets.map(|all_of| RoleSet { all_of }).collect()
        };
        Self {
            roles: roles.into_iter().map(AcceptedRole::from).collect(),
            succeeded_when: sets(succeeded_when),
            failed_when: sets(failed_when),
            clean_pod_policy,
        }
    }
}

impl<'a> From<&'a AcceptedRole> for EncodedRole<'a> {
    fn from(role: &'a AcceptedRole) -> Self {
        let depends_on = role.depends_on.iter();
        Self(
            borrow(&role.name),
            role.replicas,
            role.members.as_deref().map(Cow::Borrowed),
            role.restart_policy,
            role.restart_scope,
            role.succeeded_when,
            role.failed_when,
            role.node_down_policy,
            depends_on.map(|on| (borrow(&on.role), on.state)).collect(),
        )
    }
}

impl From<EncodedRole<'_>> for AcceptedRole {
    fn from(role: EncodedRole<'_>) -> Self {
        let EncodedRole(name, replicas, members, policy, scope, succeeded, failed, node_down, depends_on) =
            role;
        let dependency = |(role, state): (Cow<'_, str>, DependencyState)| Dependency {
            role: role.into_owned(),
            state,
        };
        Self {
            name: name.into_owned(),
            replicas,
            members: members.map(Cow::into_owned),
            restart_policy: policy,
            restart_scope: scope,
            succeeded_when: succeeded,
            failed_when: failed,
            node_down_policy: node_down,
            depends_on: depends_on.into_iter().map(dependency).collect(),
        }
    }
}

fn borrow(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Puts `'` where there is `"`, and the other way around. Done twice, it changes nothing.
fn swap_quotes(text: &str) -> String {
    let swap = |c| match c {
        '"' => '\'',
        '\'' => '"',
        c => c,
    };
    text.chars().map(swap).collect()
}

/// The rules of a job as they were when its spec was last accepted, with every default written
/// down. While a change is not accepted, the job goes on by these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedRules {
    /// The rules of every role.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub roles: Vec<AcceptedRole>,
    /// The sets of roles any of which makes the job succeed.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub succeeded_when: Vec<RoleSet>,
    /// The sets of roles any of which makes the job fail.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub failed_when: Vec<RoleSet>,
    /// Which pods are deleted at the end.
    #[serde(default)]
    pub clean_pod_policy: CleanPodPolicy,
}

/// The rules of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedRole {
    /// The role's name.
    #[schemars(length(max = 32))]
    pub name: String,
    /// How many pods it has.
    #[schemars(range(min = 0, max = 10000))]
    pub replicas: i32,
    /// The indices of its pods, such as "0-2,4", where they are not the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub members: Option<String>,
    /// What happens when a pod ends.
    pub restart_policy: RestartPolicy,
    /// Which pods start anew when one ends. Pod, if an operator of a former version accepted the
    /// job.
    #[serde(default)]
    pub restart_scope: RestartScope,
    /// How many pods make the role succeed.
    pub succeeded_when: PodQuorum,
    /// How many pods make the role fail.
    pub failed_when: PodQuorum,
    /// What a pod counts for whose node is down.
    pub node_down_policy: NodeDownPolicy,
    /// The roles that its programs wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub depends_on: Vec<Dependency>,
}

/// The fingerprint of one part of the spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fingerprint {
    /// The part of the spec; a role goes by its name.
    #[schemars(length(max = 128))]
    pub field: String,
    /// A hash of its content.
    #[schemars(length(max = 64))]
    pub hash: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::TrainingJobStatus;

    fn accepted() -> Accepted {
        let role = |name: &str, depends_on| AcceptedRole {
            name: name.to_owned(),
            replicas: 3,
            members: Some("0-1,7".to_owned()),
            restart_policy: RestartPolicy::ExitCode,
            restart_scope: RestartScope::Job,
            succeeded_when: PodQuorum::FirstPod,
            failed_when: PodQuorum::AnyPod,
            node_down_policy: NodeDownPolicy::Wait,
            depends_on,
        };
        let ready = Dependency {
            role: "ps".to_owned(),
            state: DependencyState::Ready,
        };
        let set = |names: &[&str]| RoleSet {
            all_of: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        Accepted {
            spec: vec![Fingerprint {
                // No name has them, but anybody may have edited a status.
                field: "spec.roles['\"\\'\"]".to_owned(),
                hash: "0123456789abcdef".to_owned(),
            }],
            rules: Some(AcceptedRules {
                roles: vec![role("ps", Vec::new()), role("worker", vec![ready])],
                succeeded_when: vec![set(&["ps", "worker"]), set(&["ps"])],
                failed_when: vec![set(&["worker"])],
                clean_pod_policy: CleanPodPolicy::None,
            }),
        }
    }

    #[test]
    fn what_was_accepted_is_one_string_that_is_read_again() {
        let status = TrainingJobStatus {
            accepted: accepted(),
            ..TrainingJobStatus::default()
        };
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 1);
        let text = json["accepted"].as_str().unwrap();
        let role = "['worker',3,'0-1,7','ExitCode','Job','FirstPod','AnyPod','Wait',[['ps','Ready']]]";
        assert!(text.contains(role), "{text}");
        assert_eq!(serde_json::from_value::<TrainingJobStatus>(json).unwrap(), status);
        let nothing = serde_json::to_value(TrainingJobStatus::default()).unwrap();
        assert_eq!(nothing, json!({}));
    }

    #[test]
    fn what_a_former_version_wrote_is_read_and_not_written_again() {
        let Accepted { spec, rules } = accepted();
        let read = |status| serde_json::from_value::<TrainingJobStatus>(status).unwrap();
        let former = read(json!({"acceptedSpec": spec, "acceptedRules": rules}));
        assert_eq!(former.accepted, accepted());
        let written = serde_json::to_value(&former).unwrap();
        assert_eq!(
            written.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["accepted"]
        );
        // A status that has both was written by this version last.
        let both = read(
            json!({"accepted": written["accepted"], "acceptedSpec": [], "acceptedRules": {"roles": []}}),
        );
        assert_eq!(both, former);
    }

    #[test]
    fn what_can_not_be_read_is_as_if_nothing_was_accepted() {
        let text = accepted().encode();
        let of_another_version = text.replacen("[1,", "[2,", 1);
        for text in ["", "none", "[1,[],null", &of_another_version, "[1,[],null,7]"] {
            let status: TrainingJobStatus = serde_json::from_value(json!({"accepted": text})).unwrap();
            assert_eq!(status, TrainingJobStatus::default(), "{text}");
        }
    }
}
