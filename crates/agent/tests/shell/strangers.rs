//! Who does not belong to the job, and who does not speak its language.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rstest::rstest;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use trainyard_agent::shell::{Decoder, Frame, Identity, Stream};

use crate::LONG;
use crate::job::{AGENT, Client, Job, Server};

fn touch(path: &Path) -> String {
    format!("touch {}", path.display())
}

/// The server works for who belongs to the job, and has run nothing.
fn is_unharmed(job: &Job, server: &Server, untouched: &Path) {
    let (code, out, err) = job.sh(server, "echo fine").ends();
    assert_eq!((code, &*out), (Some(0), &["fine".to_owned()][..]), "{err:?}");
    assert!(!untouched.exists());
}

#[test]
fn another_job_is_refused_by_both_sides() {
    let (job, other) = (Job::new(), Job::new());
    let server = job.serve();
    let file = job.identity().join("touched");
    let client = other.sh(&server, &touch(&file));
    // It tries again: the name may lead to somebody else then.
    for _ in 0..2 {
        server
            .log
            .until("refused 127.0.0.1: it does not take the certificate of this side");
    }
    drop(client);
    is_unharmed(&job, &server, &file);
}

/// A launcher that comes back, and a worker that does: neither gets a word through, and one of the
/// same attempt does.
#[rstest]
#[case::a_launcher_of_before("1", "0")]
#[case::a_worker_of_before("0", "1")]
#[case::of_the_first_attempt("", "2")]
fn another_attempt_is_refused_by_both_sides(#[case] server: &str, #[case] client: &str) {
    let job = Job::new();
    let with_attempt = |mut command: Command, attempt: &str| {
        if !attempt.is_empty() {
            command.env("TRAINYARD_SHELL_ATTEMPT", attempt);
        }
        command
    };
    let own = server;
    let server = Server::start(with_attempt(job.serving(0), server));
    let file = job.identity().join("touched");
    let shell = |attempt: &str, line: &str| {
        let mut command = Command::new(AGENT);
        command.args(["rsh", "-n", "localhost", line]);
        Client::start(with_attempt(job.configure(command, server.port), attempt))
    };
    let stranger = shell(client, &touch(&file));
    // It tries again: the name may lead to another pod then.
    for _ in 0..2 {
        server
            .log
            .until("refused 127.0.0.1: it is of another attempt of this job");
    }
    drop(stranger);
    let (code, out, err) = shell(own, "echo fine").ends();
    assert_eq!((code, &*out), (Some(0), &["fine".to_owned()][..]), "{err:?}");
    assert!(!file.exists());
}

#[test]
fn an_attempt_that_makes_no_sense_is_told() {
    let job = Job::new();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "-n", "localhost", "true"]);
    command.env("TRAINYARD_SHELL_ATTEMPT", "-1");
    Client::start(job.configure(command, 1))
        .fails("TRAINYARD_SHELL_ATTEMPT must be a whole number; it is \"-1\"");
}

#[test]
fn a_name_that_leads_to_another_job_for_a_moment_is_tried_again() {
    let (job, other) = (Job::new(), Job::new());
    let stranger = other.serve();
    let file = job.identity().join("touched");
    let client = job.sh(&stranger, &format!("echo here; {}", touch(&file)));
    stranger
        .log
        .until("refused 127.0.0.1: it does not take the certificate of this side");
    assert!(!file.exists());
    let port = stranger.port;
    drop(stranger);
    let _server = job.serve_on(port);
    let (code, out, err) = client.ends();
    assert_eq!((code, &*out), (Some(0), &["here".to_owned()][..]), "{err:?}");
    assert!(file.exists());
}

#[test]
fn who_only_trusts_the_job_is_refused() {
    let job = Job::new();
    let server = job.serve();
    let file = job.identity().join("touched");
    let stranger = job.stranger();
    let client = stranger.sh(&server, &touch(&file));
    client.fails("trainyard-agent: localhost: it does not take the certificate of this side");
    server
        .log
        .until("refused 127.0.0.1: its certificate is not of this job");
    is_unharmed(&job, &server, &file);
}

/// A client of this test, with or without a certificate.
fn connect(job: &Job, server: &Server, has_certificate: bool) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let authority = job.read("ca.crt");
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = if has_certificate {
        let chain = vec![CertificateDer::from_pem_slice(job.read("tls.crt").as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(job.read("tls.key").as_bytes()).unwrap();
        config.with_client_auth_cert(chain, key).unwrap()
    } else {
        config.with_no_client_auth()
    };
    let name = ServerName::try_from("trainyard.job").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let tcp = TcpStream::connect(server.address()).unwrap();
    tcp.set_read_timeout(Some(LONG)).unwrap();
    StreamOwned::new(tls, tcp)
}

fn send(stream: &mut impl Write, frames: &[Frame]) {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode(&mut bytes);
    }
    stream.write_all(&bytes).unwrap();
    stream.flush().unwrap();
}

/// All frames until the other side has gone.
fn receive(stream: &mut impl Read) -> Vec<Frame> {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return frames,
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it stays: {frames:?}"),
            Err(_) => return frames,
        }
        while let Some(frame) = decoder.next_frame().unwrap() {
            frames.push(frame);
        }
    }
}

fn command(line: &str) -> Frame {
    Frame::Command {
        has_input: false,
        line: line.as_bytes().to_vec(),
    }
}

#[test]
fn who_has_no_certificate_is_refused() {
    let job = Job::new();
    let server = job.serve();
    let file = job.identity().join("touched");
    let mut stream = connect(&job, &server, false);
    // It may be refused before all is sent.
    let mut bytes = Vec::new();
    for frame in [Frame::hello(), command(&touch(&file))] {
        frame.encode(&mut bytes);
    }
    let _ = stream.write_all(&bytes);
    assert_eq!(receive(&mut stream), []);
    server
        .log
        .until("refused 127.0.0.1: it has shown no certificate of this job");
    is_unharmed(&job, &server, &file);
}

#[test]
fn a_client_of_the_test_is_served() {
    let job = Job::new();
    let server = job.serve();
    let mut stream = connect(&job, &server, true);
    send(&mut stream, &[Frame::hello(), command("echo hello; exit 3")]);
    let frames: Vec<Frame> = receive(&mut stream)
        .into_iter()
        .filter(|frame| *frame != Frame::Heartbeat)
        .collect();
    let output = Frame::Data(Stream::Out, b"hello\n".to_vec());
    assert_eq!(frames, [Frame::hello(), output, Frame::Exit(3)]);
}

#[test]
fn a_client_of_another_release_is_told_so() {
    let job = Job::new();
    let server = job.serve();
    let file = job.identity().join("touched");
    let mut stream = connect(&job, &server, true);
    let hello = Frame::Hello {
        protocol: 99,
        release: "9.9.9".to_owned(),
    };
    send(&mut stream, &[hello, command(&touch(&file))]);
    let frames = receive(&mut stream);
    assert_eq!(frames[0], Frame::hello());
    let Frame::Refused(reason) = &frames[1] else {
        panic!("{frames:?}");
    };
    assert!(
        reason.contains("release 9.9.9, which speaks the protocol 99"),
        "{reason}"
    );
    is_unharmed(&job, &server, &file);
}

#[test]
fn nonsense_ends_its_own_connection_only() {
    let job = Job::new();
    let server = job.serve();
    let file = job.identity().join("touched");
    let good = job.sh(&server, "echo ready; sleep 1000");
    assert_eq!(good.out.next(), "ready");
    let nonsense: &[&[Frame]] = &[
        &[command("true")],
        &[Frame::hello(), Frame::Signal(15)],
        &[Frame::hello(), command("sleep 1000"), Frame::Exit(0)],
        &[Frame::hello(), command("sleep 1000"), Frame::Signal(0)],
        &[
            Frame::hello(),
            command("sleep 1000"),
            Frame::Taken(Stream::Out, 1),
        ],
    ];
    for frames in nonsense {
        let mut stream = connect(&job, &server, true);
        send(&mut stream, frames);
        receive(&mut stream);
        server.log.until("it said what makes no sense");
    }
    let mut stream = connect(&job, &server, true);
    stream.write_all(&[0xff; 100]).unwrap();
    receive(&mut stream);
    server.log.until("it said what makes no sense: a frame of");
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 10_000],
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
    ] {
        let mut tcp = TcpStream::connect(server.address()).unwrap();
        // It may have had enough before all is sent.
        let _ = tcp.write_all(bytes);
        tcp.set_read_timeout(Some(LONG)).unwrap();
        let _ = tcp.read_to_end(&mut Vec::new());
        server.log.until("refused 127.0.0.1");
    }
    is_unharmed(&job, &server, &file);
    drop(good);
}

#[test]
fn those_who_say_nothing_have_to_make_room_when_their_time_is_over() {
    let job = Job::new();
    let server = job.serve();
    // As many as the server lets be unknown at the same time.
    let silent: Vec<TcpStream> = (0..128)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    let file = job.identity().join("touched");
    is_unharmed(&job, &server, &file);
    // There was no place for one more before one of them had to go.
    let has_gone = |mut tcp: &TcpStream| {
        tcp.set_nonblocking(true).unwrap();
        match tcp.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    };
    assert!(silent.iter().any(has_gone), "more may be unknown than that");
    server
        .log
        .until("refused 127.0.0.1: the connection failed: the handshake took too long");
}

#[test]
fn a_server_of_another_release_is_told() {
    let job = Job::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "-n", "127.0.0.1", "true"]);
    let client = Client::start(job.configure(command, listener.local_addr().unwrap().port()));
    let config = Identity::read(job.identity(), 0).unwrap().server().unwrap();
    // It knows nothing of attempts, either.
    let mut config = (*config).clone();
    config.alpn_protocols.clear();
    let (tcp, _) = listener.accept().unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), tcp);
    let hello = Frame::Hello {
        protocol: 99,
        release: "9.9\n9".to_owned(),
    };
    send(&mut stream, &[hello]);
    client.fails("127.0.0.1: its agent is of the release 9.9 9, which speaks the protocol 99");
}

#[test]
fn a_server_that_does_not_speak_tls_is_told() {
    let job = Job::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(AGENT);
    command.args(["rsh", "-n", "127.0.0.1", "true"]);
    let client = Client::start(job.configure(command, listener.local_addr().unwrap().port()));
    let (mut tcp, _) = listener.accept().unwrap();
    tcp.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").unwrap();
    client.fails("127.0.0.1: it does not speak as the remote shell does");
}

#[test]
fn an_identity_that_is_not_there_is_told() {
    let job = Job::new();
    let server = job.serve();
    std::fs::remove_file(job.identity().join("tls.key")).unwrap();
    job.sh(&server, "true")
        .fails("tls.key: No such file or directory");
}
