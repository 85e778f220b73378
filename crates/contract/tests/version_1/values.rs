//! Names, places and numbers.

use serde_json::{Value, json};
use trainyard_contract::directories::{agent, drain, identity, mpi, progress};
use trainyard_contract::{VERSION, environment, installation, modes, observer, script, shell, start};

#[test]
fn are_what_they_were() {
    let recorded: Value = serde_json::from_str(recorded!("values.json")).unwrap();
    let today = json!({
        "annotations": {start::ANNOTATION_START: start::START_NOW},
        "audience": observer::AUDIENCE,
        "certificate name": shell::CERTIFICATE_NAME,
        "exit code of a wait in vain": start::WAITED_IN_VAIN,
        "files": {
            "agent": [agent::DIRECTORY, agent::paths::TOKEN, agent::paths::ANNOTATIONS],
            "drain": [
                drain::DIRECTORY,
                drain::paths::LEAVE,
                drain::paths::ACKNOWLEDGED,
                drain::paths::CHECKPOINT,
            ],
            "identity": [
                identity::DIRECTORY,
                identity::paths::AUTHORITY,
                identity::paths::CERTIFICATE,
                identity::paths::KEY,
                identity::paths::TOKEN,
            ],
            "mpi": [
                mpi::DIRECTORY,
                mpi::paths::PROGRAM,
                mpi::paths::SHELL,
                mpi::paths::PDSH,
                mpi::paths::SSH,
                mpi::paths::DISCOVERY,
                mpi::paths::USABLE,
                mpi::paths::HOST_FILE,
                mpi::paths::FILES,
            ],
            "progress": [progress::DIRECTORY, progress::paths::LINES],
            "unfinished": installation::UNFINISHED,
        },
        "limits of a report": {
            "body": observer::MAX_BODY,
            "metrics": observer::MAX_METRICS,
            "name": observer::MAX_NAME,
            "number": observer::MAX_NUMBER,
        },
        "modes": [
            modes::WAIT,
            modes::INSTALL,
            modes::HOSTS,
            modes::PROGRESS,
            modes::SERVE,
            modes::RUN,
            modes::RUN_SERVE,
            modes::ATTEND,
            modes::STAY,
            modes::DRAIN,
        ],
        "observer": {
            "drain": observer::drain("ns", "a"),
            "heartbeat seconds": observer::HEARTBEAT_INTERVAL.as_secs(),
            "idle seconds": observer::IDLE_TIMEOUT.as_secs(),
            "job": observer::job("ns", "a"),
            "not leading": observer::NOT_LEADING,
            "script": observer::script("ns", "a"),
            "type": observer::LINES_TYPE,
            "upgrade": observer::LINES,
        },
        "script": {"order": script::MAX_ORDER, "output": script::MAX_OUTPUT},
        "shell": {
            "port": shell::PORT,
            "silence seconds": [shell::IDLE_TIMEOUT_SECONDS.start(), shell::IDLE_TIMEOUT_SECONDS.end()],
        },
        "variables": [
            environment::OBSERVER,
            environment::AUTHORITY,
            environment::NAMESPACE,
            environment::JOB,
            environment::ROLE,
            environment::INSTALL,
            environment::HOSTS,
            environment::PROGRESS_FILE,
            environment::PROGRESS,
            environment::IDENTITY,
            environment::SHELL_PORT,
            environment::SHELL_IDLE_TIMEOUT,
            environment::EXEC,
            environment::SSH,
            environment::DRAIN_DIRECTORY,
            environment::DRAIN,
            environment::DRAIN_SILENTLY,
            environment::SCRIPTS,
        ],
    });
    assert_eq!(today, recorded);
}

/// A later version gets a directory of recordings and tests of its own, beside these.
#[test]
fn belong_to_this_version() {
    assert_eq!(VERSION, 1);
}
