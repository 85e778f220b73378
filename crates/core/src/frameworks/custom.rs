//! `custom`: any roles, each told who it is and where the others are. The job succeeds when all
//! roles did.

use trainyard_api::{RestartPolicy, TrainingJob};

use crate::job::{Elasticity, Env, Environment, Framework, Job, Replica, Role};

/// Lists of host names grow with the square of the job, and are in every container: beyond so many
/// names in all, a pod computes names from indices instead.
const MAX_LISTED: i32 = 256;

pub(super) fn framework() -> Framework {
    Framework {
        restart_policy: RestartPolicy::Never,
        elasticity: Elasticity::Live,
        ..Framework::new("custom", Custom)
    }
}

struct Custom;

impl Environment for Custom {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let mut env = Env::default();
        env.set("MODULE", replica.role.name);
        env.set("INDEX", replica.key.index);
        let roles = job.roles.iter().enumerate();
        for (position, role) in roles.filter(|(_, role)| is_listed(job, role.replicas())) {
            let hosts: Vec<String> = job.keys_of(position).map(|pod| replica.host(pod)).collect();
            env.set(role.name, hosts.join(","));
        }
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        Vec::new()
    }
}

/// Whether the hosts of roles of a size are listed: the smallest come first, and those of one size
/// together.
fn is_listed(job: &Job<'_>, replicas: i32) -> bool {
    let sizes = job.roles.iter().map(Role::replicas);
    sizes.filter(|size| *size <= replicas).sum::<i32>() <= MAX_LISTED
}
