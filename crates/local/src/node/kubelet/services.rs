//! Environment variables of Services.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::ListParams;

use super::worker::PodWorker;

/// The Service of the API, whose variables every container gets.
const OF_THE_API: (&str, &str) = ("default", "kubernetes");

impl PodWorker {
    /// The variables of the Services of a pod; empty if cluster IPs do not work here.
    pub(super) async fn service_variables(&self, pod: &Pod) -> Result<Vec<(String, String)>, kube::Error> {
        if !self.shared.has_names() {
            return Ok(Vec::new());
        }
        let client = &self.shared.client;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links);
        let mut services = Vec::new();
        if links != Some(false) {
            let own = Api::<Service>::namespaced(client.clone(), namespace);
            services = own.list(&ListParams::default()).await?.items;
        }
        if links == Some(false) || namespace != OF_THE_API.0 {
            let api = Api::<Service>::namespaced(client.clone(), OF_THE_API.0);
            let found = api.get_opt(OF_THE_API.1).await?;
            // It replaces a Service of the same name.
            if found.as_ref().is_some_and(|found| address(found).is_some()) {
                services.retain(|service| service.metadata.name.as_deref() != Some(OF_THE_API.1));
            }
            services.extend(found);
        }
        Ok(services.iter().flat_map(variables).collect())
    }
}

/// The cluster IP of a Service; None if it is headless.
fn address(service: &Service) -> Option<&str> {
    let address = service.spec.as_ref()?.cluster_ip.as_deref()?;
    (!address.is_empty() && address != "None").then_some(address)
}

fn variables(service: &Service) -> Vec<(String, String)> {
    let Some(address) = address(service) else {
        return Vec::new();
    };
    let name = in_variables(service.metadata.name.as_deref().unwrap_or_default());
    let mut made = vec![(format!("{name}_SERVICE_HOST"), address.to_owned())];
    let mut add = |name: String, value: String| made.push((name, value));
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    for (place, port) in ports.enumerate() {
        let number = port.port.to_string();
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let lower = protocol.to_ascii_lowercase();
        let whole = if address.contains(':') {
            format!("{lower}://[{address}]:{number}")
        } else {
            format!("{lower}://{address}:{number}")
        };
        if place == 0 {
            add(format!("{name}_SERVICE_PORT"), number.clone());
            add(format!("{name}_PORT"), whole.clone());
        }
        if let Some(called) = port.name.as_deref().filter(|called| !called.is_empty()) {
            add(
                format!("{name}_SERVICE_PORT_{}", in_variables(called)),
                number.clone(),
            );
        }
        let link = format!("{name}_PORT_{number}_{}", protocol.to_ascii_uppercase());
        add(format!("{link}_PROTO"), lower);
        add(format!("{link}_PORT"), number);
        add(format!("{link}_ADDR"), address.to_owned());
        add(link, whole);
    }
    made
}

/// A name as part of a variable's name.
fn in_variables(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: &Value) -> Vec<String> {
        let service = json!({"metadata": {"name": "my-web"}, "spec": spec});
        let made = variables(&serde_json::from_value(service).unwrap());
        let mut lines: Vec<String> = made
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_service_has_its_address_and_each_port_has_its_own_variables() {
        let spec = json!({"clusterIP": "10.96.1.2", "ports": [
            {"port": 80, "protocol": "TCP"}, {"name": "more-names", "port": 53, "protocol": "UDP"},
        ]});
        assert_eq!(
            of(&spec),
            [
                "MY_WEB_PORT=tcp://10.96.1.2:80",
                "MY_WEB_PORT_53_UDP=udp://10.96.1.2:53",
                "MY_WEB_PORT_53_UDP_ADDR=10.96.1.2",
                "MY_WEB_PORT_53_UDP_PORT=53",
                "MY_WEB_PORT_53_UDP_PROTO=udp",
                "MY_WEB_PORT_80_TCP=tcp://10.96.1.2:80",
                "MY_WEB_PORT_80_TCP_ADDR=10.96.1.2",
                "MY_WEB_PORT_80_TCP_PORT=80",
                "MY_WEB_PORT_80_TCP_PROTO=tcp",
                "MY_WEB_SERVICE_HOST=10.96.1.2",
                "MY_WEB_SERVICE_PORT=80",
                "MY_WEB_SERVICE_PORT_MORE_NAMES=53",
            ]
        );
    }

    #[test]
    fn a_service_without_an_address_has_none() {
        let ports = json!([{"port": 80}]);
        assert_eq!(of(&json!({"clusterIP": "None", "ports": ports})), [""; 0]);
        assert_eq!(
            of(&json!({"type": "ExternalName", "externalName": "a.example"})),
            [""; 0]
        );
    }
}
