//! Keeps `caBundle` of a webhook configuration equal to the authorities of the Secret.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use serde_json::Value;

pub(super) trait WebhookConfiguration {
    /// Returns the names and clients of the webhooks, in order.
    fn clients(&self) -> Vec<(&str, &WebhookClientConfig)>;
}

impl WebhookConfiguration for MutatingWebhookConfiguration {
    fn clients(&self) -> Vec<(&str, &WebhookClientConfig)> {
        let webhooks = self.webhooks.as_deref().unwrap_or_default();
        webhooks
            .iter()
            .map(|webhook| (webhook.name.as_str(), &webhook.client_config))
            .collect()
    }
}

impl WebhookConfiguration for ValidatingWebhookConfiguration {
    fn clients(&self) -> Vec<(&str, &WebhookClientConfig)> {
        let webhooks = self.webhooks.as_deref().unwrap_or_default();
        webhooks
            .iter()
            .map(|webhook| (webhook.name.as_str(), &webhook.client_config))
            .collect()
    }
}

/// Returns the patch that makes all webhooks of a configuration trust `bundle`, or `None` if they
/// do. The server refuses it if the webhook at a position is no longer the one that was seen.
pub(super) fn trust_patch(configuration: &impl WebhookConfiguration, bundle: &str) -> Option<Patch> {
    let mut operations = Vec::new();
    for (position, (name, client)) in configuration.clients().into_iter().enumerate() {
        if client
            .ca_bundle
            .as_ref()
            .is_some_and(|held| held.0 == bundle.as_bytes())
        {
            continue;
        }
        let position = position.to_string();
        operations.push(PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["webhooks", &position, "name"]),
            value: Value::String(name.to_owned()),
        }));
        operations.push(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["webhooks", &position, "clientConfig", "caBundle"]),
            // As the API writes bytes.
            value: serde_json::to_value(ByteString(bundle.as_bytes().to_vec())).ok()?,
        }));
    }
    (!operations.is_empty()).then_some(Patch(operations))
}
