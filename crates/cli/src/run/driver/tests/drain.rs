//! What is waited for when the job has ended, and what is not.

use super::*;

/// Longer than the time that is given to who says nothing and goes on.
const LONG: Duration = Duration::from_secs(3);

/// Lets that time pass at once, after all that happens before has happened.
async fn long_after() {
    tokio::time::pause();
    tokio::time::sleep(LONG).await;
    tokio::time::resume();
}

impl Stage {
    async fn sees(&self, phase: &str) {
        self.until(phase, async || self.shown.phases().contains(&phase))
            .await;
    }

    /// The operator deletes a pod, which its node has not ended yet.
    async fn deletes(&self, index: i32) {
        let name = names::pod("mnist", "worker", index);
        let kindly = DeleteParams::default().grace_period(600);
        self.pods().delete(&name, &kindly).await.unwrap();
    }
}

#[tokio::test]
async fn lines_are_read_to_their_end_however_long_that_takes() {
    let stage = Stage::new(None).await;
    let log = stage.runs(0).await;
    stage.ends(0, 0).await;
    stage.job(json!({"phase": "Succeeded"})).await;
    stage.sees("Succeeded").await;
    say(&log, "first\n");
    long_after().await;
    say(&log, "last\n");
    drop(log);
    let (summary, shown) = stage.end().await;
    assert_eq!(summary.outcome, Outcome::Succeeded);
    assert_eq!(shown.lines(), ["worker-0: first", "worker-0: last"]);
    assert_eq!(summary.notes, ["take care"]);
}

#[tokio::test]
async fn pods_on_their_way_out_have_their_grace_period() {
    let stage = Stage::new(None).await;
    let log = stage.runs(0).await;
    // It has closed its output, and still has to end.
    drop(stage.runs(1).await);
    stage.job(json!({"phase": "Failed"})).await;
    stage.sees("Failed").await;
    stage.deletes(0).await;
    stage.deletes(1).await;
    long_after().await;
    say(&log, "saved\n");
    drop(log);
    stage.hears("worker-0: saved").await;
    stage.removes(0).await;
    long_after().await;
    assert!(!stage.run.is_finished(), "worker 1 is still there");
    stage.removes(1).await;
    let (summary, _) = stage.end().await;
    assert_eq!(summary.outcome, Outcome::Failed);
    assert_eq!(
        summary.notes[1..],
        [
            "the job has ended, and mnist-worker-0, mnist-worker-1 may take the grace period to end; Ctrl-C ends it at once"
        ]
    );
}

#[tokio::test]
async fn an_interrupt_cuts_the_grace_period_short_and_says_what_is_lost() {
    let stage = Stage::new(None).await;
    let _log = stage.runs(0).await;
    stage.job(json!({"phase": "Failed"})).await;
    stage.sees("Failed").await;
    stage.deletes(0).await;
    long_after().await;
    stage.interrupt.unbounded_send(()).unwrap();
    let (summary, shown) = stage.end().await;
    assert_eq!(summary.outcome, Outcome::Failed);
    let items = shown.0.lock().unwrap();
    let said = items.iter().any(
        |item| matches!(item, Item::Trouble { message, .. } if message.starts_with("its log is cut off")),
    );
    assert!(said, "{items:?}");
}

#[tokio::test]
async fn a_pod_that_nobody_ends_is_not_waited_for_however_much_it_says() {
    let stage = Stage::new(None).await;
    let log = stage.runs(0).await;
    stage.job(json!({"phase": "Succeeded"})).await;
    let talk = tokio::spawn(async move {
        while log.unbounded_send(Ok("still here\n".into())).is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    stage.sees("Succeeded").await;
    // However long it talks: nothing else happens meanwhile.
    tokio::time::pause();
    let (summary, _) = stage.end().await;
    talk.abort();
    assert_eq!(summary.outcome, Outcome::Succeeded);
    assert_eq!(
        summary.notes[1..],
        ["worker-0 runs on after the end of the job: what it prints from here on is not shown"]
    );
}
