//! The SSH of an image, which is given connections that the agent has opened.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, bind, getsockname,
    listen, recvmsg, socket, sockopt,
};
use tempfile::TempDir;

use crate::LONG;
use crate::job::{AGENT, Client, Lines, Process};
use crate::processes::Other;

const GREETING: &str = "SSH-2.0-test\r\n";

/// An address of which nobody else can have the port, and where nobody listens yet.
fn nobody() -> (OwnedFd, SocketAddr) {
    let server = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&server, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    // Nobody who comes is waited for for ever.
    sockopt::set_socket_timeout(&server, sockopt::Timeout::Recv, Some(LONG)).unwrap();
    let address = getsockname(&server).unwrap().try_into().unwrap();
    (server, address)
}

/// What SSH calls, and what it is given.
struct Call {
    process: Process,
    given: UnixStream,
    err: Lines,
}

impl Call {
    fn new(address: SocketAddr, silence: &str) -> Self {
        let (given, output) = UnixStream::pair().unwrap();
        given.set_read_timeout(Some(LONG)).unwrap();
        let port = address.port().to_string();
        let child = Command::new(AGENT)
            .args(["connect", "127.0.0.1", &port])
            .env("TRAINYARD_SHELL_SILENCE_SECONDS", silence)
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(output))
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Process(child.unwrap());
        let err = Lines::of(process.0.stderr.take().unwrap());
        Self { process, given, err }
    }

    /// As SSH takes it: one byte, and with it the connection.
    fn takes(&self) -> TcpStream {
        let mut byte = [1; 2];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut byte)];
        let received = recvmsg(&self.given, &mut buffers, &mut with, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert_eq!((received.bytes, byte[0]), (1, 0), "{:?}", self.err.rest());
        let mut connections = with.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        connections
            .next()
            .and_then(|mut files| files.next())
            .unwrap()
            .into()
    }

    /// Its exit code, and what it has said.
    fn ends(mut self) -> (Option<i32>, Vec<String>) {
        (self.process.ends(), self.err.rest())
    }
}

#[test]
fn a_server_is_tried_until_it_greets_and_its_connection_is_handed_over() {
    let (server, address) = nobody();
    let call = Call::new(address, "");
    // Nothing else lets it sleep than that it has been refused.
    Other::of(&call.process).waits_until("does not try again", |agent| {
        agent.field("State").is_some_and(|state| state.starts_with('S'))
    });
    listen(&server, 8).unwrap();
    let server = TcpListener::from(server);
    let accept = || server.accept().unwrap().0;
    // It has too much to do; it is just ending; it is there.
    accept().write_all(b"Exceeded MaxStartups\r\n").unwrap();
    drop(accept());
    let mut there = accept();
    there.write_all(GREETING.as_bytes()).unwrap();

    let mut connection = call.takes();
    assert_eq!(call.ends(), (Some(0), vec![]));
    assert_eq!(connection.peer_addr().unwrap(), address);
    assert_eq!(connection.read_timeout().unwrap(), None);
    let second = Duration::from_secs(1);
    assert!(sockopt::socket_keepalive(&connection).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&connection).unwrap(), second);
    assert_eq!(sockopt::tcp_keepintvl(&connection).unwrap(), second);
    assert_eq!(sockopt::tcp_user_timeout(&connection).unwrap(), 4000);
    // It is the one that greeted, and what it said was left for SSH.
    connection.set_read_timeout(Some(LONG)).unwrap();
    let mut greeting = [0; GREETING.len()];
    connection.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, GREETING.as_bytes());
    connection.write_all(b"SSH-2.0-client\r\n").unwrap();
    drop(connection);
    let mut heard = String::new();
    there.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "SSH-2.0-client\r\n");
}

#[test]
fn how_long_a_host_may_be_lost_can_be_said() {
    let (server, address) = nobody();
    listen(&server, 8).unwrap();
    let call = Call::new(address, "9");
    let (mut there, _) = TcpListener::from(server).accept().unwrap();
    there.write_all(GREETING.as_bytes()).unwrap();
    assert_eq!(sockopt::tcp_user_timeout(call.takes()).unwrap(), 9000);

    let (code, err) = Call::new(address, "1").ends();
    assert_eq!(code, Some(255), "{err:?}");
    assert!(err[0].contains("TRAINYARD_SHELL_SILENCE_SECONDS"), "{err:?}");
}

#[test]
fn a_connection_is_handed_over_to_nobody_else_than_ssh() {
    let (server, address) = nobody();
    listen(&server, 8).unwrap();
    let mut command = Command::new(AGENT);
    command.args(["connect", "127.0.0.1", &address.port().to_string()]);
    let client = Client::start(command);
    let (mut there, _) = TcpListener::from(server).accept().unwrap();
    there.write_all(GREETING.as_bytes()).unwrap();
    client.fails("127.0.0.1: the connection can't be handed over to ssh: ");
}

/// A program that says with which words it was called.
fn speaker(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("ssh of the image");
    // Somebody else writes it: a process that another test starts at this moment would have it
    // open, and it could not be run.
    let write = r#"printf '%s\n' '#!/bin/sh' 'printf "%s\n" "$@"' 'exit 7' > "$0" && chmod +x "$0""#;
    let written = Command::new("/bin/sh")
        .arg("-c")
        .arg(write)
        .arg(&path)
        .status()
        .unwrap();
    assert!(written.success());
    path
}

/// Called as by mpirun, with words that mean something to SSH.
fn rsh(client: impl AsRef<std::ffi::OsStr>) -> Client {
    let mut command = Command::new(AGENT);
    command
        .args([
            "rsh",
            "-x",
            "-o",
            "ServerAliveInterval=15",
            "w-0",
            "orted",
            "-a 'b c'",
        ])
        .env("TRAINYARD_SSH", client)
        // Of the agent's own ways, which are not taken.
        .env("TRAINYARD_SHELL_PORT", "nonsense");
    Client::start(command)
}

#[test]
fn the_ssh_of_the_image_is_called_as_it_would_have_been_and_finds_the_agent() {
    let directory = tempfile::tempdir().unwrap();
    let (code, out, err) = rsh(speaker(&directory)).ends();
    assert_eq!((code, &*err), (Some(7), &[][..]));
    let own = std::fs::canonicalize(AGENT).unwrap();
    let proxy = format!("ProxyCommand='{}' connect '%h' '%p'", own.display());
    let expected = [
        "-o",
        "ProxyUseFdpass=yes",
        "-o",
        &proxy,
        "-x",
        "-o",
        "ServerAliveInterval=15",
        "w-0",
        "orted",
        "-a 'b c'",
    ];
    assert_eq!(out, expected);
}

#[test]
fn an_image_without_ssh_is_told_so() {
    rsh("/nowhere/ssh").fails(
        "/nowhere/ssh can't be run: No such file or directory (os error 2); with attach Ssh the launcher's image must have an \
         SSH client",
    );
}

#[test]
fn without_a_name_of_ssh_the_agent_does_it_itself() {
    rsh("").fails("TRAINYARD_SHELL_PORT");
}
