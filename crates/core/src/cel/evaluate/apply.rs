//! What functions do with values.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Evaluation, Function, Pod, mistyped};
use crate::cel::fault::Fault;
use crate::cel::json;
use crate::cel::subject::RoleFacts;
use crate::cel::value::Value;

/// How many steps it counts to write the name of a host.
const STEPS_OF_HOST: usize = 4;
/// How many steps it counts to make a map, besides its entries.
const STEPS_OF_MAP: usize = 8;

impl Evaluation<'_> {
    pub(super) fn apply(&mut self, function: Function, parts: &[Value]) -> Result<Value, Fault> {
        match parts {
            [] => self.of_nothing(function),
            [one] => self.of_one(function, one),
            [one, other] => self.of_two(function, one, other),
            many => self.of_many(function, many),
        }
    }

    fn of_nothing(&mut self, function: Function) -> Result<Value, Fault> {
        let subject = self.subject;
        let pod = self.pod.ok_or_else(mistyped);
        Ok(match function {
            Function::JobName => Value::Text(subject.name.clone()),
            Function::JobNamespace => Value::Text(subject.namespace.clone()),
            Function::JobRoles => Value::list((0..subject.roles.len()).map(Value::Role).collect()),
            Function::JobHosts => {
                self.meter.spend(1)?;
                subject.all_hosts()
            }
            Function::JobReplicas => Value::Int(subject.total()),
            Function::JobMaster => Value::Text(subject.master.clone()),
            Function::ReplicaRole => self.of_role(Function::RoleName, pod?.role)?,
            Function::ReplicaIndex => Value::Int(pod?.index),
            Function::ReplicaRank => {
                let Pod { role, index } = pod?;
                Value::Int(subject.rank(role, index))
            }
            Function::ReplicaHost => {
                if let Some(host) = &self.own_host {
                    return Ok(host.clone());
                }
                let Pod { role, index } = pod?;
                self.meter.spend(STEPS_OF_HOST)?;
                let host = subject.host(role, index).ok_or_else(mistyped)?;
                self.own_host.insert(host).clone()
            }
            Function::Param(place) => subject.params.get(place).cloned().ok_or_else(mistyped)?,
            function => return self.of_many(function, &[]),
        })
    }

    fn of_role(&self, function: Function, role: usize) -> Result<Value, Fault> {
        let facts = self.subject.roles.get(role).ok_or_else(mistyped)?;
        match function {
            Function::RoleName => Ok(Value::Text(facts.name.clone())),
            Function::RoleReplicas => Ok(Value::Int(facts.replicas())),
            Function::RoleHosts => Ok(self.subject.hosts(role)),
            _ => Err(mistyped()),
        }
    }

    fn of_one(&mut self, function: Function, value: &Value) -> Result<Value, Fault> {
        match (function, value) {
            (_, Value::Role(role)) if function != Function::List => self.of_role(function, *role),
            (Function::Hosts, Value::Text(name)) => Ok(match self.subject.role(name) {
                Some(role) => self.subject.hosts(role),
                None => Value::list(Vec::new()),
            }),
            (Function::Replicas, Value::Text(name)) => {
                let role = self
                    .subject
                    .role(name)
                    .and_then(|role| self.subject.roles.get(role));
                Ok(Value::Int(role.map_or(0, RoleFacts::replicas)))
            }
            (Function::HostOfRank, Value::Int(rank)) => {
                self.meter.spend(STEPS_OF_HOST)?;
                let host = self.subject.host_of_rank(*rank);
                host.ok_or_else(|| out_of_range(*rank, self.subject.total()))
            }
            (Function::Not, Value::Bool(value)) => Ok(Value::Bool(!value)),
            (Function::Negate, Value::Int(number)) => {
                number.checked_neg().map(Value::Int).ok_or_else(overflow)
            }
            (Function::Size, value) => self.size(value),
            (Function::Json, value) => {
                let mut text = String::new();
                json::write(value, &mut text, self.meter)?;
                Ok(Value::text(text))
            }
            (Function::ToText, Value::Text(text)) => Ok(Value::Text(Arc::clone(text))),
            (Function::ToText, value) => value.plain().map(Value::text).ok_or_else(mistyped),
            (Function::ToInt, Value::Int(number)) => Ok(Value::Int(*number)),
            (Function::ToInt, Value::Text(text)) => {
                self.meter.spend_text(text.len())?;
                let number = text.parse().map(Value::Int);
                let problem = || format!("int({}): this is no whole number", Fault::quote(text));
                number.map_err(|_| Fault::new(problem()))
            }
            (Function::Lower, Value::Text(text)) => {
                self.meter.spend_text(text.len())?;
                Ok(Value::text(text.to_ascii_lowercase()))
            }
            (Function::Upper, Value::Text(text)) => {
                self.meter.spend_text(text.len())?;
                Ok(Value::text(text.to_ascii_uppercase()))
            }
            _ => self.of_many(function, std::slice::from_ref(value)),
        }
    }

    fn of_two(&mut self, function: Function, one: &Value, other: &Value) -> Result<Value, Fault> {
        match (function, one, other) {
            (Function::HostOf, Value::Text(role), Value::Int(index)) => {
                self.meter.spend(STEPS_OF_HOST)?;
                let role = self.subject.role(role);
                let host = role.and_then(|role| self.subject.host_at(role, *index));
                let facts = role.and_then(|role| self.subject.roles.get(role));
                host.ok_or_else(|| out_of_range(*index, facts.map_or(0, RoleFacts::replicas)))
            }
            (Function::Index, Value::List(items), Value::Int(index)) => {
                let item = usize::try_from(*index).ok().and_then(|at| items.get(at));
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                item.cloned().ok_or_else(|| out_of_range(*index, length))
            }
            (Function::Entry, Value::Map(entries), Value::Text(key)) => {
                self.meter.spend_text(key.len())?;
                let entry = entries.get(key).cloned();
                entry.ok_or_else(|| Fault::new(format!("the map has no {}", Fault::quote(key))))
            }
            (Function::Equal, ..) => Ok(Value::Bool(one.equals(other, self.meter)?)),
            (Function::NotEqual, ..) => Ok(Value::Bool(!one.equals(other, self.meter)?)),
            (Function::InMap, Value::Text(key), Value::Map(entries)) => {
                self.meter.spend_text(key.len())?;
                Ok(Value::Bool(entries.contains_key(key)))
            }
            (Function::InList, item, Value::List(items)) => self.is_in(item, items),
            (Function::Concatenate, Value::Text(one), Value::Text(other)) => {
                self.meter.spend_text(one.len() + other.len())?;
                Ok(Value::text([&**one, &**other].concat()))
            }
            (Function::Append, Value::List(one), Value::List(other)) => {
                self.meter.spend(one.len() + other.len())?;
                Ok(Value::list(one.iter().chain(other.iter()).cloned().collect()))
            }
            (Function::Join, Value::List(items), Value::Text(separator)) => self.join(items, separator),
            (Function::StartsWith, Value::Text(one), Value::Text(other)) => {
                self.meter.spend_comparison(one, other)?;
                Ok(Value::Bool(one.starts_with(&**other)))
            }
            (Function::EndsWith, Value::Text(one), Value::Text(other)) => {
                self.meter.spend_comparison(one, other)?;
                Ok(Value::Bool(one.ends_with(&**other)))
            }
            (Function::Contains, Value::Text(one), Value::Text(other)) => {
                self.meter.spend_text(one.len() + other.len())?;
                Ok(Value::Bool(one.contains(&**other)))
            }
            (_, Value::Int(one), Value::Int(other)) if is_arithmetic(function) => {
                calculate(function, *one, *other)
            }
            (_, Value::Int(one), Value::Int(other)) if is_comparison(function) => {
                Ok(Value::Bool(holds(function, one.cmp(other))))
            }
            (_, Value::Text(one), Value::Text(other)) if is_comparison(function) => {
                self.meter.spend_comparison(one, other)?;
                Ok(Value::Bool(holds(function, one.cmp(other))))
            }
            _ => self.of_many(function, &[one.clone(), other.clone()]),
        }
    }

    /// Functions of any number of values.
    fn of_many(&mut self, function: Function, parts: &[Value]) -> Result<Value, Fault> {
        self.meter.spend(parts.len())?;
        match function {
            Function::List => Ok(Value::list(parts.to_vec())),
            Function::JsonObject => {
                let (entries, _) = parts.as_chunks();
                let length: usize = parts.iter().map(|part| part.plain_length() + 1).sum();
                self.meter.spend_text(length)?;
                let mut text = String::from("{");
                for (at, entry) in entries.iter().enumerate() {
                    let [Value::Text(key), Value::Text(value)] = entry else {
                        return Err(mistyped());
                    };
                    let comma = if at > 0 { "," } else { "" };
                    text.extend([comma, key, ":", value]);
                }
                text.push('}');
                Ok(Value::text(text))
            }
            Function::Map => {
                self.meter.spend(STEPS_OF_MAP)?;
                let (entries, _) = parts.as_chunks();
                let entry = |[key, value]: &[Value; 2]| match key {
                    Value::Text(key) => {
                        self.meter.spend_text(key.len())?;
                        Ok((Arc::clone(key), value.clone()))
                    }
                    _ => Err(mistyped()),
                };
                let map: BTreeMap<_, _> = entries.iter().map(entry).collect::<Result<_, _>>()?;
                if map.len() < entries.len() {
                    return Err(Fault::new("a key is twice in a map"));
                }
                Ok(Value::Map(Arc::new(map)))
            }
            _ => Err(mistyped()),
        }
    }

    fn join(&mut self, items: &[Value], separator: &str) -> Result<Value, Fault> {
        let mut texts = Vec::new();
        for item in items {
            let Value::Text(text) = item else {
                return Err(mistyped());
            };
            self.meter.spend_text(text.len() + separator.len())?;
            texts.push(Arc::clone(text));
        }
        Ok(Value::text(texts.join(separator)))
    }

    fn is_in(&mut self, item: &Value, items: &[Value]) -> Result<Value, Fault> {
        for other in items {
            if item.equals(other, self.meter)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    fn size(&mut self, value: &Value) -> Result<Value, Fault> {
        let size = match value {
            Value::Text(text) => {
                self.meter.spend_text(text.len())?;
                text.chars().count()
            }
            Value::List(items) => items.len(),
            Value::Map(entries) => entries.len(),
            _ => return Err(mistyped()),
        };
        i64::try_from(size).map(Value::Int).map_err(|_| overflow())
    }
}

fn is_arithmetic(function: Function) -> bool {
    matches!(
        function,
        Function::Add | Function::Subtract | Function::Multiply | Function::Divide | Function::Remainder
    )
}

fn calculate(function: Function, one: i64, other: i64) -> Result<Value, Fault> {
    let result = match function {
        Function::Add => one.checked_add(other),
        Function::Subtract => one.checked_sub(other),
        Function::Multiply => one.checked_mul(other),
        Function::Divide | Function::Remainder if other == 0 => {
            return Err(Fault::new("a number is divided by zero"));
        }
        Function::Divide => one.checked_div(other),
        _ => one.checked_rem(other),
    };
    result.map(Value::Int).ok_or_else(overflow)
}

fn is_comparison(function: Function) -> bool {
    matches!(
        function,
        Function::Less | Function::LessOrEqual | Function::Greater | Function::GreaterOrEqual
    )
}

fn holds(function: Function, order: Ordering) -> bool {
    match function {
        Function::Less => order.is_lt(),
        Function::LessOrEqual => order.is_le(),
        Function::Greater => order.is_gt(),
        _ => order.is_ge(),
    }
}

fn overflow() -> Fault {
    Fault::new("a number has more than 64 bits")
}

fn out_of_range(index: i64, length: i64) -> Fault {
    Fault::new(format!("there is no item {index}: the list has {length}"))
}
