//! Deletions that are denied.

use super::*;

#[tokio::test]
async fn a_deletion_that_is_denied_changes_nothing() {
    for (code, message) in [
        (409, "admission webhook \"w\" denied the request: not now"),
        (404, "admission webhook \"w\" denied the request: not now"),
        (409, "Operation cannot be fulfilled on resourcequotas"),
        (403, "pods \"a-w-0\" is forbidden"),
    ] {
        let server = Server::new(move |_, _| Some(status(code, "Conflict", message)));
        let row = serde_json::from_value(pod("a-w-0", Some("u1"))).unwrap();
        server.index.apply_pod(row, Source::Watch);
        let action = Action::DeletePod {
            name: "a-w-0".into(),
            uid: "uid-a-w-0".into(),
            force: false,
        };
        let done = server
            .writer
            .act(server.target(), &job(), vec![action.clone()])
            .await;
        assert_eq!((done.acted, done.error), (0, None), "{code} {message}");
        assert!(matches!(&done.unsuccessful[..], [(failed, Some(_))] if *failed == action));
        assert_eq!(server.pods(), [("uid-a-w-0".to_owned(), false)]);
    }
}
