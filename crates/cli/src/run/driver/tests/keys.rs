//! The size of an elastic job, as keys change it.

use super::*;

fn elastic(sizes: serde_json::Value) -> Plan {
    let mut plan = plan(None);
    plan.job.spec.elastic = serde_json::from_value(sizes).unwrap();
    plan.job.spec.roles[0].replicas = None;
    plan.has_keys = true;
    plan
}

impl Stage {
    async fn target(&self) -> i32 {
        let job = self.jobs().get("mnist").await.unwrap();
        job.spec.elastic.unwrap().replicas
    }

    fn press(&self, keys: &[SizeKey]) {
        for key in keys {
            self.key.unbounded_send(*key).unwrap();
        }
    }
}

impl Recorded {
    fn notes(&self) -> Vec<String> {
        let items = self.0.lock().unwrap();
        let notes = items.iter().filter_map(|item| match item {
            Item::Note(text) => Some(text.clone()),
            _ => None,
        });
        notes.collect()
    }
}

#[tokio::test]
async fn keys_write_the_next_size_within_the_bounds() {
    let sizes =
        json!({"replicas": 2, "minReplicas": 2, "validSizes": {"values": [2, 4, 8]}, "maxReplicas": 6});
    let stage = Stage::start(elastic(sizes), |client| client).await;
    stage.press(&[SizeKey::Fewer]);
    let said = |text: &'static str| {
        let shown = stage.shown.clone();
        async move || shown.notes().iter().any(|note| note.contains(text))
    };
    stage
        .until("there is no smaller one", said("no smaller size than 2"))
        .await;
    assert_eq!(stage.target().await, 2);
    // However fast they come.
    stage.press(&[SizeKey::More, SizeKey::More]);
    stage
        .until("there is no larger one", said("no larger size than 4"))
        .await;
    assert_eq!(stage.target().await, 4);
    stage.press(&[SizeKey::Fewer]);
    stage
        .until("it is smaller", async || stage.target().await == 2)
        .await;
    stage.job(json!({"phase": "Succeeded"})).await;
    stage.end().await;
}

#[tokio::test]
async fn a_key_goes_on_from_what_somebody_else_has_set() {
    let stage = Stage::start(elastic(json!({"replicas": 2})), |client| client).await;
    let patch = Patch::Merge(json!({"spec": {"elastic": {"replicas": 7}}}));
    let jobs = stage.jobs();
    jobs.patch("mnist", &PatchParams::default(), &patch)
        .await
        .unwrap();
    // What comes after it in the watch is shown after it is known.
    stage.job(json!({"phase": "Running"})).await;
    stage
        .until("it is shown", async || stage.shown.phases().contains(&"Running"))
        .await;
    stage.press(&[SizeKey::More]);
    stage
        .until("it is larger", async || stage.target().await == 8)
        .await;
    stage.job(json!({"phase": "Succeeded"})).await;
    stage.end().await;
}

#[tokio::test]
async fn a_job_of_a_fixed_size_says_so() {
    let stage = Stage::new(None).await;
    stage.press(&[SizeKey::More]);
    let said = async || {
        let notes = stage.shown.notes();
        notes.iter().any(|note| note.contains("it has no spec.elastic"))
    };
    stage.until("it is said", said).await;
    stage.job(json!({"phase": "Succeeded"})).await;
    stage.end().await;
}
