//! An operator of the last release: variables, requests and answers that were recorded in the
//! contract's tests.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::agent::{Agent, Pod};
use crate::server::{Authority, Guest, Port, Server};

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../../contract/tests/v1/", $name))
    };
}

/// A pod of that operator, and the operator.
struct World {
    pod: Pod,
    port: Port,
    authority: Authority,
    server: Server,
}

impl World {
    fn new() -> Self {
        let (authority, port) = (Authority::new(), Port::reserve());
        Self {
            pod: Pod::new(),
            server: port.serve(authority.serving()),
            port,
            authority,
        }
    }

    /// Starts the agent as in a container of the launcher, but for where the files and the operator
    /// are.
    fn start(&self, container: &str) -> Agent {
        let recorded: Value = serde_json::from_str(recorded!("containers.json")).unwrap();
        let container = &recorded["agent"][format!("launcher/{container}")];
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard-agent"));
        let words = container["command"].as_array().unwrap();
        command.args(words[1..].iter().map(|word| word.as_str().unwrap()));
        command.env_clear();
        let directory = |name: &str| self.pod.file(name).display().to_string();
        for (name, value) in container["env"].as_object().unwrap() {
            let value = match &**name {
                "TRAINYARD_OBSERVER" => self.port.url(),
                "TRAINYARD_AUTHORITY" => self.authority.pem.clone(),
                _ => value.as_str().unwrap().replace("/etc/mpi", &directory("mpi")),
            };
            command.env(
                name,
                value.replace("/var/run/trainyard-progress", &directory("progress")),
            );
        }
        command
            .env("TRAINYARD_TOKEN_FILE", self.pod.file("token"))
            .env("TRAINYARD_TERMINATION_LOG", self.pod.file("termination-log"));
        Agent::start(command)
    }

    /// The next one who asks, which must be as it was.
    fn guest(&self, request: &str) -> Guest {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let expected = head
            .replace("{host}", &format!("127.0.0.1:{}", self.port.number()))
            .replace("{token}", "first-token")
            .replace(
                "trainyard-agent/0.1.0",
                concat!("trainyard-agent/", env!("CARGO_PKG_VERSION")),
            );
        let mut guest = self.server.guest();
        assert_eq!(guest.request, expected + "\r\n\r\n");
        assert_eq!(guest.body(body.len()), body);
        guest
    }

    fn answer(&self, request: &str, answer: &str) {
        let mut guest = self.guest(request);
        guest.say(answer);
        guest.bid_farewell();
    }

    /// Whether all lists of hosts are as they were.
    fn assert_lists(&self) {
        let lists = [
            ("hostfile", recorded!("hostfile.OpenMPI")),
            ("files/0/deepspeed", recorded!("hostfile.DeepSpeed")),
            ("files/0/mpich", recorded!("hostfile.MPICH")),
            ("files/0/intel", recorded!("hostfile.Intel")),
            ("files/0/hosts", recorded!("hostfile.Hosts")),
        ];
        for (name, recorded) in lists {
            assert_eq!(self.read(name), recorded, "{name}");
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.pod.file("mpi").join(name)).unwrap()
    }
}

#[test]
fn waits_for_an_operator_of_version_1() {
    let world = World::new();
    let agent = world.start("trainyard-wait");
    world.answer(recorded!("start.request"), recorded!("start.answer"));
    let end = agent.ends();
    assert_eq!((end.code, end.err), (Some(0), Vec::new()));
    assert_eq!(end.out, ["waits for the role worker to run"]);
}

#[test]
fn waits_in_vain_for_an_operator_of_version_1() {
    let world = World::new();
    let agent = world.start("trainyard-wait");
    world.answer(recorded!("start.request"), recorded!("never.answer"));
    assert_eq!(agent.ends().code, Some(3));
    let reason = fs::read_to_string(world.pod.file("termination-log")).unwrap();
    assert_eq!(reason, "can't start: waits for the role worker, which has ended");
}

#[test]
fn lists_hosts_for_an_operator_of_version_1() {
    let world = World::new();
    fs::create_dir(world.pod.file("mpi")).unwrap();
    assert_eq!(world.start("trainyard-install").ends().code, Some(0));
    world.assert_lists();
    let agent = world.start("trainyard-hosts");
    world.answer(recorded!("hosts.request"), recorded!("hosts.answer"));
    // It asks again when it has taken in all of that.
    let _guest = world.guest(recorded!("hosts.request"));
    world.assert_lists();
    assert_eq!(world.read("discover_hosts"), recorded!("discover_hosts"));
    agent.signal(Signal::TERM);
    assert_eq!(agent.ends().code, Some(0));
}

#[test]
fn reports_progress_to_an_operator_of_version_1() {
    let world = World::new();
    fs::create_dir(world.pod.file("progress")).unwrap();
    let lines = "step=2 total=10 loss=0.5\nstep=3 loss=0.25 lr=nan\n";
    fs::write(world.pod.file("progress").join("lines"), lines).unwrap();
    let agent = world.start("trainyard-progress");
    world.answer(recorded!("progress.request"), recorded!("misdirected.answer"));
    world.answer(recorded!("progress.request"), recorded!("progress.answer"));
    agent.signal(Signal::TERM);
    let end = agent.ends();
    assert_eq!((end.code, end.err), (Some(0), Vec::new()));
}
