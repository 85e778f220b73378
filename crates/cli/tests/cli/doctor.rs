//! What `doctor` says. It says something on every machine; what, is for the machine to know.

use serde_json::Value;

use super::{list, printed, text};

#[test]
fn every_ability_is_reported_with_a_reason_if_it_is_missing() {
    let report: Value = serde_json::from_str(&printed("doctor --output json")).unwrap();
    assert!(
        ["Root", "User", "Plain"].contains(&text(&report, "/isolation")),
        "{report}"
    );
    let abilities = list(&report, "/abilities");
    assert_eq!(abilities.len(), 4);
    for ability in abilities {
        let reason = text(ability, "/reason");
        assert_eq!(ability["possible"] == true, reason.is_empty(), "{ability}");
    }
}

#[test]
fn people_read_the_same() {
    let report: Value = serde_json::from_str(&printed("doctor --output json")).unwrap();
    let page = printed("doctor");
    assert!(page.starts_with("isolation: "), "{page}");
    for ability in list(&report, "/abilities") {
        let mark = if ability["possible"] == true { "yes" } else { "no " };
        assert!(
            page.contains(&format!("  {mark}  {}", text(ability, "/name"))),
            "{page}"
        );
    }
}
