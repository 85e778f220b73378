//! The SSH of the image, where a job wants it: it is called as it would have been called, and finds
//! a connection that this program has opened for it.
//!
//! SSH does not retry: a server that refuses a connection because of too many others, as on a busy
//! machine, would fail the run. And SSH notices a lost host after minutes or never. So this program
//! opens the connection, with retries and a timeout, and hands it over after the server's greeting.

use std::ffi::OsString;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use trainyard_contract::environment::SSH;

use crate::alias::Alias;
use crate::mode::{Mode, PROGRAM, report_misuse};
use crate::settings::Environment;
use crate::shell::error::LinkError;
use crate::shell::poll::wait;

use super::connect::retry;
use super::dial::{ConnectError, Timeouts, dial};
use super::{FAILED, timeouts};

pub(crate) const MODE: Mode = Mode {
    name: "connect",
    summary: "Open a connection for the SSH client of the image",
    help: HELP,
    run: main,
};

const HELP: &str = "\
Opens a connection to an SSH server and hands it over to the SSH client that has called this, by standard output:

  ssh -o ProxyUseFdpass=yes -o ProxyCommand='trainyard-agent connect %h %p' ...

This is what `trainyard-agent rsh` calls where TRAINYARD_SSH is set.

Usage: trainyard-agent connect host port

A host that is not known yet, takes no connections, or closes them before it has spoken as SSH servers do, is tried
again for 30 s. A host that has been lost, so that nothing sent to it is acknowledged any more, is given up after 4 s,
or as the environment says: then the connection fails.

Environment:
  TRAINYARD_SHELL_SILENCE_SECONDS
                        After how many seconds a host that is lost is given up, at least 2 [default: 4]

Exit codes: 0 the connection was handed over, 2 the command line makes no sense, 255 there is none.
";

/// With this every SSH server begins.
const GREETING: &[u8] = b"SSH-";
/// Between looks at a server that has begun to speak.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How much a server may say before its greeting.
const MAX_GREETING: usize = 4096;
/// How much is shown of what is said instead.
const MAX_SHOWN: usize = 200;

/// The SSH client that commands are left to, if they are.
pub fn client(environment: Environment<'_>) -> Option<OsString> {
    environment(SSH).filter(|client| !client.is_empty())
}

/// Executes the SSH client. Returns only on failure.
pub fn become_client(client: &OsString, args: &[OsString]) -> String {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return format!("this program can't find itself: {error}"),
    };
    let error = Command::new(client)
        .args([
            "-o",
            "ProxyUseFdpass=yes",
            "-o",
            &proxy_command(&without_alias(own)),
        ])
        .args(args)
        // A program that SSH calls must not execute SSH again.
        .env_remove(SSH)
        .exec();
    let client = client.to_string_lossy();
    format!("{client} can't be run: {error}; with attach Ssh the launcher's image must have an SSH client")
}

/// Where this program is by a name that does not say already what it is to do: it is the same file
/// by all of them.
fn without_alias(own: PathBuf) -> PathBuf {
    if Alias::of(own.as_os_str()).is_some() {
        own.with_file_name(PROGRAM)
    } else {
        own
    }
}

/// The option by which SSH calls this program. A shell reads it, after SSH has replaced what begins
/// with `%`.
fn proxy_command(program: &Path) -> String {
    let program = program
        .to_string_lossy()
        .replace('%', "%%")
        .replace('\'', r"'\''");
    format!("ProxyCommand='{program}' {} '%h' '%p'", MODE.name)
}

fn main(args: &[OsString], _out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let words: Vec<_> = args.iter().map(|word| word.to_string_lossy()).collect();
    let [host, port] = &*words else {
        return report_misuse(err, "`connect` wants a host and a port");
    };
    let Ok(port) = port.parse() else {
        return report_misuse(err, &format!("`connect` wants a port, and there is {port:?}"));
    };
    match hand_over(host, port, io::stdout().as_fd()) {
        Ok(()) => 0,
        Err(problem) => {
            let _ = writeln!(err, "{PROGRAM}: {host}: {problem}");
            FAILED
        }
    }
}

fn hand_over(host: &str, port: u16, to: BorrowedFd<'_>) -> Result<(), String> {
    let timeouts = timeouts(&|name| std::env::var_os(name)).map_err(|error| error.to_string())?;
    let tcp = retry(&timeouts, || attempt(host, port, &timeouts)).map_err(|error| error.to_string())?;
    watch(&tcp, timeouts.idle).map_err(|error| format!("the connection can't be set up: {error}"))?;
    send(&tcp, to).map_err(|error| format!("the connection can't be handed over to ssh: {error}"))
}

fn attempt(host: &str, port: u16, timeouts: &Timeouts) -> Result<TcpStream, ConnectError> {
    let tcp = dial(host, port, timeouts)?;
    wait_for_greeting(&tcp, timeouts.handshake)?;
    Ok(tcp)
}

/// Waits until the server has greeted, and leaves what it has said for the client.
fn wait_for_greeting(tcp: &TcpStream, timeout: Duration) -> Result<(), ConnectError> {
    let failed = |error: io::Error| ConnectError::Link(LinkError::Io(error));
    let deadline = Instant::now() + timeout;
    let mut buffer = [0; MAX_GREETING];
    let mut length = 0;
    let result = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break Err(ConnectError::Silent(timeout));
        }
        tcp.set_read_timeout(Some(left)).map_err(failed)?;
        // Before the look: what comes after it will not be waited for.
        let is_closed = is_closed(tcp).map_err(failed)?;
        length = match tcp.peek(&mut buffer) {
            Ok(0) => break Err(ConnectError::Link(LinkError::Closed)),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break Err(failed(error)),
        };
        if has_greeting(buffer.get(..length).unwrap_or_default()) {
            break Ok(());
        }
        if is_closed || length == MAX_GREETING {
            break Err(ConnectError::Link(LinkError::Closed));
        }
        thread::sleep(POLL_INTERVAL);
    };
    tcp.set_read_timeout(None).map_err(failed)?;
    let said = buffer.get(..length.min(MAX_SHOWN)).unwrap_or_default();
    let said = String::from_utf8_lossy(said).trim().to_owned();
    // What it says tells more than that it says no more.
    result.map_err(|error| {
        if said.is_empty() {
            error
        } else {
            ConnectError::NoServer(said)
        }
    })
}

/// Whether this is the beginning of what an SSH server says: its greeting, which other lines may
/// come before.
fn has_greeting(said: &[u8]) -> bool {
    said.split(|byte| *byte == b'\n')
        .any(|line| line.starts_with(GREETING))
}

/// Whether the server will say no more. What it has said, as long as it is not read, hides that.
fn is_closed(tcp: &TcpStream) -> io::Result<bool> {
    let mut fds = [PollFd::new(tcp, PollFlags::RDHUP)];
    wait(&mut fds, Some(Duration::ZERO))?;
    Ok(fds.iter().any(|fd| !fd.revents().is_empty()))
}

/// Has the system notice that the host is lost: it must acknowledge what is sent, and if nothing is
/// sent it is asked.
fn watch(tcp: &TcpStream, silence: Duration) -> io::Result<()> {
    let often = Duration::from_secs(1);
    let silence = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, often)?;
    sockopt::set_tcp_keepintvl(tcp, often)?;
    // How many times it is asked follows from this.
    Ok(sockopt::set_tcp_user_timeout(tcp, silence)?)
}

/// Sends the connection itself, with one byte, as SSH wants it.
fn send(tcp: &TcpStream, to: BorrowedFd<'_>) -> io::Result<()> {
    let connections = [tcp.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(&connections));
    sendmsg(to, &[IoSlice::new(&[0])], &mut with, SendFlags::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "/etc/mpi/trainyard-agent",
        "ProxyCommand='/etc/mpi/trainyard-agent' connect '%h' '%p'"
    )]
    #[case("/a b/100%/it's", r"ProxyCommand='/a b/100%%/it'\''s' connect '%h' '%p'")]
    fn a_shell_reads_the_path_as_it_is(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(proxy_command(Path::new(path)), expected);
    }

    #[rstest]
    #[case("/etc/mpi/kubexec.sh", "/etc/mpi/trainyard-agent")]
    #[case("/usr/bin/ssh", "/usr/bin/trainyard-agent")]
    #[case("/etc/mpi/trainyard-agent", "/etc/mpi/trainyard-agent")]
    #[case("/usr/local/bin/trainyard", "/usr/local/bin/trainyard")]
    fn it_is_called_by_its_own_name(#[case] own: &str, #[case] expected: &str) {
        assert_eq!(without_alias(PathBuf::from(own)), Path::new(expected));
    }

    /// What a server that says one thing after the other is taken for.
    fn taken_for(said: &[&str]) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                for words in said {
                    server.write_all(words.as_bytes()).unwrap();
                    thread::sleep(2 * POLL_INTERVAL);
                }
                if said.is_empty() {
                    thread::sleep(Duration::from_millis(300));
                }
            });
            let taken = wait_for_greeting(&client, Duration::from_millis(200));
            assert_eq!(client.read_timeout().unwrap(), None);
            taken.map_err(|error| error.to_string())
        })
    }

    #[rstest]
    #[case::a_server(&["SSH-2.0-OpenSSH_9.2\r\n"], Ok(()))]
    #[case::a_slow_server(&["S", "SH", "-2.0-x\r\n"], Ok(()))]
    #[case::one_that_has_too_much_to_do(&["Exceeded MaxStartups\r\n"], Err("it is no SSH server yet: \"Exceeded MaxStartups\""))]
    #[case::another(&["HTTP/1.1 400 Bad Request\r\n"], Err("it is no SSH server yet: \"HTTP/1.1 400 Bad Request\""))]
    #[case::one_that_goes(&[""], Err("the connection was closed"))]
    #[case::one_that_stops(&["SS"], Err("it is no SSH server yet: \"SS\""))]
    #[case::one_with_a_preface(&["Welcome.\r\n", "SSH is spoken here\r\nSSH", "-2.0-x\r\n"], Ok(()))]
    #[case::silence(&[], Err("nothing was heard from it for 0.2 s"))]
    fn a_server_is_known_by_its_greeting(#[case] said: &[&str], #[case] expected: Result<(), &str>) {
        assert_eq!(taken_for(said), expected.map_err(str::to_owned));
    }

    #[test]
    fn who_says_something_else_and_goes_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"Exceeded MaxStartups\r\n").unwrap();
        drop(server);
        let begun = Instant::now();
        wait_for_greeting(&client, Duration::from_mins(1)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
