//! A structural schema, parsed once so that objects are validated quickly.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::cel::Expressions;

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a word of the schema")]
pub(crate) struct Schema {
    pub(super) kind: Option<Type>,
    pub(super) nullable: bool,
    pub(super) properties: BTreeMap<String, Schema>,
    pub(super) additional: Option<Box<Schema>>,
    pub(super) items: Option<Box<Schema>>,
    /// Whether unknown fields are kept.
    pub(super) preserve: bool,
    /// Whether it is an embedded resource, with metadata of its own.
    pub(super) embedded: bool,
    pub(super) default: Option<Value>,
    pub(super) required: Vec<String>,
    pub(super) possible: Vec<Value>,
    pub(super) bounds: Bounds,
    pub(super) list: List,
    pub(super) all_of: Vec<Schema>,
    pub(super) any_of: Vec<Schema>,
    pub(super) one_of: Vec<Schema>,
    pub(super) not: Option<Box<Schema>>,
    pub(super) expressions: Option<Expressions>,
    /// Whether there are CEL rules here or below.
    pub(super) asks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Boolean,
    Integer,
    Number,
    IntOrString,
}

#[derive(Debug, Default)]
pub(super) struct Bounds {
    pub(super) minimum: Option<(f64, bool)>,
    pub(super) maximum: Option<(f64, bool)>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) pattern: Option<Regex>,
    pub(super) format: Option<Format>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
}

/// The formats that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    DateTime,
    Date,
    Int32,
    Int64,
}

/// The list type, `x-kubernetes-list-type`.
#[derive(Debug, Default)]
pub(super) enum List {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::IntOrString => "integer,string",
        }
    }
}

impl Schema {
    /// Whether it restricts only the members of an object.
    pub(super) fn is_plain(&self) -> bool {
        let branches = [&self.all_of, &self.any_of, &self.one_of];
        self.possible.is_empty() && branches.iter().all(|branch| branch.is_empty()) && self.not.is_none()
    }

    /// Reads a schema. The error says what is wrong with it.
    pub(crate) fn read(schema: &Value) -> Result<Self, String> {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
        let kind = match schema.get("type").and_then(Value::as_str) {
            _ if flag("x-kubernetes-int-or-string") => Some(Type::IntOrString),
            Some("object") => Some(Type::Object),
            Some("array") => Some(Type::Array),
            Some("string") => Some(Type::String),
            Some("boolean") => Some(Type::Boolean),
            Some("integer") => Some(Type::Integer),
            Some("number") => Some(Type::Number),
            Some("") | None => None,
            Some(other) => return Err(format!("type: {other:?} is none of the types of JSON Schema")),
        };
        let mut properties = BTreeMap::new();
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let property = Self::read(property).map_err(|why| format!("properties[{name}].{why}"))?;
            properties.insert(name.clone(), property);
        }
        let nested = |name: &str| -> Result<Option<Box<Self>>, String> {
            let nested = schema.get(name).filter(|nested| nested.is_object());
            let nested = nested
                .map(Self::read)
                .transpose()
                .map_err(|why| format!("{name}.{why}"))?;
            Ok(nested.map(Box::new))
        };
        let several = |name: &str| -> Result<Vec<Self>, String> {
            let list = schema.get(name).and_then(Value::as_array).into_iter().flatten();
            list.map(Self::read)
                .collect::<Result<_, _>>()
                .map_err(|why| format!("{name}.{why}"))
        };
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Box::new(Self {
                preserve: true,
                ..Self::default()
            })),
            _ => nested("additionalProperties")?,
        };
        let items = nested("items")?;
        let expressions = Expressions::read(schema)?;
        let parts = properties
            .values()
            .chain(additional.as_deref())
            .chain(items.as_deref());
        let asks = expressions.is_some() || parts.into_iter().any(|part| part.asks);
        Ok(Self {
            kind,
            nullable: flag("nullable"),
            properties,
            additional,
            items,
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            default: schema.get("default").cloned(),
            required: texts(schema, "required"),
            possible: schema
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            bounds: Bounds::read(schema)?,
            list: match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => List::Set,
                Some("map") => List::Map(texts(schema, "x-kubernetes-list-map-keys")),
                _ => List::Atomic,
            },
            all_of: several("allOf")?,
            any_of: several("anyOf")?,
            one_of: several("oneOf")?,
            not: nested("not")?,
            expressions,
            asks,
        })
    }
}

impl Bounds {
    fn read(schema: &Value) -> Result<Self, String> {
        let float = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
        let pattern = schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|pattern| !pattern.is_empty());
        let pattern = pattern
            .map(Regex::new)
            .transpose()
            .map_err(|error| format!("pattern: {error}"))?;
        Ok(Self {
            minimum: float("minimum").map(|minimum| (minimum, flag("exclusiveMinimum"))),
            maximum: float("maximum").map(|maximum| (maximum, flag("exclusiveMaximum"))),
            multiple_of: float("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            format: match schema.get("format").and_then(Value::as_str) {
                Some("date-time") => Some(Format::DateTime),
                Some("date") => Some(Format::Date),
                Some("int32") => Some(Format::Int32),
                Some("int64") => Some(Format::Int64),
                _ => None,
            },
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
        })
    }
}

fn texts(schema: &Value, name: &str) -> Vec<String> {
    let texts = schema.get(name).and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
