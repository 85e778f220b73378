//! What a request asks for, as its method and path say.

use http::{Method, Uri};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read all objects.
    List,
    /// Follow changes.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Change part of an object.
    Patch,
    /// Delete one object or many.
    Delete,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub verb: Verb,
    /// The resource, such as `pods` or `trainingjobs/status`; the bare path where it is none.
    pub resource: String,
    /// The object's name, where the path has one.
    pub name: Option<String>,
}

impl Call {
    /// Reads a request's method and address.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let (resource, name) = target(uri.path()).unwrap_or_else(|| (uri.path().to_owned(), None));
        let watching = || {
            let mut pairs = uri.query().unwrap_or_default().split('&');
            pairs.any(|pair| matches!(pair, "watch=true" | "watch=1"))
        };
        let verb = match *method {
            Method::GET if watching() => Verb::Watch,
            Method::GET if name.is_none() => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ => Verb::Get,
        };
        Self { verb, resource, name }
    }

    /// Whether it changes something that matters: events and leases are left out.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
            && !matches!(self.resource.as_str(), "events" | "leases")
            && !self.resource.starts_with('/')
    }
}

/// `/api/<version>/...` or `/apis/<group>/<version>/...`, then
/// `[namespaces/<ns>/]<resource>[/<name>[/<sub>]]`.
fn target(path: &str) -> Option<(String, Option<String>)> {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let skipped = match *parts.first()? {
        "api" => 2,
        "apis" => 3,
        _ => return None,
    };
    if parts.len() <= skipped {
        return None;
    }
    parts.drain(..skipped);
    if parts[0] == "namespaces" && parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
        parts.drain(..2);
    }
    let name = parts.get(1).map(|name| (*name).to_owned());
    let resource = parts
        .get(2)
        .map_or_else(|| parts[0].to_owned(), |sub| format!("{}/{sub}", parts[0]));
    Some((resource, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        for (method, uri, verb, resource, name, write) in [
            (
                Method::POST,
                "/api/v1/namespaces/a/pods",
                Verb::Create,
                "pods",
                None,
                true,
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/pods/p?x=y",
                Verb::Delete,
                "pods",
                Some("p"),
                true,
            ),
            (
                Method::GET,
                "/api/v1/pods?watch=true&x=y",
                Verb::Watch,
                "pods",
                None,
                false,
            ),
            (Method::GET, "/api/v1/pods?x=y", Verb::List, "pods", None, false),
            (
                Method::GET,
                "/api/v1/namespaces/a",
                Verb::Get,
                "namespaces",
                Some("a"),
                false,
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/a/status",
                Verb::Update,
                "namespaces/status",
                Some("a"),
                true,
            ),
            (
                Method::PATCH,
                "/apis/trainyard.dev/v1alpha1/namespaces/a/trainingjobs/j/status",
                Verb::Patch,
                "trainingjobs/status",
                Some("j"),
                true,
            ),
            (
                Method::POST,
                "/apis/events.k8s.io/v1/namespaces/a/events",
                Verb::Create,
                "events",
                None,
                false,
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
                Verb::Update,
                "leases",
                Some("l"),
                false,
            ),
            (Method::GET, "/version", Verb::List, "/version", None, false),
        ] {
            let call = Call::parse(&method, &uri.parse().unwrap());
            assert_eq!(call.verb, verb, "{uri}");
            assert_eq!(call.resource, resource, "{uri}");
            assert_eq!(call.name.as_deref(), name, "{uri}");
            assert_eq!(call.is_write(), write, "{uri}");
        }
    }
}
