//! `echo`: a caller, and echoes that wait until it runs and know where it is.

use trainyard_api::{Dependency, DependencyState, TrainingJob};

use crate::job::{Env, Environment, Framework, Replica, RoleRule};

const CALLER: &str = "caller";

pub(super) fn framework() -> Framework {
    let caller = RoleRule {
        max: Some(1),
        ..RoleRule::required(CALLER)
    };
    let echo = RoleRule {
        depends_on: vec![Dependency {
            role: CALLER.to_owned(),
            state: DependencyState::Running,
        }],
        decides: true,
        ..RoleRule::required("echo")
    };
    Framework {
        roles: vec![caller, echo],
        ..Framework::new("echo", Echo)
    }
}

struct Echo;

impl Environment for Echo {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let mut env = Env::default();
        env.set("ECHO_CALLER", replica.host(replica.job.rank_zero()));
        env.set("ECHO_RANK", replica.rank());
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec!["ECHO_CALLER", "ECHO_RANK"]
    }
}
