//! `paddle`: PaddlePaddle, started by `python -m paddle.distributed.launch`.
//!
//! Workers alone train by collectives, and worker 0 serves the rendezvous. With a master, which may
//! have several pods, they train with parameter servers, which are the master's pods.

use trainyard_api::{FieldError, PaddleOptions, TrainingJob};

use super::ports;
use crate::job::{Env, Environment, Framework, Port, Ports, Replica, RoleRule, Validation};

const DEFAULT_PORT: i32 = 36543;
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
        ports: Some(Box::new(Paddle)),
        validation: Some(Box::new(Paddle)),
        ..Framework::new("paddle", Paddle)
    }
}

struct Paddle;

fn options(job: &TrainingJob) -> PaddleOptions {
    job.spec.framework.paddle.clone().unwrap_or_default()
}

fn port(job: &TrainingJob) -> i32 {
    options(job).port.unwrap_or(DEFAULT_PORT)
}

impl Environment for Paddle {
    fn variables(&self, replica: &Replica<'_>) -> Env {
        let job = replica.job;
        let port = port(job.object);
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

impl Ports for Paddle {
    fn ports(&self, replica: &Replica<'_>) -> Vec<Port> {
        let port = Port {
            name: "paddle".into(),
            number: port(replica.job.object),
        };
        Vec::from_iter((replica.rank() == 0).then_some(port))
    }
}

impl Validation for Paddle {
    fn check(&self, job: &TrainingJob) -> Vec<FieldError> {
        Vec::from_iter(ports::check("spec.framework.paddle.port", options(job).port))
    }
}
