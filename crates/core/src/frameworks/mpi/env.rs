//! The variables by which mpirun finds hosts, and what to call in the place of SSH.

use trainyard_api::{MpiAttach, MpiImplementation};
use trainyard_contract::environment::SSH as SSH_CLIENT;

use crate::remote_shell::{HOST_FILE, SHELL};

/// A worker's SSH server may start a moment after the worker is ready. One that hangs, on a host
/// that is still there, would be waited for for ever; like this it is given up after a minute. No
/// sooner: SSH gives the other side no more time to agree on keys, and a machine may be busy. That
/// a host is lost is noticed by the connection, which the agent opens.
const SSH_ARGS: &str = "-o ConnectionAttempts=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=3";
const SSH: &str = "ssh";
/// What Open MPI looks for, one after the other. It tells its daemons in the workers to look for
/// the same, and they give up if they find nothing: there is no agent.
const SHELL_OR_SSH: &str = "/etc/mpi/kubexec.sh:ssh";

/// MPICH's processes in one pod would read each other's memory, which container runtimes may refuse
/// (`process_vm_readv` in their default profile of system calls), and then they die when they
/// start.
const NO_CMA: (&str, &str) = ("MPIR_CVAR_CH4_CMA_ENABLE", "0");

/// All there are.
pub(in crate::frameworks) const IMPLEMENTATIONS: [MpiImplementation; 3] = [
    MpiImplementation::OpenMPI,
    MpiImplementation::MPICH,
    MpiImplementation::Intel,
];

/// By these mpirun finds the hosts, and what it is to call there.
const RESERVED: [&str; 14] = [
    "OMPI_MCA_plm_rsh_agent",
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_rsh_agent",
    "PRTE_MCA_prte_default_hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames",
    "HYDRA_HOST_FILE",
    "HYDRA_LAUNCHER",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_HOST_FILE",
    "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    "TRAINYARD_*",
];

/// Variables that users must not set, whichever implementation it is; in jobs in which the launcher
/// itself starts something in every worker, [`flat`], also those by which it is told to.
pub(in crate::frameworks) fn reserved(is_flat: bool) -> Vec<&'static str> {
    let flat = IMPLEMENTATIONS.into_iter().flat_map(|one| flat(one, 0));
    let flat = flat.map(|(name, _)| name).filter(|_| is_flat);
    RESERVED.into_iter().chain(flat).collect()
}

/// How processes are started in other pods. Workers are told too: with many of them mpirun has some
/// start others.
pub(in crate::frameworks) fn shell(
    implementation: MpiImplementation,
    attach: MpiAttach,
) -> &'static [(&'static str, &'static str)] {
    match (implementation, attach) {
        (MpiImplementation::OpenMPI, MpiAttach::Ssh) => &[
            ("OMPI_MCA_plm_rsh_args", SSH_ARGS),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            ("PRTE_MCA_plm_ssh_args", SSH_ARGS),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        ],
        (MpiImplementation::MPICH, MpiAttach::Ssh) => &[
            ("HYDRA_LAUNCHER", "ssh"),
            ("HYDRA_LAUNCH_EXTRA_ARGS", SSH_ARGS),
            NO_CMA,
        ],
        (MpiImplementation::Intel, MpiAttach::Ssh) => &[
            ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", SSH_ARGS),
        ],
        (MpiImplementation::OpenMPI, MpiAttach::Agent | MpiAttach::Exec) => &[
            ("OMPI_MCA_plm_rsh_agent", SHELL),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            // Open MPI 5 knows none of the names above, and would start all processes in the
            // launcher.
            ("PRTE_MCA_plm_ssh_agent", SHELL),
            ("PRTE_MCA_plm_rsh_agent", SHELL),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        ],
        (MpiImplementation::MPICH, MpiAttach::Agent | MpiAttach::Exec) => {
            &[("HYDRA_LAUNCHER", "ssh"), ("HYDRA_LAUNCHER_EXEC", SHELL), NO_CMA]
        }
        (MpiImplementation::Intel, MpiAttach::Agent | MpiAttach::Exec) => &[
            ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC", SHELL),
        ],
    }
}

/// By what the launcher calls the SSH of its image: the agent opens the connection for it. Workers
/// have no agent.
pub(in crate::frameworks) fn ssh_client(
    implementation: MpiImplementation,
) -> &'static [(&'static str, &'static str)] {
    match implementation {
        MpiImplementation::OpenMPI => &[
            (SSH_CLIENT, SSH),
            ("OMPI_MCA_plm_rsh_agent", SHELL_OR_SSH),
            ("PRTE_MCA_plm_ssh_agent", SHELL_OR_SSH),
            ("PRTE_MCA_plm_rsh_agent", SHELL_OR_SSH),
        ],
        MpiImplementation::MPICH => &[(SSH_CLIENT, SSH), ("HYDRA_LAUNCHER_EXEC", SHELL)],
        MpiImplementation::Intel => &[(SSH_CLIENT, SSH), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", SHELL)],
    }
}

/// Has the launcher itself start something in every worker. Where there are many, it would have
/// some start others, and none but the launcher may do that through the API server, or has an agent
/// for its SSH.
pub(in crate::frameworks) fn flat(
    implementation: MpiImplementation,
    workers: i32,
) -> Vec<(&'static str, String)> {
    /// What Open MPI starts from one place without being told.
    const USUAL: i32 = 64;
    let width = workers.max(USUAL).to_string();
    match implementation {
        MpiImplementation::OpenMPI => vec![
            ("OMPI_MCA_routed_radix", width.clone()),
            ("PRTE_MCA_rml_base_radix", width),
        ],
        MpiImplementation::MPICH => Vec::new(),
        MpiImplementation::Intel => vec![("I_MPI_HYDRA_BRANCH_COUNT", "-1".to_owned())],
    }
}

/// Whether a variable has the launcher reach workers through the agent, with the SSH of its image.
pub(in crate::frameworks) fn is_of_ssh_client(implementation: MpiImplementation, name: &str) -> bool {
    let client = ssh_client(implementation).iter().map(|(name, _)| *name);
    let flat = flat(implementation, 0).into_iter().map(|(name, _)| name);
    client.chain(flat).any(|one| one == name)
}

/// Where processes are started.
pub(super) fn places(implementation: MpiImplementation, slots: i32) -> Vec<(&'static str, String)> {
    let file = HOST_FILE.to_owned();
    match implementation {
        MpiImplementation::OpenMPI => vec![
            ("OMPI_MCA_orte_default_hostfile", file.clone()),
            ("OMPI_MCA_orte_set_default_slots", slots.to_string()),
            ("PRTE_MCA_prte_default_hostfile", file),
        ],
        MpiImplementation::MPICH => vec![("HYDRA_HOST_FILE", file)],
        MpiImplementation::Intel => vec![
            ("I_MPI_HYDRA_HOST_FILE", file),
            ("I_MPI_PERHOST", slots.to_string()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_looks_for_the_shell_where_it_is() {
        assert_eq!(SHELL_OR_SSH, format!("{SHELL}:{SSH}"));
    }
}
