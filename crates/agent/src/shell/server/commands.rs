//! The commands that run at the moment, and the end of all of them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use crate::children::{Children, Started};
use crate::descendants::descendants;

use super::STACK_SIZE;
use super::caller::await_host;
use super::words::split;

const SHELL: &str = "/bin/sh";

/// From SIGTERM to SIGKILL.
pub const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// How long processes may take to be gone after SIGKILL, and clients to learn of it.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// All commands of a server.
#[derive(Debug)]
pub struct Commands {
    children: Arc<Children>,
    shell: &'static str,
    state: Mutex<State>,
    starter: Mutex<Option<Sender<StartRequest>>>,
}

/// A command that is to be started.
#[derive(Debug)]
struct StartRequest {
    line: Vec<u8>,
    has_input: bool,
    /// What became of it.
    answer: SyncSender<Result<(Group, Started), StartError>>,
    /// Closed when the answer is there.
    done: PipeWriter,
}

/// A command that is being started.
#[derive(Debug)]
pub struct Starting {
    answer: Receiver<Result<(Group, Started), StartError>>,
    done: PipeReader,
}

#[derive(Debug, Default)]
struct State {
    is_ending: bool,
    groups: HashSet<Pid>,
}

/// Why a command was not started: what a shell would say and which code it would end with.
#[derive(Debug)]
pub struct StartError {
    /// A sentence.
    pub problem: String,
    /// The exit code.
    pub code: u8,
}

/// The processes of one command. As long as it exists the end of the server is theirs.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
    commands: Arc<Commands>,
}

impl Commands {
    /// None yet.
    pub fn new(children: Arc<Children>) -> Self {
        Self {
            children,
            shell: SHELL,
            state: Mutex::default(),
            starter: Mutex::default(),
        }
    }

    /// Has a line run by the one thread that starts all commands. The caller is not blocked by a
    /// program whose file is slow to load, and starts would wait for each other anyway.
    pub fn request_start(self: &Arc<Self>, line: Vec<u8>, has_input: bool) -> io::Result<Starting> {
        let (done, done_writer) = io::pipe()?;
        let (sender, answer) = sync_channel(1);
        let request = StartRequest {
            line,
            has_input,
            answer: sender,
            done: done_writer,
        };
        let mut starter = self.starter.lock();
        if starter.is_none() {
            *starter = Some(starter_of(Arc::downgrade(self))?);
        }
        // If it has died, nobody answers, which is told there.
        drop(starter.as_ref().map(|starter| starter.send(request)));
        Ok(Starting { answer, done })
    }

    /// Runs a line, in a shell if there is one.
    fn start(self: &Arc<Self>, line: &[u8], has_input: bool) -> Result<(Group, Started), StartError> {
        // Held until the group is known, so that the end of all finds it.
        let mut state = self.state.lock();
        if state.is_ending {
            return Err(StartError {
                problem: "this container is about to end".to_owned(),
                code: u8::MAX,
            });
        }
        let mut in_shell = Command::new(self.shell);
        in_shell.arg("-c").arg(OsStr::from_bytes(line));
        let started = match self.spawn(&mut in_shell, has_input) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (variables, words) = split(line).map_err(|error| StartError {
                    problem: error.to_string(),
                    code: 127,
                })?;
                let program = words.first().map_or("", String::as_str);
                let mut command = Command::new(program);
                command.args(words.iter().skip(1)).envs(variables);
                self.spawn(&mut command, has_input)
                    .map_err(|error| unusable(program, &error))?
            }
            other => other.map_err(|error| unusable(self.shell, &error))?,
        };
        state.groups.insert(started.pid);
        let group = Group {
            leader: started.pid,
            commands: self.clone(),
        };
        Ok((group, started))
    }

    fn spawn(&self, command: &mut Command, has_input: bool) -> io::Result<Started> {
        let input = if has_input { Stdio::piped() } else { Stdio::null() };
        command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        self.children.start(command)
    }

    /// Returns true if a command runs. What commands have left in the background is none.
    pub fn are_running(&self) -> bool {
        !self.state.lock().groups.is_empty()
    }

    /// Ends all commands and whatever they have left in the background, and waits until their
    /// clients know.
    pub fn end(&self) {
        self.state.lock().is_ending = true;
        self.signal(Signal::TERM);
        if !self.are_gone_within(GRACE_PERIOD) {
            self.signal(Signal::KILL);
            self.are_gone_within(KILL_TIMEOUT);
        }
    }

    /// Daemons such as `orted`, which has left its group, are to end as well as they can, too: when
    /// the first process of a container has ended, the kernel kills all others at once.
    fn signal(&self, signal: Signal) {
        let groups = &self.state.lock().groups;
        for group in groups {
            // It may have ended meanwhile.
            let _ = kill_process_group(*group, signal);
        }
        for process in descendants() {
            if !groups.contains(&process.group) {
                let _ = kill_process(process.pid, signal);
            }
        }
    }

    fn are_gone_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            self.children.reap();
            if self.state.lock().groups.is_empty() && descendants().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Starts commands until nobody is left to ask for any.
fn starter_of(commands: Weak<Commands>) -> io::Result<Sender<StartRequest>> {
    let (sender, requests) = channel::<StartRequest>();
    let work = move || {
        for request in requests {
            let Some(commands) = commands.upgrade() else {
                return;
            };
            // All commands have the same caller, so one that waits holds up none that need not.
            await_host(&request.line);
            let started = commands.start(&request.line, request.has_input);
            // Who has asked waits for the answer, whatever happens.
            drop(request.answer.send(started));
            drop(request.done);
        }
    };
    thread::Builder::new().stack_size(STACK_SIZE).spawn(work)?;
    Ok(sender)
}

impl Starting {
    /// What became of it, if that is known, or else when it is.
    pub fn end(&self, waits: bool) -> Option<Result<(Group, Started), StartError>> {
        let answer = if waits {
            self.answer.recv().map_err(TryRecvError::from)
        } else {
            self.answer.try_recv()
        };
        match answer {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(StartError {
                problem: "can't start the command: the thread that starts it has died".to_owned(),
                code: u8::MAX,
            })),
        }
    }
}

impl AsFd for Starting {
    /// Something to poll: it can be read when it is over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

impl Group {
    /// Sends a signal to all of its processes.
    pub fn signal(&self, signal: Signal) {
        // It may have ended meanwhile.
        let _ = kill_process_group(self.leader, signal);
    }

    /// Whether any of its processes is there.
    pub fn exists(&self) -> bool {
        test_kill_process_group(self.leader).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.commands.state.lock().groups.remove(&self.leader);
    }
}

fn unusable(program: &str, error: &io::Error) -> StartError {
    StartError {
        problem: format!("can't run {program}: {error}"),
        code: if error.kind() == ErrorKind::NotFound {
            127
        } else {
            126
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::sync::LazyLock;

    use rstest::rstest;

    use super::*;

    /// All tests are one process, in which there must be only one who waits.
    pub static CHILDREN: LazyLock<Arc<Children>> = LazyLock::new(|| Arc::new(Children::new().unwrap()));

    fn without_shell() -> Arc<Commands> {
        Arc::new(Commands {
            shell: "/no/such/shell",
            ..Commands::new(CHILDREN.clone())
        })
    }

    #[test]
    fn without_a_shell_words_are_run() {
        let commands = without_shell();
        let (group, mut started) = commands
            .start(b"GREETING='hi there' printenv \"GREETING\"", false)
            .unwrap();
        let mut output = String::new();
        started
            .child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut output)
            .unwrap();
        assert_eq!(output, "hi there\n");
        let deadline = Instant::now() + Duration::from_mins(1);
        let code = loop {
            commands.children.reap();
            if let Some(code) = started.end.code() {
                break code;
            }
            assert!(Instant::now() < deadline, "it does not end");
        };
        assert_eq!(code, 0);
        drop(group);
        assert!(commands.state.lock().groups.is_empty());
    }

    #[rstest]
    #[case("a; b", 127, "';' in the command needs one")]
    #[case("/no/such/program x", 127, "can't run /no/such/program: No such file")]
    #[case("/ x", 126, "can't run /: Permission denied")]
    fn what_can_not_be_run_is_told(#[case] line: &str, #[case] code: u8, #[case] problem: &str) {
        let error = without_shell().start(line.as_bytes(), false).unwrap_err();
        assert_eq!(error.code, code);
        assert!(error.problem.contains(problem), "{}", error.problem);
    }

    #[test]
    fn nothing_starts_after_the_end() {
        let commands = without_shell();
        commands.state.lock().is_ending = true;
        let error = commands.start(b"true", false).unwrap_err();
        assert_eq!(error.problem, "this container is about to end");
    }
}
