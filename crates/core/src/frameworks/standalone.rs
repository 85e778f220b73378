//! `standalone`: workers that know nothing of each other, and need no Service.

use trainyard_api::TrainingJob;

use crate::job::{Elasticity, Env, Environment, Framework, Replica, RoleRule};

pub(super) fn framework() -> Framework {
    Framework {
        roles: vec![RoleRule::required("worker")],
        has_service: false,
        elasticity: Elasticity::Live,
        ..Framework::new("standalone", Standalone)
    }
}

struct Standalone;

impl Environment for Standalone {
    fn variables(&self, _: &Replica<'_>) -> Env {
        Env::default()
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        Vec::new()
    }
}
