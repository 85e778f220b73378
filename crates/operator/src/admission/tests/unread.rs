//! Answers that nobody reads.

use super::*;
use crate::budget::tests::peak_growth;
use crate::budget::{ANSWER, ANSWERS, KIB, MAX_REQUESTS, WEBHOOK_HEAD, WEBHOOK_STREAMS, WEBHOOK_WINDOW};

const STRANGER: [u8; 4] = [127, 0, 0, 1];
const CONNECTIONS: usize = 8;
const REQUESTS: usize = 100;

/// A job with so much wrong that the answer is many times as long as the question.
fn wrong_job() -> Bytes {
    let variables: Vec<Value> = (0..100).map(|_| json!({"name": "="})).collect();
    let mut review = asking(1);
    review["request"]["object"]["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] =
        variables.into();
    Bytes::from(review.to_string())
}

/// Asks on a connection, so many times at once, and reads no answer. Returns what ends when the
/// connection is closed.
async fn ask_and_read_nothing(server: &Server, trusted: &SecretData, body: &Bytes) -> JoinHandle<()> {
    let stream = connect_from(STRANGER, server.address, trusted, "h2")
        .await
        .unwrap();
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // The head of each answer may come, and one byte of the rest.
    client.initial_stream_window_size(1);
    let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
    for _ in 0..REQUESTS {
        let mut sender: SendRequest<Full<Bytes>> = sender.clone();
        let request = Request::post("https://hooks.system.svc/validate").body(Full::new(body.clone()));
        tokio::spawn(async move {
            let answer = sender.send_request(request.unwrap()).await;
            std::future::pending::<()>().await;
            drop(answer);
        });
    }
    tokio::spawn(async move { drop(connection.await) })
}

/// Waits until a stranger has no room left for another answer.
async fn all_is_taken(server: &Server, answer: usize) {
    eventually_async("the stranger's share is taken", async || {
        let left = server.limits.answers_of(STRANGER.into()).left() * KIB;
        if left < answer {
            Ok(())
        } else {
            Err(left.to_string())
        }
    })
    .await;
}

async fn server(read_timeout: Duration) -> (Server, SecretData) {
    let mut limits = Limits::new();
    limits.read_timeout = read_timeout;
    let (server, data) = (start_with(limits).await, certificates());
    server.serving.load(&data).unwrap();
    (server, data)
}

fn answer_to(body: &[u8]) -> usize {
    let (_, answer) = Reviewer::default().review(Hook::Validate, body).unwrap();
    answer.len()
}

/// None of them is given up here: if they held up the API server, it would never be answered.
#[test]
fn they_take_no_more_than_is_counted_and_hold_up_no_api_server() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let body = wrong_job();
    let answer = answer_to(&body);
    assert!(
        answer > 3 * body.len() && CONNECTIONS * REQUESTS * answer > ANSWERS,
        "{answer} bytes"
    );
    let (server, data) = runtime.block_on(server(Duration::from_hours(1)));
    let (growth, connections) = peak_growth(|| {
        runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in 0..CONNECTIONS {
                connections.push(ask_and_read_nothing(&server, &data, &body).await);
            }
            all_is_taken(&server, answer).await;
            connections
        })
    });
    let each = WEBHOOK_WINDOW + WEBHOOK_STREAMS * WEBHOOK_HEAD;
    let counted = ANSWERS / 4 + MAX_REQUESTS / 4 * ANSWER + CONNECTIONS * each;
    assert!(growth <= counted, "{} of {} KiB", growth / KIB, counted / KIB);
    runtime.block_on(async {
        let mut api_server = Client::new(&server, &data, [127, 0, 0, 2]).await;
        assert!(api_server.asks().await);
        assert!(connections.iter().all(|connection| !connection.is_finished()));
    });
}

#[tokio::test]
async fn their_connection_is_closed_and_the_room_is_free_again() {
    let body = wrong_job();
    let (server, data) = server(Duration::from_secs(1)).await;
    let connection = ask_and_read_nothing(&server, &data, &body).await;
    timeout(HANG_LIMIT, connection)
        .await
        .expect("it is closed")
        .unwrap();
    eventually_async("the room is free again", async || {
        match server.limits.answers_of(STRANGER.into()).left() * KIB {
            left if left == ANSWERS / 4 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await;
}
