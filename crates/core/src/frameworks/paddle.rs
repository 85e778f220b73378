//! `paddle`: PaddlePaddle, started by `python -m paddle.distributed.launch`.
//!
//! Workers alone train by collectives, and worker 0 serves the rendezvous. With a master, which may
//! have several pods, they train with parameter servers, which are the master's pods.

use trainyard_api::TrainingJob;

use super::one_port::OnePort;
use crate::job::{Env, Environment, Framework, Replica, RoleRule};

const PORT: OnePort = OnePort {
    framework: "paddle",
    default: 36543,
    given: |job| job.spec.framework.paddle.as_ref()?.port,
    is_served_by: |replica| replica.rank() == 0,
};
const MASTER: &str = "master";

pub(super) fn framework() -> Framework {
    let master = RoleRule {
        serves: true,
        ..RoleRule::optional(MASTER)
    };
    Framework {
        roles: vec![master, RoleRule::required("worker")],
        trains_as_one: true,
        // Every launcher waits for as many as it was told of.
        resizes: false,
        ports: Some(Box::new(PORT)),
        validation: Some(Box::new(PORT)),
        ..Framework::new("paddle", Paddle)
    }
}

struct Paddle;

impl Environment for Paddle {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let port = PORT.number(job.object);
        let mut env = Env::from([
            ("PYTHONUNBUFFERED", "1"),
            ("PADDLE_JOB_ID", job.name),
            ("PADDLE_NNODES", &job.total().to_string()),
            // Without it every start has its own order.
            ("PADDLE_RANK", &replica.rank().to_string()),
        ]);
        env.set_field("POD_IP", "status.podIP");
        // The launcher serves the rendezvous where this is its own address, which it compares with
        // POD_IP and not with names.
        let master = if replica.rank() == 0 {
            "$(POD_IP)".to_owned()
        } else {
            replica.host(job.rank_zero())
        };
        env.set("PADDLE_MASTER", format!("{master}:{port}"));
        if job.role(MASTER).is_some() {
            let number = if replica.role.name == MASTER {
                "PADDLE_SERVER_NUM"
            } else {
                "PADDLE_TRAINER_NUM"
            };
            env.set(number, 1);
        }
        env
    }

    fn reserved(&self, _: &TrainingJob) -> Vec<&str> {
        vec![
            "PADDLE_JOB_ID",
            "PADDLE_NNODES",
            "PADDLE_RANK",
            "PADDLE_MASTER",
            "PADDLE_SERVER_NUM",
            "PADDLE_TRAINER_NUM",
            "POD_IP",
        ]
    }
}
