//! The rules for amounts of resources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::at::At;
use super::{FieldError, label_key_problem};
use crate::quantity::Amount;

/// Resources of which a container may use more than it asks for.
const ELASTIC: &[&str] = &["cpu", "memory", "ephemeral-storage"];

/// The rules for what a container asks for.
pub(super) fn check(at: &At<'_>, resources: &ResourceRequirements, errors: &mut Vec<FieldError>) {
    let lists = [("limits", &resources.limits), ("requests", &resources.requests)];
    for (list, amounts) in lists {
        let at = at.field(list);
        for (name, quantity) in amounts.iter().flatten() {
            named(&at.key(name), name, quantity, errors);
        }
    }
    let none = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let at = at.field("requests");
    for (name, quantity) in resources.requests.iter().flatten() {
        let limit = limits.get(name);
        if let Some(problem) = unlike(name, quantity, limit) {
            errors.push(at.key(name).error(problem));
        }
    }
}

/// The rules for one amount by itself.
pub(super) fn amount(at: &At<'_>, quantity: &Quantity, errors: &mut Vec<FieldError>) -> Option<Amount> {
    let text = &quantity.0;
    match Amount::parse(text) {
        Some(amount) if amount.is_negative() => {
            errors.push(at.error(format!("{text} is less than nothing: give 0 or more")));
            None
        }
        Some(amount) => Some(amount),
        None => {
            let message =
                format!("{text:?} is no amount: write a number with a unit, such as 500m, 2 or 16Gi");
            errors.push(at.error(message));
            None
        }
    }
}

fn named(at: &At<'_>, name: &str, quantity: &Quantity, errors: &mut Vec<FieldError>) {
    let pages = name.starts_with("hugepages-");
    let vendor = name.contains('/') && label_key_problem(name).is_none();
    if !pages && !vendor && !ELASTIC.contains(&name) {
        errors.push(at.error(format!(
            "there is no resource {name:?}: use {}, hugepages-SIZE, or a device by its whole name, such as \
             nvidia.com/gpu",
            ELASTIC.join(", ")
        )));
    }
    let amount = amount(at, quantity, errors);
    if vendor && amount.is_some_and(|amount| !amount.is_whole()) {
        errors.push(at.error(format!(
            "{} is no whole number: devices can't be divided",
            quantity.0
        )));
    }
}

/// What is wrong with a request beside its limit.
fn unlike(name: &str, request: &Quantity, limit: Option<&Quantity>) -> Option<String> {
    let elastic = ELASTIC.contains(&name);
    let Some(limit) = limit else {
        return (!elastic).then(|| format!("{name} needs a limit of the same size: write it under limits"));
    };
    // What can't be read has been said.
    let (asked, most) = (Amount::parse(&request.0)?, Amount::parse(&limit.0)?);
    let (request, limit) = (&request.0, &limit.0);
    if asked > most {
        Some(format!(
            "{request} is more than the limit of {limit}: lower it, or raise the limit"
        ))
    } else if !elastic && asked != most {
        Some(format!(
            "{request} is less than the limit of {limit}: {name} needs both to be the same"
        ))
    } else {
        None
    }
}
