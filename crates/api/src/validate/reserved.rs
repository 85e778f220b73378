//! Names in pods that users can't take.

use super::FieldError;
use super::at::At;

/// The prefix of the names of all containers and volumes that the operator adds to pods.
const PREFIX: &str = "trainyard-";

/// The rule for the name of a container or a volume; `what` is which of the two it is.
pub(super) fn check_name(at: &At<'_>, what: &str, name: &str, errors: &mut Vec<FieldError>) {
    if name.starts_with(PREFIX) {
        errors.push(at.field("name").error(format!(
            "names that begin with {PREFIX:?} are for what the operator adds to pods: give the {what} another name"
        )));
    }
}
