//! Jobs whose pods wait while the operator goes: agents are processes as pods have them, pods are
//! played.

use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Instant;

use kube::Client;
use tempfile::TempDir;
use trainyard_api::JobPhase;
use trainyard_testkit::load::{Player, Scope, Script};
use trainyard_testkit::namespace;
use trainyard_testkit::program::{Operator, Program};
use trainyard_testkit::waiting::{self, Agents, HostNames};

use super::{client, create, phase, program};

const JOBS: usize = 6;
const PODS: usize = 3;

/// Where operators are: one namespace, and two places.
struct Yard {
    client: Client,
    namespace: String,
    addresses: [Ipv4Addr; 2],
}

impl Yard {
    async fn new(name: &str) -> Self {
        let client = client().await;
        let namespace = format!("{name}-{}", std::process::id());
        namespace::create(&client, &namespace).await.unwrap();
        Self {
            client,
            namespace,
            addresses: waiting::addresses(),
        }
    }

    /// An operator that is ready, in one of the places.
    async fn operator(&self, place: usize) -> Operator {
        let mut arguments = waiting::operator_arguments(&self.namespace, self.addresses[place]);
        arguments.push(format!("--watch-namespace={}", self.namespace));
        let program = Program {
            binary: program(),
            log: PathBuf::from("/dev/null"),
        };
        program.start_replica(&arguments).await.unwrap()
    }
}

/// Jobs of which two pods wait for the third, each with its agent.
struct Waiting<'a> {
    yard: &'a Yard,
    player: Player,
    jobs: Vec<String>,
    agents: Agents,
    _names: HostNames,
    _directory: TempDir,
}

impl<'a> Waiting<'a> {
    /// Creates them; an operator is there already.
    async fn begin(yard: &'a Yard) -> Self {
        let (client, namespace) = (&yard.client, &*yard.namespace);
        let scope = Scope::namespace(namespace);
        let player = Player::start(client.clone(), &scope, Script::idle());
        let jobs: Vec<String> = (0..JOBS).map(|number| format!("j{number}")).collect();
        for job in &jobs {
            let manifest = waiting::job(job, PODS, true).to_string();
            create(client, namespace, &manifest).await.unwrap();
        }
        let all_seen = player.until(|counts| counts.seen == JOBS * PODS);
        all_seen.await.unwrap();
        let waiters = waiting::waiters(client, namespace, &jobs, PODS).await.unwrap();
        // The program is the agent where it is called by the agent's name.
        let directory = tempfile::tempdir().unwrap();
        let agent = directory.path().join("trainyard-agent");
        symlink(program(), &agent).unwrap();
        let names = HostNames::new(&waiting::host(namespace), &yard.addresses).unwrap();
        let agents = Agents::start(&agent, &names, &waiters).await.unwrap();
        Self {
            yard,
            player,
            jobs,
            agents,
            _names: names,
            _directory: directory,
        }
    }

    /// What some jobs wait for comes.
    async fn go(&self, jobs: std::ops::Range<usize>) {
        for job in &self.jobs[jobs] {
            let server = waiting::server(job);
            self.player
                .start_pod(&self.yard.namespace, &server)
                .await
                .unwrap();
        }
    }

    /// All notice that nobody is there any more, and go on waiting: nobody has been let go, and
    /// nobody has given up.
    async fn all_wait(&self) {
        // That the connection is closed is said before, so that they have tried again by then.
        for agent in self.agents.all() {
            agent.wait_for_complaint("can't connect to ").await.unwrap();
        }
        assert!(
            self.agents.all().all(waiting::Agent::is_waiting),
            "without an operator none is let go, and none gives up"
        );
    }

    /// All are let go, and all jobs run. CrashPoint the first was let go.
    async fn all_start(self) -> Instant {
        let mut first = Instant::now();
        for agent in self.agents.all() {
            first = first.min(agent.wait_released().await.unwrap());
        }
        for job in &self.jobs {
            for pod in waiting::clients(job, PODS) {
                self.player.start_pod(&self.yard.namespace, &pod).await.unwrap();
            }
        }
        for job in &self.jobs {
            let running = phase(&self.yard.client, &self.yard.namespace, job, JobPhase::Running).await;
            let status = running.unwrap().status.unwrap();
            assert_eq!(status.restarts.unwrap_or_default().failures, 0, "{job}");
        }
        assert_eq!(
            self.player.counts().seen,
            JOBS * PODS,
            "no pod was made a second time"
        );
        namespace::remove(&self.yard.client, &self.yard.namespace)
            .await
            .unwrap();
        first
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_start_when_an_operator_that_was_killed_has_a_successor() {
    let yard = Yard::new("waiting-killed").await;
    let killed = yard.operator(0).await;
    let waiting = Waiting::begin(&yard).await;
    killed.kill().unwrap();
    waiting.go(0..JOBS).await;
    waiting.all_wait().await;
    let alone = Instant::now();
    // It does not lead yet: the lease is that of the one who was killed.
    let _successor = yard.operator(0).await;
    let first = waiting.all_start().await;
    assert!(first > alone, "one was let go while there was no operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_start_while_and_after_their_operator_is_upgraded() {
    let yard = Yard::new("waiting-upgraded").await;
    let old = yard.operator(0).await;
    let waiting = Waiting::begin(&yard).await;
    // As a Deployment does it: the next is ready before the first is asked to go.
    let _new = yard.operator(1).await;
    old.terminate().unwrap();
    waiting.go(0..JOBS / 2).await;
    old.wait_exit().await.unwrap();
    waiting.go(JOBS / 2..JOBS).await;
    waiting.all_start().await;
}
