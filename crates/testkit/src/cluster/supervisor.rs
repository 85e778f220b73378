//! The processes inside a cluster's namespaces: the first one, which reaps orphans, and the one
//! that runs the components.
//!
//! Everything of a cluster lives in namespaces of the first process. When it ends, for whatever
//! reason, the kernel kills the other processes and removes mounts, links, routes and packet
//! filters. So a cluster leaves nothing behind, even if all of this is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;

use anyhow::{Context, Result};
use rustix::process::{WaitOptions, wait};

use super::boot::{apiserver_ready, boot, kubelet_listens, runtime_answers};
use super::components::Components;
use super::control::{Request, Signal, Status};
use super::node;
use super::plan::{Layout, Plan};

/// The first process: starts the supervisor, reaps all processes, and ends with the supervisor.
pub fn init(dir: &Path, tied: bool) -> Result<ExitCode> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("supervise").arg("--dir").arg(dir);
    if tied {
        command.arg("--tied");
    }
    let supervisor = command.spawn().context("cannot start the supervisor")?;
    let supervisor = i32::try_from(supervisor.id())?;
    loop {
        let Some((pid, status)) = wait(WaitOptions::empty()).context("no process is left")? else {
            continue;
        };
        if pid.as_raw_nonzero().get() == supervisor {
            let code = status
                .exit_status()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1);
            return Ok(ExitCode::from(code));
        }
    }
}

struct Supervisor {
    components: Components,
    plan: OnceLock<Plan>,
}

/// Serves requests; when `tied`, until the standard input is closed.
pub fn supervise(dir: &Path, tied: bool) -> Result<()> {
    let socket = Layout::new(dir).control();
    // Renamed when it listens, so that a socket that exists can be connected to.
    let unnamed = socket.with_extension("new");
    let listener =
        UnixListener::bind(&unnamed).with_context(|| format!("cannot listen on {}", socket.display()))?;
    fs::rename(&unnamed, &socket)?;
    if tied {
        thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    let supervisor = Arc::new(Supervisor {
        components: Components::default(),
        plan: OnceLock::new(),
    });
    for stream in listener.incoming() {
        let supervisor = Arc::clone(&supervisor);
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = supervisor.serve(&stream) {
                eprintln!("a command was not served: {error:#}");
            }
        });
    }
    Ok(())
}

impl Supervisor {
    fn serve(self: &Arc<Self>, mut stream: &UnixStream) -> Result<()> {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let request = serde_json::from_str(&line).context("a request that can't be understood")?;
        let answer: std::result::Result<Status, String> = self
            .answer(request)
            .map(|()| self.components.status())
            .map_err(|error| format!("{error:#}"));
        let mut answer = serde_json::to_vec(&answer)?;
        answer.push(b'\n');
        stream.write_all(&answer)?;
        Ok(())
    }

    fn answer(self: &Arc<Self>, request: Request) -> Result<()> {
        match request {
            Request::Status => Ok(()),
            Request::Boot(plan) => {
                if self.components.begin() {
                    let this = Arc::clone(self);
                    thread::spawn(move || {
                        let plan = this.plan.get_or_init(|| *plan);
                        let result = boot(plan, &this.components);
                        if let Err(error) = &result {
                            eprintln!("{error:#}");
                        }
                        this.components.finish(&result);
                    });
                }
                Ok(())
            }
            Request::Start(name) => {
                self.components.start(&name)?;
                match (self.plan.get(), node::of_containerd(&name)) {
                    (Some(plan), _) if name == "kube-apiserver" => apiserver_ready(plan, &self.components),
                    (Some(plan), Some(node)) => runtime_answers(plan, &self.components, node),
                    (Some(plan), None) if let Some(node) = node::of_kubelet(&name) => {
                        kubelet_listens(plan, &self.components, node)
                    }
                    _ => Ok(()),
                }
            }
            Request::Signal(name, signal) => {
                self.components.signal(&name, signal)?;
                if signal == Signal::Kill {
                    println!("{name} killed");
                }
                Ok(())
            }
        }
    }
}

/// The command that puts `program` as first process into new namespaces, which end when that
/// command is killed. Nodes need a network of their own.
pub fn in_namespaces(nodes: bool) -> Command {
    let mut command = Command::new("setsid");
    command.args([
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
    ]);
    if nodes {
        command.arg("--net");
    } else if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user"]);
    }
    command.arg("--").stdin(Stdio::null());
    command
}
