//! The remote shell over the Kubernetes API, of which this plays the part that matters: a request
//! that is checked, and a WebSocket whose channels are the streams of a process.

#![expect(clippy::result_large_err, reason = "the library of WebSockets wants it so")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;
use trainyard_eventually::eventually;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::{Message, WebSocket};

use crate::job::{AGENT, Client};
use crate::processes::Other;

const PATH: &str = "/api/v1/namespaces/ns/pods/{}/exec?container=main&command=attend";
const TOKEN: &str = "the-token-of-this-job";

type Socket = WebSocket<StreamOwned<ServerConnection, TcpStream>>;

/// An API that runs commands in pods which are this machine.
struct Api {
    identity: TempDir,
    port: u16,
    /// The agents that it has started.
    agents: Arc<Mutex<Vec<Pid>>>,
}

/// What the API has against a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// Nothing.
    Kind,
    /// At first the pod is not there, and then it is and has no agent.
    Late,
    /// It knows nothing newer.
    Old,
}

impl Api {
    fn new(mood: Mood) -> Self {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let identity = tempfile::tempdir().unwrap();
        std::fs::write(identity.path().join("ca.crt"), certificate.pem()).unwrap();
        std::fs::write(identity.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let agents = Arc::new(Mutex::default());
        let started = Arc::clone(&agents);
        thread::spawn(move || {
            for (number, tcp) in listener.incoming().enumerate() {
                let (tls, agents) = (tls.clone(), Arc::clone(&started));
                thread::spawn(move || serve(tcp.unwrap(), tls, number, mood, &agents));
            }
        });
        Self {
            identity,
            port,
            agents,
        }
    }

    fn sh(&self, line: &str) -> Client {
        self.rsh(&["-n", "w-0.job.ns.svc", line])
    }

    fn rsh(&self, words: &[&str]) -> Client {
        let mut command = Command::new(AGENT);
        command
            .arg("rsh")
            .args(words)
            .env("TRAINYARD_EXEC", PATH)
            .env("TRAINYARD_IDENTITY", self.identity.path())
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", self.port.to_string());
        Client::start(command)
    }

    fn agent(&self) -> Pid {
        self.agents.lock().unwrap()[0]
    }
}

fn check(
    request: &Request,
    mut response: Response,
    number: usize,
    mood: Mood,
) -> Result<Response, ErrorResponse> {
    let header = |name: &str| request.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!(request.uri(), PATH.replace("{}", "w-0").as_str());
    assert_eq!(header("authorization"), format!("Bearer {TOKEN}"));
    if mood == Mood::Late && number == 0 {
        let body = r#"{"kind":"Status","status":"Failure","message":"pods \"w-0\" not found"}"#;
        let mut refusal = ErrorResponse::new(Some(body.to_owned()));
        *refusal.status_mut() = 404.try_into().unwrap();
        return Err(refusal);
    }
    assert_eq!(
        header("sec-websocket-protocol"),
        "v5.channel.k8s.io, v4.channel.k8s.io"
    );
    let spoken = if mood == Mood::Old {
        "v4.channel.k8s.io"
    } else {
        "v5.channel.k8s.io"
    };
    response
        .headers_mut()
        .insert("Sec-WebSocket-Protocol", spoken.try_into().unwrap());
    Ok(response)
}

fn serve(tcp: TcpStream, tls: Arc<ServerConfig>, number: usize, mood: Mood, agents: &Mutex<Vec<Pid>>) {
    let tls = StreamOwned::new(ServerConnection::new(tls).unwrap(), tcp);
    let accepted = tungstenite::accept_hdr(tls, |request: &Request, response: Response| {
        check(request, response, number, mood)
    });
    let Ok(mut socket) = accepted else { return };
    if mood == Mood::Late && number == 1 {
        let status = r#"{"status":"Failure","message":"no such file or directory"}"#;
        let _ = socket.send(Message::binary([&[3], status.as_bytes()].concat()));
        return;
    }
    let mut agent = Command::new(AGENT)
        .arg("attend")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    agents.lock().unwrap().push(Pid::from_child(&agent));
    socket.send(Message::Ping(b"there?"[..].into())).unwrap();
    carry(socket, &mut agent);
    drop(agent.stdin.take());
    agent.wait().unwrap();
}

/// Carries streams until one side has gone.
fn carry(mut socket: Socket, agent: &mut Child) {
    let output = read(agent.stdout.take().unwrap());
    let mut input = agent.stdin.take().unwrap();
    socket
        .get_ref()
        .sock
        .set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    loop {
        loop {
            match output.try_recv() {
                Ok(data) if socket.send(Message::binary([&[1], &*data].concat())).is_err() => return,
                Ok(_) => {}
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    let _ = socket.send(Message::binary([&[3], &br#"{"status":"Success"}"#[..]].concat()));
                    return;
                }
            }
        }
        match socket.read() {
            Ok(Message::Binary(data)) if data.first() == Some(&0) => {
                if input.write_all(&data[1..]).is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(tungstenite::Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

fn read(mut source: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[rstest]
#[case(Mood::Kind)]
#[case(Mood::Old)]
#[case(Mood::Late)]
fn streams_and_the_code_pass(#[case] mood: Mood) {
    let api = Api::new(mood);
    let mut client = api.rsh(&["w-0.job.ns.svc", "cat; echo wrong >&2; exit 7"]);
    client.write("hello\n");
    drop(client.input.take());
    let (code, out, err) = client.ends();
    assert_eq!(
        (code, &*out, &*err),
        (Some(7), &["hello".to_owned()][..], &["wrong".to_owned()][..])
    );
}

#[test]
fn much_passes_in_both_directions() {
    let api = Api::new(Mood::Kind);
    let mut client = api.rsh(&[
        "w-0",
        "wc -c; head -c 3000000 /dev/zero | tr '\\0' 'x\\n' | wc -c; seq 200000",
    ]);
    client.write(&"y".repeat(1_500_000));
    drop(client.input.take());
    let (code, out, err) = client.ends();
    assert_eq!((code, out.len()), (Some(0), 200_002), "{err:?}");
    assert_eq!(
        (&*out[0], &*out[1], &*out[200_001]),
        ("1500000", "3000000", "200000")
    );
}

/// As mpirun starts its daemons in all workers.
#[test]
fn many_commands_at_once_all_come_through() {
    const MANY: usize = 64;
    let api = Api::new(Mood::Kind);
    let clients: Vec<_> = (0..MANY)
        .map(|number| {
            let mut client = api.rsh(&["w-0.job.ns.svc", "echo up; cat; echo wrong >&2; exit 7"]);
            client.write(&format!("{number}\n"));
            client
        })
        .collect();
    // None has an end before all have begun.
    for client in &clients {
        assert_eq!(client.out.next(), "up");
    }
    assert_eq!(api.agents.lock().unwrap().len(), MANY);
    for (number, mut client) in clients.into_iter().enumerate() {
        drop(client.input.take());
        let (code, out, err) = client.ends();
        assert_eq!(
            (code, &*out, &*err),
            (Some(7), &[number.to_string()][..], &["wrong".to_owned()][..])
        );
    }
}

#[test]
fn a_signal_reaches_the_command() {
    let api = Api::new(Mood::Kind);
    let client = api.sh("trap 'echo told; exit 5' INT; echo ready; while :; do sleep 0.05; done");
    assert_eq!(client.out.next(), "ready");
    client.process.signal(Signal::INT);
    assert_eq!(client.ends().0, Some(5));
}

#[test]
fn a_client_that_is_killed_takes_its_command_with_it() {
    let api = Api::new(Mood::Kind);
    let client = api.sh("echo $$; sleep 1000");
    let command = Other::from_line(&client.out);
    client.process.signal(Signal::KILL);
    command.goes();
}

#[test]
fn a_daemon_stays_when_its_shell_has_ended() {
    let api = Api::new(Mood::Kind);
    let client = api.sh("setsid sh -c 'echo $$; exec >/dev/null 2>&1 </dev/null; exec sleep 1000' &");
    let daemon = Other::from_line(&client.out);
    assert_eq!(client.ends().0, Some(0));
    let agent = api.agent();
    eventually("the agent goes", || {
        let there = rustix::process::test_kill_process(agent).is_ok();
        if there {
            Err("it is there".to_owned())
        } else {
            Ok(())
        }
    });
    assert!(daemon.exists());
    daemon.kill();
}

#[rstest]
#[case(Signal::KILL, "the connection was closed")]
#[case(Signal::STOP, "nothing was heard from it for 4 s")]
fn an_agent_that_is_lost_is_missed(#[case] signal: Signal, #[case] expected: &str) {
    let api = Api::new(Mood::Kind);
    let client = api.sh("echo $$; exec sleep 1000");
    let command = Other::from_line(&client.out);
    kill_process(api.agent(), signal).unwrap();
    client.fails(&format!("trainyard-agent: w-0.job.ns.svc: {expected}"));
    if signal == Signal::STOP {
        kill_process(api.agent(), Signal::CONT).unwrap();
        command.goes();
    } else {
        // Its container would end with it.
        command.kill();
    }
}

#[test]
fn an_agent_that_is_told_to_end_ends_its_command() {
    let api = Api::new(Mood::Kind);
    let client = api.sh("echo $$; exec sleep 1000");
    let command = Other::from_line(&client.out);
    kill_process(api.agent(), Signal::TERM).unwrap();
    assert_eq!(client.ends().0, Some(143));
    command.goes();
}

#[test]
fn hosts_must_be_pods() {
    let client = Api::new(Mood::Kind).rsh(&["-n", "10.0.0.1", "true"]);
    client.fails("the Kubernetes API knows pods by their names, and 10.0.0.1 is none");
}

#[test]
fn another_server_is_not_trusted() {
    let (api, other) = (Api::new(Mood::Kind), Api::new(Mood::Kind));
    std::fs::copy(
        other.identity.path().join("ca.crt"),
        api.identity.path().join("ca.crt"),
    )
    .unwrap();
    api.sh("true").fails("the Kubernetes API is not who it should be");
}
