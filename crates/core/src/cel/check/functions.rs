//! The functions and operators that there are, with their types.

use crate::cel::evaluate::{Function, Loop};
use crate::cel::syntax::Operator;
use crate::cel::types::Type;

/// A function: how it is called, and what comes of which types.
pub(super) struct Signature {
    name: &'static str,
    /// Whether it is written after a value: `list.join(",")`.
    is_method: bool,
    form: &'static str,
    parts: usize,
    result: fn(&[&Type]) -> Option<(Function, Type)>,
}

const SIGNATURES: &[Signature] = &[
    Signature {
        name: "hosts",
        is_method: false,
        form: "hosts(role)",
        parts: 1,
        result: |parts| match parts {
            [Type::Text] => Some((Function::Hosts, Type::list(Type::Text))),
            _ => None,
        },
    },
    Signature {
        name: "replicas",
        is_method: false,
        form: "replicas(role)",
        parts: 1,
        result: |parts| match parts {
            [Type::Text] => Some((Function::Replicas, Type::Int)),
            _ => None,
        },
    },
    Signature {
        name: "json",
        is_method: false,
        form: "json(value)",
        parts: 1,
        result: |parts| match parts {
            [kind] if kind.is_data() => Some((Function::Json, Type::Text)),
            _ => None,
        },
    },
    Signature {
        name: "string",
        is_method: false,
        form: "string(value), of a boolean, a number or a string",
        parts: 1,
        result: |parts| match parts {
            [Type::Bool | Type::Int | Type::Text] => Some((Function::ToText, Type::Text)),
            _ => None,
        },
    },
    Signature {
        name: "int",
        is_method: false,
        form: "int(value), of a number or a string",
        parts: 1,
        result: |parts| match parts {
            [Type::Int | Type::Text] => Some((Function::ToInt, Type::Int)),
            _ => None,
        },
    },
    Signature {
        name: "size",
        is_method: false,
        form: "size(value), of a string, a list or a map",
        parts: 1,
        result: size,
    },
    Signature {
        name: "size",
        is_method: true,
        form: "value.size(), of a string, a list or a map",
        parts: 1,
        result: size,
    },
    Signature {
        name: "join",
        is_method: true,
        form: "list.join(separator), of a list of strings",
        parts: 2,
        result: |parts| match parts {
            [list, Type::Text] if list.fits(&Type::list(Type::Text)) => Some((Function::Join, Type::Text)),
            _ => None,
        },
    },
    Signature {
        name: "startsWith",
        is_method: true,
        form: "string.startsWith(string)",
        parts: 2,
        result: |parts| of_texts(parts, Function::StartsWith, Type::Bool),
    },
    Signature {
        name: "endsWith",
        is_method: true,
        form: "string.endsWith(string)",
        parts: 2,
        result: |parts| of_texts(parts, Function::EndsWith, Type::Bool),
    },
    Signature {
        name: "contains",
        is_method: true,
        form: "string.contains(string)",
        parts: 2,
        result: |parts| of_texts(parts, Function::Contains, Type::Bool),
    },
    Signature {
        name: "lowerAscii",
        is_method: true,
        form: "string.lowerAscii()",
        parts: 1,
        result: |parts| of_texts(parts, Function::Lower, Type::Text),
    },
    Signature {
        name: "upperAscii",
        is_method: true,
        form: "string.upperAscii()",
        parts: 1,
        result: |parts| of_texts(parts, Function::Upper, Type::Text),
    },
];

fn size(parts: &[&Type]) -> Option<(Function, Type)> {
    matches!(parts, [Type::Text | Type::List(_) | Type::Map(_)]).then_some((Function::Size, Type::Int))
}

fn of_texts(parts: &[&Type], function: Function, result: Type) -> Option<(Function, Type)> {
    let are_texts = parts.iter().all(|part| **part == Type::Text);
    are_texts.then_some((function, result))
}

impl Signature {
    /// The function of a name, or a sentence with those that there are.
    pub(super) fn find(is_method: bool, name: &str) -> Result<&'static Self, String> {
        let found = SIGNATURES
            .iter()
            .find(|s| s.name == name && s.is_method == is_method);
        found.ok_or_else(|| match SIGNATURES.iter().find(|s| s.name == name) {
            Some(other) => format!("{name}: it is written {}", other.form),
            None if Loop::names(name).is_some() => {
                format!("{name}: it is written list.{}", Loop::form(name))
            }
            None => {
                let mut known: Vec<&str> = SIGNATURES.iter().map(|s| s.name).collect();
                known.dedup();
                format!(
                    "there is no function {name}: there are {}, and {}",
                    known.join(", "),
                    Loop::NAMES
                )
            }
        })
    }

    pub(super) fn form(&self) -> &'static str {
        self.form
    }

    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    pub(super) fn apply(&self, kinds: &[&Type]) -> Result<(Function, Type), String> {
        (self.result)(kinds).ok_or_else(|| {
            let given: Vec<String> = kinds.iter().map(ToString::to_string).collect();
            format!(
                "{}: {} was given; it is written {}",
                self.name,
                given.join(" and "),
                self.form
            )
        })
    }
}

/// What an operator does with values of two types, or why there is no such thing.
pub(super) fn of_operator(operator: Operator, one: &Type, other: &Type) -> Result<(Function, Type), String> {
    let joined = one.clone().join(other.clone());
    let found = match (operator, &joined) {
        (Operator::Equal | Operator::NotEqual, Type::Any) if *one != Type::Any && *other != Type::Any => None,
        (Operator::Equal, _) => Some((Function::Equal, Type::Bool)),
        (Operator::NotEqual, _) => Some((Function::NotEqual, Type::Bool)),
        (Operator::In, _) => of_in(one, other),
        (Operator::Less, Type::Int | Type::Text) => Some((Function::Less, Type::Bool)),
        (Operator::LessOrEqual, Type::Int | Type::Text) => Some((Function::LessOrEqual, Type::Bool)),
        (Operator::Greater, Type::Int | Type::Text) => Some((Function::Greater, Type::Bool)),
        (Operator::GreaterOrEqual, Type::Int | Type::Text) => Some((Function::GreaterOrEqual, Type::Bool)),
        (Operator::Add, Type::Int) => Some((Function::Add, Type::Int)),
        (Operator::Add, Type::Text) => Some((Function::Concatenate, Type::Text)),
        (Operator::Add, Type::List(_)) => Some((Function::Append, joined)),
        (Operator::Subtract, Type::Int) => Some((Function::Subtract, Type::Int)),
        (Operator::Multiply, Type::Int) => Some((Function::Multiply, Type::Int)),
        (Operator::Divide, Type::Int) => Some((Function::Divide, Type::Int)),
        (Operator::Remainder, Type::Int) => Some((Function::Remainder, Type::Int)),
        _ => None,
    };
    found.ok_or_else(|| {
        let hint = match operator {
            Operator::Add if *one == Type::Text || *other == Type::Text => {
                ": write string(...) around what is no string"
            }
            _ => "",
        };
        format!("{} can't be used with {one} and {other}{hint}", sign(operator))
    })
}

fn of_in(item: &Type, container: &Type) -> Option<(Function, Type)> {
    match container {
        Type::List(of) if item.fits(of) || **of == Type::Nothing => Some((Function::InList, Type::Bool)),
        Type::Map(_) if *item == Type::Text => Some((Function::InMap, Type::Bool)),
        _ => None,
    }
}

fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Or => "||",
        Operator::And => "&&",
        Operator::Equal => "==",
        Operator::NotEqual => "!=",
        Operator::Less => "<",
        Operator::LessOrEqual => "<=",
        Operator::Greater => ">",
        Operator::GreaterOrEqual => ">=",
        Operator::In => "in",
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::Remainder => "%",
    }
}
