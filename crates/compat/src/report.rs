//! The status of an object of another operator, from that of its child.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value, json};
use trainyard_api::{
    ConditionType, FieldError, JobPhase, RestartCause, RolePhase, RoleStatus, TrainingJob, TrainingJobStatus,
};

use trainyard_core::foreign::{Obstacle, role_of};
use trainyard_core::view::{PodPhase, PodRow};

use crate::Kind;

/// Why an object is not run, or a change of it not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: String,
    pub message: String,
}

impl Problem {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// Something keeps `what` from being done; `then` says what becomes of the object.
    pub fn blocked(obstacle: &Obstacle, what: &str, then: &str) -> Self {
        match obstacle {
            Obstacle::Refused(words) => Self::new(
                "Refused",
                format!("the server does not take {what}{then}: {words}"),
            ),
            Obstacle::Taken(name) => Self::new(
                "OwnershipConflict",
                format!(
                    "there is a ConfigMap {name} that is somebody else's, and it is not touched{then}: rename this job, or \
                     delete that one"
                ),
            ),
        }
    }
}

/// How many pods of a role run, have succeeded and have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub active: i32,
    pub succeeded: i32,
    pub failed: i32,
}

/// All that a status is made of.
pub struct Report<'a> {
    pub kind: &'a Kind,
    pub object: &'a Value,
    /// The object's own child, if it has one.
    pub child: Option<&'a TrainingJob>,
    /// The pods of the child.
    pub pods: &'a [PodRow],
    pub problem: Option<&'a Problem>,
    pub now: Timestamp,
}

impl Report<'_> {
    /// The object's namespace and name.
    pub fn name(&self) -> String {
        let part = |path: &str| {
            self.object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        format!("{}/{}", part("/metadata/namespace"), part("/metadata/name"))
    }

    /// The child's status.
    pub fn status(&self) -> Option<&TrainingJobStatus> {
        self.child.and_then(|child| child.status.as_ref())
    }

    /// Where the child is in its life. That it starts, its pods tell before its status does.
    pub fn phase(&self) -> JobPhase {
        let phase = self.status().and_then(|status| status.phase);
        phase.unwrap_or(if self.pods.is_empty() {
            JobPhase::Pending
        } else {
            JobPhase::Starting
        })
    }

    /// The state of one role.
    pub fn role(&self, name: &str) -> Option<&RoleStatus> {
        self.status()?.roles.iter().find(|role| role.name == name)
    }

    /// Where a role is in its life, told as soon.
    pub fn role_phase(&self, name: &str) -> RolePhase {
        let is_of_role = |row: &PodRow| self.child.and_then(|child| role_of(child, &row.name)) == Some(name);
        match self.role(name) {
            Some(role) => role.phase,
            None if self.pods.iter().any(is_of_role) => RolePhase::Starting,
            None => RolePhase::Pending,
        }
    }

    /// How many pods a role has, and has had that failed and were replaced. `None` if it has had
    /// none. While the child starts, its pods are counted here: its status tells it seldom.
    pub fn counts(&self, name: &str) -> Option<Counts> {
        let child = self.child?;
        let is_of_role = |pod: &str| role_of(child, pod) == Some(name);
        let starts = matches!(self.phase(), JobPhase::Pending | JobPhase::Starting);
        let counts = if starts && !self.pods.is_empty() {
            let rows: Vec<&PodRow> = self.pods.iter().filter(|row| is_of_role(&row.name)).collect();
            (!rows.is_empty()).then(|| count(&rows))
        } else {
            let role = self.role(name).filter(|role| role.phase != RolePhase::Pending);
            role.map(|role| Counts {
                active: role.active,
                succeeded: role.succeeded,
                failed: role.failed,
            })
        };
        let restarts = self.status().and_then(|status| status.restarts.as_ref());
        let history = restarts.into_iter().flat_map(|restarts| &restarts.history);
        let replaced = history.filter(|end| end.cause == RestartCause::Failure && is_of_role(&end.pod));
        let replaced = i32::try_from(replaced.count()).unwrap_or(i32::MAX);
        match counts {
            Some(counts) => Some(Counts {
                failed: counts.failed.saturating_add(replaced),
                ..counts
            }),
            None => (replaced > 0).then(|| Counts {
                failed: replaced,
                ..Counts::default()
            }),
        }
    }

    /// The child's condition of a type, if it holds.
    pub fn holds(&self, kind: ConditionType) -> Option<&Condition> {
        self.child_condition(kind, "True")
    }

    fn child_condition(&self, kind: ConditionType, status: &str) -> Option<&Condition> {
        let mut conditions = self.status()?.conditions.iter();
        conditions.find(|condition| condition.type_ == kind.as_str() && condition.status == status)
    }

    /// Why it is not run: what was found here, or what the engine says of the child.
    pub fn refusal(&self) -> Option<Problem> {
        self.problem.cloned().or_else(|| {
            let refused = self.child_condition(ConditionType::Accepted, "False")?;
            let lines = refused.message.lines().map(|line| match line.split_once(": ") {
                Some((path, rest)) => {
                    let error = FieldError::new(path, rest);
                    self.kind.theirs(self.object, &error).to_string()
                }
                None => line.to_owned(),
            });
            let lines: Vec<String> = lines.collect();
            Some(Problem::new(&refused.reason, lines.join("\n")))
        })
    }

    fn conditions(&self) -> Conditions<'_> {
        Conditions {
            object: self.object,
            now: self.now,
        }
    }

    /// The condition of a type that the object has so far.
    pub fn before(&self, kind: &str) -> Option<&Value> {
        condition(self.object, kind)
    }

    /// A condition, whose time moves only if its status does.
    pub fn condition(&self, kind: &str, holds: bool, reason: &str, message: &str) -> Map<String, Value> {
        self.conditions().make(kind, holds, reason, message)
    }

    /// The condition with the time at which anything of it was last changed.
    pub fn updated(&self, condition: Map<String, Value>) -> Value {
        self.conditions().updated(condition)
    }

    /// The time as the API writes it: whole seconds.
    pub fn time(&self) -> Value {
        self.conditions().time()
    }

    /// When the child was started and when it ended, where it was and did.
    pub fn times(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let status = self.status();
        let times = [
            ("startTime", status.and_then(|status| status.start_time.as_ref())),
            (
                "completionTime",
                status.and_then(|status| status.completion_time.as_ref()),
            ),
        ];
        let written = |time: &Time| json!(time.0.to_string());
        times
            .into_iter()
            .filter_map(move |(field, time)| Some((field, written(time?))))
    }
}

/// Makes the conditions of an object, whose times go by those that it has.
pub struct Conditions<'a> {
    pub object: &'a Value,
    pub now: Timestamp,
}

impl Conditions<'_> {
    /// The condition of a type that the object has so far.
    fn before(&self, kind: &str) -> Option<&Value> {
        condition(self.object, kind)
    }

    /// A condition, whose time moves only if its status does.
    pub fn make(&self, kind: &str, holds: bool, reason: &str, message: &str) -> Map<String, Value> {
        let status = if holds { "True" } else { "False" };
        let before = self.before(kind).filter(|before| before["status"] == status);
        let since = before.and_then(|before| before.get("lastTransitionTime").cloned());
        let members = [
            ("type", kind.into()),
            ("status", status.into()),
            ("reason", reason.into()),
            ("message", message.into()),
            ("lastTransitionTime", since.unwrap_or_else(|| self.time())),
        ];
        members
            .map(|(name, value): (&str, Value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    /// The condition with the time at which anything of it was last changed, which conditions of
    /// some operators have besides the other.
    pub fn updated(&self, mut condition: Map<String, Value>) -> Value {
        let before = self.before(condition["type"].as_str().unwrap_or_default());
        let same = before.filter(|before| {
            ["status", "reason", "message"]
                .iter()
                .all(|member| before.get(*member) == condition.get(*member))
        });
        let since = same.and_then(|before| before.get("lastUpdateTime").cloned());
        condition.insert("lastUpdateTime".to_owned(), since.unwrap_or_else(|| self.time()));
        condition.into()
    }

    /// The time as the API writes it: whole seconds.
    pub fn time(&self) -> Value {
        json!(self.now.round(Unit::Second).unwrap_or(self.now).to_string())
    }
}

fn count(rows: &[&PodRow]) -> Counts {
    let mut counts = Counts::default();
    for row in rows.iter().filter(|row| !row.terminating) {
        match row.phase {
            PodPhase::Running | PodPhase::Unknown => counts.active += 1,
            PodPhase::Succeeded => counts.succeeded += 1,
            PodPhase::Failed => counts.failed += 1,
            PodPhase::Pending => {}
        }
    }
    counts
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object.pointer("/status/conditions")?.as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// Whether a condition of an object holds.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// The reason of an object that has failed before it was run, because it says what can't be done.
/// It is run when it is mended.
pub const INVALID_DEFINITION: &str = "InvalidDefinition";

/// Whether a condition of an object says that it was never run.
pub fn is_invalid(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["reason"] == INVALID_DEFINITION)
}
