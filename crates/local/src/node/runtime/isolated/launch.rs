//! Starts a container in namespaces.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sched::{CloneFlags, setns, unshare};

use super::leftovers::Leftovers;
use super::{Namespaces, Sandbox, root};
use crate::host::{Isolation, remove_tree};
use crate::node::runtime::container_init::{self, InitSpec};
use crate::node::runtime::running::start_container;
use crate::node::runtime::{Container, ContainerSpec, Error};

static STARTS: AtomicU64 = AtomicU64::new(0);

struct Launch {
    isolation: Isolation,
    namespaces: Arc<Namespaces>,
    own: PathBuf,
    scratch: PathBuf,
    groups: Vec<PathBuf>,
    spec: Arc<ContainerSpec>,
}

pub(super) async fn start(sandbox: &Sandbox, spec: ContainerSpec) -> Result<Container, Error> {
    let spec = Arc::new(spec);
    let number = STARTS.fetch_add(1, Ordering::Relaxed);
    // The number keeps it apart from the last run, which may still be being removed.
    let id = format!("{}-{number}", spec.id);
    let group = sandbox.groups.group(&id, spec.limits)?;
    let launch = Launch {
        isolation: sandbox.isolation,
        namespaces: sandbox.namespaces.clone(),
        own: sandbox.own.clone(),
        scratch: sandbox.scratch.join(id),
        groups: group.members().to_vec(),
        spec: spec.clone(),
    };
    let scratch = launch.scratch.clone();
    let launch = move |stdout, stderr| {
        let (child, leftovers) = launch.perform(stdout, stderr)?;
        // Its own process namespace ends with the container; in a shared one processes may be left.
        Ok((child, move || leftovers.iter().for_each(Leftovers::end)))
    };
    start_container(spec, group, true, launch, move || remove_tree(&scratch)).await
}

impl Launch {
    fn perform(
        self,
        stdout: io::PipeWriter,
        stderr: io::PipeWriter,
    ) -> Result<(Child, Option<Leftovers>), Error> {
        let what = "enter the namespaces of the pod";
        if let Some(network) = &self.namespaces.network {
            setns(network, CloneFlags::CLONE_NEWNET).map_err(Error::system(what))?;
        }
        setns(&self.namespaces.names, CloneFlags::CLONE_NEWUTS).map_err(Error::system(what))?;
        setns(&self.namespaces.shared_memory, CloneFlags::CLONE_NEWIPC).map_err(Error::system(what))?;
        let what = "make the namespaces of a container";
        unshare(CloneFlags::CLONE_NEWNS).map_err(Error::system(what))?;
        let leftovers = if let Some(shared) = &self.namespaces.processes {
            setns(&shared.namespace, CloneFlags::CLONE_NEWPID).map_err(Error::system(what))?;
            Some(Leftovers::here().map_err(Error::system(what))?)
        } else {
            unshare(CloneFlags::CLONE_NEWPID).map_err(Error::system(what))?;
            None
        };
        let root = self.scratch.join("root");
        root::assemble(&self.spec, self.isolation, &self.own, &self.scratch, &root)?;
        let init_spec = InitSpec::new(&self.spec, self.isolation, root, self.groups);
        let child = container_init::start("container", &init_spec, stdout, stderr)?;
        Ok((child, leftovers))
    }
}
