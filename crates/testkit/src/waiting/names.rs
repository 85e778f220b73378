//! Names of hosts that lead where a test wants them to.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

/// Puts a file in the place of the list of hosts, and stays until its input ends, which is when the test does.
const HOLD: &str = r#"mount --bind "$1" /etc/hosts && echo done && exec cat"#;

/// A mount namespace in which a name leads to some addresses. Nothing changes for those who are not started in it.
pub struct Names {
    holder: Child,
    _hosts: NamedTempFile,
}

impl Names {
    /// Has a name lead to these addresses, which are tried in this order.
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
            .args(["--mount", "--", "sh", "-c", HOLD, "sh"])
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

    /// Starts a program where the name leads to the addresses; its process is the one that is started.
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

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
