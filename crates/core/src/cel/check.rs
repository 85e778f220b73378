//! Gives every part of an expression its type, and finds what is the same for all pods of a job.

mod functions;
mod names;

use std::collections::BTreeMap;

use super::Problem;
use super::evaluate::{Expression, Function, Loop, Op};
use super::json;
use super::syntax::{self, Kind, Node, Operator};
use super::types::Type;
use super::value::Value;
use functions::Signature;

/// What expressions of one declaration can name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vocabulary {
    /// The roles that jobs may have. Empty: any.
    pub(crate) roles: Vec<String>,
    /// The params that jobs may give.
    pub(crate) params: Vec<(String, Type)>,
}

/// Checks the expressions of one declaration.
pub(crate) struct Checker<'v> {
    vocabulary: &'v Vocabulary,
    /// How many values are kept for all pods of a job.
    kept: usize,
    has_replica: bool,
    locals: Vec<Local>,
    /// Of the loops around: whether each is over roles.
    loops: Vec<bool>,
}

struct Local {
    name: String,
    kind: Type,
}

/// A part that was checked.
struct Typed {
    op: Op,
    kind: Type,
    uses: Uses,
}

/// What a part depends on besides the job.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Uses {
    replica: bool,
    /// A bit for each variable of a loop.
    locals: u32,
}

impl Uses {
    fn and(self, other: Self) -> Self {
        Self {
            replica: self.replica || other.replica,
            locals: self.locals | other.locals,
        }
    }

    fn is_job_alone(self) -> bool {
        self == Self::default()
    }
}

impl<'v> Checker<'v> {
    pub(crate) fn new(vocabulary: &'v Vocabulary) -> Self {
        Self {
            vocabulary,
            kept: 0,
            has_replica: true,
            locals: Vec::new(),
            loops: Vec::new(),
        }
    }

    /// How many values the expressions so far keep for all pods of a job.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Checks an expression about a pod.
    pub(crate) fn of_pod(&mut self, source: &str) -> Result<Expression, Problem> {
        self.expression(source, true)
    }

    /// Checks an expression about a job.
    pub(crate) fn of_job(&mut self, source: &str) -> Result<Expression, Problem> {
        self.expression(source, false)
    }

    fn expression(&mut self, source: &str, has_replica: bool) -> Result<Expression, Problem> {
        self.has_replica = has_replica;
        self.locals.clear();
        self.loops.clear();
        let root = syntax::parse(source)?;
        let typed = self.check(&root)?;
        Ok(Expression {
            result: typed.kind.clone(),
            op: self.keep(typed),
        })
    }

    /// A part of something that depends on the pod: if it does not itself, it is computed once.
    fn keep(&mut self, typed: Typed) -> Op {
        if !typed.uses.is_job_alone() || matches!(typed.op, Op::Constant(_)) {
            return typed.op;
        }
        self.kept += 1;
        Op::Keep(self.kept - 1, Box::new(typed.op))
    }

    fn apply(&mut self, function: Function, kind: Type, parts: Vec<Typed>) -> Typed {
        let own = Uses {
            replica: function.is_about_replica(),
            locals: 0,
        };
        let uses = parts.iter().fold(own, |uses, part| uses.and(part.uses));
        let op = Op::Apply(function, self.parts(uses, parts));
        Typed { op, kind, uses }
    }

    fn parts(&mut self, whole: Uses, parts: Vec<Typed>) -> Vec<Op> {
        let keeps = !whole.is_job_alone();
        let op = |part: Typed| if keeps { self.keep(part) } else { part.op };
        parts.into_iter().map(op).collect()
    }

    fn check(&mut self, node: &Node) -> Result<Typed, Problem> {
        match &node.kind {
            Kind::Bool(value) => Ok(constant(Value::Bool(*value), Type::Bool)),
            Kind::Int(number) => Ok(constant(Value::Int(*number), Type::Int)),
            Kind::Text(text) => Ok(constant(Value::text(&**text), Type::Text)),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Name(name) => self.name(node.at, name),
            Kind::Field(of, field) => self.field(node.at, of, field),
            Kind::Index(of, index) => self.index(of, index),
            Kind::Call {
                target,
                function,
                arguments,
            } => match target {
                Some(target) if Loop::find(function, arguments.len()).is_some() => {
                    self.loop_over(node.at, target, function, arguments)
                }
                _ => self.call(node.at, target.as_deref(), function, arguments),
            },
            Kind::Not(of) => self.prefix(Function::Not, Type::Bool, of),
            Kind::Negate(of) => self.prefix(Function::Negate, Type::Int, of),
            Kind::Binary(operator, left, right) => self.binary(*operator, left, right),
            Kind::Choice(condition, yes, no) => {
                let condition = self.expect(condition, &Type::Bool)?;
                let (yes, no) = (self.check(yes)?, self.check(no)?);
                let kind = yes.kind.clone().join(no.kind.clone());
                Ok(self.apply(Function::Choice, kind, vec![condition, yes, no]))
            }
        }
    }

    fn expect(&mut self, node: &Node, expected: &Type) -> Result<Typed, Problem> {
        let typed = self.check(node)?;
        if typed.kind.fits(expected) {
            return Ok(typed);
        }
        Err(Problem::new(
            node.at,
            format!("this is {}, and {expected} is expected", typed.kind),
        ))
    }

    fn prefix(&mut self, function: Function, kind: Type, of: &Node) -> Result<Typed, Problem> {
        let of = self.expect(of, &kind)?;
        Ok(self.apply(function, kind, vec![of]))
    }

    fn list(&mut self, items: &[Node]) -> Result<Typed, Problem> {
        let items = self.all(items)?;
        let kinds = items.iter().map(|item| item.kind.clone());
        let kind = kinds.fold(Type::Nothing, Type::join);
        Ok(self.apply(Function::List, Type::list(kind), items))
    }

    fn all(&mut self, nodes: &[Node]) -> Result<Vec<Typed>, Problem> {
        nodes.iter().map(|node| self.check(node)).collect()
    }

    fn map(&mut self, entries: &[(Node, Node)]) -> Result<Typed, Problem> {
        let (mut kind, mut parts) = (Type::Nothing, Vec::new());
        for (key, value) in entries {
            parts.push(self.expect(key, &Type::Text)?);
            let value = self.check(value)?;
            kind = kind.join(value.kind.clone());
            parts.push(value);
        }
        Ok(self.apply(Function::Map, Type::map(kind), parts))
    }

    fn index(&mut self, of: &Node, index: &Node) -> Result<Typed, Problem> {
        let of_typed = self.check(of)?;
        let (function, kind, key) = match &of_typed.kind {
            Type::List(item) => (Function::Index, (**item).clone(), Type::Int),
            Type::Map(value) => (Function::Entry, (**value).clone(), Type::Text),
            other => {
                return Err(Problem::new(
                    of.at,
                    format!("{other} has no items: a list has, and a map"),
                ));
            }
        };
        let index = self.expect(index, &key)?;
        // One host of many is found without a list of all.
        match of_typed.op {
            Op::Apply(Function::JobHosts, _) => Ok(self.apply(Function::HostOfRank, kind, vec![index])),
            Op::Apply(Function::Hosts, mut role) if role.len() == 1 => {
                let role = role.pop().map(|op| Typed {
                    op,
                    kind: Type::Text,
                    uses: of_typed.uses,
                });
                let parts = role.into_iter().chain([index]).collect();
                Ok(self.apply(Function::HostOf, kind, parts))
            }
            op => Ok(self.apply(function, kind, vec![Typed { op, ..of_typed }, index])),
        }
    }

    fn binary(&mut self, operator: Operator, left: &Node, right: &Node) -> Result<Typed, Problem> {
        if matches!(operator, Operator::And | Operator::Or) {
            let function = match operator {
                Operator::And => Function::And,
                _ => Function::Or,
            };
            let parts = vec![self.expect(left, &Type::Bool)?, self.expect(right, &Type::Bool)?];
            return Ok(self.apply(function, Type::Bool, parts));
        }
        let (one, other) = (self.check(left)?, self.check(right)?);
        let found = functions::of_operator(operator, &one.kind, &other.kind);
        let (function, kind) = found.map_err(|why| Problem::new(left.at, why))?;
        Ok(self.apply(function, kind, vec![one, other]))
    }

    fn call(
        &mut self,
        at: usize,
        target: Option<&Node>,
        name: &str,
        arguments: &[Node],
    ) -> Result<Typed, Problem> {
        if let (None, "json", [value]) = (target, name, arguments) {
            return self.json(at, value);
        }
        let signature = Signature::find(target.is_some(), name).map_err(|why| Problem::new(at, why))?;
        let parts: Vec<&Node> = target.into_iter().chain(arguments).collect();
        if parts.len() != signature.parts() {
            let why = format!("{name}: it is written {}", signature.form());
            return Err(Problem::new(at, why));
        }
        let mut typed = Vec::new();
        for part in parts {
            typed.push(self.check(part)?);
        }
        let kinds: Vec<&Type> = typed.iter().map(|part| &part.kind).collect();
        let (function, kind) = signature.apply(&kinds).map_err(|why| Problem::new(at, why))?;
        if let (Function::Hosts | Function::Replicas, [role]) = (function, &*typed) {
            self.check_role(at, role)?;
        }
        Ok(self.apply(function, kind, typed))
    }

    /// `json(value)`. The parts of a map are written one by one, so that those which all pods share
    /// are written once for the job.
    fn json(&mut self, at: usize, value: &Node) -> Result<Typed, Problem> {
        let mut entries = BTreeMap::new();
        if let Kind::Map(parts) = &value.kind {
            for (key, value) in parts {
                if let Kind::Text(key) = &key.kind {
                    entries.insert(key, value);
                }
            }
            // Keys that are computed, or there twice, are known when the map is made.
            if entries.len() == parts.len() {
                return self.json_object(at, entries);
            }
        }
        let typed = self.check(value)?;
        let signature = Signature::find(false, "json").map_err(|why| Problem::new(at, why))?;
        let applied = signature.apply(&[&typed.kind]);
        let (function, kind) = applied.map_err(|why| Problem::new(at, why))?;
        Ok(self.apply(function, kind, vec![typed]))
    }

    fn json_object(&mut self, at: usize, entries: BTreeMap<&String, &Node>) -> Result<Typed, Problem> {
        let mut parts = Vec::new();
        for (key, value) in entries {
            let mut text = String::new();
            json::write_text(key, &mut text);
            parts.push(constant(Value::text(text), Type::Text));
            parts.push(self.json(at, value)?);
        }
        Ok(self.apply(Function::JsonObject, Type::Text, parts))
    }

    /// A role that no job can have is a slip.
    fn check_role(&self, at: usize, role: &Typed) -> Result<(), Problem> {
        let known = &self.vocabulary.roles;
        match &role.op {
            Op::Constant(Value::Text(name)) if !known.is_empty() && !known.iter().any(|k| **k == **name) => {
                let why = format!("there is no role {name:?}: spec.roles has {}", known.join(", "));
                Err(Problem::new(at, why))
            }
            _ => Ok(()),
        }
    }

    /// `list.map(x, ...)` and its like.
    fn loop_over(
        &mut self,
        at: usize,
        list: &Node,
        name: &str,
        arguments: &[Node],
    ) -> Result<Typed, Problem> {
        let (Some(form), Some((names, body))) = (
            Loop::find(name, arguments.len()),
            Loop::names(name).and_then(|names| arguments.split_at_checked(names)),
        ) else {
            return Err(Problem::new(at, format!("{name} is no function")));
        };
        let over = self.check(list)?;
        let item = match &over.kind {
            Type::List(item) => (**item).clone(),
            other => {
                let why = format!("{name} goes through a list, and this is {other}");
                return Err(Problem::new(list.at, why));
            }
        };
        self.check_nesting(at)?;
        let first = self.locals.len();
        let kinds = match names.len() {
            2 => vec![Type::Int, item.clone()],
            _ => vec![item.clone()],
        };
        for (name, kind) in names.iter().zip(kinds) {
            let name = self.local_name(name)?;
            self.locals.push(Local { name, kind });
        }
        self.loops.push(item == Type::Role);
        let body = self.all(body);
        self.loops.pop();
        self.locals.truncate(first);
        let body = body?;
        let kind = form.result(&item, body.iter().map(|part| &part.kind));
        let kind = kind.map_err(|why| Problem::new(at, why))?;
        // What the loop itself defines is not what the whole depends on.
        let inner = (1_u32 << first) - 1;
        let of_body = body
            .iter()
            .fold(Uses::default(), |uses, part| uses.and(part.uses));
        let uses = over.uses.and(Uses {
            locals: of_body.locals & inner,
            ..of_body
        });
        let body_uses = of_body.and(Uses {
            replica: false,
            locals: 1 << first,
        });
        let mut parts = self.parts(uses, vec![over]);
        // The body is evaluated for every item: what does not depend on the item is computed once.
        parts.extend(self.parts(body_uses, body));
        let op = Op::Loop(form, first, parts);
        Ok(Typed { op, kind, uses })
    }

    fn check_nesting(&self, at: usize) -> Result<(), Problem> {
        match &*self.loops {
            [] | [true] => Ok(()),
            _ => Err(Problem::new(
                at,
                "a loop inside of a loop takes too long: only a loop over roles may have one inside",
            )),
        }
    }

    fn local_name(&self, node: &Node) -> Result<String, Problem> {
        let Kind::Name(name) = &node.kind else {
            let why = "the name of the variable of the loop is expected here";
            return Err(Problem::new(node.at, why));
        };
        let is_taken = names::OBJECTS.contains(&&**name) || self.locals.iter().any(|l| l.name == *name);
        if is_taken {
            let why = format!("{name} has a meaning already: give the variable another name");
            return Err(Problem::new(node.at, why));
        }
        Ok(name.clone())
    }
}

fn constant(value: Value, kind: Type) -> Typed {
    Typed {
        op: Op::Constant(value),
        kind,
        uses: Uses::default(),
    }
}
