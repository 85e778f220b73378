//! Programs that one role starts in the pods of others.

use trainyard_api::{FieldError, HostFile, TrainingJob};
use trainyard_contract::host_list::Hosts;

use super::{Job, Replica};
use crate::model::Identity;

/// A capability: pods of one role start programs in those of another.
pub trait RemoteAccess: Send + Sync {
    /// What the agent does in a pod besides waiting; the pod can't be made without it.
    fn shell(&self, replica: &Replica<'_>) -> Option<RemoteShell>;

    /// What a main container runs whose user gave neither command nor arguments.
    fn command(&self, replica: &Replica<'_>) -> Option<Vec<String>>;

    /// The credentials by which the pods of a job know each other, without which none of them
    /// starts.
    fn credentials(&self, job: &TrainingJob) -> Option<Credentials>;

    /// The right of some pods to start programs in others through the API server.
    fn exec(&self, job: &Job<'_>) -> Option<ExecRight>;

    /// The places where the operator mounts something into the containers of a role: volumes of
    /// users keep clear of them.
    fn places(&self, job: &TrainingJob, role: &str) -> Vec<Place>;

    /// What is wrong with what a job says about this.
    fn check(&self, job: &TrainingJob) -> Vec<FieldError>;
}

/// What the agent does in a pod besides waiting: it puts itself and the lists of the job's hosts
/// there, so that programs can be started in other pods, and lets other pods start programs in the
/// main container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteShell {
    /// The hosts that are listed, in order.
    pub hosts: Vec<Hosts>,
    /// The files that list them, where the pod's containers find them.
    pub files: Vec<HostFile>,
    /// Whether other pods start programs in this one.
    pub serves: bool,
    /// Whether the lists follow the pods that the job has while it runs.
    pub follows: bool,
    /// Programs that are the agent under another name, where the pod's containers find them.
    pub programs: Vec<&'static str>,
}

/// Credentials by which the pods of a job know each other, and where main containers find them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// What they are.
    pub identity: Identity,
    /// The directory in which they are.
    pub directory: String,
    /// The role that starts programs in the others: as long as its pods run, the job may come to
    /// its end.
    pub caller: &'static str,
    /// The Secret of the user's in which they are. `None`: one is made for the job.
    pub given: Option<String>,
}

impl Credentials {
    /// The name of the Secret in which they are.
    pub fn secret_name(&self, job: &str) -> String {
        match &self.given {
            Some(name) => name.clone(),
            None => self.identity.secret_name(job),
        }
    }

    /// What the Secret holds that is made for the job and kept the same for all of its pods. One of
    /// the user's is the user's affair: nobody makes it, looks for it or asks whose it is.
    pub fn made(&self) -> Option<Identity> {
        self.given.is_none().then_some(self.identity)
    }
}

/// A right to start programs in pods of the same job, through the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecRight {
    /// The position of the role whose pods have it.
    pub holder: usize,
    /// The position of the role in whose pods programs are started.
    pub into: usize,
}

/// A place in containers of users where the operator mounts something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path.
    pub path: String,
    /// Whether the main container alone has it.
    pub main_only: bool,
    /// What is there.
    pub content: Content,
}

/// What the operator mounts into containers of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The agent, or the credentials of the job.
    Mpi,
    /// A directory with a host file of the user's.
    HostFile {
        /// The path of the file.
        file: String,
        /// The field that asks for it.
        field: String,
    },
    /// A program, or a file that a framework looks for.
    Program,
    /// The file to which programs append their progress.
    Progress,
    /// The files by which programs are told to leave.
    Drain,
    /// What a declared framework puts there.
    Declared,
}

impl Place {
    /// A place that all containers have.
    pub(crate) fn of_all(path: impl Into<String>, content: Content) -> Self {
        Self {
            path: path.into(),
            main_only: false,
            content,
        }
    }

    /// A place that the main container has.
    pub(crate) fn of_main(path: impl Into<String>, content: Content) -> Self {
        Self {
            main_only: true,
            ..Self::of_all(path, content)
        }
    }
}
