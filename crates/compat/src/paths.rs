//! Translates paths of a TrainingJob to those of the object that it was made of.

use serde_json::Value;

/// Translates a path by one rule, if it fits: `from` is a path of a TrainingJob, or the beginning
/// of one, and `to` is that of the object.
///
/// `[*]` in `from` stands for any index. In `to`, `[*]` is the same index, and `.*` is the name
/// that this index has in the map of the object at that place: roles that are a map there are in
/// the order of their names here.
pub fn translate(object: &Value, ours: &str, from: &str, to: &str) -> Option<String> {
    let mut rest = ours;
    let mut indices = Vec::new();
    for (i, part) in from.split(ANY_INDEX).enumerate() {
        if i > 0 {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            indices.push(index);
            rest = after;
        }
        rest = rest.strip_prefix(part)?;
    }
    (rest.is_empty() || rest.starts_with(['.', '['])).then(|| fill(object, to, &indices) + rest)
}

const ANY_INDEX: &str = "[*]";
const ANY_NAME: &str = ".*";

fn fill(object: &Value, to: &str, indices: &[&str]) -> String {
    let mut path = String::new();
    let mut rest = to;
    for index in indices {
        let places = [ANY_INDEX, ANY_NAME].map(|place| rest.find(place).map(|at| (at, place)));
        let Some((at, place)) = places.into_iter().flatten().min() else {
            break;
        };
        path.push_str(rest.get(..at).unwrap_or_default());
        if place == ANY_NAME {
            let name = name(object, &path, index).unwrap_or("?");
            if name.is_empty() || name.contains('.') {
                path.extend(["[", name, "]"]);
            } else {
                path.extend([".", name]);
            }
        } else {
            path.extend(["[", index, "]"]);
        }
        rest = rest.get(at + place.len()..).unwrap_or_default();
    }
    path + rest
}

/// The name that an index has among the members of an object's map.
fn name<'a>(object: &'a Value, map: &str, index: &str) -> Option<&'a str> {
    let pointer = format!("/{}", map.replace('.', "/"));
    let mut names: Vec<&String> = object.pointer(&pointer)?.as_object()?.keys().collect();
    names.sort();
    let index: usize = index.parse().ok()?;
    names.get(index).map(|name| name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_of_a_map_go_by_their_names() {
        let object = json!({"spec": {"roles": {"worker": {}, "launcher": {}}}});
        let translated = |ours: &str, from: &str, to: &str| translate(&object, ours, from, to);
        let (from, to) = ("spec.list[*].on[*]", "spec.roles.*.names[*]");
        let found = translated("spec.list[1].on[3].x", from, to);
        assert_eq!(found.as_deref(), Some("spec.roles.worker.names[3].x"));
        let found = translated("spec.list[7]", "spec.list[*]", "spec.roles.*");
        assert_eq!(found.as_deref(), Some("spec.roles.?"));
        assert_eq!(translated("spec.lists", "spec.list", "spec.roles"), None);
        assert_eq!(translated("spec.list[x", "spec.list[*]", "spec.roles.*"), None);
        let found = translated("spec.list[0].on[1]", "spec.list[*].on[*]", "spec.on[*]");
        assert_eq!(found.as_deref(), Some("spec.on[0]"));
        let object = json!({"spec": {"roles": {"": {}, "a.b": {}}}});
        let found = [0, 1].map(|i| {
            translate(
                &object,
                &format!("spec.list[{i}].x"),
                "spec.list[*]",
                "spec.roles.*",
            )
        });
        let found = found.map(Option::unwrap);
        assert_eq!(found, ["spec.roles[].x", "spec.roles[a.b].x"]);
    }
}
