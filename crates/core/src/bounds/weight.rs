//! Estimates what a spec takes in memory when it is decoded, from its JSON and without decoding it.
//!
//! A typed item of a list has all the fields that its type has, also those that nobody gave. So
//! items are weighed by the name of their list, wherever it is: kinds of other operators have pod
//! templates in other places, and some have them by name and not in a list. The rest is rounded up.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvFromSource, EnvVar, EphemeralContainer, KeyToPath, Toleration, Volume,
    VolumeMount, VolumeProjection,
};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use trainyard_api::RoleSpec;

/// What the items of lists take, by the name of the list.
const ITEMS: [(&str, usize); 12] = [
    ("roles", size_of::<RoleSpec>()),
    ("containers", size_of::<Container>()),
    ("initContainers", size_of::<Container>()),
    ("ephemeralContainers", size_of::<EphemeralContainer>()),
    ("volumes", size_of::<Volume>()),
    ("sources", size_of::<VolumeProjection>()),
    ("env", size_of::<EnvVar>()),
    ("envFrom", size_of::<EnvFromSource>()),
    ("volumeMounts", size_of::<VolumeMount>()),
    ("ports", size_of::<ContainerPort>()),
    ("items", size_of::<KeyToPath>()),
    ("tolerations", size_of::<Toleration>()),
];
/// Where kinds of other operators have their roles by name. Others have a spec that is a list of
/// them.
const FOREIGN_ROLES: [&str; 3] = ["roleSpecs", "mpiReplicaSpecs", "etReplicaSpecs"];
/// What one of these takes: it is decoded, becomes one of ours, and that is reviewed.
const FOREIGN_ROLE: usize = 3 * size_of::<RoleSpec>();
/// The most that one item of a list takes.
pub(super) const HEAVIEST_ITEM: usize = {
    let (mut heaviest, mut i) = (FOREIGN_ROLE, 0);
    while i < ITEMS.len() {
        if ITEMS[i].1 > heaviest {
            heaviest = ITEMS[i].1;
        }
        i += 1;
    }
    heaviest
};
/// The name of the whole, which is nobody's field.
const WHOLE: &str = "";
/// What an item of another list takes at most.
const ITEM: usize = 512;
/// What an object takes that is not in a list: it is a part of the one around it, or a map.
const OBJECT: usize = 256;
/// What a value takes that is neither an object nor a list, besides its characters.
const SCALAR: usize = 32;

/// The estimated weight of some JSON, in bytes. What can't be read weighs nothing.
pub(super) fn of(json: &str) -> usize {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let top = Scale {
        object: OBJECT,
        name: Some(WHOLE),
    };
    top.deserialize(&mut deserializer).unwrap_or_default()
}

/// Weighs one value.
struct Scale<'a> {
    /// What it takes if it is an object.
    object: usize,
    /// Its name. Items of lists have none.
    name: Option<&'a str>,
}

impl Scale<'_> {
    /// What an object takes that is a field of this one.
    fn field(&self) -> usize {
        let is_of_roles = self.name.is_some_and(|name| FOREIGN_ROLES.contains(&name));
        if is_of_roles { FOREIGN_ROLE } else { OBJECT }
    }

    /// What an object takes that is an item of this list.
    fn item(&self) -> usize {
        let Some(name) = self.name else { return ITEM };
        let known = ITEMS.iter().find(|(list, _)| *list == name);
        match known {
            Some((_, size)) => *size,
            None if name == WHOLE || FOREIGN_ROLES.contains(&name) => FOREIGN_ROLE,
            None => ITEM,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Scale<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scale<'_> {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
        let object = self.field();
        let mut weight = self.object;
        while let Some(key) = map.next_key::<Name<'de>>()? {
            let value = Scale {
                object,
                name: Some(&key.0),
            };
            weight += key.0.len() + map.next_value_seed(value)?;
        }
        Ok(weight)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let object = self.item();
        let mut weight = SCALAR;
        while let Some(item) = items.next_element_seed(Scale { object, name: None })? {
            weight += item;
        }
        Ok(weight)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
        Ok(SCALAR + text.len())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<usize, E> {
        Ok(SCALAR)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<usize, E> {
        Ok(SCALAR)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<usize, E> {
        Ok(SCALAR)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<usize, E> {
        Ok(SCALAR)
    }

    fn visit_unit<E: Error>(self) -> Result<usize, E> {
        Ok(SCALAR)
    }
}

/// The name of a field. It is copied only if it has escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("7", SCALAR)]
    #[case(r#""four""#, SCALAR + 4)]
    #[case(r#"{"a": true}"#, OBJECT + 1 + SCALAR)]
    #[case("[{}, {}]", SCALAR + 2 * FOREIGN_ROLE)]
    #[case("[[{}]]", 2 * SCALAR + ITEM)]
    #[case(r#"{"roleSpecs": {"a": {"b": {}}}}"#, OBJECT + 9 + OBJECT + 1 + FOREIGN_ROLE + 1 + OBJECT)]
    #[case(r#"{"etReplicaSpecs": [{}]}"#, OBJECT + 14 + SCALAR + FOREIGN_ROLE)]
    #[case(r#"{"others": [{}]}"#, OBJECT + 6 + SCALAR + ITEM)]
    #[case(r#"{"volumes": [{}]}"#, OBJECT + 7 + SCALAR + size_of::<Volume>())]
    #[case(r#"{"v\u006flumes": [{}]}"#, OBJECT + 7 + SCALAR + size_of::<Volume>())]
    #[case(r#"{"volumes": {}}"#, OBJECT + 7 + OBJECT)]
    #[case("{", 0)]
    fn items_weigh_what_their_types_take(#[case] json: &str, #[case] expected: usize) {
        assert_eq!(of(json), expected);
    }
}
