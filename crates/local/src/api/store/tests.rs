use serde_json::json;

use super::*;

fn draft(namespace: &str, name: &str, number: u32, owners: &[&str]) -> Draft {
    let owners: Vec<_> = owners.iter().map(|uid| json!({"uid": uid})).collect();
    let object = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "ownerReferences": owners},
        "spec": number,
    });
    let object = object.as_object().unwrap().clone();
    let head = Head::of(&object, Vec::new());
    Draft::new("v1", "Thing", &object, head)
}

fn names(page: &Page) -> Vec<String> {
    page.objects
        .iter()
        .map(|object| object.head.key().to_string())
        .collect()
}

#[test]
fn a_write_is_refused_unless_it_was_computed_from_the_latest_version() {
    let store = Store::new(10);
    let table = store.add_table();
    let first = store.insert(table, &draft("ns", "a", 1, &[])).unwrap();
    assert_eq!(
        store.insert(table, &draft("ns", "a", 1, &[])).unwrap_err(),
        WriteError::Exists
    );
    let second = store.replace(table, &first, &draft("ns", "a", 2, &[])).unwrap();
    assert!(second.version > first.version);
    assert_eq!(
        store
            .replace(table, &first, &draft("ns", "a", 3, &[]))
            .unwrap_err(),
        WriteError::Changed
    );
    assert_eq!(store.remove(table, &first).unwrap_err(), WriteError::Changed);
    let same = store.replace(table, &second, &draft("ns", "a", 2, &[])).unwrap();
    assert_eq!(
        same.version, second.version,
        "nothing changed, so nothing was written"
    );
    let last = store.remove(table, &second).unwrap();
    assert_eq!(
        (last.version, last.object()["spec"].as_u64()),
        (store.version(), Some(2))
    );
    assert!(store.get(table, "ns/a").is_none());
}

#[test]
fn lists_are_ordered_by_namespace_and_name_and_can_be_of_the_past() {
    let store = Store::new(100);
    let table = store.add_table();
    for (namespace, name) in [("b", "z"), ("a", "y"), ("a-b", "x"), ("a", "b")] {
        store.insert(table, &draft(namespace, name, 1, &[])).unwrap();
    }
    let page = store.list(table, "", None, None).unwrap();
    assert_eq!(names(&page), ["a-b/x", "a/b", "a/y", "b/z"]);
    let then = page.version;
    assert_eq!(
        names(&store.list(table, "a", None, None).unwrap()),
        ["a/b", "a/y"]
    );

    let gone = store.get(table, "a/y").unwrap();
    store.remove(table, &gone).unwrap();
    store.insert(table, &draft("a", "c", 1, &[])).unwrap();
    let changed = store.get(table, "a/b").unwrap();
    store.replace(table, &changed, &draft("a", "b", 2, &[])).unwrap();

    let past = store.list(table, "a", None, Some(then)).unwrap();
    assert_eq!(names(&past), ["a/b", "a/y"]);
    assert_eq!(past.objects[0].object()["spec"], 1);
    assert_eq!(
        names(&store.list(table, "", Some("a/b"), Some(then)).unwrap()),
        ["a/y", "b/z"]
    );
    assert_eq!(
        names(&store.list(table, "", None, None).unwrap()),
        ["a-b/x", "a/b", "a/c", "b/z"]
    );
    store.compact();
    assert!(store.list(table, "a", None, Some(then)).is_err());
}

#[test]
fn the_log_is_bounded_but_waits_for_those_who_read() {
    let store = Store::new(4);
    let table = store.add_table();
    let begin = store.version();
    let mut reader = store.follow_since(table, begin).unwrap();
    let add = |range: std::ops::Range<u32>| {
        for number in range {
            store
                .insert(table, &draft("ns", &format!("{number}"), number, &[]))
                .unwrap();
        }
    };
    add(0..20);
    assert_eq!(
        store.read(table, &mut reader, 1000).unwrap().len(),
        20,
        "a slow reader misses nothing"
    );
    assert!(store.read(table, &mut reader, 1000).unwrap().is_empty());
    add(20..21);
    assert!(
        store.follow_since(table, begin).is_err(),
        "what all have read is forgotten"
    );
    add(21..200);
    let compacted = store.read(table, &mut reader, 1000).unwrap_err();
    assert!(compacted.oldest > compacted.wanted, "there is an end to patience");
}

#[test]
fn dependents_are_found_by_their_owners_uid() {
    let store = Store::new(10);
    let table = store.add_table();
    let child = store
        .insert(table, &draft("ns", "child", 1, &["ns-owner", "ghost"]))
        .unwrap();
    assert!(store.lacks_an_owner(&child.head));
    store.insert(table, &draft("ns", "owner", 1, &[])).unwrap();
    assert_eq!(store.dependents("ns-owner").len(), 1);
    let child = store
        .replace(table, &child, &draft("ns", "child", 1, &["ns-owner"]))
        .unwrap();
    assert!(store.dependents("ghost").is_empty() && !store.lacks_an_owner(&child.head));
    assert_eq!(store.find("ns-child"), Some((table, "ns/child".into())));
    store.remove(table, &child).unwrap();
    assert!(store.dependents("ns-owner").is_empty() && store.find("ns-child").is_none());
}
