//! The memory that objects take while they are reviewed and planned for, that are as large as
//! anybody can make them.

use std::sync::LazyLock;

use jiff::Timestamp;
use peak_alloc::PeakAlloc;
use rstest::rstest;
use serde_json::Value;
use trainyard_core::bounds;
use trainyard_core::foreign::{Child, ForeignView};
use trainyard_core::view::Settings;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// What each of the operator's four reviews may take, `budget::REVIEW`.
const MOST: usize = 8 * 1024 * 1024;

/// By how many bytes more than before this process has allocated at its peak, while it does
/// something. Each test has a process of its own.
fn peak_growth(work: impl FnOnce()) -> usize {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    work();
    ALLOCATED.peak_usage().saturating_sub(before)
}

/// The largest spec that is within the bounds, of some that grow.
fn largest(spec: impl Fn(usize) -> String) -> String {
    let is_within = |count: &usize| bounds::excess(&object("Any", &spec(*count))).is_none();
    let counts: Vec<usize> = (0..6000).collect();
    spec(counts.partition_point(is_within).saturating_sub(1))
}

fn object(kind: &str, spec: &str) -> String {
    format!(r#"{{"kind":"{kind}","metadata":{{"name":"a","namespace":"b","uid":"u"}},"spec":{spec}}}"#)
}

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

fn map(item: &str, count: usize) -> String {
    let entries: Vec<String> = (0..count).map(|i| format!(r#""r{i}":{item}"#)).collect();
    format!("{{{}}}", entries.join(","))
}

/// Roles, in all places where these kinds have them.
fn in_places_of_roles(roles: fn(&str, usize) -> String, item: &str) -> Vec<String> {
    let whole = largest(|count| roles(item, count));
    let fields = ["roleSpecs", "mpiReplicaSpecs", "etReplicaSpecs"];
    let within = fields.map(|field| largest(|count| format!(r#"{{"{field}":{}}}"#, roles(item, count))));
    [vec![whole], within.to_vec()].concat()
}

#[rstest]
#[case::empty("{}")]
#[case::a_template(r#"{"template":{"spec":{"containers":[]}}}"#)]
#[case::a_role(r#"{"replicas":1,"replicaType":"Worker","template":{"spec":{"containers":[{"name":"mxnet","image":"i"}]}}}"#)]
fn no_object_takes_more_than_a_review_may(#[case] item: &str) {
    let specs = [in_places_of_roles(list, item), in_places_of_roles(map, item)];
    for kind in trainyard_compat::served() {
        for spec in specs.concat() {
            let json = object(kind.kind(), &spec);
            let review = peak_growth(|| {
                let object = bounds::decode(&json).unwrap();
                drop(kind.review(Some(&object), &object));
            });
            let plan = peak_growth(|| drop(kind.plan(&view(&bounds::decode(&json).unwrap()))));
            let spec: String = spec.chars().take(60).collect();
            assert!(
                review.max(plan) <= MOST,
                "{} of {spec}: a review takes {} KiB, a plan {} KiB",
                kind.kind(),
                review / 1024,
                plan / 1024
            );
        }
    }
}

fn view(object: &Value) -> ForeignView<'_> {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);
    ForeignView {
        object,
        child: Child::None,
        obstacle: None,
        other_writer: None,
        settings: &SETTINGS,
        now: Timestamp::UNIX_EPOCH,
    }
}
