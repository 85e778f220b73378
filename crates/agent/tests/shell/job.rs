//! A job: its identity, its servers and its clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trainyard_eventually::{LOOK_INTERVAL, eventually, receive};

/// So many looks are given to a process to end, before it is killed.
const LOOKS_AT_END: u32 = 400;

pub const AGENT: &str = env!("CARGO_BIN_EXE_trainyard-agent");

/// A job, as its identity makes it.
pub struct Job {
    directory: TempDir,
}

impl Job {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(params, authority_key);
        let mut params = CertificateParams::new(vec!["trainyard.job".to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let job = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        job.write("ca.crt", &authority);
        job.write("tls.crt", &certificate);
        job.write("tls.key", &key.serialize_pem());
        job
    }

    /// A stranger that trusts this job, and has a certificate of its own.
    pub fn stranger(&self) -> Self {
        let stranger = Self::new();
        stranger.write("ca.crt", &self.read("ca.crt"));
        stranger
    }

    pub fn identity(&self) -> &Path {
        self.directory.path()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.identity().join(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.identity().join(name), text).unwrap();
    }

    pub fn serve(&self) -> Server {
        self.serve_on(0)
    }

    pub fn serve_on(&self, port: u16) -> Server {
        Server::start(self.serving(port))
    }

    /// The command of a server.
    pub fn serving(&self, port: u16) -> Command {
        let mut command = Command::new(AGENT);
        command.arg("serve").env("TRAINYARD_SHELL_ADDRESS", "127.0.0.1");
        self.configure(command, port)
    }

    /// A client with these words.
    pub fn rsh(&self, server: &Server, words: &[&str]) -> Client {
        let mut command = Command::new(AGENT);
        command.arg("rsh").args(words);
        Client::start(self.configure(command, server.port))
    }

    /// Runs a line, without input.
    pub fn sh(&self, server: &Server, line: &str) -> Client {
        self.rsh(server, &["-n", "localhost", line])
    }

    pub fn configure(&self, mut command: Command, port: u16) -> Command {
        command
            .env("TRAINYARD_IDENTITY", self.identity())
            .env("TRAINYARD_SHELL_PORT", port.to_string());
        command
    }
}

/// A process of a test, which does not survive it.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Waits for its end. Returns its exit code.
    pub fn ends(&mut self) -> Option<i32> {
        eventually("the process ends", || {
            let ended = self.0.try_wait().unwrap();
            ended.map(|status| status.code()).ok_or_else(String::new)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.0.try_wait().unwrap().is_some() {
            return;
        }
        // A server takes its commands with it, if it is told; it may be stopped.
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        for _ in 0..LOOKS_AT_END {
            if self.0.try_wait().unwrap().is_some() {
                return;
            }
            thread::sleep(LOOK_INTERVAL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a stream as they come.
pub struct Lines(Receiver<String>);

impl Lines {
    pub fn of(source: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for line in BufReader::new(source).lines() {
                // After the end of a test nobody wants to know.
                let _ = sender.send(line.unwrap());
            }
        });
        Self(receiver)
    }

    pub fn next(&self) -> String {
        receive("the next line", &self.0).expect("no line comes")
    }

    /// Waits for a line with this text.
    pub fn until(&self, text: &str) -> String {
        loop {
            let line = self.next();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// All lines until the end.
    pub fn rest(&self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = receive(&format!("the end after {:?}", lines.last()), &self.0) {
            lines.push(line);
        }
        lines
    }
}

pub struct Server {
    pub process: Process,
    pub port: u16,
    pub log: Lines,
}

impl Server {
    pub fn start(mut command: Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Process(child);
        let log = Lines::of(process.0.stderr.take().unwrap());
        let line = log.next();
        let address = line.strip_prefix("trainyard-agent: listening on ").expect(&line);
        let address: SocketAddr = address.parse().unwrap();
        Self {
            process,
            port: address.port(),
            log,
        }
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }
}

pub struct Client {
    pub process: Process,
    pub input: Option<ChildStdin>,
    pub out: Lines,
    pub err: Lines,
}

impl Client {
    pub fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let child = &mut process.0;
        Self {
            input: child.stdin.take(),
            out: Lines::of(child.stdout.take().unwrap()),
            err: Lines::of(child.stderr.take().unwrap()),
            process,
        }
    }

    pub fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for its end. Its code, and what it has yet to say.
    pub fn ends(mut self) -> (Option<i32>, Vec<String>, Vec<String>) {
        let (out, err) = (self.out.rest(), self.err.rest());
        (self.process.ends(), out, err)
    }

    /// It must end with this code and one sentence.
    pub fn fails(self, sentence: &str) {
        let (code, out, err) = self.ends();
        assert_eq!((code, &*out), (Some(255), &[][..]), "{err:?}");
        assert_eq!(err.len(), 1, "{err:?}");
        assert!(err[0].contains(sentence), "{err:?}");
    }
}
