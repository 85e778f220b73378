//! The processes inside a cluster's namespaces: the first one, which buries orphans, and the one that runs the crew.
//!
//! Everything of a cluster lives in namespaces that hang on the first process. When it ends, for whatever reason, the
//! kernel ends the other processes and takes back mounts, links, routes and packet filters. So a cluster can't leave
//! remains, even when all of this is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;

use anyhow::{Context, Result};
use rustix::process::{WaitOptions, wait};

use super::boot::{apiserver_ready, boot, runtime_answers};
use super::control::{Request, Signal, Status};
use super::crew::Crew;
use super::node;
use super::plan::{Layout, Plan};

/// The first process: starts the supervisor, waits for everybody's end, and ends with the supervisor.
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
    crew: Crew,
    plan: OnceLock<Plan>,
}

/// Takes commands until the end; when `tied`, that is when the other end of our standard input goes away.
pub fn supervise(dir: &Path, tied: bool) -> Result<()> {
    let socket = Layout::new(dir).control();
    // Listens under another name first: who sees the socket can connect.
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
        crew: Crew::default(),
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
            .map(|()| self.crew.status())
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
                if self.crew.begin() {
                    let this = Arc::clone(self);
                    thread::spawn(move || {
                        let plan = this.plan.get_or_init(|| *plan);
                        let result = boot(plan, &this.crew);
                        if let Err(error) = &result {
                            eprintln!("{error:#}");
                        }
                        this.crew.finish(&result);
                    });
                }
                Ok(())
            }
            Request::Start(name) => {
                self.crew.start(&name)?;
                match (self.plan.get(), node::of_containerd(&name)) {
                    (Some(plan), _) if name == "kube-apiserver" => apiserver_ready(plan, &self.crew),
                    (Some(plan), Some(node)) => runtime_answers(plan, &self.crew, node),
                    _ => Ok(()),
                }
            }
            Request::Signal(name, signal) => {
                self.crew.signal(&name, signal)?;
                if signal == Signal::Kill {
                    println!("{name} killed");
                }
                Ok(())
            }
        }
    }
}

/// The command that puts `program` as first process into new namespaces, which end when that command is killed.
/// Nodes need a network of their own.
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
