//! What a life consists of, drawn from its seed alone.

use std::time::Duration;

use fastrand::Rng;
use trainyard_testkit::faults::CrashPoint;

/// A job, its cluster, and what happens to it.
#[derive(Clone, Debug)]
pub struct Life {
    pub job: JobPlan,
    pub cluster: ClusterPlan,
    /// Each after a pause.
    pub happenings: Vec<(Duration, Happening)>,
}

#[derive(Clone, Debug)]
pub struct JobPlan {
    pub replicas: i32,
    pub min: i32,
    pub max: i32,
    pub starts_at_min: bool,
    pub refills: bool,
    pub drain_seconds: i64,
    pub backoff_limit: i32,
}

#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// Whether pods have agents, which tell them to leave and report.
    pub has_agents: bool,
    /// How long each request of the operator takes.
    pub request_time: Duration,
    /// How far its watches lag behind.
    pub watch_lag: Duration,
    /// How long pods take to run.
    pub start_time: Duration,
    /// What programs do that are told to leave, one after the other.
    pub farewells: Vec<Farewell>,
}

/// What a program does that is told to leave.
#[derive(Clone, Copy, Debug)]
pub enum Farewell {
    /// It knows of no such thing, and goes on until it is killed.
    Silent,
    /// It acknowledges, writes its checkpoint and exits, each after a time.
    Orderly(Duration),
    /// It acknowledges, and never ends.
    Hangs,
    /// It writes its checkpoint, and never ends.
    HangsAfterCheckpoint,
    /// It exits at once, without a word, with this code.
    Exits(i32),
}

/// Something that happens. Numbers are reduced to what is possible when it happens.
#[derive(Clone, Debug)]
pub enum Happening {
    /// `kubectl scale`.
    Scale(u32),
    ScaleOut(RequestPlan, i32),
    ScaleInCount(RequestPlan, i32),
    /// The pods at these positions.
    ScaleInPods(RequestPlan, Vec<usize>),
    ScaleInNode(RequestPlan, usize),
    /// The pod at this position fails.
    FailPod(usize, i32),
    /// Somebody deletes the pod at this position.
    DeletePod(usize),
    Suspend,
    Resume,
    EditMax(u32),
    /// The operator is killed, and away for a time.
    Kill(Duration),
    /// It is killed at its n-th next write.
    KillAtWrite(u64, CrashPoint),
    /// It can't reach the API server for a time. Its watches stay open.
    Outage(Duration),
}

#[derive(Clone, Copy, Debug)]
pub struct RequestPlan {
    pub clamps: bool,
    pub timeout_seconds: i64,
    pub drain_seconds: Option<i64>,
}

pub const NODES: usize = 3;
const MAX_PODS: i32 = 6;

impl Life {
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let min = rng.i32(1..=3);
        let max = rng.i32(min + 1..=MAX_PODS);
        let job = JobPlan {
            replicas: rng.i32(min..=max),
            min,
            max,
            starts_at_min: rng.u8(..4) == 0,
            refills: rng.u8(..5) != 0,
            drain_seconds: one_of(rng, &[0, 5, 15, 40]),
            backoff_limit: one_of(rng, &[1000, 1000, 1000, 2]),
        };
        let cluster = ClusterPlan {
            has_agents: rng.u8(..4) != 0,
            request_time: millis(rng, &[0, 3, 20]),
            watch_lag: millis(rng, &[0, 0, 10, 300]),
            start_time: millis(rng, &[0, 1500, 1500, 12_000]),
            farewells: (0..8).map(|_| farewell(rng)).collect(),
        };
        let count = rng.usize(8..=20);
        let happenings = (0..count).map(|_| (pause(rng), happening(rng))).collect();
        Self {
            job,
            cluster,
            happenings,
        }
    }
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

fn millis(rng: &mut Rng, all: &[u64]) -> Duration {
    Duration::from_millis(one_of(rng, all))
}

fn pause(rng: &mut Rng) -> Duration {
    let time = millis(rng, &[0, 7, 200, 1000, 2500, 4000, 11_000, 30_000]);
    time + Duration::from_millis(rng.u64(..5))
}

fn farewell(rng: &mut Rng) -> Farewell {
    match rng.u8(..8) {
        0 => Farewell::Silent,
        1 => Farewell::Hangs,
        2 => Farewell::HangsAfterCheckpoint,
        3 => Farewell::Exits(one_of(rng, &[0, 1, 143])),
        _ => Farewell::Orderly(millis(rng, &[50, 700, 4000, 9000])),
    }
}

fn request(rng: &mut Rng) -> RequestPlan {
    RequestPlan {
        clamps: rng.bool(),
        timeout_seconds: one_of(rng, &[5, 20, 60]),
        drain_seconds: one_of(rng, &[None, None, Some(8), Some(25)]),
    }
}

fn happening(rng: &mut Rng) -> Happening {
    match rng.u8(..26) {
        0..4 => Happening::Scale(rng.u32(..)),
        4..7 => Happening::ScaleOut(request(rng), rng.i32(1..=3)),
        7..9 => Happening::ScaleInCount(request(rng), rng.i32(1..=3)),
        9..11 => {
            let pods = (0..rng.usize(1..=2)).map(|_| rng.usize(..8)).collect();
            Happening::ScaleInPods(request(rng), pods)
        }
        11..13 => Happening::ScaleInNode(request(rng), rng.usize(..NODES)),
        13..15 => Happening::FailPod(rng.usize(..8), one_of(rng, &[1, 137, 143])),
        15 => Happening::DeletePod(rng.usize(..8)),
        16 => Happening::Suspend,
        17..19 => Happening::Resume,
        19..21 => Happening::EditMax(rng.u32(..)),
        21 => Happening::Kill(millis(rng, &[10, 500, 6000, 20_000])),
        22..24 => {
            let when = one_of(rng, &[CrashPoint::Before, CrashPoint::After]);
            Happening::KillAtWrite(rng.u64(1..=6), when)
        }
        _ => Happening::Outage(millis(rng, &[300, 2500, 15_000, 70_000])),
    }
}
