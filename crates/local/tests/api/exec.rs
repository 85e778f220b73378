//! Commands in containers, as clients see them: a node that the test plays, and the client that
//! everyone uses.

use std::future::Future;
use std::sync::{Arc, Mutex};

use futures::SinkExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, TerminalSize};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use trainyard_eventually::within;
use trainyard_local::api::{LogOptions, LogStream, NodeAccess, PodRef, Process, Resize, Start};

use crate::support::{create, pod, refused, send, server};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The other ends of a command's streams, and of its end.
struct Command {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
    exit: oneshot::Sender<i32>,
    sizes: UnboundedReceiver<(u16, u16)>,
}

/// A node on which the container `main` runs and others do not.
#[derive(Default)]
struct Stage {
    started: Mutex<Vec<(Vec<String>, Command)>>,
}

impl NodeAccess for Stage {
    fn logs(&self, _: PodRef<'_>, _: &str, _: LogOptions) -> Result<LogStream, String> {
        Err("there are no logs".to_owned())
    }

    fn exec(&self, _: PodRef<'_>, container: &str, command: Vec<String>, on_terminal: bool) -> Option<Start> {
        if container != "main" {
            return None;
        }
        if command == ["nothing"] {
            return Some(Box::pin(async { Err("exec: \"nothing\": not found".to_owned()) }));
        }
        let ((stdin, theirs), (ours_out, stdout), (ours_err, stderr)) = (pipe(), pipe(), pipe());
        let (exit, code) = oneshot::channel();
        let (say, sizes) = unbounded_channel();
        let resize: Resize = Box::new(move |columns, rows| say.send((columns, rows)).unwrap());
        let played = Command {
            stdin: theirs,
            stdout: ours_out,
            stderr: ours_err,
            exit,
            sizes,
        };
        self.started.lock().unwrap().push((command, played));
        let process = Process {
            stdin: Box::pin(stdin),
            stdout: Box::pin(stdout),
            stderr: Box::pin(stderr),
            resize: on_terminal.then_some(resize),
            exit: Box::pin(async { code.await.unwrap_or(-1) }),
        };
        Some(Box::pin(async { Ok(process) }))
    }
}

fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(256)
}

async fn bind(client: &Client, name: &str) {
    let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    let (code, _) = send(client, "POST", &format!("{PODS}/{name}/binding"), binding).await;
    assert_eq!(code, 201);
}

/// A pod `a` on a node, and that node.
async fn stage() -> (Api<Pod>, Client, Arc<Stage>) {
    let server = server();
    let client = server.client("default");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create(&pods, pod("a")).await;
    bind(&client, "a").await;
    let stage = Arc::new(Stage::default());
    server.attach_node("n1", stage.clone());
    (pods, client, stage)
}

fn wanted() -> AttachParams {
    AttachParams::default().stdin(true).stderr(true)
}

async fn started(pods: &Api<Pod>, stage: &Stage, parameters: &AttachParams) -> (AttachedProcess, Command) {
    let attached = pods.exec("a", ["sh", "-c", "a & b"], parameters).await.unwrap();
    let (command, played) = stage.started.lock().unwrap().pop().unwrap();
    assert_eq!(command, ["sh", "-c", "a & b"]);
    (attached, played)
}

async fn all(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut text = String::new();
    within("the end of a stream", stream.read_to_string(&mut text))
        .await
        .unwrap();
    text
}

async fn ended(status: impl Future<Output = Option<Status>>) -> Value {
    let status = within("the end of the command", status).await.unwrap();
    serde_json::to_value(status).unwrap()
}

#[tokio::test]
async fn a_command_has_its_streams_and_its_exit_code() {
    let (pods, _, stage) = stage().await;
    let (mut attached, mut command) = started(&pods, &stage, &wanted()).await;
    let mut stdin = attached.stdin().unwrap();
    stdin.write_all(b"question").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    // That the input ends is told while the outputs are open.
    assert_eq!(all(&mut command.stdin).await, "question");
    let (stdout, stderr) = (attached.stdout().unwrap(), attached.stderr().unwrap());
    // More than is on its way at once.
    let long = "answer ".repeat(50_000);
    let write = async {
        command.stderr.write_all(b"doubt").await.unwrap();
        command.stdout.write_all(long.as_bytes()).await.unwrap();
        drop((command.stdout, command.stderr));
        command.exit.send(3).unwrap();
    };
    let status = attached.take_status().unwrap();
    let (said, doubted, (), status) = tokio::join!(all(stdout), all(stderr), write, ended(status));
    assert_eq!((said == long, doubted.as_str()), (true, "doubt"));
    assert_eq!(
        (&status["status"], &status["reason"]),
        (&json!("Failure"), &json!("NonZeroExitCode"))
    );
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "ExitCode", "message": "3"}])
    );
    within("the end of the connection", attached.join())
        .await
        .unwrap();
}

#[tokio::test]
async fn success_is_told_as_such_and_a_terminal_has_one_output() {
    let (pods, _, stage) = stage().await;
    let parameters = AttachParams::default().stderr(false).tty(true);
    let (mut attached, mut command) = started(&pods, &stage, &parameters).await;
    // Nobody asked for an input, so it has ended from the beginning.
    assert_eq!(all(&mut command.stdin).await, "");
    command.stderr.write_all(b"doubt").await.unwrap();
    drop((command.stdout, command.stderr));
    command.exit.send(0).unwrap();
    assert_eq!(all(attached.stdout().unwrap()).await, "doubt");
    let status = ended(attached.take_status().unwrap()).await;
    assert_eq!(status["status"], "Success");
}

#[tokio::test]
async fn a_terminal_is_as_large_as_its_client_says() {
    let (pods, _, stage) = stage().await;
    let (mut attached, mut command) = started(&pods, &stage, &AttachParams::interactive_tty()).await;
    let mut size = attached.terminal_size().unwrap();
    for (width, height) in [(111, 33), (80, 24)] {
        size.send(TerminalSize { width, height }).await.unwrap();
        let told = within("the size is told", command.sizes.recv()).await;
        assert_eq!(told, Some((width, height)));
    }
}

#[tokio::test]
async fn a_command_ends_with_its_client() {
    let (pods, _, stage) = stage().await;
    let (attached, mut command) = started(&pods, &stage, &wanted()).await;
    drop(attached);
    within("the command is given up", command.exit.closed()).await;
}

#[tokio::test]
async fn a_command_that_can_not_be_started_says_why() {
    let (pods, _, _) = stage().await;
    let mut attached = pods.exec("a", ["nothing"], &wanted()).await.unwrap();
    let status = ended(attached.take_status().unwrap()).await;
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(500), &json!("InternalError"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with("exec: \"nothing\": not found"), "{message}");
}

#[tokio::test]
async fn what_can_not_be_done_is_refused_as_servers_refuse_it() {
    let (pods, client, _) = stage().await;
    let refusal = async |name: &str, container: Option<&str>| {
        let parameters = AttachParams {
            container: container.map(ToOwned::to_owned),
            ..AttachParams::default()
        };
        let status = refused(pods.exec(name, ["ls"], &parameters).await.map(drop));
        (status.code, status.message)
    };
    let mut two = pod("two");
    two["spec"]["containers"] = json!([{"name": "main", "image": "x"}, {"name": "other", "image": "x"}]);
    create(&pods, two).await;
    create(&pods, pod("waits")).await;
    let expected = |code: u16, message: &str| (code, message.to_owned());
    assert_eq!(refusal("b", None).await, expected(404, "pods \"b\" not found"));
    assert_eq!(
        refusal("a", Some("c")).await,
        expected(400, "container c is not valid for pod a")
    );
    assert_eq!(
        refusal("two", None).await,
        expected(
            400,
            "a container name must be specified for pod two, choose one of: [main other]"
        )
    );
    assert_eq!(
        refusal("waits", None).await,
        expected(400, "pod waits does not have a host assigned")
    );
    bind(&client, "two").await;
    assert_eq!(
        refusal("two", Some("other")).await,
        expected(500, "container not found (\"other\")")
    );
    let attach = refused(pods.attach("a", &AttachParams::default()).await.map(drop));
    assert_eq!((attach.code, attach.reason.as_str()), (501, "NotImplemented"));
    let attach = refused(pods.attach("b", &AttachParams::default()).await.map(drop));
    assert_eq!(attach.code, 404);
}

#[rstest]
#[case("POST", "", 400, "Upgrade request required")]
#[case("GET", "", 400, "Upgrade request required")]
#[case("POST", "SPDY/3.1", 400, "WebSocket")]
#[case("GET", "websocket", 400, "v5.channel.k8s.io")]
#[case("PUT", "", 405, "PUT")]
#[tokio::test]
async fn only_websockets_are_spoken(
    #[case] method: &str,
    #[case] upgrade: &str,
    #[case] code: u16,
    #[case] word: &str,
) {
    let (_, client, _) = stage().await;
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{PODS}/a/exec?command=ls&stdout=true"));
    if !upgrade.is_empty() {
        request = request.header("connection", "Upgrade").header("upgrade", upgrade);
    }
    let request = request.body(kube::client::Body::empty()).unwrap();
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), code);
    let body = answer.into_body().collect_bytes().await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert!(body["message"].as_str().unwrap().contains(word), "{body}");
}

/// A command that nobody could talk to is not begun.
#[tokio::test]
async fn an_old_http_can_not_change_to_websockets() {
    let (_, client, stage) = stage().await;
    let request = http::Request::builder()
        .uri(format!("{PODS}/a/exec?command=ls&stdout=true"))
        .version(http::Version::HTTP_10)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .body(kube::client::Body::empty())
        .unwrap();
    let answer = within("an answer", client.send(request)).await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(stage.started.lock().unwrap().is_empty());
}
