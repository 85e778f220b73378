//! The path of a value within an object. It is formatted only for errors, because most values are
//! valid.

use std::fmt;

#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
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
