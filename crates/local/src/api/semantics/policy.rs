//! RoleBindings, PriorityClasses and disruption budgets.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

use crate::api::Shared;
use crate::api::error::{FieldError, StatusError};
use crate::api::meta;
use crate::api::rules::{Rules, Source, through};
use crate::api::store::Object;

/// The rules of RoleBindings. They apply to pods only: clients in this process may do everything.
pub(crate) struct RoleBindings;

impl Rules for RoleBindings {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<RoleBinding>(source)
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        if new.get("roleRef") == old.get("roleRef") {
            return Vec::new();
        }
        let value = new.get("roleRef").cloned().unwrap_or_default();
        vec![FieldError::invalid("roleRef", &value, "cannot change roleRef")]
    }
}

const MAX_USER_PRIORITY: i64 = 1_000_000_000;

/// The rules of PriorityClasses.
pub(crate) struct PriorityClasses;

impl Rules for PriorityClasses {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<PriorityClass>(source)
    }

    fn default(&self, object: &mut Object) {
        object
            .entry("preemptionPolicy")
            .or_insert_with(|| "PreemptLowerPriority".into());
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        let value = object.get("value").and_then(Value::as_i64).unwrap_or(0);
        if value > MAX_USER_PRIORITY && !meta::text(object, "name").starts_with("system-") {
            let why = format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}");
            return vec![FieldError::forbidden("value", &why)];
        }
        Vec::new()
    }

    fn check_change(&self, new: &Object, old: &Object) -> Vec<FieldError> {
        let changed = ["value", "preemptionPolicy"]
            .into_iter()
            .filter(|name| new.get(*name) != old.get(*name));
        changed
            .map(|name| FieldError::forbidden(name, "may not be changed in an update."))
            .collect()
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["globalDefault"]
    }
}

/// The rules of disruption budgets.
pub(crate) struct Budgets;

impl Rules for Budgets {
    fn shape(&self, source: Source<'_>) -> Result<Object, String> {
        through::<PodDisruptionBudget>(source)
    }

    fn prepare(&self, object: &mut Object, _: &Shared) -> Result<(), StatusError> {
        let numbers = [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ];
        let status = numbers.map(|name| (name.to_owned(), Value::from(0)));
        object.insert("status".into(), Value::Object(status.into_iter().collect()));
        Ok(())
    }

    fn check(&self, object: &Object) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let Some(spec) = object.get("spec").and_then(Value::as_object) else {
            return errors;
        };
        let bounds = ["minAvailable", "maxUnavailable"];
        if bounds.iter().all(|name| spec.contains_key(*name)) {
            errors.push(FieldError::invalid(
                "spec",
                &Value::Object(spec.clone()),
                "minAvailable and maxUnavailable cannot be both set",
            ));
        }
        for name in bounds {
            if let Some((value, why)) = spec
                .get(name)
                .and_then(|value| Some((value, wrong_amount(value)?)))
            {
                errors.push(FieldError::invalid(format!("spec.{name}"), value, why));
            }
        }
        errors
    }
}

/// Why a value is neither a number of pods nor a percentage.
fn wrong_amount(value: &Value) -> Option<&'static str> {
    let Some(text) = value.as_str() else {
        return (value.as_i64()? < 0).then_some("must be greater than or equal to 0");
    };
    let digits = text
        .strip_suffix('%')
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    match digits.map(str::parse::<u64>) {
        None => Some("must be an integer or percentage (e.g '5%')"),
        Some(Ok(0..=100)) => None,
        Some(_) => Some("must not be greater than 100%"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case(json!({"minAvailable": 0}), &[])]
    #[case(json!({"maxUnavailable": "100%"}), &[])]
    #[case(json!({"minAvailable": -1}), &["spec.minAvailable"])]
    #[case(json!({"maxUnavailable": "101%"}), &["spec.maxUnavailable"])]
    #[case(json!({"minAvailable": "half"}), &["spec.minAvailable"])]
    #[case(json!({"minAvailable": 1, "maxUnavailable": 1}), &["spec"])]
    fn a_budget_has_one_sensible_bound(#[case] spec: Value, #[case] fields: &[&str]) {
        let budget = json!({"spec": spec});
        let errors = Budgets.check(budget.as_object().unwrap());
        let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(found, fields);
    }
}
