//! How large an object may be that the operator decodes. Anybody who may create one decides what is
//! in it, and every replica decodes it, at every list.
//!
//! Decoded objects are larger than their JSON: an empty item of a list is three bytes, and becomes
//! hundreds; a volume becomes three thousand. So the values are counted too, and what they will
//! take in memory is weighed, before anything is decoded. An object beyond these bounds is
//! malformed, and is told so on itself.

mod weight;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The most bytes that a spec may have, and as many the metadata. They have some thousands; only
/// programs in them, or long lists, make them larger.
pub const MAX_BYTES: usize = 512 * 1024;
/// The most values that a spec may have, and as many the lists of the metadata.
pub const MAX_VALUES: usize = 5_000;
/// The most bytes that a spec may take in memory, decoded.
pub const MAX_WEIGHT: usize = 1024 * 1024;
/// An object of as few bytes is within all bounds: every item of a list takes three.
const HARMLESS_BYTES: usize = 512;
const _: () = assert!(HARMLESS_BYTES / 3 * weight::HEAVIEST_ITEM < MAX_WEIGHT);
/// How deep values may be within each other. A decoder gives up at twice as many, and then nobody
/// learns whose object it was.
pub const MAX_DEPTH: usize = 64;
/// A larger status is not decoded where only its first lines matter. None that is stored has more
/// bytes.
const MAX_STATUS_VALUES: usize = 5 * MAX_VALUES;
const MAX_STATUS_BYTES: usize = 3 * MAX_BYTES;

/// A part of an object that is not decoded. `None` if it is missing or null.
type Part<'a> = Option<&'a RawValue>;

/// An object without what nobody here reads.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Parts<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    api_version: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    kind: Part<'a>,
    #[serde(borrow, default, deserialize_with = "no_text")]
    metadata: Metadata<'a>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    status: Part<'a>,
}

/// A part that is kept also if it is null.
fn even_null<'de, D: Deserializer<'de>>(part: D) -> Result<Part<'de>, D::Error> {
    <&RawValue>::deserialize(part).map(Some)
}

/// Metadata that is not a long text, of which an error would be a copy.
fn no_text<'de, D: Deserializer<'de>>(part: D) -> Result<Metadata<'de>, D::Error> {
    from_object(<&RawValue>::deserialize(part)?.get()).map_err(D::Error::custom)
}

/// Reads an object. If it is something else, the error does not repeat it.
///
/// # Errors
/// If it is no object, or not of the type.
pub fn from_object<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, serde_json::Error> {
    if json.trim_start().starts_with('"') {
        return Err(serde_json::Error::custom("this is a text, and no object"));
    }
    serde_json::from_str(json)
}

/// The metadata without `managedFields`, which is often the largest part.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    generate_name: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    namespace: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    uid: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    resource_version: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    generation: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    creation_timestamp: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    labels: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    annotations: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    finalizers: Part<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    owner_references: Part<'a>,
}

/// What is too large in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The part of the object.
    pub path: &'static str,
    /// What is wrong with it.
    pub message: String,
}

/// Returns what is too large in an object for it to be decoded. JSON that can't be read is not too
/// large: whoever decodes it says what is wrong. The status is not bounded: the operator writes it.
pub fn excess(object: &str) -> Option<Excess> {
    if object.len() <= HARMLESS_BYTES && measure(object).depth <= MAX_DEPTH {
        return None;
    }
    let parts: Parts<'_> = from_object(object).ok()?;
    let (bytes, size) = measure_metadata(&parts.metadata);
    excess_of("metadata", bytes, size).or_else(|| {
        let spec = parts.spec?.get();
        excess_of("spec", spec.len(), measure(spec)).or_else(|| excess_weight("spec", spec))
    })
}

/// Returns how many bytes metadata has, and what is in its lists. API servers bound most of it, and
/// those who send reviews need not be API servers.
fn measure_metadata(metadata: &Metadata<'_>) -> (usize, Size) {
    let lists = [
        metadata.labels,
        metadata.annotations,
        metadata.finalizers,
        metadata.owner_references,
    ];
    let names = [
        metadata.name,
        metadata.generate_name,
        metadata.namespace,
        metadata.uid,
        metadata.resource_version,
        metadata.generation,
        metadata.creation_timestamp,
        metadata.deletion_timestamp,
    ];
    let bytes = lists.iter().chain(&names).flatten().map(|part| part.get().len());
    let sizes = lists.into_iter().flatten().map(|part| measure(part.get()));
    let size = sizes.fold(Size::default(), |all, part| Size {
        values: all.values + part.values,
        depth: all.depth.max(part.depth),
    });
    (bytes.sum(), size)
}

fn excess_of(path: &'static str, bytes: usize, size: Size) -> Option<Excess> {
    let Size { values, depth } = size;
    let what = if bytes > MAX_BYTES {
        format!("{bytes} bytes, and at most {MAX_BYTES} are possible")
    } else if values > MAX_VALUES {
        format!("{values} values, and at most {MAX_VALUES} are possible")
    } else if depth > MAX_DEPTH {
        format!("values {depth} deep within each other, and at most {MAX_DEPTH} are possible")
    } else {
        return None;
    };
    let advice = "make it shorter, or keep long programs and lists in a ConfigMap";
    Some(Excess {
        path,
        message: format!("this has {what}: {advice}"),
    })
}

fn excess_weight(path: &'static str, json: &str) -> Option<Excess> {
    let weight = weight::of(json);
    let message = format!(
        "this takes {weight} bytes of memory, and at most {MAX_WEIGHT} are possible: name fewer volumes, containers and \
         variables; one projected volume can hold several sources, and envFrom takes variables from a ConfigMap"
    );
    (weight > MAX_WEIGHT).then_some(Excess { path, message })
}

/// Decodes an object that is not too large, without what nobody here reads, such as
/// `managedFields`.
///
/// # Errors
/// If it is neither null nor an object.
pub fn decode(object: &str) -> Result<Value, serde_json::Error> {
    let parts: Option<Parts<'_>> = from_object(object)?;
    let Some(mut parts) = parts else {
        return Ok(Value::Null);
    };
    parts.status = parts.status.filter(|status| is_small(status));
    serde_json::to_value(parts)
}

/// Decodes of an object that is too large what says which object it is, and its status if that is
/// not too large as well.
///
/// # Errors
/// If it is no object.
pub fn decode_small(object: &str) -> Result<Value, serde_json::Error> {
    let parts: Parts<'_> = from_object(object)?;
    let metadata = parts.metadata;
    serde_json::to_value(Parts {
        metadata: Metadata {
            labels: None,
            annotations: None,
            finalizers: None,
            owner_references: None,
            ..metadata
        },
        spec: None,
        status: parts.status.filter(|status| is_small(status)),
        ..parts
    })
}

fn is_small(status: &RawValue) -> bool {
    let Size { values, depth } = measure(status.get());
    values <= MAX_STATUS_VALUES && depth <= MAX_DEPTH && status.get().len() <= MAX_STATUS_BYTES
}

/// Returns true if two objects have the same spec, as they are written.
pub fn have_same_spec(one: &str, other: &str) -> bool {
    fn spec(object: &str) -> Part<'_> {
        from_object::<Parts<'_>>(object).ok()?.spec
    }
    spec(one).is_some_and(|one| spec(other).is_some_and(|other| one.get() == other.get()))
}

/// Returns true if an object is being deleted.
pub fn is_being_deleted(object: &str) -> bool {
    from_object::<Parts<'_>>(object).is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
}

/// How much there is in some JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// How many values.
    values: usize,
    /// How many lists and objects are within each other at most.
    depth: usize,
}

/// Measures JSON: a value comes first in it, in a list or in an object, or after a comma.
fn measure(json: &str) -> Size {
    let mut size = Size { values: 1, depth: 0 };
    let (mut depth, mut within_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        if within_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => within_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => within_string = true,
                b',' => size.values += 1,
                b'{' | b'[' => {
                    size.values += 1;
                    depth += 1;
                    size.depth = size.depth.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1", 1)]
    #[case(r#"{"a": "{[,\"{"}"#, 2)]
    #[case(r#"{"a": [1, 2, {"b": null}]}"#, 6)]
    fn values_are_counted_and_not_what_strings_contain(#[case] json: &str, #[case] expected: usize) {
        assert_eq!(measure(json).values, expected);
    }

    #[test]
    fn what_is_too_large_is_named() {
        let object = |spec: String| format!(r#"{{"metadata": {{"name": "a"}}, "spec": {spec}}}"#);
        let list = |items: usize| format!("[{}{{}}]", "{},".repeat(items));
        assert_eq!(excess(&object(format!(r#"{{"a": {}}}"#, list(1000)))), None);
        let many = excess(&object(list(MAX_VALUES))).unwrap();
        assert_eq!(many.path, "spec");
        let many = many.message;
        assert!(many.starts_with("this has 10003 values"), "{many}");
        let long = format!("{:?}", "x".repeat(MAX_BYTES));
        let long = excess(&object(long)).unwrap().message;
        assert!(long.starts_with("this has 524290 bytes"), "{long}");
        assert_eq!(excess(&"x".repeat(2 * MAX_BYTES)), None, "it is no JSON");
        // What servers keep of who has written what counts for nothing.
        let managed = format!(
            r#"{{"metadata": {{"managedFields": {}}}, "spec": {{}}}}"#,
            list(MAX_VALUES)
        );
        assert_eq!(excess(&managed), None);
        let decoded = decode(&managed).unwrap();
        assert_eq!(decoded, serde_json::json!({"metadata": {}, "spec": {}}));
        let labels = format!(
            r#"{{"metadata": {{"labels": {}}}, "spec": {{}}}}"#,
            list(MAX_VALUES)
        );
        assert_eq!(excess(&labels).unwrap().path, "metadata");
        for field in ["name", "generateName", "annotations", "creationTimestamp"] {
            let long = "x".repeat(MAX_BYTES);
            let long = format!(r#"{{"metadata": {{"{field}": {long:?}}}, "spec": {{}}}}"#);
            let excess = excess(&long).unwrap();
            assert_eq!(excess.path, "metadata", "{field}");
            assert!(excess.message.starts_with("this has 524290 bytes"), "{field}");
        }
    }

    #[rstest]
    #[case::volumes("volumes", r#"{"name":"v1"}"#, 2450, true)]
    #[case::containers("containers", r#"{"name":"a"}"#, 2450, true)]
    #[case::some_volumes("volumes", r#"{"name":"v1"}"#, 256, false)]
    fn what_would_take_much_memory_is_named(
        #[case] list: &str,
        #[case] item: &str,
        #[case] count: usize,
        #[case] is_too_much: bool,
    ) {
        let items = vec![item; count].join(",");
        let pod = format!(r#"{{"spec": {{"{list}": [{items}]}}}}"#);
        for spec in [
            format!(r#"{{"roles": [{{"template": {pod}}}]}}"#),
            format!(r#"{{"mpiReplicaSpecs": {{"Worker": {{"template": {pod}}}}}}}"#),
        ] {
            let found = excess(&format!(r#"{{"metadata": {{}}, "spec": {spec}}}"#));
            assert_eq!(found.is_some(), is_too_much, "{found:?}");
            if let Some(found) = found {
                let is_told = found.message.contains("of memory") && found.message.contains("fewer volumes");
                assert!(is_told && found.path == "spec", "{found:?}");
            }
        }
    }

    /// Sixteen roles, each with two containers of twenty variables, and eight volumes.
    #[test]
    fn a_large_job_is_not_too_large() {
        let many =
            |count: usize, item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(",");
        let env = many(20, &|i| {
            format!(r#"{{"name":"VARIABLE_{i}","value":"some value {i}"}}"#)
        });
        let mounts = many(8, &|i| format!(r#"{{"name":"v{i}","mountPath":"/data/{i}"}}"#));
        let volumes = many(8, &|i| {
            format!(r#"{{"name":"v{i}","persistentVolumeClaim":{{"claimName":"claim-{i}"}}}}"#)
        });
        let containers = many(2, &|i| {
            format!(
                r#"{{"name":"c{i}","image":"registry.example/i:1","env":[{env}],"volumeMounts":[{mounts}]}}"#
            )
        });
        let roles = many(16, &|i| {
            format!(
                r#"{{"name":"r{i}","template":{{"spec":{{"containers":[{containers}],"volumes":[{volumes}]}}}}}}"#
            )
        });
        let object = format!(r#"{{"metadata": {{}}, "spec": {{"roles": [{roles}]}}}}"#);
        assert_eq!(excess(&object), None);
    }

    #[test]
    fn what_is_too_deep_is_named_also_if_it_is_short() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let object = |depth| format!(r#"{{"metadata": {{"name": "a"}}, "spec": {}}}"#, nested(depth));
        assert_eq!(excess(&object(MAX_DEPTH)), None);
        for depth in [MAX_DEPTH + 1, 200, 2000] {
            let deep = excess(&object(depth)).unwrap();
            assert_eq!(deep.path, "spec");
            assert!(
                deep.message.starts_with(&format!("this has values {depth} deep")),
                "{deep:?}"
            );
            assert!(decode_small(&object(depth)).is_ok());
        }
        let text = format!(r#"{{"metadata": {{"name": {:?}}}, "spec": {{}}}}"#, nested(200));
        assert_eq!(excess(&text), None, "it is a string");
        let status = format!(r#"{{"metadata": {{}}, "status": {}}}"#, nested(200));
        assert_eq!(
            decode_small(&status).unwrap(),
            serde_json::json!({"metadata": {}})
        );
    }

    #[test]
    fn what_is_the_same_and_what_goes_is_seen_without_decoding_it() {
        let object = |label: &str, spec: &str| {
            format!(r#"{{"metadata": {{"labels": {{"a": {label:?}}}}}, "spec": {spec}}}"#)
        };
        assert!(have_same_spec(&object("b", "[1]"), &object("c", "[1]")));
        assert!(!have_same_spec(&object("b", "[1]"), &object("b", "[2]")));
        assert!(!have_same_spec("null", "null"));
        assert!(is_being_deleted(
            r#"{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}"#
        ));
        assert!(!is_being_deleted(r#"{"metadata": {"deletionTimestamp": null}}"#));
        assert!(!is_being_deleted(r#"{"metadata": {}}"#));
        assert_eq!(decode("null").unwrap(), Value::Null);
        assert!(decode("7").is_err());
    }
}
