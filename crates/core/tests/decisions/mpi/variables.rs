//! Which variables users may set in MPI jobs, and what is said of the others.

use super::*;

#[rstest]
#[case("OMPI_MCA_plm_rsh_agent")]
#[case("OMPI_MCA_orte_default_hostfile")]
#[case("OMPI_MCA_orte_keep_fqdn_hostnames")]
#[case("PRTE_MCA_plm_ssh_agent")]
#[case("PRTE_MCA_plm_rsh_agent")]
#[case("PRTE_MCA_prte_default_hostfile")]
#[case("PRTE_MCA_prte_keep_fqdn_hostnames")]
#[case("HYDRA_HOST_FILE")]
#[case("HYDRA_LAUNCHER")]
#[case("HYDRA_LAUNCHER_EXEC")]
#[case("I_MPI_HYDRA_HOST_FILE")]
#[case("I_MPI_HYDRA_BOOTSTRAP")]
#[case("I_MPI_HYDRA_BOOTSTRAP_EXEC")]
#[case("TRAINYARD_SHELL_PORT")]
#[case("TRAINYARD_IDENTITY")]
#[case("TRAINYARD_JOB")]
fn env_that_would_break_rendezvous_is_refused(#[case] name: &str) {
    let job = with_main(mpi("", 1), "worker", |main| {
        main.env = Some(
            serde_saphyr::from_str(&format!("[{{name: A, value: b}}, {{name: {name}, value: x}}]")).unwrap(),
        );
    });
    let said = format!(
        "spec.roles[1].template.spec.containers[0].env[1].name: {name} is set by the operator for mpi; another value would \
         keep the pods from finding each other: remove it"
    );
    assert_eq!(errors(&job), [said]);
}

/// The variables by which the launcher starts something in every worker itself, which users may set
/// elsewhere.
#[rstest]
#[case::exec("attach: Exec", true)]
#[case::ssh("attach: Ssh", true)]
#[case::agent("attach: Agent", false)]
#[case::nothing_said("", false)]
fn how_many_workers_are_reached_from_the_launcher_is_ours_where_it_must_be_all(
    #[case] options: &str,
    #[case] is_ours: bool,
    #[values(
        "OMPI_MCA_routed_radix",
        "PRTE_MCA_rml_base_radix",
        "I_MPI_HYDRA_BRANCH_COUNT"
    )]
    name: &str,
) {
    let job = with_main(mpi(options, 100), "launcher", |main| {
        main.env = Some(serde_saphyr::from_str(&format!("[{{name: {name}, value: \"8\"}}]")).unwrap());
    });
    let said = format!(
        "spec.roles[0].template.spec.containers[0].env[0].name: {name} is set by the operator for mpi; another value would \
         keep the pods from finding each other: remove it"
    );
    let said: Vec<String> = is_ours.then_some(said).into_iter().collect();
    assert_eq!(errors(&job), said);
}

#[test]
fn other_variables_are_the_users() {
    let job = with_main(mpi("", 1), "launcher", |main| {
        let env = "[{name: OMPI_MCA_orte_set_default_slots, value: \"9\"}, {name: OMPI_MCA_btl, value: tcp}]";
        main.env = Some(serde_saphyr::from_str(env).unwrap());
    });
    let main = main_of(&job, LAUNCHER);
    assert_eq!(
        variable(&main, "OMPI_MCA_orte_set_default_slots").as_deref(),
        Some("9")
    );
}

#[rstest]
#[case("2", true)]
#[case("60", true)]
#[case("", true)]
#[case("1", false)]
#[case("1m", false)]
fn how_long_a_pod_may_be_silent_is_the_users(#[case] seconds: &str, #[case] is_taken: bool) {
    let job = with_main(mpi("", 1), "launcher", |main| {
        let env = format!("[{{name: TRAINYARD_SHELL_SILENCE_SECONDS, value: {seconds:?}}}]");
        main.env = Some(serde_saphyr::from_str(&env).unwrap());
    });
    if is_taken {
        let main = main_of(&job, LAUNCHER);
        assert_eq!(
            variable(&main, "TRAINYARD_SHELL_SILENCE_SECONDS").as_deref(),
            Some(seconds)
        );
    } else {
        let said = "spec.roles[0].template.spec.containers[0].env[0].value: TRAINYARD_SHELL_SILENCE_SECONDS must be a whole \
                    number of seconds from 2 to 86400";
        assert_eq!(errors(&job), [said]);
    }
}
