//! What requests, watches and reconciles are about: a kind that this crate knows, or one of another operator.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use trainyard_core::foreign::ForeignKind;

use super::Kind;

/// What a request, a watch or a reconcile is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A kind that this crate knows.
    Known(Kind),
    /// A kind of another operator.
    Foreign(Foreign),
}

/// A kind of another operator. Two operators may have kinds of one name, so that the group is a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Foreign {
    kind: &'static str,
    group: &'static str,
    plural: &'static str,
    status: bool,
}

impl Foreign {
    /// This kind.
    pub fn new(kind: &dyn ForeignKind) -> Self {
        Self {
            kind: kind.kind(),
            group: kind.group(),
            plural: kind.plural(),
            status: false,
        }
    }

    /// What of this kind a path is about, by the words in it.
    pub(crate) fn find(self, group: &str, resource: &str, subresource: Option<&str>) -> Option<Self> {
        let status = match subresource {
            None => false,
            Some("status") => true,
            Some(_) => return None,
        };
        ((self.group, self.plural) == (group, resource)).then_some(Self { status, ..self })
    }
}

impl Subject {
    /// The kind as which it is counted where kinds of other operators are not told apart.
    pub(super) fn known(self) -> Kind {
        match self {
            Self::Known(kind) => kind,
            Self::Foreign(_) => Kind::Other,
        }
    }
}

impl From<Kind> for Subject {
    fn from(kind: Kind) -> Self {
        Self::Known(kind)
    }
}

impl From<Foreign> for Subject {
    fn from(kind: Foreign) -> Self {
        Self::Foreign(kind)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(kind) => f.write_str(kind.as_str()),
            Self::Foreign(Foreign {
                kind, group, status, ..
            }) => {
                let part = if *status { "/status" } else { "" };
                write!(f, "{kind}.{group}{part}")
            }
        }
    }
}

impl EncodeLabelValue for Subject {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        EncodeLabelValue::encode(&self.to_string(), encoder)
    }
}
