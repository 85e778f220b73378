//! The processes of all hosts, from the first to the last.

use std::collections::HashSet;
use std::ffi::{OsString, c_int};
use std::io::{self, stderr, stdout};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::iterator::Signals;
use trainyard_contract::directories::mpi::names::SHELL;

use super::FAILED;
use super::arguments::Call;
use super::label::{copy, label};
use crate::signals::SIGNAL_EXIT_BASE;

/// This program, also where its path is that of another file by now.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// How long commands may take to exit after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

struct Run {
    call: Call,
    /// The next host.
    next: AtomicUsize,
    /// Processes that have not been reaped.
    alive: Mutex<HashSet<Pid>>,
    /// Whether no more are to be started.
    is_over: AtomicBool,
    /// The largest exit code.
    code: AtomicU8,
    /// Whether a host was lost.
    is_lost: AtomicBool,
}

/// Runs the command on all hosts. Returns the exit code.
pub fn run(call: Call, mut signals: Signals) -> io::Result<u8> {
    let run = Arc::new(Run {
        next: AtomicUsize::new(0),
        alive: Mutex::default(),
        is_over: AtomicBool::new(false),
        code: AtomicU8::new(0),
        is_lost: AtomicBool::new(false),
        call,
    });
    let (ended, ends) = channel();
    for _ in 0..run.call.fanout.min(run.call.hosts.len()) {
        let (run, ended) = (run.clone(), ended.clone());
        let work = move || {
            while let Some((number, host)) = run.next() {
                run.run_on(number, host);
                // The receiver may be gone at the end.
                let _ = ended.send(());
            }
        };
        thread::Builder::new().spawn(work)?;
    }
    drop(ended);
    let of_signals = run.clone();
    thread::Builder::new().spawn(move || {
        for signal in signals.forever() {
            of_signals.pass(signal);
        }
    })?;
    while ends.recv().is_ok() {
        if run.is_over.load(Ordering::SeqCst) {
            while ends.recv_timeout(EXIT_TIMEOUT).is_ok() {}
            // The other side ends a command whose client has gone.
            run.signal(Signal::KILL);
            break;
        }
    }
    // Processes that were signalled may still write.
    while ends.recv_timeout(EXIT_TIMEOUT).is_ok() {}
    let is_told = run.call.tells_code || run.is_lost.load(Ordering::SeqCst);
    Ok(if is_told {
        run.code.load(Ordering::SeqCst)
    } else {
        0
    })
}

impl Run {
    /// The next host and its number.
    fn next(&self) -> Option<(usize, &str)> {
        if self.is_over.load(Ordering::SeqCst) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        Some((number, self.call.hosts.get(number)?))
    }

    /// Runs the command on a host to its end.
    fn run_on(&self, number: usize, host: &str) {
        let label = if self.call.labels {
            label(host)
        } else {
            String::new()
        };
        let code = self.start(number, host).and_then(|mut child| {
            let errors = child.stderr.take();
            let of_errors = label.clone();
            let errors = thread::Builder::new()
                .spawn(move || errors.map_or(Ok(()), |errors| copy(errors, &of_errors, stderr())))?;
            let output = child.stdout.take();
            let copied = output.map_or(Ok(()), |output| copy(output, &label, stdout()));
            let _ = errors.join();
            let code = self.end(child)?;
            copied.map(|()| code)
        });
        let code = code.unwrap_or_else(|error| {
            let _ = copy(
                format!("can't run the remote shell: {error}\n").as_bytes(),
                &label,
                stderr(),
            );
            FAILED
        });
        self.code.fetch_max(code, Ordering::SeqCst);
        if code == FAILED {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        if code == FAILED || (code != 0 && self.call.ends_all) {
            let was_over = self.is_over.swap(true, Ordering::SeqCst);
            if !was_over {
                self.signal(Signal::TERM);
            }
        }
    }

    fn start(&self, number: usize, host: &str) -> io::Result<Child> {
        let mut command = Command::new(THIS_PROGRAM);
        command
            .arg0(SHELL)
            .args(["-n", host])
            .arg(OsString::from_vec(self.call.line(number, host)))
            // Its own group, so that it does not get a signal of the terminal twice.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut alive = self.alive.lock();
        let child = command.spawn()?;
        alive.insert(Pid::from_child(&child));
        if self.is_over.load(Ordering::SeqCst) {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        Ok(child)
    }

    /// The exit code of a process, once it has ended.
    fn end(&self, mut child: Child) -> io::Result<u8> {
        let pid = Pid::from_child(&child);
        // Its id is not reused before it is reaped.
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let mut alive = self.alive.lock();
        alive.remove(&pid);
        let status = child.wait()?;
        let of_signal = status.signal().map(|signal| SIGNAL_EXIT_BASE + signal);
        let code = status.code().or(of_signal);
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
    }

    fn pass(&self, signal: c_int) {
        // Nothing is started on the remaining hosts.
        self.next.store(self.call.hosts.len(), Ordering::SeqCst);
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal(signal);
        }
    }

    fn signal(&self, signal: Signal) {
        for pid in &*self.alive.lock() {
            let _ = kill_process(*pid, signal);
        }
    }
}
