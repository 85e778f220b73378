//! What an agent of the last release is told: requests and answers that were recorded in the
//! contract's tests.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

use super::lines::Served;
use super::*;

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../../../../contract/tests/v1/", $name))
    };
}

/// Asks as the launcher of the first job did. Reads until the answer has so many lines, or to its
/// end.
async fn replay(served: &Served, request: &str, lines: usize) -> (String, impl AsyncReadExt + Unpin) {
    let mut stream = BufReader::new(served.connect().await);
    let token = served.world.token("a-launcher-0");
    let request = request.replace("{host}", "observer").replace("{token}", &token);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    read_lines(&mut stream, &mut answer, lines).await;
    (answer, stream)
}

/// Reads on until there are so many lines below the head.
async fn read_lines(stream: &mut (impl AsyncReadExt + Unpin), answer: &mut String, lines: usize) {
    let has_all = |answer: &str| {
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        body.lines().filter(|line| !line.is_empty()).count() >= lines && body.ends_with('\n')
    };
    while !has_all(answer) {
        let byte = timeout(HANG_LIMIT, stream.read_u8()).await.unwrap();
        answer.push(char::from(byte.unwrap()));
    }
}

fn status(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

/// Whether an agent that knows what was recorded gets all of that from today's answer. Sentences
/// are for people.
fn assert_understood(today: &str, recorded: &str) {
    let (head, body) = today.split_once("\r\n\r\n").unwrap();
    let (recorded_head, recorded_body) = recorded.split_once("\r\n\r\n").unwrap();
    assert_eq!(status(head), status(recorded_head));
    // What is below the head would be no lines.
    assert!(!head.contains("transfer-encoding"), "{head}");
    let lines = |body: &str| -> Vec<Value> {
        let lines = body.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (today, recorded) = (lines(body), lines(recorded_body));
    assert_eq!(today.len(), recorded.len(), "{today:?}");
    for (today, recorded) in today.iter().zip(&recorded) {
        assert_includes(today, recorded);
    }
}

/// New fields are no harm.
fn assert_includes(today: &Value, recorded: &Value) {
    match (today, recorded) {
        (Value::Object(today), Value::Object(recorded)) => {
            for (name, recorded) in recorded {
                let today = &today[name];
                if name == "message" {
                    assert!(today.is_string(), "{today}");
                } else {
                    assert_includes(today, recorded);
                }
            }
        }
        (Value::Array(today), Value::Array(recorded)) => {
            assert_eq!(today.len(), recorded.len());
            today
                .iter()
                .zip(recorded)
                .for_each(|(today, recorded)| assert_includes(today, recorded));
        }
        _ => assert_eq!(today, recorded),
    }
}

#[tokio::test]
async fn an_agent_of_version_1_is_told_when_to_start() {
    let served = Served::new().await;
    let (mut answer, mut stream) = replay(&served, recorded!("start.request"), 1).await;
    served.world.pod("a", "worker-0", "Running", 20);
    served.world.pod("a", "worker-1", "Running", 21);
    read_lines(&mut stream, &mut answer, 2).await;
    assert_understood(&answer, recorded!("start.answer"));
}

#[tokio::test]
async fn an_agent_of_version_1_is_told_that_it_waits_in_vain() {
    let served = Served::new().await;
    served.world.pod("a", "worker-0", "Failed", 20);
    let failed = json!({"phase": "Running", "roles": [{"name": "worker", "phase": "Failed"}]});
    served.world.job("a", &failed, 30);
    let (answer, _) = replay(&served, recorded!("start.request"), 1).await;
    assert_understood(&answer, recorded!("never.answer"));
}

#[tokio::test]
async fn an_agent_of_version_1_is_told_which_hosts_there_are() {
    let served = Served::new().await;
    let (mut answer, mut stream) = replay(&served, recorded!("hosts.request"), 1).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    served.world.pod_with("a", "worker-0", "Running", &ready, 20);
    read_lines(&mut stream, &mut answer, 2).await;
    assert_understood(&answer, recorded!("hosts.answer"));
}

#[tokio::test]
async fn an_agent_of_version_1_reports_progress() {
    let served = Served::new().await;
    let (answer, _) = replay(&served, recorded!("progress.request"), 0).await;
    assert_understood(&answer, recorded!("progress.answer"));
    let (_, job) = served
        .world
        .response("/v1/jobs/ns/a", Some(&served.world.token("a-launcher-0")))
        .await;
    let job: Value = serde_json::from_str(&job).unwrap();
    let expected = json!({"step": 3, "total": 10, "metrics": {"loss": "0.25", "lr": "NaN"}});
    assert_eq!(job["progress"], expected);
}

#[tokio::test]
async fn an_agent_of_version_1_is_sent_to_another_replica() {
    let served = Served::serve(World::led(true, false), 8).await;
    let (answer, _) = replay(&served, recorded!("progress.request"), 1).await;
    assert_eq!(status(&answer), status(recorded!("misdirected.answer")));
}
