//! Loops: what is done for each item of a list.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Evaluation, Op, mistyped};
use crate::cel::fault::Fault;
use crate::cel::types::Type;
use crate::cel::value::Value;

/// What becomes of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cel) enum Loop {
    Map,
    /// `map` with a condition.
    MapSome,
    Filter,
    All,
    Exists,
    ExistsOne,
    TransformMapEntry,
}

/// Every loop: its name, how many parts it has in parentheses, and how it is written.
const LOOPS: &[(&str, usize, Loop, &str)] = &[
    ("map", 2, Loop::Map, "map(x, value)"),
    ("map", 3, Loop::MapSome, "map(x, condition, value)"),
    ("filter", 2, Loop::Filter, "filter(x, condition)"),
    ("all", 2, Loop::All, "all(x, condition)"),
    ("exists", 2, Loop::Exists, "exists(x, condition)"),
    ("exists_one", 2, Loop::ExistsOne, "exists_one(x, condition)"),
    (
        "transformMapEntry",
        3,
        Loop::TransformMapEntry,
        "transformMapEntry(i, x, {key: value})",
    ),
];

impl Loop {
    /// The loops that there are, for a sentence.
    pub(in crate::cel) const NAMES: &'static str =
        "map, filter, all, exists, exists_one and transformMapEntry of lists";

    pub(in crate::cel) fn find(name: &str, arguments: usize) -> Option<Self> {
        let found = LOOPS.iter().find(|(n, a, ..)| *n == name && *a == arguments);
        found.map(|(_, _, form, _)| *form)
    }

    /// How many variables a loop of a name has.
    pub(in crate::cel) fn names(name: &str) -> Option<usize> {
        let found = LOOPS.iter().find(|(n, ..)| *n == name);
        found.map(|(_, _, form, _)| if *form == Self::TransformMapEntry { 2 } else { 1 })
    }

    /// How a loop of a name is written.
    pub(in crate::cel) fn form(name: &str) -> &'static str {
        let found = LOOPS.iter().find(|(n, ..)| *n == name);
        found.map_or("", |(.., form)| form)
    }

    /// The type of what comes of items of a type, and of what is done with each; or what is wrong
    /// with that.
    pub(in crate::cel) fn result<'t>(
        self,
        item: &Type,
        mut parts: impl Iterator<Item = &'t Type>,
    ) -> Result<Type, String> {
        let first = parts.next().cloned().unwrap_or(Type::Nothing);
        let (is_condition, result) = match self {
            Self::Map => (false, Type::list(first.clone())),
            Self::MapSome => {
                let value = parts.next().cloned().unwrap_or(Type::Nothing);
                (true, Type::list(value))
            }
            Self::Filter => (true, Type::list(item.clone())),
            Self::All | Self::Exists | Self::ExistsOne => (true, Type::Bool),
            Self::TransformMapEntry => {
                if !matches!(first, Type::Map(_)) {
                    return Err(format!(
                        "transformMapEntry makes a map of maps, and this is {first}"
                    ));
                }
                (false, first.clone())
            }
        };
        if is_condition && !first.fits(&Type::Bool) {
            return Err(format!(
                "the condition of a loop is {first}, and a boolean is expected"
            ));
        }
        Ok(result)
    }
}

impl Evaluation<'_> {
    pub(super) fn run_loop(&mut self, form: Loop, first: usize, parts: &[Op]) -> Result<Value, Fault> {
        let Some((list, body)) = parts.split_first() else {
            return Err(mistyped());
        };
        let Value::List(items) = self.value(list)? else {
            return Err(mistyped());
        };
        let result = match form {
            Loop::Map | Loop::MapSome | Loop::Filter => self.collect(form, first, &items, body),
            Loop::All => self.quantify(first, &items, body, false),
            Loop::Exists => self.quantify(first, &items, body, true),
            Loop::ExistsOne => self
                .count(first, &items, body)
                .map(|count| Value::Bool(count == 1)),
            Loop::TransformMapEntry => self.entries(first, &items, body),
        };
        self.locals.truncate(first);
        result
    }

    fn bind(&mut self, first: usize, values: impl IntoIterator<Item = Value>) {
        self.locals.truncate(first);
        self.locals.extend(values);
    }

    fn collect(&mut self, form: Loop, first: usize, items: &[Value], body: &[Op]) -> Result<Value, Fault> {
        let mut collected = Vec::new();
        for item in items {
            self.bind(first, [item.clone()]);
            match (form, body) {
                (Loop::Map, [value]) => collected.push(self.value(value)?),
                (Loop::MapSome, [condition, value]) => {
                    if self.is_true(condition)? {
                        collected.push(self.value(value)?);
                    }
                }
                (Loop::Filter, [condition]) => {
                    if self.is_true(condition)? {
                        collected.push(item.clone());
                    }
                }
                _ => return Err(mistyped()),
            }
        }
        Ok(Value::list(collected))
    }

    /// Whether all items meet a condition, or one does. An item that decides outweighs one that
    /// fails.
    fn quantify(
        &mut self,
        first: usize,
        items: &[Value],
        body: &[Op],
        decisive: bool,
    ) -> Result<Value, Fault> {
        let [condition] = body else {
            return Err(mistyped());
        };
        let mut fault = None;
        for item in items {
            self.bind(first, [item.clone()]);
            match self.is_true(condition) {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(why) if self.meter.is_exhausted() => return Err(why),
                Err(why) => fault = Some(why),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn count(&mut self, first: usize, items: &[Value], body: &[Op]) -> Result<usize, Fault> {
        let [condition] = body else {
            return Err(mistyped());
        };
        let mut count = 0;
        for item in items {
            self.bind(first, [item.clone()]);
            count += usize::from(self.is_true(condition)?);
        }
        Ok(count)
    }

    fn entries(&mut self, first: usize, items: &[Value], body: &[Op]) -> Result<Value, Fault> {
        let [entry] = body else {
            return Err(mistyped());
        };
        let mut all = BTreeMap::new();
        for (index, item) in (0_i64..).zip(items) {
            self.bind(first, [Value::Int(index), item.clone()]);
            let Value::Map(entries) = self.value(entry)? else {
                return Err(mistyped());
            };
            for (key, value) in entries.iter() {
                self.meter.spend_text(key.len())?;
                if all.insert(Arc::clone(key), value.clone()).is_some() {
                    return Err(Fault::new(format!("{} is twice in a map", Fault::quote(key))));
                }
            }
        }
        Ok(Value::Map(Arc::new(all)))
    }
}
