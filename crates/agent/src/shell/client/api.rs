//! The Kubernetes API, as far as it starts the agent in another pod and carries what the two say.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};

use trainyard_contract::directories::identity::names::{AUTHORITY, TOKEN};
use trainyard_contract::environment::EXEC;
use trainyard_contract::shell::{POD, split_exec_path};

use crate::observer::{authorities, read_token};
use crate::settings::{self, Environment, SettingError};
use crate::shell::error::LinkError;
use crate::shell::link::Link;
use crate::shell::wire::{Exec, Request, Tls};

use super::dial::{ConnectError, Timeouts, dial};

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Where the API is, and what is asked of it.
#[derive(Debug)]
pub struct Api {
    host: String,
    port: u16,
    before: String,
    after: String,
    directory: PathBuf,
}

impl Api {
    /// As the operator has set it; `None` where pods are reached otherwise.
    pub fn read(environment: Environment<'_>, directory: &Path) -> Result<Option<Self>, SettingError> {
        if environment(EXEC).is_none_or(|path| path.is_empty()) {
            return Ok(None);
        }
        let path = settings::required(environment, EXEC)?;
        let Some((before, after)) = split_exec_path(&path) else {
            let problem = format!("must be a path with {POD} for the name of a pod; it is {path:?}");
            return Err(SettingError::Senseless { name: EXEC, problem });
        };
        Ok(Some(Self {
            host: settings::required(environment, HOST)?,
            port: settings::optional(environment, PORT, "a port from 0 to 65535")?.unwrap_or(443),
            before: before.to_owned(),
            after: after.to_owned(),
            directory: directory.to_owned(),
        }))
    }

    /// Has the agent started in a pod, once.
    pub fn attempt(&self, host: &str, timeouts: &Timeouts) -> Result<Link, ConnectError> {
        let pod = pod(host).ok_or_else(|| {
            let why = format!("the Kubernetes API knows pods by their names, and {host} is none");
            ConnectError::Link(LinkError::Refused(why))
        })?;
        let refused = |why: String| LinkError::Refused(why);
        // The kubelet replaces both files from time to time.
        let file = |name: &str| self.directory.join(name);
        let unreadable = |name: &str, error: &dyn std::fmt::Display| {
            refused(format!("{} can't be used: {error}", file(name).display()))
        };
        let token = read_token(&file(TOKEN)).map_err(|error| unreadable(TOKEN, &error));
        let authority =
            std::fs::read_to_string(file(AUTHORITY)).map_err(|error| unreadable(AUTHORITY, &error));
        let tls = authority.and_then(|pem| authorities(&pem).map_err(|error| unreadable(AUTHORITY, &error)));
        let (token, tls) = token
            .and_then(|token| Ok((token, tls?)))
            .map_err(ConnectError::Link)?;
        let tcp = dial(&self.host, self.port, timeouts)?;
        let deadline = Instant::now() + timeouts.handshake;
        // An agent that speaks TLS has another certificate than the API, and other reasons to be
        // refused.
        let of_api = |error: LinkError| match error {
            LinkError::Tls(error) => refused(format!("the Kubernetes API is not who it should be: {error}")),
            other => other,
        };
        let open = || {
            let name = ServerName::try_from(self.host.clone())
                .map_err(|error| LinkError::Io(io::Error::other(error)))?;
            let tls = ClientConnection::new(tls, name).map_err(LinkError::Tls)?;
            let tls = Tls::open(Connection::Client(tls), tcp, deadline)?;
            let request = Request {
                path: &format!("{}{pod}{}", self.before, self.after),
                host: &self.authority(),
                token: &token,
            };
            let exec = Exec::open(tls, &request, deadline)?;
            Link::new(exec, timeouts.idle)
        };
        open().map_err(|error| ConnectError::Link(of_api(error)))
    }

    /// The API as a request names it.
    fn authority(&self) -> String {
        match self.host.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{}", self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The pod of a host: the first part of its name.
fn pod(host: &str) -> Option<&str> {
    let name = host.split('.').next().unwrap_or_default();
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_name = !name.is_empty() && name.bytes().all(is_allowed) && host.parse::<IpAddr>().is_err();
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("sum-worker-0", Some("sum-worker-0"))]
    #[case("sum-worker-0.sum.ns.svc.cluster.local", Some("sum-worker-0"))]
    #[case("10.1.2.3", None)]
    #[case("fd00::1", None)]
    #[case(".", None)]
    #[case("..%2f", None)]
    fn a_pod_is_the_first_part_of_a_name(#[case] host: &str, #[case] expected: Option<&str>) {
        assert_eq!(pod(host), expected);
    }

    fn read(path: &str, host: &str) -> Result<Option<Api>, String> {
        let environment = |name: &str| {
            let value = match name {
                EXEC => path,
                HOST => host,
                _ => "6443",
            };
            (!value.is_empty()).then(|| OsString::from(value))
        };
        Api::read(&environment, Path::new("/x")).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_as_the_operator_says() {
        assert!(read("", "10.0.0.1").unwrap().is_none());
        let api = read("/pods/{}/exec?a=b", "fd00::1").unwrap().unwrap();
        assert_eq!((&*api.before, &*api.after), ("/pods/", "/exec?a=b"));
        assert_eq!(api.authority(), "[fd00::1]:6443");
    }

    #[test]
    fn an_operator_of_version_1_is_understood() {
        let recorded = include_str!("../../../../contract/tests/v1/containers.json");
        let recorded: serde_json::Value = serde_json::from_str(recorded).unwrap();
        let path = recorded["exec"]["launcher/main"]["env"][EXEC].as_str();
        let api = read(path.unwrap(), "10.0.0.1").unwrap().unwrap();
        assert_eq!(api.before, "/api/v1/namespaces/ns/pods/");
        let after = "/exec?container=main&command=/etc/mpi/trainyard-agent&command=attend&";
        assert!(api.after.starts_with(after), "{}", api.after);
    }

    #[rstest]
    #[case(
        "/pods/x/exec",
        "h",
        "TRAINYARD_EXEC must be a path with {} for the name of a pod"
    )]
    #[case(
        "/pods/{}/e xec",
        "h",
        "TRAINYARD_EXEC must be a path with {} for the name of a pod"
    )]
    #[case("/pods/{}/exec", "", "KUBERNETES_SERVICE_HOST is not set")]
    fn nonsense_is_told(#[case] path: &str, #[case] host: &str, #[case] expected: &str) {
        let problem = read(path, host).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    }
}
