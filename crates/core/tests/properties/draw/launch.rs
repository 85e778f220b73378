//! Options of frameworks: above all how programs are started in other pods.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use trainyard_api::{
    FrameworkSpec, HorovodController, HostFile, HostFileFormat, LauncherOptions, MasterService, MpiAttach,
    MpiImplementation, PytorchOptions, RemoteShellName,
};

use super::{number, text};

/// Options of every framework; a job takes those of its own, and one that is wrong those of all.
#[derive(Clone, Debug)]
pub struct Options {
    mpi: LauncherOptions,
    controller: Option<HorovodController>,
    pytorch: PytorchOptions,
}

impl Options {
    /// Gives a framework its own options, such as it takes.
    pub fn give(self, framework: &mut FrameworkSpec) {
        let Self {
            mut mpi,
            controller,
            pytorch,
        } = self;
        mpi.slots_per_worker = mpi.slots_per_worker.map(|slots| slots.clamp(1, 1024));
        if mpi.attach == Some(MpiAttach::Ssh) {
            mpi.remote_shells = None;
        } else {
            (mpi.ssh_auth_mount_path, mpi.ssh_auth_secret_name) = (None, None);
        }
        if controller == Some(HorovodController::Gloo) && framework.name == "horovod" {
            mpi.implementation = None;
        }
        let sound = Self {
            mpi,
            controller,
            pytorch: PytorchOptions {
                procs_per_node: pytorch.procs_per_node.map(|procs| procs.clamp(1, 1024)),
                port: pytorch.port.map(|port| port.clamp(1, 65535)),
                ..pytorch
            },
        };
        match &*framework.name {
            "mpi" => framework.mpi = Some(sound.mpi),
            "horovod" => framework.horovod = Some(sound.horovod()),
            "deepspeed" => framework.deepspeed = Some(sound.deepspeed()),
            "pytorch" => framework.pytorch = Some(sound.pytorch),
            _ => {}
        }
    }

    /// Gives a framework the options of all, of which most are not its own.
    pub fn give_all(self, framework: &mut FrameworkSpec) {
        framework.horovod = Some(self.horovod());
        framework.deepspeed = Some(self.deepspeed());
        framework.mpi = Some(self.mpi);
        framework.pytorch = Some(self.pytorch);
    }

    fn horovod(&self) -> LauncherOptions {
        LauncherOptions {
            controller: self.controller,
            ..self.mpi.clone()
        }
    }

    fn deepspeed(&self) -> LauncherOptions {
        LauncherOptions {
            implementation: None,
            launcher_as_worker: None,
            remote_shells: None,
            ..self.mpi.clone()
        }
    }
}

pub fn options() -> BoxedStrategy<Options> {
    let controller = select(vec![HorovodController::MPI, HorovodController::Gloo]);
    let service = select(vec![MasterService::Headless, MasterService::ClusterIP]);
    let pytorch = (option::of(number()), option::of(number()), option::of(service)).prop_map(
        |(procs_per_node, port, master_service)| PytorchOptions {
            procs_per_node,
            port,
            master_service,
        },
    );
    (mpi(), option::of(controller), pytorch)
        .prop_map(|(mpi, controller, pytorch)| Options {
            mpi,
            controller,
            pytorch,
        })
        .boxed()
}

fn mpi() -> BoxedStrategy<LauncherOptions> {
    let implementation = select(vec![
        MpiImplementation::OpenMPI,
        MpiImplementation::MPICH,
        MpiImplementation::Intel,
    ]);
    let attach = select(vec![
        MpiAttach::Agent,
        MpiAttach::Ssh,
        MpiAttach::Exec,
        MpiAttach::Exec,
    ]);
    let path = prop_oneof![3 => Just("/home/user/.ssh".to_owned()), 1 => text()];
    let secret = prop_oneof![3 => Just("key".to_owned()), 1 => text()];
    (
        option::of(implementation),
        option::of(number()),
        option::weighted(0.8, attach),
        (option::of(path), option::of(secret)),
        option::of(any::<bool>()),
        option::weighted(0.2, host_files()),
        option::weighted(0.2, remote_shells()),
    )
        .prop_map(
            |(
                implementation,
                slots_per_worker,
                attach,
                ssh,
                launcher_as_worker,
                host_files,
                remote_shells,
            )| {
                let (ssh_auth_mount_path, ssh_auth_secret_name) = ssh;
                LauncherOptions {
                    controller: None,
                    implementation,
                    slots_per_worker,
                    attach,
                    ssh_auth_mount_path,
                    ssh_auth_secret_name,
                    launcher_as_worker,
                    host_files,
                    remote_shells,
                }
            },
        )
        .boxed()
}

fn remote_shells() -> BoxedStrategy<Vec<RemoteShellName>> {
    subsequence(vec![RemoteShellName::Ssh, RemoteShellName::Pdsh], 0..=2).boxed()
}

fn host_files() -> BoxedStrategy<Vec<HostFile>> {
    let path = prop_oneof![
        3 => select(vec!["/job/hostfile", "/job/hosts", "/other/hosts"]).prop_map(str::to_owned),
        1 => select(vec!["", "/", "/etc/mpi/hostfile", "hosts", "/etc/passwd", "//x"]).prop_map(str::to_owned),
        1 => text(),
    ];
    let format = select(vec![
        HostFileFormat::OpenMPI,
        HostFileFormat::MPICH,
        HostFileFormat::Intel,
        HostFileFormat::DeepSpeed,
        HostFileFormat::Hosts,
    ]);
    let file = (path, format).prop_map(|(path, format)| HostFile { path, format });
    proptest::collection::vec(file, 0..3).boxed()
}
