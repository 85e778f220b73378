//! The label `kind`: a kind that this crate knows, or one of another operator.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use trainyard_core::foreign::ForeignKind;

use super::Kind;

/// What a request, a watch or a reconcile is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Known(Kind),
    Foreign(Foreign),
}

/// A kind of another operator. Two operators may have kinds of one name: the group tells them
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Foreign {
    kind: &'static str,
    group: &'static str,
    plural: &'static str,
    status: bool,
}

impl Foreign {
    pub(crate) fn new(kind: &dyn ForeignKind) -> Self {
        Self {
            kind: kind.kind(),
            group: kind.group(),
            plural: kind.plural(),
            status: false,
        }
    }

    /// Returns this kind or its status, if the words of a path name it.
    pub(crate) fn find(self, group: &str, resource: &str, subresource: Option<&str>) -> Option<Self> {
        let status = match subresource {
            None => false,
            Some("status") => true,
            Some(_) => return None,
        };
        ((self.group, self.plural) == (group, resource)).then_some(Self { status, ..self })
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
