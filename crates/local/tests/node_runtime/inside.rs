//! What the started program does: a small `trainyard run`, in a yard.

mod files;
mod kept_out;
mod network;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use trainyard_eventually::{eventually, within};
use trainyard_local::node::runtime::state::StateDirectory;
use trainyard_local::node::runtime::{
    Container, ContainerSpec, Exit, Limits, Mount, Root, Runtime, Sandbox, SandboxSpec, User,
};
use trainyard_local::yard::{self, Entered, Isolation, Network, Yard, YardOptions};

/// Names the directory in which state is kept.
pub const STATE: &str = "TEST_STATE";

/// What this program is told to do nothing, and what it says then.
const STAY: &str = "stay";

pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.last().is_some_and(|what| what == STAY) {
        println!("{STAY}");
        std::thread::sleep(Duration::from_mins(1));
        return ExitCode::SUCCESS;
    }
    let state = PathBuf::from(std::env::var_os(STATE).unwrap());
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let wanted = YardOptions {
        network: if has("--host") {
            Network::Host
        } else {
            Network::Pod
        },
        isolation: has("--plain").then_some(Isolation::Plain),
        keys: false,
    };
    let yard = match yard::enter(wanted, &state).unwrap() {
        Entered::Over(code) => return code,
        Entered::Inside(yard) => yard,
    };
    let what = arguments.last().unwrap().clone();
    let directory = StateDirectory::claim(&state).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let code = runtime.block_on(async {
        let node = Node {
            runtime: Runtime::new(&yard, &directory.path().join("pods")).await.unwrap(),
            state: directory.path().to_owned(),
            yard,
        };
        match what.as_str() {
            "files" => node.files().await,
            "network" => node.network().await,
            "endings" => node.endings().await,
            "commands" => node.commands().await,
            "failed_start" => node.failed_start().await,
            "rights" => node.rights().await,
            "program" => node.program().await,
            "descriptors" => node.descriptors().await,
            "host_network" => node.host_network().await,
            "plain" => node.plain().await,
            "limits" => node.limits().await,
            "limits_wait" => return node.limits_wait().await,
            "wait" => return node.wait().await,
            "signals" => return signals().await,
            other => panic!("there is no {other}"),
        }
        println!("ok");
        0
    });
    ExitCode::from(code)
}

pub struct Node {
    runtime: Runtime,
    state: PathBuf,
    pub yard: Yard,
}

impl Node {
    pub async fn sandbox(&self, name: &str) -> Sandbox {
        let spec = SandboxSpec {
            id: name.to_owned(),
            hostname: name.to_owned(),
            name: None,
            host_network: false,
            share_processes: false,
        };
        self.runtime.sandbox(spec).await.unwrap()
    }

    pub fn container(&self, command: &[&str]) -> ContainerSpec {
        let directory = std::env::current_dir().unwrap();
        let id = format!("c{}", std::fs::read_dir(self.state.join("pods")).unwrap().count());
        ContainerSpec {
            log: self
                .state
                .join(format!("{id}-{}.log", jiff::Timestamp::now().as_nanosecond())),
            id,
            root: Root::Host,
            mounts: vec![Mount {
                source: directory.clone(),
                target: directory.clone(),
                ..Mount::default()
            }],
            read_only_root: false,
            command: command.iter().map(ToString::to_string).collect(),
            env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            working_directory: directory,
            user: User::default(),
            limits: Limits::default(),
        }
    }

    /// Runs a script in a pod of its own. Its end and its output.
    async fn script(&self, script: &str) -> (Exit, String) {
        let sandbox = self.sandbox("pod").await;
        let container = sandbox
            .start(self.container(&["sh", "-c", script]))
            .await
            .unwrap();
        (container.wait().await, said(&container))
    }

    async fn says(&self, script: &str) -> String {
        let (exit, output) = self.script(script).await;
        assert_eq!(exit.code, 0, "{script}: {output}");
        output
    }

    async fn endings(&self) {
        assert_eq!(self.script("exit 7").await.0.code, 7);
        // Process 1 of a process namespace is ended by nothing that it does itself; a child is.
        assert_eq!(self.script("sh -c 'kill -9 $$'; exit $?").await.0.code, 137);
        let (_, output) = self.script("echo out; echo err >&2").await;
        let mut lines: Vec<_> = output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["err", "out"]);
        assert_eq!(self.says("echo one; printf two").await, "one\ntwo");
        let sandbox = self.sandbox("ending").await;
        // It does not listen to TERM, as process 1 need not, and leaves processes behind.
        let container = sandbox
            .start(self.container(&["sh", "-c", "sleep 1000 & (setsid sleep 1001 &) ; trap 'echo heard' TERM; echo ready; while :; do wait; done"]))
            .await
            .unwrap();
        wait_for(&container, "ready").await;
        container.signal(Signal::SIGTERM);
        wait_for(&container, "heard").await;
        container.kill();
        let exit = container.wait().await;
        assert_eq!((exit.code, exit.signal), (137, Some(9)));
        no_process("sleep\u{0}1000");
        no_process("sleep\u{0}1001");
    }

    async fn commands(&self) {
        let sandbox = self.sandbox("commands").await;
        let refusal = async |command: &[&str]| {
            sandbox
                .start(self.container(command))
                .await
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal(&["no-such"]).await,
            "exec: \"no-such\": executable file not found in $PATH"
        );
        assert_eq!(
            refusal(&["/no/such"]).await,
            "exec: \"/no/such\": stat /no/such: no such file or directory"
        );
        assert_eq!(
            refusal(&["/etc/passwd"]).await,
            "exec: \"/etc/passwd\": permission denied"
        );
        let container = sandbox
            .start(self.container(&["sh", "-c", "echo x > /mine; echo ready; sleep 1000"]))
            .await
            .unwrap();
        wait_for(&container, "ready").await;
        let exec = async |command: &[&str], input: &[u8]| {
            let command = command.iter().map(ToString::to_string).collect();
            container
                .exec(command)
                .await
                .unwrap()
                .output(input)
                .await
                .unwrap()
        };
        let output = exec(
            &[
                "sh",
                "-c",
                "cat; cat /mine; hostname; cat /proc/1/cmdline | tr '\\0' ' '; echo e >&2; exit 3",
            ],
            b"in\n",
        )
        .await;
        assert_eq!(output.exit.code, 3);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "in\nx\ncommands\nsh -c echo x > /mine; echo ready; sleep 1000 "
        );
        assert_eq!(output.stderr, b"e\n");
        let big = vec![b'x'; 300_000];
        assert_eq!(exec(&["cat"], &big).await.stdout, big);
        container.kill();
        container.wait().await;
    }

    async fn rights(&self) {
        let status = self
            .says("grep -E '^(CapBnd|CapEff|CapAmb|NoNewPrivs)' /proc/self/status; id -u")
            .await;
        let fields: Vec<_> = status.split_whitespace().collect();
        // chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw
        // sys_chroot audit_write setfcap
        assert_eq!(
            fields,
            [
                "CapEff:",
                "00000000a00425fb",
                "CapBnd:",
                "00000000a00425fb",
                "CapAmb:",
                "0000000000000000",
                "NoNewPrivs:",
                "1",
                "0"
            ]
        );
        assert_ne!(self.script("mount -t tmpfs x /mnt").await.0.code, 0);
        self.read_only().await;
        let sandbox = self.sandbox("user").await;
        let mut spec = self.container(&["sh", "-c", "grep -E '^Cap(Eff|Bnd)' /proc/self/status"]);
        spec.user.dropped = vec!["ALL".to_owned()];
        let container = sandbox.start(spec).await.unwrap();
        container.wait().await;
        assert_eq!(
            said(&container),
            "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n"
        );
        let about =
            "id -u; id -g; grep -E '^Cap(Eff|Bnd)' /proc/self/status; : > /tmp/own && stat -c %u:%g /tmp/own";
        let script = format!("{about}; echo ready; sleep 1000");
        let mut spec = self.container(&["sh", "-c", &script]);
        spec.user = User {
            uid: Some(1234),
            gid: Some(4321),
            ..User::default()
        };
        spec.working_directory = "/".into();
        let container = sandbox.start(spec).await.unwrap();
        let expected =
            "1234\n4321\nCapEff:\t0000000000000000\nCapBnd:\t00000000a00425fb\n1234:4321\n".to_owned();
        wait_for(&container, "ready").await;
        assert_eq!(said(&container), format!("{expected}ready\n"));
        // So is what is run beside it, in the same namespaces.
        let script =
            format!("{about}; cat; readlink /proc/self/ns/user /proc/1/ns/user | uniq | wc -l; exit 3");
        let exec = container.exec(vec!["sh".to_owned(), "-c".to_owned(), script]);
        let output = exec.await.unwrap().output(b"in\n").await.unwrap();
        assert_eq!(
            (output.exit.code, String::from_utf8_lossy(&output.stdout)),
            (3, format!("{expected}in\n1\n").into()),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        container.kill();
        container.wait().await;
        if self.yard.isolation == Isolation::User {
            // What it makes belongs to the one who runs it.
            let mut spec = self.container(&["sh", "-c", "echo kept > of-another; stat -c %u of-another"]);
            spec.user.uid = Some(1234);
            let container = sandbox.start(spec).await.unwrap();
            assert_eq!(container.wait().await.code, 0, "{}", said(&container));
            assert_eq!(said(&container), "1234\n");
            let owner = std::fs::metadata("of-another").unwrap().uid();
            assert_eq!(owner, nix::unistd::geteuid().as_raw());
        }
    }

    async fn plain(&self) {
        assert_eq!(self.yard.isolation, Isolation::Plain);
        let (one, two) = (self.sandbox("one").await, self.sandbox("two").await);
        assert_ne!(one.address(), two.address());
        let container = one
            .start(self.container(&["sh", "-c", "echo hi; exit 5"]))
            .await
            .unwrap();
        assert_eq!(
            (container.wait().await.code, said(&container).as_str()),
            (5, "hi\n")
        );
        let script = "sleep 2000 & (setsid sleep 2001 &) ; echo ready; wait";
        let container = two.start(self.container(&["sh", "-c", script])).await.unwrap();
        wait_for(&container, "ready").await;
        container.kill();
        assert_eq!(container.wait().await.signal, Some(9));
        no_process("sleep\u{0}2000");
        no_process("sleep\u{0}2001");
        let error = one.start(self.container(&["no-such"])).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "exec: \"no-such\": executable file not found in $PATH"
        );
        self.plain_rights().await;
    }

    /// A container that can't be started, because something is not there that is to be mounted
    /// last.
    async fn failed_start(&self) {
        let sandbox = self.sandbox("pod").await;
        let mut spec = self.container(&["true"]);
        spec.mounts.push(Mount {
            source: PathBuf::from("/no/such/place"),
            target: PathBuf::from("/somewhere"),
            ..Mount::default()
        });
        let error = sandbox.start(spec).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/place"), "{error}");
        // Where it was to be is cleared away all the same.
        let children = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
        let pods = || children(self.state.join("pods"));
        assert_eq!(pods().count(), 1);
        while pods().flat_map(|pod| children(pod.path())).next().is_some() {
            tokio::task::yield_now().await;
        }
    }

    /// A pod with processes that do not want to end, until this process is told to end.
    async fn wait(&self) -> u8 {
        let mut end = signal(SignalKind::terminate()).unwrap();
        let sandbox = self.sandbox("wait").await;
        let script =
            "trap '' TERM INT HUP; (setsid sleep 3000 &) ; sleep 3001 & echo ready; while :; do wait; done";
        let container = sandbox
            .start(self.container(&["sh", "-c", script]))
            .await
            .unwrap();
        wait_for(&container, "ready").await;
        println!("running");
        end.recv().await;
        0
    }
}

async fn signals() -> u8 {
    let mut interrupt = signal(SignalKind::interrupt()).unwrap();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    println!("waiting");
    interrupt.recv().await;
    println!("INT");
    terminate.recv().await;
    println!("TERM");
    42
}

pub fn said(container: &Container) -> String {
    container.log().tail(1000, 100_000)
}

pub async fn wait_for(container: &Container, line: &str) {
    use futures::StreamExt;
    let part = trainyard_local::node::runtime::log::LogRange {
        follow: true,
        ..Default::default()
    };
    let mut output = Box::pin(container.log().stream(part));
    let mut text = String::new();
    while !text.lines().any(|found| found == line) {
        let what = format!("{line} after {text}");
        let more = within(&what, output.next()).await;
        text.push_str(&String::from_utf8_lossy(&more.expect(&text).unwrap()));
    }
}

fn no_process(command: &str) {
    let runs = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|found| found == format!("{command}\u{0}").as_bytes())
        })
    };
    eventually(&format!("{command} has ended"), || {
        if runs() { Err(String::new()) } else { Ok(()) }
    });
}
