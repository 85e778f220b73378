//! Creations that are stopped half-way.

use super::*;

const PODS: i32 = 200;

/// Creates pods of a job. The server answers the first request when something has happened.
async fn create_while(
    change: impl Fn(&Index, &CancellationToken) + Send + Sync + 'static,
) -> (Server, ActionResults) {
    let known: Arc<OnceLock<(Arc<Index>, CancellationToken)>> = Arc::default();
    let (told, first) = (known.clone(), OnceLock::new());
    let server = Server::new(move |_, body| {
        if first.set(()).is_ok() {
            let (index, term) = told.get().unwrap();
            change(index, term);
        }
        Some((201, pod(body["metadata"]["name"].as_str().unwrap(), Some("u1"))))
    });
    known.set((server.index.clone(), server.term.clone())).unwrap();
    let done = server.create_pods(PODS).await;
    (server, done)
}

/// The watch tells of a change of the job.
fn changed(change: fn(&mut TrainingJob)) -> impl Fn(&Index, &CancellationToken) + Send + Sync {
    move |index, _| {
        let mut job = job();
        job.metadata.resource_version = Some("8".to_owned());
        change(&mut job);
        index.apply_job(JobObject::Ok(Box::new(job)), Source::Watch);
    }
}

#[tokio::test]
async fn a_job_that_changes_gets_no_more_children() {
    let changes: [fn(&mut TrainingJob); 4] = [
        |job| job.spec.suspend = Some(true),
        |job| job.metadata.generation = Some(2),
        |job| {
            job.metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
        },
        |job| job.metadata.uid = Some("u2".to_owned()),
    ];
    for change in changes {
        let (server, done) = create_while(changed(change)).await;
        assert!(done.outdated && done.error.is_none(), "{done:?}");
        assert_eq!(done.acted, server.asked().len(), "what was begun is ended");
        assert!(done.acted <= IN_FLIGHT, "{}", done.acted);
    }
}

#[tokio::test]
async fn a_job_that_is_gone_gets_no_more_children() {
    let gone = |index: &Index, _: &CancellationToken| {
        index.delete_job(&job().metadata);
    };
    let (server, done) = create_while(gone).await;
    assert!(done.outdated, "{done:?}");
    assert!(server.asked().len() <= IN_FLIGHT);
}

#[tokio::test]
async fn a_change_that_is_not_of_the_spec_stops_nothing() {
    let labelled = changed(|job| job.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
    let (server, done) = create_while(labelled).await;
    assert!(!done.outdated);
    assert_eq!(server.asked().len(), 200);
}

#[tokio::test]
async fn who_does_not_lead_any_more_creates_no_more_children() {
    let (server, done) = create_while(|_, term| term.cancel()).await;
    assert_eq!(done.error, Some(RequestError::NotLeader));
    assert!(server.asked().len() <= IN_FLIGHT);
}
