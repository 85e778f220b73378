//! Evaluates expressions that were checked.

mod apply;
mod loops;

use super::fault::Fault;
use super::meter::Meter;
use super::subject::Subject;
use super::types::Type;
use super::value::Value;
pub(super) use loops::Loop;

/// A step of an evaluation. Its parts have the types that it needs.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Constant(Value),
    /// What is the same for all pods, and where it is kept.
    Keep(usize, Box<Op>),
    /// A variable of a loop.
    Local(usize),
    Apply(Function, Vec<Op>),
    /// A loop, its first variable, the list, and what is done for each item.
    Loop(Loop, usize, Vec<Op>),
}

/// What is done with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    JobName,
    JobNamespace,
    JobRoles,
    JobHosts,
    JobReplicas,
    JobMaster,
    ReplicaRole,
    ReplicaIndex,
    ReplicaRank,
    ReplicaHost,
    Param(usize),
    RoleName,
    RoleReplicas,
    RoleHosts,
    Hosts,
    Replicas,
    HostOfRank,
    HostOf,
    List,
    Map,
    Index,
    Entry,
    Not,
    Negate,
    And,
    Or,
    Choice,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    InList,
    InMap,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Concatenate,
    Append,
    Size,
    Join,
    Json,
    /// Of keys and values that are JSON already, in turn.
    JsonObject,
    ToText,
    ToInt,
    StartsWith,
    EndsWith,
    Contains,
    Lower,
    Upper,
}

impl Function {
    pub(super) fn is_about_replica(self) -> bool {
        matches!(
            self,
            Self::ReplicaRole | Self::ReplicaIndex | Self::ReplicaRank | Self::ReplicaHost
        )
    }
}

/// The pod that an expression is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    /// Its role, by rank.
    pub(crate) role: usize,
    pub(crate) index: i64,
}

/// An expression that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(super) op: Op,
    pub(super) result: Type,
}

impl Expression {
    pub(crate) fn result(&self) -> &Type {
        &self.result
    }

    /// The result for a pod; `None`: for the job as a whole.
    pub(crate) fn evaluate(
        &self,
        subject: &Subject,
        pod: Option<Pod>,
        meter: &mut Meter,
    ) -> Result<Value, Fault> {
        let mut evaluation = Evaluation {
            subject,
            pod,
            meter,
            locals: Vec::new(),
            own_host: None,
        };
        evaluation.value(&self.op)
    }
}

struct Evaluation<'a> {
    subject: &'a Subject,
    pod: Option<Pod>,
    meter: &'a mut Meter,
    /// By position; those of inner loops come later.
    locals: Vec<Value>,
    /// The host of the pod, if it was asked for.
    own_host: Option<Value>,
}

impl Evaluation<'_> {
    fn value(&mut self, op: &Op) -> Result<Value, Fault> {
        self.meter.spend(1)?;
        match op {
            Op::Constant(value) => Ok(value.clone()),
            Op::Keep(place, inner) => {
                let subject = self.subject;
                match subject.kept.get(*place) {
                    Some(kept) => kept.get_or_init(|| self.value(inner)).clone(),
                    None => self.value(inner),
                }
            }
            Op::Local(place) => self.locals.get(*place).cloned().ok_or_else(mistyped),
            Op::Apply(Function::And, parts) => self.both(parts, false),
            Op::Apply(Function::Or, parts) => self.both(parts, true),
            Op::Apply(Function::Choice, parts) => match &**parts {
                [condition, yes, no] => {
                    let chosen = if self.is_true(condition)? { yes } else { no };
                    self.value(chosen)
                }
                _ => Err(mistyped()),
            },
            Op::Apply(function, parts) => {
                let mut values = Vec::with_capacity(parts.len());
                for part in parts {
                    values.push(self.value(part)?);
                }
                self.apply(*function, &values)
            }
            Op::Loop(form, first, parts) => self.run_loop(*form, *first, parts),
        }
    }

    fn is_true(&mut self, op: &Op) -> Result<bool, Fault> {
        match self.value(op)? {
            Value::Bool(value) => Ok(value),
            _ => Err(mistyped()),
        }
    }

    /// `&&` or `||`: where one side decides, the other may fail.
    fn both(&mut self, parts: &[Op], decisive: bool) -> Result<Value, Fault> {
        let [one, other] = parts else {
            return Err(mistyped());
        };
        let first = self.is_true(one);
        if first == Ok(decisive) {
            return Ok(Value::Bool(decisive));
        }
        match self.is_true(other)? {
            value if value == decisive => Ok(Value::Bool(decisive)),
            value => first.map(|_| Value::Bool(value)),
        }
    }
}

/// Types were checked before, so that nobody sees this.
fn mistyped() -> Fault {
    Fault::new("the types of this expression do not fit")
}
