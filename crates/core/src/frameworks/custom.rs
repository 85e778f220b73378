//! `custom`: any roles, each told who it is and where the others are. The job succeeds when all roles did.

use trainyard_api::RestartPolicy;

use crate::job::{Contribution, Framework, Job};
use crate::model::PodKey;
use crate::view::Settings;

/// Lists of host names grow with the square of the job, and are in every container: beyond so many names in all, a pod
/// computes names from indices instead.
const MAX_LISTED: i32 = 256;

pub(super) struct Custom;

impl Framework for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn restart_policy(&self, _: &str) -> RestartPolicy {
        RestartPolicy::Never
    }

    fn contribution(&self, job: &Job<'_>, settings: &Settings, pod: PodKey) -> Contribution {
        let module = job.roles.get(pod.role).map_or("", |role| role.name);
        let mut env = vec![
            ("MODULE".to_owned(), module.to_owned()),
            ("INDEX".to_owned(), pod.index.to_string()),
        ];
        for (position, role) in job
            .roles
            .iter()
            .enumerate()
            .filter(|(_, role)| is_listed(job, role.replicas))
        {
            let hosts: Vec<String> = (0..role.replicas)
                .map(|index| {
                    job.host(
                        PodKey {
                            role: position,
                            index,
                        },
                        &settings.cluster_domain,
                    )
                })
                .collect();
            env.push((role.name.to_owned(), hosts.join(",")));
        }
        Contribution {
            env,
            ..Contribution::default()
        }
    }
}

/// Whether the hosts of roles of a size are listed: the smallest come first, and those of one size together.
fn is_listed(job: &Job<'_>, replicas: i32) -> bool {
    let sizes = job.roles.iter().map(|role| role.replicas);
    sizes.filter(|size| *size <= replicas).sum::<i32>() <= MAX_LISTED
}
