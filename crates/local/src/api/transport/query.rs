//! Query parameters.

use crate::api::error::StatusError;
use crate::api::status;

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(super) struct Query {
    pub(super) label_selector: Option<String>,
    pub(super) field_selector: Option<String>,
    pub(super) watch: bool,
    pub(super) resource_version: String,
    pub(super) exact: bool,
    pub(super) limit: Option<usize>,
    pub(super) more: Option<String>,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) bookmarks: bool,
    pub(super) initial_events: bool,
    pub(super) dry_run: bool,
    pub(super) strict: bool,
    pub(super) grace_period_seconds: Option<i64>,
    pub(super) propagation_policy: Option<String>,
    pub(super) container: Option<String>,
    pub(super) follow: bool,
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) tail_lines: Option<u64>,
    pub(super) since_seconds: Option<i64>,
    pub(super) since_time: Option<String>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl Query {
    pub(super) fn read(query: &str) -> Result<Self, StatusError> {
        let mut read = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            read.take(&name, &value)?;
        }
        Ok(read)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), StatusError> {
        let flag = matches!(value, "true" | "1");
        let text = || Some(value.to_owned()).filter(|value| !value.is_empty());
        match name {
            "labelSelector" => self.label_selector = text(),
            "fieldSelector" => self.field_selector = text(),
            "watch" => self.watch = flag,
            "resourceVersion" => value.clone_into(&mut self.resource_version),
            "resourceVersionMatch" => self.exact = value == "Exact",
            "limit" => self.limit = number(name, value)?.filter(|limit| *limit > 0),
            "continue" => self.more = text(),
            "timeoutSeconds" => self.timeout_seconds = number(name, value)?,
            "allowWatchBookmarks" => self.bookmarks = flag,
            "sendInitialEvents" => self.initial_events = flag,
            "dryRun" if value == "All" => self.dry_run = true,
            "dryRun" if !value.is_empty() => {
                return Err(status::bad_request(format!(
                    "dryRun: {value:?} is not possible: only \"All\" is"
                )));
            }
            "fieldValidation" => self.strict = value == "Strict",
            "gracePeriodSeconds" => self.grace_period_seconds = number(name, value)?,
            "propagationPolicy" => self.propagation_policy = text(),
            "container" => self.container = text(),
            "follow" => self.follow = flag,
            "previous" => self.previous = flag,
            "timestamps" => self.timestamps = flag,
            "tailLines" => self.tail_lines = number(name, value)?,
            "sinceSeconds" => self.since_seconds = number(name, value)?,
            "sinceTime" => self.since_time = text(),
            "limitBytes" => self.limit_bytes = number(name, value)?,
            "command" => self.command.push(value.to_owned()),
            "stdin" => self.stdin = flag,
            "stdout" => self.stdout = flag,
            "stderr" => self.stderr = flag,
            "tty" => self.tty = flag,
            _ => {}
        }
        Ok(())
    }

    /// The requested version; None for the latest.
    pub(super) fn version(&self) -> Result<Option<u64>, StatusError> {
        match self.resource_version.as_str() {
            "" | "0" => Ok(None),
            version => version.parse().map(Some).map_err(|_| {
                status::bad_request(format!(
                    "resourceVersion: {version:?} is no version of this server's"
                ))
            }),
        }
    }
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<Option<N>, StatusError> {
    if value.is_empty() {
        return Ok(None);
    }
    let number = value.parse().map(Some);
    number
        .map_err(|_| status::bad_request(format!("{name}: {value:?} is not a number that is possible here")))
}
