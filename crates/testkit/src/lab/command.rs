//! Commands in pods.

#![allow(
    clippy::unwrap_used,
    reason = "this is the vocabulary of tests, which fail by panicking"
)]

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, AttachedProcess};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Lab;

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit code.
    pub code: i32,
    /// What it wrote.
    pub stdout: String,
    /// What it wrote as errors.
    pub stderr: String,
}

impl Lab {
    /// Runs a command in a pod. Fails with what the server says of a command that is not run.
    ///
    /// # Panics
    /// If the connection breaks.
    pub fn exec(
        &self,
        pod: &str,
        container: Option<&str>,
        command: &[&str],
        input: &str,
    ) -> Result<Outcome, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let parameters = AttachParams {
            container: container.map(ToOwned::to_owned),
            ..AttachParams::default().stdin(true)
        };
        self.runtime.block_on(async {
            let attached = pods.exec(pod, command.iter().copied(), &parameters).await;
            talk(attached.map_err(|error| error.to_string())?, input).await
        })
    }
}

async fn talk(mut attached: AttachedProcess, input: &str) -> Result<Outcome, String> {
    let mut stdin = attached.stdin().unwrap();
    // A command that is not run does not read.
    drop(stdin.write_all(input.as_bytes()).await);
    drop(stdin.shutdown().await);
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (attached.stdout().unwrap(), attached.stderr().unwrap());
    let (first, second, status) = tokio::join!(
        stdout.read_to_string(&mut out),
        stderr.read_to_string(&mut err),
        attached.take_status().unwrap(),
    );
    first.and(second).unwrap();
    Ok(Outcome {
        code: code(status.unwrap())?,
        stdout: out,
        stderr: err,
    })
}

fn code(status: Status) -> Result<i32, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status
        .details
        .and_then(|details| details.causes)
        .unwrap_or_default();
    let code = causes
        .into_iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message?.parse().ok());
    code.ok_or_else(|| status.message.unwrap_or_default())
}
