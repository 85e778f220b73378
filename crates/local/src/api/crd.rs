//! CustomResourceDefinitions, and the kinds that they define.

mod cel;
mod path;
mod schema;
mod shape;
mod validate;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::Shared;
use super::error::{FieldError, StatusError};
use super::kinds::{CUSTOM_TRAITS, Kind, Scale, Subresources};
use super::meta::{self, member};
use super::rules::{Rules, Source, restore, restore_all_but, typed};
use super::store::Object;
use schema::Schema;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const API_VERSION: &str = "apiextensions.k8s.io/v1";
pub(crate) const PLURAL: &str = "customresourcedefinitions";
/// The finalizer that keeps a definition until all objects of its kind are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The annotation that a definition in a group of Kubernetes needs.
const APPROVED: &str = "api-approved.kubernetes.io";

/// The rules of definitions.
pub(crate) struct DefinitionRules;

impl Rules for DefinitionRules {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        typed::<CustomResourceDefinition>(source)
    }

    fn default(&self, object: &mut Object) {
        let spec = member(object, "spec");
        spec.entry("conversion")
            .or_insert_with(|| json!({"strategy": "None"}));
        let names = member(spec, "names");
        let kind = names
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        names
            .entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
        names
            .entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
    }

    fn prepare(&self, object: &mut Object, shared: &Shared) -> Result<(), StatusError> {
        meta::set_finalizers(object, vec![CLEANUP.to_owned()]);
        let now = meta::time(shared.environment.now());
        let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
        let spec = object.get("spec").cloned().unwrap_or_default();
        let stored: Vec<Value> = versions(&spec)
            .filter(|version| flag(version, "storage"))
            .filter_map(|version| version.get("name").cloned())
            .collect();
        let status = json!({
            "conditions": [
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "acceptedNames": spec.get("names"),
            "storedVersions": stored,
        });
        object.insert("status".into(), status);
        Ok(())
    }

    fn change(&self, new: &mut Object, old: &Object, _: &Shared) -> Result<(), StatusError> {
        // An update must not remove the finalizer that deletes the objects of the kind.
        let waits = |object: &Object| meta::finalizers(object).contains(&CLEANUP);
        if waits(old) && !waits(new) && !meta::is_terminating(old) {
            let mut finalizers: Vec<String> =
                meta::finalizers(new).into_iter().map(ToOwned::to_owned).collect();
            finalizers.push(CLEANUP.to_owned());
            meta::set_finalizers(new, finalizers);
        }
        Ok(())
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        check(object)
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let at =
            |object: &Object, path: &str| object.get("spec").and_then(|spec| spec.pointer(path).cloned());
        let fixed = [
            ("/group", "spec.group"),
            ("/scope", "spec.scope"),
            ("/names/kind", "spec.names.kind"),
        ];
        let changed = fixed
            .into_iter()
            .filter(|(path, _)| at(new, path) != at(old, path));
        changed
            .map(|(path, field)| {
                FieldError::invalid(field, &at(new, path).unwrap_or_default(), "field is immutable")
            })
            .collect()
    }

    fn after(&self, now: Option<&Object>, shared: &Shared) {
        if let Some(definition) = now {
            serve(definition, shared);
        }
    }

    fn release(&self, object: &Object, shared: &Shared) {
        let spec = object.get("spec").cloned().unwrap_or_default();
        shared
            .kinds
            .replace(text(&spec, "/group"), text(&spec, "/names/plural"), Vec::new());
    }
}

fn text<'a>(spec: &'a Value, path: &str) -> &'a str {
    spec.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec.get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool) == Some(true)
}

fn check(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = object.get("spec").cloned().unwrap_or_default();
    let text = |path: &str| text(&spec, path);
    check_group(object, text("/group"), &mut errors);
    let expected = format!("{}.{}", text("/names/plural"), text("/group"));
    if meta::text(object, "name") != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(
            "metadata.name",
            &meta::text(object, "name").into(),
            why,
        ));
    }
    if !matches!(text("/scope"), "Namespaced" | "Cluster") {
        let scopes = ["Cluster", "Namespaced"];
        errors.push(FieldError::unsupported(
            "spec.scope",
            &text("/scope").into(),
            scopes,
        ));
    }
    if versions(&spec).filter(|version| flag(version, "storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &json!([]), why));
    }
    for (at, version) in versions(&spec).enumerate() {
        let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None => errors.push(FieldError::required(path, "schemas are required")),
            Some(schema) => {
                if schema.get("type").and_then(Value::as_str) != Some("object") {
                    errors.push(FieldError::invalid(
                        format!("{path}.type"),
                        &schema["type"],
                        "must be object at the root",
                    ));
                }
                if let Err(why) = Schema::read(schema) {
                    errors.push(FieldError::invalid(path, &"".into(), &why));
                }
            }
        }
    }
    errors
}

/// A group is a DNS name; those of Kubernetes need an annotation.
fn check_group(object: &Object, group: &str, errors: &mut Vec<FieldError>) {
    if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &group.into(),
            "should be a domain with at least one dot",
        ));
    }
    let annotations = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    let approved = annotations.is_some_and(|annotations| annotations.get(APPROVED).is_some());
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    if protected && !approved {
        let field = format!("metadata.annotations[{APPROVED}]");
        errors.push(FieldError::required(
            field,
            "protected groups must have an approval annotation",
        ));
    }
}

fn serve(definition: &Object, shared: &Shared) {
    let spec = definition.get("spec").cloned().unwrap_or_default();
    let text = |path: &str| text(&spec, path);
    let (group, plural) = (text("/group"), text("/names/plural"));
    let table = shared.table_of(&format!("{plural}.{group}"));
    let short_names = spec
        .pointer("/names/shortNames")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let short_names: Vec<String> = short_names
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect();
    let stored_as = versions(&spec).find(|version| flag(version, "storage"));
    let stored_as = stored_as
        .and_then(|version| version.get("name")?.as_str())
        .unwrap_or_default();
    let mut kinds = Vec::new();
    for version in versions(&spec).filter(|version| flag(version, "served")) {
        let schema = version.pointer("/schema/openAPIV3Schema").map(Schema::read);
        // The schema was read when the definition was checked.
        let Some(Ok(schema)) = schema else { continue };
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        let status = version.pointer("/subresources/status").is_some();
        let scale = version.pointer("/subresources/scale").map(|scale| {
            let path = |name: &str| {
                let path = scale.get(name).and_then(Value::as_str);
                path.map(|path| {
                    path.split('.')
                        .filter(|part| !part.is_empty())
                        .map(ToOwned::to_owned)
                        .collect()
                })
            };
            Scale {
                spec_replicas: path("specReplicasPath").unwrap_or_default(),
                status_replicas: path("statusReplicasPath").unwrap_or_default(),
                selector: path("labelSelectorPath"),
            }
        });
        kinds.push(Kind {
            group: group.into(),
            version: name.into(),
            api_version: format!("{group}/{name}").into(),
            stored_as: format!("{group}/{stored_as}").into(),
            kind: text("/names/kind").into(),
            plural: plural.into(),
            singular: text("/names/singular").into(),
            short_names: short_names.clone(),
            namespaced: text("/scope") == "Namespaced",
            subresources: Subresources { status, scale },
            traits: CUSTOM_TRAITS,
            table,
            rules: Arc::new(CustomRules { schema, status }),
        });
    }
    shared.kinds.replace(group, plural, kinds);
}

/// The rules of a custom kind.
struct CustomRules {
    schema: Schema,
    /// Whether the status is a subresource.
    status: bool,
}

impl Rules for CustomRules {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        let Value::Object(mut object) = source.value()? else {
            return Err("it is no object".to_owned());
        };
        for name in ["apiVersion", "kind"] {
            if object
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                return Err(format!("Object '{name}' is missing"));
            }
        }
        shape::prune(&self.schema, &mut object)?;
        Ok(object)
    }

    fn default(&self, object: &mut Object) {
        shape::default(&self.schema, object);
    }

    fn prepare(&self, object: &mut Object, _: &Shared) -> Result<(), StatusError> {
        if self.status {
            object.remove("status");
        }
        Ok(())
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        validate::validate(&self.schema, object, None)
    }

    fn check_update(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        validate::validate(&self.schema, new, Some(old))
    }

    fn change_status(&self, new: &mut Object, old: &Object) {
        restore_all_but(new, old, &["status"]);
        restore(new, old, "metadata");
    }

    fn check_status(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        validate::validate_status(&self.schema, new, old)
    }
}
