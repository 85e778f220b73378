//! Services and their cluster IPs.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::Shared;
use crate::api::error::{FieldError, StatusError};
use crate::api::meta::{self, member};
use crate::api::rules::{Rules, Source, through};
use crate::api::status;
use crate::api::store::Object;

/// Cluster IPs are in 10.96.0.0/16.
const NETWORK: [u8; 2] = [10, 96];
/// The first addresses are reserved for well-known Services.
const FIRST_HOST: u16 = 100;

#[derive(Debug, Default)]
pub(crate) struct Addresses {
    taken: Mutex<BTreeSet<u16>>,
}

impl Addresses {
    /// Takes a free address, starting the search at a random one.
    fn take_any(&self, random: u64) -> Option<Ipv4Addr> {
        let count = u16::MAX - FIRST_HOST;
        let begin = u16::try_from(random % u64::from(count)).unwrap_or(0);
        let mut taken = self.taken.lock();
        let mut all = (0..count).map(|step| {
            FIRST_HOST + u16::try_from((u32::from(begin) + u32::from(step)) % u32::from(count)).unwrap_or(0)
        });
        let free = all.find(|number| !taken.contains(number))?;
        taken.insert(free);
        Some(address(free))
    }

    /// Takes this address. False if it is taken.
    fn take(&self, address: Ipv4Addr) -> bool {
        let mut taken = self.taken.lock();
        number(address).is_none_or(|number| taken.insert(number))
    }

    fn release(&self, address: Ipv4Addr) {
        let mut taken = self.taken.lock();
        if let Some(number) = number(address) {
            taken.remove(&number);
        }
    }
}

fn address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(NETWORK[0], NETWORK[1], high, low)
}

fn number(address: Ipv4Addr) -> Option<u16> {
    let [a, b, high, low] = address.octets();
    ([a, b] == NETWORK).then(|| u16::from_be_bytes([high, low]))
}

/// The rules of services.
pub(crate) struct Services;

impl Rules for Services {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<Service>(source)
    }

    fn default(&self, object: &mut Object) {
        let spec = member(object, "spec");
        spec.entry("type").or_insert_with(|| "ClusterIP".into());
        spec.entry("sessionAffinity").or_insert_with(|| "None".into());
        if spec
            .get("selector")
            .and_then(Value::as_object)
            .is_some_and(serde_json::Map::is_empty)
        {
            spec.remove("selector");
        }
        if spec.get("publishNotReadyAddresses") == Some(&Value::Bool(false)) {
            spec.remove("publishNotReadyAddresses");
        }
        let external = kind_of(spec) == "ExternalName";
        if !external {
            spec.entry("internalTrafficPolicy")
                .or_insert_with(|| "Cluster".into());
        }
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
            port.entry("protocol").or_insert_with(|| "TCP".into());
            if let Some(number) = port.get("port").cloned() {
                port.entry("targetPort").or_insert(number);
            }
        }
    }

    fn prepare(&self, object: &mut Object, shared: &Shared) -> Result<(), StatusError> {
        object.insert("status".into(), json!({"loadBalancer": {}}));
        assign(object, shared)
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        check(object)
    }

    fn change(&self, new: &mut Object, old: &Object, shared: &Shared) -> Result<(), StatusError> {
        let former = old
            .get("spec")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let spec = member(new, "spec");
        if kind_of(spec) == "ExternalName" {
            return Ok(());
        }
        if kind_of(&former) == "ExternalName" {
            return assign(new, shared);
        }
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let (false, Some(value)) = (spec.contains_key(name), former.get(name)) {
                spec.insert(name.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let ip = |object: &Object| object.get("spec").and_then(|spec| spec.get("clusterIP").cloned());
        match (ip(old), ip(new)) {
            (Some(before), after) if after.as_ref() != Some(&before) && kind(new) != "ExternalName" => {
                let value = after.unwrap_or_default();
                vec![FieldError::invalid(
                    "spec.clusterIPs[0]",
                    &value,
                    "may not change once set",
                )]
            }
            _ => Vec::new(),
        }
    }

    fn abandon(&self, object: &Object, shared: &Shared) {
        self.release(object, shared);
    }

    fn release(&self, object: &Object, shared: &Shared) {
        let ip = object
            .get("spec")
            .and_then(|spec| spec.get("clusterIP")?.as_str()?.parse().ok());
        if let Some(ip) = ip {
            shared.addresses.release(ip);
        }
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

fn assign(object: &mut Object, shared: &Shared) -> Result<(), StatusError> {
    let name = meta::text(object, "name").to_owned();
    let spec = member(object, "spec");
    if kind_of(spec) == "ExternalName" {
        return Ok(());
    }
    spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
    spec.entry("ipFamilyPolicy")
        .or_insert_with(|| "SingleStack".into());
    let wanted = spec
        .get("clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let ip = match wanted.as_str() {
        "None" => wanted,
        "" => {
            let free = shared.addresses.take_any(shared.environment.number());
            let free =
                free.ok_or_else(|| status::internal("no address is left for services: delete some"))?;
            free.to_string()
        }
        given => {
            // An invalid address is reported later, with all other errors.
            let parsed: Option<Ipv4Addr> = given.parse().ok();
            if parsed.is_some_and(|address| !shared.addresses.take(address)) {
                // It belongs to another Service and must not be released with this one.
                spec.remove("clusterIP");
                let why = format!("failed to allocate IP {given}: provided IP is already allocated");
                let error = FieldError::invalid("spec.clusterIPs", &json!([given]), &why);
                return Err(status::invalid_named("Service", "", "Service", &name, &[error]));
            }
            wanted
        }
    };
    spec.insert("clusterIP".into(), ip.clone().into());
    spec.insert("clusterIPs".into(), json!([ip]));
    Ok(())
}

fn kind_of(spec: &serde_json::Map<String, Value>) -> &str {
    spec.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn kind(object: &Object) -> &str {
    object
        .get("spec")
        .and_then(Value::as_object)
        .map(kind_of)
        .unwrap_or_default()
}

fn check(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(spec) = object.get("spec").and_then(Value::as_object) else {
        return errors;
    };
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.contains(&kind_of(spec)) {
        errors.push(FieldError::unsupported("spec.type", &kind_of(spec).into(), types));
    }
    let ip = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default();
    if !matches!(ip, "" | "None") && ip.parse::<Ipv4Addr>().is_err() {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &ip.into(),
            "must be a valid IP address",
        ));
    }
    let ports = spec
        .get("ports")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if ports.is_empty() && ip != "None" && kind_of(spec) != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    let (mut names, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !name.is_empty() && !meta::is_label(name) {
            errors.push(FieldError::invalid(
                format!("{path}.name"),
                &name.into(),
                "must be a lowercase RFC 1123 label",
            ));
        } else if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.port"), &number.into(), why));
        }
        if let Some((value, why)) = port
            .get("targetPort")
            .and_then(|target| Some((target, wrong_target(target)?)))
        {
            errors.push(FieldError::invalid(format!("{path}.targetPort"), value, why));
        }
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or_default();
        if !taken.insert((protocol, number)) {
            let value = json!({"protocol": protocol, "port": number});
            errors.push(FieldError::duplicate(path, &value));
        }
    }
    errors
}

/// Why a value is neither the number nor the name of a port.
fn wrong_target(target: &Value) -> Option<&'static str> {
    let Some(name) = target.as_str() else {
        let fits = target
            .as_i64()
            .is_some_and(|number| (1..=65535).contains(&number));
        return (!fits).then_some("must be between 1 and 65535, inclusive");
    };
    let letter = name.bytes().any(|byte| byte.is_ascii_lowercase());
    if name.len() > 15 {
        return Some("must be no more than 15 characters");
    }
    (!meta::is_label(name) || !letter || name.contains("--")).then_some(
        "must contain only lower case letters, digits and single '-', at least one letter, and no '-' at its ends",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(json!(1), true)]
    #[case(json!(0), false)]
    #[case(json!(65536), false)]
    #[case(json!("http"), true)]
    #[case(json!("80"), false)]
    #[case(json!("a--b"), false)]
    #[case(json!("longer-than-fifteen"), false)]
    fn a_target_is_a_number_or_a_name_of_a_port(#[case] target: Value, #[case] fits: bool) {
        assert_eq!(wrong_target(&target).is_none(), fits);
    }

    #[test]
    fn addresses_are_taken_once_and_can_be_given_back() {
        let addresses = Addresses::default();
        let first = addresses.take_any(7).unwrap();
        assert_ne!(addresses.take_any(7), Some(first));
        assert!(!addresses.take(first));
        addresses.release(first);
        assert!(addresses.take(first));
        assert!(
            addresses.take(Ipv4Addr::new(192, 168, 0, 1)),
            "what is not ours is nobody's here"
        );
    }
}
