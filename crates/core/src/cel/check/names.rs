//! What expressions can name: `job`, `replica`, `params`, their fields, and variables of loops.

use super::{Checker, Typed, Uses};
use crate::cel::Problem;
use crate::cel::evaluate::{Function, Op};
use crate::cel::syntax::{Kind, Node};
use crate::cel::types::Type;

/// The objects that there are.
pub(super) const OBJECTS: [&str; 3] = ["job", "replica", "params"];

fn fields_of(object: &str) -> Vec<(&'static str, Function, Type)> {
    match object {
        "job" => vec![
            ("name", Function::JobName, Type::Text),
            ("namespace", Function::JobNamespace, Type::Text),
            ("roles", Function::JobRoles, Type::list(Type::Role)),
            ("hosts", Function::JobHosts, Type::list(Type::Text)),
            ("replicas", Function::JobReplicas, Type::Int),
            ("master", Function::JobMaster, Type::Text),
        ],
        "replica" => vec![
            ("role", Function::ReplicaRole, Type::Text),
            ("index", Function::ReplicaIndex, Type::Int),
            ("rank", Function::ReplicaRank, Type::Int),
            ("host", Function::ReplicaHost, Type::Text),
        ],
        _ => Vec::new(),
    }
}

/// The fields of an item of `job.roles`.
fn fields_of_role() -> Vec<(&'static str, Function, Type)> {
    vec![
        ("name", Function::RoleName, Type::Text),
        ("replicas", Function::RoleReplicas, Type::Int),
        ("hosts", Function::RoleHosts, Type::list(Type::Text)),
    ]
}

fn unknown(of: &str, field: &str, known: &[&str]) -> String {
    match known {
        [] => format!("{of} has no field {field:?}: it has none"),
        known => format!("{of} has no field {field:?}: it has {}", known.join(", ")),
    }
}

impl Checker<'_> {
    pub(super) fn name(&mut self, at: usize, name: &str) -> Result<Typed, Problem> {
        if let Some(position) = self.locals.iter().position(|local| local.name == name) {
            let kind = self
                .locals
                .get(position)
                .map_or(Type::Nothing, |local| local.kind.clone());
            let uses = Uses {
                replica: false,
                locals: 1 << position,
            };
            return Ok(Typed {
                op: Op::Local(position),
                kind,
                uses,
            });
        }
        let why = if OBJECTS.contains(&name) {
            format!("{name} is no value: write {name}. and one of its fields")
        } else {
            format!("there is no {name}: there are {}", OBJECTS.join(", "))
        };
        Err(Problem::new(at, why))
    }

    pub(super) fn field(&mut self, at: usize, of: &Node, field: &str) -> Result<Typed, Problem> {
        if let Kind::Name(object) = &of.kind
            && OBJECTS.contains(&&**object)
        {
            return self.field_of_object(at, object, field);
        }
        let typed = self.check(of)?;
        let found = match &typed.kind {
            Type::Role => find("a role", &fields_of_role(), field),
            Type::Map(value) => Ok((Function::Entry, (**value).clone())),
            other => Err(format!("{other} has no fields")),
        };
        let (function, kind) = found.map_err(|why| Problem::new(at, why))?;
        let mut parts = vec![typed];
        if function == Function::Entry {
            let key = Node::text(of.at, field);
            parts.push(self.check(&key)?);
        }
        Ok(self.apply(function, kind, parts))
    }

    fn field_of_object(&mut self, at: usize, object: &str, field: &str) -> Result<Typed, Problem> {
        if object == "params" {
            let params = &self.vocabulary.params;
            let Some(position) = params.iter().position(|(name, _)| name == field) else {
                let known: Vec<&str> = params.iter().map(|(name, _)| &**name).collect();
                return Err(Problem::new(at, unknown("params", field, &known)));
            };
            let kind = params
                .get(position)
                .map_or(Type::Nothing, |(_, kind)| kind.clone());
            return Ok(self.apply(Function::Param(position), kind, Vec::new()));
        }
        if object == "replica" && !self.has_replica {
            let why = "replica is not known here: this is asked of the whole job";
            return Err(Problem::new(at, why));
        }
        let (function, kind) =
            find(object, &fields_of(object), field).map_err(|why| Problem::new(at, why))?;
        Ok(self.apply(function, kind, Vec::new()))
    }
}

fn find(
    of: &str,
    fields: &[(&'static str, Function, Type)],
    field: &str,
) -> Result<(Function, Type), String> {
    let found = fields.iter().find(|(name, ..)| *name == field);
    let found = found.map(|(_, function, kind)| (*function, kind.clone()));
    found.ok_or_else(|| {
        let known: Vec<&str> = fields.iter().map(|(name, ..)| *name).collect();
        unknown(of, field, &known)
    })
}
