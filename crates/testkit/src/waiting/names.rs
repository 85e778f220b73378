//! Host names that resolve to addresses of a test.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

/// Mounts a file over /etc/hosts and waits for the end of its input.
const HOLD_SCRIPT: &str = r#"mount --bind "$1" /etc/hosts && echo done && exec cat"#;

/// A mount namespace in which a host name resolves to some addresses.
pub struct HostNames {
    holder: Child,
    _hosts: NamedTempFile,
}

impl HostNames {
    /// The addresses are tried in this order.
    pub fn new(host: &str, addresses: &[Ipv4Addr]) -> Result<Self> {
        let mut hosts = NamedTempFile::new()?;
        writeln!(hosts, "127.0.0.1 localhost")?;
        for address in addresses {
            writeln!(hosts, "{address} {host}")?;
        }
        let mut command = Command::new("unshare");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let mut holder = command
            .args(["--mount", "--", "sh", "-c", HOLD_SCRIPT, "sh"])
            .arg(hosts.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start unshare (util-linux)")?;
        let mut said = String::new();
        let out = holder.stdout.take().context("no output")?;
        BufReader::new(out).read_line(&mut said)?;
        let names = Self {
            holder,
            _hosts: hosts,
        };
        ensure!(
            said == "done\n",
            "names need a mount namespace of their own, which this machine does not give"
        );
        Ok(names)
    }

    /// A command in this namespace. Its process id is that of the program.
    pub fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount"]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(program);
        command
    }
}

impl Drop for HostNames {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
