//! `CONTRIBUTING.md` adds a framework by a patch. `echo.rs` beside this file is the framework of
//! the patch, so that the compiler checks it.

use trainyard_core::job::{Env, Job};
use trainyard_core::model::PodKey;
use trainyard_core::view::Settings;

use crate::{echo, jobs};

const ECHO: &str = include_str!("echo.rs");
const PATCH: &str = include_str!("../../../../docs/echo-framework.patch");
const WALK_THROUGH: &str = include_str!("../../../../CONTRIBUTING.md");

#[test]
fn the_patch_adds_this_framework() {
    let file = PATCH
        .split("+++ b/crates/core/src/frameworks/echo.rs\n")
        .nth(1)
        .unwrap();
    let file = file.split("\ndiff --git").next().unwrap();
    let lines = file.lines().filter_map(|line| line.strip_prefix('+'));
    let added: Vec<&str> = lines.collect();
    assert_eq!(added, ECHO.lines().collect::<Vec<_>>());
    let shown = ECHO.split_once("\n\npub(super)").unwrap().1;
    assert!(WALK_THROUGH.contains(shown));
}

#[test]
fn a_framework_can_be_made_at_run_time() {
    let framework = echo::framework();
    let object = jobs::job("custom", &[("echo", 2), ("caller", 1)]);
    let mut job = Job::parse(&object).unwrap();
    job.framework = &framework;
    let settings = Settings::default();
    for (role, index, rank) in [(1, 0, "0"), (0, 0, "1"), (0, 1, "2")] {
        let given = framework.contribution(&job, &settings, PodKey { role, index });
        let caller = job.host(PodKey { role: 1, index: 0 }, &settings.cluster_domain);
        assert_eq!(
            given.env,
            Env::from([("ECHO_CALLER", &*caller), ("ECHO_RANK", rank)])
        );
    }
    assert_eq!(framework.succeeded_when(&job.roles), [[0]]);
    let awaited = framework.dependencies("echo", &["echo", "caller"]);
    assert_eq!(awaited.iter().map(|on| &*on.role).collect::<Vec<_>>(), ["caller"]);
}
