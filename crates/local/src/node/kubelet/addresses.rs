//! Replaces names by addresses where there is no DNS: on the network of the machine.
//!
//! Variables and arguments of containers are searched for full names of pods and Services, which
//! are replaced by their addresses.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Container, Pod, Service};
use kube::Api;
use kube::api::ListParams;

use super::env::expand;
use super::worker::PodWorker;
use crate::node::names;

/// How long a pod waits for a Service or pod that it names.
const NAME_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Default)]
struct Addresses(HashMap<String, Ipv4Addr>);

impl Addresses {
    fn replace(&self, text: &str) -> String {
        let mut made = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(may_be_in_a_name) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|c| !may_be_in_a_name(c)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            made.push_str(before);
            match self.0.get(&normal(word)) {
                Some(address) => made.push_str(&address.to_string()),
                None => made.push_str(word),
            }
            rest = after;
        }
        made.push_str(rest);
        made
    }
}

/// More characters than host names have, so that a part of a word is not taken for a name.
fn may_be_in_a_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.' | '_')
}

fn normal(word: &str) -> String {
    word.trim_end_matches('.').to_ascii_lowercase()
}

#[derive(Debug, PartialEq, Eq)]
enum ClusterName {
    Pod,
    Service { name: String, namespace: String },
}

fn named(word: &str) -> Option<ClusterName> {
    let inner = word.strip_suffix(&format!(".svc.{}", names::DOMAIN))?;
    let parts: Vec<&str> = inner.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    match parts[..] {
        [name, namespace] => Some(ClusterName::Service {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }),
        [_, _, _] => Some(ClusterName::Pod),
        _ => None,
    }
}

fn names_in<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let words = texts.flat_map(|text| text.split(|c| !may_be_in_a_name(c)));
    let mut names: Vec<String> = words.map(normal).filter(|word| named(word).is_some()).collect();
    names.sort();
    names.dedup();
    names
}

impl PodWorker {
    /// The variables and the command line of a container, with names replaced where there is no
    /// DNS.
    pub(super) async fn resolve_names(
        &self,
        spec: &Container,
        env: Vec<(String, String)>,
    ) -> Result<(Vec<(String, String)>, Vec<String>), String> {
        let line: Vec<&String> = spec.command.iter().chain(&spec.args).flatten().collect();
        let names = names_in(env.iter().map(|(_, value)| value).chain(line.iter().copied()));
        let addresses = self.addresses(names).await?;
        let env: Vec<_> = env
            .into_iter()
            .map(|(name, value)| (name, addresses.replace(&value)))
            .collect();
        let line = line
            .into_iter()
            .map(|word| addresses.replace(&expand(word, &env)));
        let line = line.collect();
        Ok((env, line))
    }

    /// The addresses of names; empty if pods have DNS. An error means that a name may be known
    /// soon.
    async fn addresses(&self, names: Vec<String>) -> Result<Addresses, String> {
        let mut known = Addresses::default();
        if self.shared.has_names() {
            return Ok(known);
        }
        for word in names {
            let called = match named(&word) {
                None => continue,
                Some(ClusterName::Pod) => Some(word.clone()),
                Some(ClusterName::Service { name, namespace }) => self.behind(&name, &namespace).await?,
            };
            let address = called.and_then(|name| self.shared.runtime.loopback_address(&name));
            known.0.extend(address.map(|address| (word, address)));
        }
        Ok(known)
    }

    /// The name of the first pod of a Service, if the Service exists.
    async fn behind(&self, name: &str, namespace: &str) -> Result<Option<String>, String> {
        let client = &self.shared.client;
        let age = self
            .shared
            .environment
            .now()
            .duration_since(self.state.lock().seen);
        let may_come = age < NAME_TIMEOUT;
        let services = Api::<Service>::namespaced(client.clone(), namespace);
        let service = services.get_opt(name).await.map_err(|error| error.to_string())?;
        let Some(selector) = service.and_then(|service| service.spec?.selector) else {
            return if may_come {
                Err(format!("there is no Service {namespace}/{name} yet"))
            } else {
                Ok(None)
            };
        };
        let labels: Vec<String> = selector
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let found = pods
            .list(&ListParams::default().labels(&labels.join(",")))
            .await
            .map_err(|error| error.to_string())?;
        let called = |pod: &Pod| {
            Some((
                pod.metadata.name.clone()?,
                names::full_name(pod).or(pod.metadata.uid.clone())?,
            ))
        };
        match found.iter().filter_map(called).min() {
            Some((_, called)) => Ok(Some(called)),
            None if may_come => Err(format!(
                "there is no pod behind the Service {namespace}/{name} yet"
            )),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_replaced() {
        let name = "a-worker-0.a.ns.svc.cluster.local";
        let addresses = Addresses(HashMap::from([(name.to_owned(), Ipv4Addr::new(127, 3, 0, 2))]));
        for (text, wanted) in [
            (name.to_owned(), "127.3.0.2"),
            (format!("{name}:29500"), "127.3.0.2:29500"),
            (format!("tcp://{name}/x"), "tcp://127.3.0.2/x"),
            (format!("{name},{name}."), "127.3.0.2,127.3.0.2"),
            (name.to_uppercase(), "127.3.0.2"),
            (format!("x{name}"), "xa-worker-0.a.ns.svc.cluster.local"),
            (format!("{name}.org"), "a-worker-0.a.ns.svc.cluster.local.org"),
            (format!("_{name}"), "_a-worker-0.a.ns.svc.cluster.local"),
            ("ä = 1, b".to_owned(), "ä = 1, b"),
            (String::new(), ""),
        ] {
            assert_eq!(addresses.replace(&text), wanted, "{text}");
        }
    }

    #[test]
    fn names_of_the_cluster_are_known_by_their_form() {
        let service = ClusterName::Service {
            name: "a".to_owned(),
            namespace: "ns".to_owned(),
        };
        assert_eq!(named("a.ns.svc.cluster.local"), Some(service));
        assert_eq!(named("a-0.a.ns.svc.cluster.local"), Some(ClusterName::Pod));
        for other in [
            "a.ns",
            "example.com",
            ".svc.cluster.local",
            "b.a-0.a.ns.svc.cluster.local",
            "a..svc.cluster.local",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
