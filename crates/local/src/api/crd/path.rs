//! Where a value is within an object. Most values are as they should be, so that a path is put into
//! words only where something is wrong.

use std::fmt;

/// The path of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The object itself.
    Root,
    /// A member of what is at a path.
    Member(&'a Path<'a>, &'a str),
    /// An item of the list that is at a path.
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn it_is_written_as_kubernetes_does() {
        let spec = Path::Member(&Path::Root, "spec");
        let roles = Path::Member(&spec, "roles");
        let role = Path::Item(&roles, 2);
        assert_eq!(Path::Member(&role, "name").to_string(), "spec.roles[2].name");
        assert_eq!(Path::Root.to_string(), "");
    }
}
