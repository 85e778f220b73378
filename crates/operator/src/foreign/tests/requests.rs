//! A kind of requests: its objects own requests of ours.

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use trainyard_api::{ScaleIn, ScaleKind};
use trainyard_core::foreign::NewRequest;

use super::*;

pub(crate) static TOY_REQUEST: Toy = Toy {
    child: ChildKind::Request(ScaleKind::ScaleIn),
    plan: plan_request,
};

/// Its objects own a ScaleIn, and say in their status which phase it is in.
fn plan_request(view: &ForeignView<'_>) -> ForeignPlan {
    let Child::Request { request, job } = view.child else {
        let request = NewRequest::ScaleIn(ScaleIn::default());
        return ForeignPlan {
            child: ChildAction::CreateRequest(Box::new(request)),
            ..ForeignPlan::default()
        };
    };
    let is_known = view.object.pointer("/metadata/ownerReferences").is_some();
    let owner = OwnerReference {
        uid: "j".to_owned(),
        ..OwnerReference::default()
    };
    let phase = request.status.phase.map(|phase| json!(phase)).unwrap_or_default();
    let news = view.object.pointer("/status/phase") != Some(&phase);
    ForeignPlan {
        owners: (job.is_some() && !is_known)
            .then_some(owner)
            .into_iter()
            .collect(),
        status: news.then(|| json!({"phase": phase})),
        ..ForeignPlan::default()
    }
}

const SCALE_INS: &str = "/apis/trainyard.dev/v1alpha1/namespaces/ns/scaleins";
const OBJECT: &str = "/apis/toys.example/v1/namespaces/ns/toys/a";

/// Shows the request of ours, in a phase.
fn show_request(controller: &Controller<ForeignReconciler>, version: u64, phase: &str) {
    let request = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "r", "resourceVersion": version.to_string()},
        "spec": {"jobRef": {"name": "mnist"}, "toDelete": {"count": 1}},
        "status": {"phase": phase},
    });
    let requests = &controller.reconciler.requests;
    requests
        .apply(ScaleKind::ScaleIn, &request.to_string(), 0, Source::Watch)
        .unwrap();
}

fn show_job(controller: &Controller<ForeignReconciler>) {
    let job = json!({
        "metadata": {"name": "mnist", "namespace": "ns", "uid": "c", "resourceVersion": "50"},
        "spec": {"framework": {"name": "custom"}, "roles": []},
    });
    let job = JobObject::decode(&job.to_string()).unwrap();
    controller.reconciler.context.index.apply_job(job, Source::Watch);
}

#[tokio::test]
async fn an_object_owns_a_request_and_follows_it() {
    let server = Server::default();
    let (controller, _) = controller_of(&TOY_REQUEST, &server);
    let mut changes = controller.reconciler.requests.listen(ScaleKind::ScaleIn);
    show(&controller, 10, &json!({}));
    look(&controller).await;
    look(&controller).await;
    assert_eq!(server.written(), [(Method::POST, SCALE_INS.to_owned())], "once");
    // A TrainingJob of this name has nothing to do with it.
    show_child(&controller);
    show_request(&controller, 60, "Created");
    assert_eq!(changes.try_recv().unwrap(), key(), "it is reconciled then");
    look(&controller).await;
    assert_eq!(server.written(), [(Method::PUT, format!("{OBJECT}/status"))]);
    look(&controller).await;
    assert_eq!(server.written(), []);
}

#[tokio::test]
async fn an_object_gets_an_owner_as_it_was_seen() {
    let server = Server::default();
    let (controller, _) = controller_of(&TOY_REQUEST, &server);
    show(&controller, 10, &json!({"status": {"phase": "Created"}}));
    show_request(&controller, 60, "Created");
    show_job(&controller);
    assert!(
        matches!(look(&controller).await, Requeue::At(_)),
        "the status may follow"
    );
    let (method, path, change) = server.writes.lock().last().unwrap().clone();
    assert_eq!((method, &*path), (Method::PATCH, OBJECT));
    assert_eq!(change["metadata"]["resourceVersion"], "10");
    assert_eq!(change["metadata"]["ownerReferences"][0]["uid"], "j");
}
