//! A HorizontalPodAutoscaler that sets the size of a job, which only a real cluster has. It goes by
//! a metric that the test serves.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};
use trainyard_testkit::lab::{Lab, Role, Scenarios, job};
use trainyard_testkit::scenarios;

pub const SCENARIOS: Scenarios = scenarios!(
    "autoscaler",
    &[],
    [an_autoscaler_has_a_job_grow_and_shrink_through_its_scale,]
);

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "external.metrics.k8s.io/v1beta1";
const METRIC: &str = "queued";
/// How much of the metric one pod is for.
const PER_POD: i32 = 10;

/// Serves one metric, as a server of external metrics does.
struct Metrics {
    value: Arc<AtomicI32>,
    address: SocketAddr,
}

impl Metrics {
    fn serve(host: &str) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (config, value) = (tls(), Arc::new(AtomicI32::new(PER_POD)));
        let served = value.clone();
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, served) = (config.clone(), served.clone());
                // Whoever asks asks again.
                thread::spawn(move || answer(stream, config, &served).ok());
            }
        });
        Self { value, address }
    }

    fn set(&self, value: i32) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// A certificate that nobody checks.
fn tls() -> Arc<ServerConfig> {
    let directory = tempfile::tempdir().unwrap();
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=metrics -keyout \
                   key.pem -out cert.pem";
    let made = Command::new("openssl")
        .args(request.split_whitespace())
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let certificate = CertificateDer::from_pem_file(directory.path().join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.path().join("key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(config.unwrap())
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>, value: &AtomicI32) -> anyhow::Result<()> {
    let stream = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = request.split([' ', '?']).nth(1).unwrap_or_default();
    let (code, body) = match body(path, value.load(Ordering::Relaxed)) {
        Some(body) => ("200 OK", body.to_string()),
        None => ("404 Not Found", "{}".to_owned()),
    };
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.conn.send_close_notify();
    Ok(stream.flush()?)
}

fn body(path: &str, value: i32) -> Option<Value> {
    let rest = path.strip_prefix(&format!("/apis/{VERSION}"))?;
    if rest.is_empty() {
        return Some(
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": []}),
        );
    }
    rest.ends_with(&format!("/{METRIC}")).then(|| {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let item =
            json!({"metricName": METRIC, "metricLabels": {}, "timestamp": time, "value": value.to_string()});
        json!({"kind": "ExternalMetricValueList", "apiVersion": VERSION, "metadata": {}, "items": [item]})
    })
}

/// The metric as a part of the API, until this is dropped: with a part that does not answer,
/// namespaces can't be deleted.
struct Registration<'a> {
    lab: &'a Lab,
    name: String,
}

impl<'a> Registration<'a> {
    fn of(lab: &'a Lab, metrics: &Metrics) -> Self {
        let name = format!("v1beta1.{GROUP}");
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": metrics.address.ip().to_string()},
        });
        lab.apply(&service.to_string()).unwrap();
        let part = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name},
            "spec": {
                "group": GROUP,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"namespace": lab.namespace, "name": "metrics", "port": metrics.address.port()},
            },
        });
        create(lab, &part);
        let registration = Self { lab, name };
        lab.until("the metric is served", || {
            let path = format!("/apis/{VERSION}/namespaces/{}/{METRIC}", lab.namespace);
            let found = lab.cluster().kubectl(&["get", "--raw", &path], None);
            found.map_err(|error| format!("{error:#}"))
        });
        registration
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let delete = ["delete", "apiservice", &self.name];
        // The test has failed where this fails.
        let _ = self.lab.cluster().kubectl(&delete, None);
    }
}

fn create(lab: &Lab, manifest: &Value) {
    let create = ["create", "-n", &lab.namespace, "-f", "-"];
    lab.cluster()
        .kubectl(&create, Some(&manifest.to_string()))
        .unwrap();
}

/// Waits until the autoscaler has written a target, and the job has that size.
fn wait_for_size(lab: &Lab, replicas: i32) {
    lab.until(&format!("the autoscaler makes it {replicas} pods"), || {
        let job = lab.get("tj search");
        let status = &job["status"];
        let is_so = job["spec"]["elastic"]["replicas"] == replicas
            && status["replicas"] == replicas
            && status["scaling"].is_null()
            && status["phase"] == "Running";
        let get = [
            "get",
            "hpa",
            "search",
            "-n",
            &lab.namespace,
            "-o",
            "jsonpath={.status}",
        ];
        let autoscaler = lab.cluster().kubectl(&get, None);
        is_so
            .then_some(())
            .ok_or_else(|| format!("{status}; {autoscaler:?}"))
    });
}

fn an_autoscaler_has_a_job_grow_and_shrink_through_its_scale() {
    let (lab, _operator) = Lab::with_operator("autoscaler");
    let host = lab.cluster().state().host_address.clone().unwrap();
    let metrics = Metrics::serve(&host);
    let _registration = Registration::of(&lab, &metrics);

    let workers = [Role::worker(1, "sleep 600")];
    let more = r#"{"elastic": {"replicas": 1, "minReplicas": 1, "maxReplicas": 4}}"#;
    let mut manifest: Value = serde_json::from_str(&job("search", "custom", &workers, more)).unwrap();
    manifest["spec"]["roles"][0]
        .as_object_mut()
        .unwrap()
        .remove("replicas");
    lab.apply(&manifest.to_string()).unwrap();
    lab.wait_for_phase("search", "Running");

    let autoscaler = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "search"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "search"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": METRIC},
                "target": {"type": "AverageValue", "averageValue": PER_POD.to_string()},
            }}],
            // It would wait five minutes.
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    });
    create(&lab, &autoscaler);
    metrics.set(3 * PER_POD);
    wait_for_size(&lab, 3);
    assert_eq!(
        lab.pods("search"),
        ["search-worker-0", "search-worker-1", "search-worker-2"]
    );

    metrics.set(PER_POD);
    wait_for_size(&lab, 1);
    lab.until("those that leave are gone", || {
        let pods = lab.pods("search");
        (pods == ["search-worker-0"])
            .then_some(())
            .ok_or_else(|| format!("{pods:?}"))
    });
}
