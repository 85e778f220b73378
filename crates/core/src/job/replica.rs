//! The pod that a framework is asked about.

use super::{Job, Role};
use crate::dialect;
use crate::model::PodKey;
use crate::settings::Settings;

/// One pod of a job, with its role.
#[derive(Clone, Copy)]
pub struct Replica<'a> {
    /// The job.
    pub job: &'a Job<'a>,
    /// The pod's role.
    pub role: &'a Role<'a>,
    /// The pod.
    pub key: PodKey,
    /// The cluster's DNS domain.
    pub cluster_domain: &'a str,
}

impl<'a> Replica<'a> {
    /// The pod of a key. `None` if the job has no such role.
    pub fn of(job: &'a Job<'a>, settings: &'a Settings, key: PodKey) -> Option<Self> {
        Some(Self {
            job,
            role: job.roles.get(key.role)?,
            key,
            cluster_domain: &settings.cluster_domain,
        })
    }

    /// Its rank among all pods of the job; see [`Job::rank`].
    pub fn rank(&self) -> i32 {
        self.job.rank(self.key)
    }

    /// The host name by which it finds the pod that leads the others, such as a master. In some
    /// dialects, the leader itself is told to listen on all its addresses.
    pub fn leader_host(&self, leader: PodKey) -> String {
        if leader == self.key && dialect::leaders_listen(dialect::of(self.job.object)) {
            "0.0.0.0".to_owned()
        } else {
            self.host(leader)
        }
    }

    /// The host name by which it finds a pod that is the only one of its role. In some dialects,
    /// that is the name of the role's Service.
    pub fn single_host(&self, only: PodKey) -> String {
        let role = self.job.roles.get(only.role);
        let role = role.filter(|_| dialect::has_role_services(dialect::of(self.job.object)));
        role.map_or_else(
            || self.host(only),
            |role| self.job.domain(role, self.cluster_domain),
        )
    }

    /// The host name by which it finds a pod of the job, which may be itself.
    pub fn host(&self, other: PodKey) -> String {
        self.job.host(other, self.cluster_domain)
    }
}
