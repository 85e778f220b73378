//! Frameworks that are declared, compared with the same ones that are built in.
//!
//! Both jobs are planned in turn in this process, so that whatever else the machine does meets
//! both.

use anyhow::{Result, ensure};
use serde_json::json;
use trainyard_api::{DeclaredFramework, TrainingJob};
use trainyard_core::admission;
use trainyard_core::registry::Registry;

use super::{Cost, cost, job};
use crate::session::Session;

/// How often each job is planned. The fastest time counts: it is the one that least else was in.
const TIMES: usize = 21;
/// What a declared framework may cost, compared with the same one that is built in.
const TARGET: f64 = 2.0;

/// A framework that is built in and also declared, with the roles of its jobs. The last role has
/// the pods that the others leave.
struct Twins {
    built_in: &'static str,
    declaration: &'static str,
    roles: &'static [(&'static str, Share)],
}

/// How many pods of a job a role has.
#[derive(Clone, Copy)]
enum Share {
    One,
    Fifth,
    Rest,
}

const TWINS: [Twins; 3] = [
    Twins {
        built_in: "jax",
        declaration: include_str!("../../../../../../examples/declared/jax.yaml"),
        roles: &[("worker", Share::Rest)],
    },
    Twins {
        built_in: "xgboost",
        declaration: include_str!("../../../../../../examples/declared/xgboost.yaml"),
        roles: &[("master", Share::One), ("worker", Share::Rest)],
    },
    Twins {
        built_in: "mxnet",
        declaration: include_str!("../../../../../../examples/declared/mxnet.yaml"),
        roles: &[
            ("scheduler", Share::One),
            ("server", Share::Fifth),
            ("worker", Share::Rest),
        ],
    },
];

impl Twins {
    fn roles(&self, pods: u32) -> Vec<(&'static str, u32)> {
        let mut left = pods;
        let mut roles = Vec::new();
        for (name, share) in self.roles {
            let replicas = match share {
                Share::One => 1,
                Share::Fifth => (pods / 5).max(1),
                Share::Rest => left,
            };
            left = left.saturating_sub(replicas);
            roles.push((*name, replicas));
        }
        roles
    }
}

impl Session {
    /// The cost of declared frameworks, for jobs of all planned sizes up to 1,000 pods. MXNet's
    /// variable MX_CONFIG, which names all pods, is left out of jobs of more than 256.
    pub(super) fn declared(&mut self) -> Result<()> {
        for twins in &TWINS {
            let declaration: DeclaredFramework = serde_saphyr::from_str(twins.declaration)?;
            let mut registry = Registry::default();
            let errors = registry.declare(&declaration);
            ensure!(errors.is_empty(), "{}: {errors:?}", twins.built_in);
            let declared = format!("my-{}", twins.built_in);
            for pods in [1, self.sizes.planned[0], self.sizes.planned[1]] {
                let least = u32::try_from(twins.roles.len())?;
                let roles = twins.roles(pods.max(least));
                self.compare_declared(&registry, [twins.built_in, &declared], &roles)?;
            }
        }
        Ok(())
    }

    fn compare_declared(
        &mut self,
        registry: &Registry,
        [built_in, declared]: [&str; 2],
        roles: &[(&str, u32)],
    ) -> Result<()> {
        let prepare = |framework: &str| -> Result<TrainingJob> {
            let mut job = job(&json!({"name": framework}), roles)?;
            let frameworks = registry.for_job(&job);
            admission::default_with(&mut job, &frameworks);
            Ok(job)
        };
        let (twin, job) = (prepare(built_in)?, prepare(declared)?);
        let (mut least, mut most) = (Fastest::default(), Fastest::default());
        for _ in 0..TIMES {
            least.take(&cost(&twin, registry)?);
            most.take(&cost(&job, registry)?);
        }
        let pods: u32 = roles.iter().map(|(_, replicas)| replicas).sum();
        let name = format!("planning {built_in}, declared, {pods} pods");
        let ratio = |part: fn(&Fastest) -> f64| (part(&most) / part(&least), part(&most), part(&least));
        for (measure, target, (ratio, declared, built_in)) in [
            (
                "a new job, all of it",
                Some(TARGET),
                ratio(|all| all.plan + all.build),
            ),
            ("first plan", None, ratio(|all| all.plan)),
            ("plan once accepted", Some(TARGET), ratio(|all| all.again)),
            ("all pods, built", Some(TARGET), ratio(|all| all.build)),
        ] {
            let measure = format!("{measure}, x built in");
            let detail = format!("{declared:.3} ms against {built_in:.3} ms; the fastest of {TIMES}");
            self.figure(&name, &measure, ratio, "x", target, detail);
        }
        Ok(())
    }
}

/// The fastest times so far, in milliseconds.
struct Fastest {
    plan: f64,
    again: f64,
    build: f64,
}

impl Default for Fastest {
    fn default() -> Self {
        Self {
            plan: f64::INFINITY,
            again: f64::INFINITY,
            build: f64::INFINITY,
        }
    }
}

impl Fastest {
    fn take(&mut self, cost: &Cost) {
        self.plan = self.plan.min(cost.plan);
        self.again = self.again.min(cost.again);
        self.build = self.build.min(cost.build);
    }
}
