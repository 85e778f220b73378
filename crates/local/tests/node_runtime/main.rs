//! Pods as processes: in namespaces as root and as an ordinary user, on the machine's network, and
//! plain.
//!
//! Each test starts this program again as the process that a user would start, in a yard of its
//! own, and looks at what it says and at what is left of it. `run` below is what that process does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is a test, which Clippy can not see without the usual harness"
)]

mod groups;
mod inside;
mod limits;
mod machine;

use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use machine::{Identity, Run, remains};

fn main() -> ExitCode {
    if let Some(code) = trainyard_local::reenter(std::env::args_os()) {
        return code;
    }
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "run") {
        return inside::main(&arguments[2..]);
    }
    let mut trials = Vec::new();
    for identity in Identity::ALL {
        let mut add = |name: &str, test: fn(Identity)| {
            let test = move || {
                std::panic::catch_unwind(|| test(identity)).map_err(|panic| {
                    let message = panic.downcast_ref::<String>().cloned();
                    let message = message.or(panic.downcast_ref::<&str>().map(ToString::to_string));
                    Failed::from(message.unwrap_or_default())
                })
            };
            let trial = Trial::test(format!("{identity}::{name}"), test);
            trials.push(trial.with_ignored_flag(!identity.is_possible()));
        };
        add("files", files);
        add("network", network);
        add("endings", endings);
        add("failed_start", failed_start);
        add("commands", commands);
        add("rights", rights);
        add("descriptors", descriptors);
        add("program", program);
        add("program_without_file", program_without_file);
        add("signals_and_exit_code", signals_and_exit_code);
        add("nothing_is_left", nothing_is_left);
        add("nothing_is_left_after_kill", nothing_is_left_after_kill);
        add("host_network", host_network);
        add("plain", plain);
        add("limits", limits);
        add("limits_plain", limits_plain);
    }
    let delegated = Trial::test("user::limits_of_a_group_of_their_own", || {
        std::panic::catch_unwind(delegated).map_err(|_| Failed::from("see above"))
    });
    // Only root can give a group away, and only in the first form is that a matter of owners alone.
    trials.push(delegated.with_ignored_flag(!machine::Delegated::is_possible()));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn files(identity: Identity) {
    let run = Run::new(identity);
    std::fs::write(run.home().join("work/input"), "from the machine").unwrap();
    let said = run.to_end(&["files"]);
    assert_eq!(said, "ok\n");
    // What a pod writes to the working directory is written, and nothing else.
    assert_eq!(
        std::fs::read_to_string(run.home().join("work/output")).unwrap(),
        "kept\n"
    );
    assert!(!std::path::Path::new("/trainyard-wrote-this").exists());
    assert!(!run.home().join("elsewhere").exists());
}

fn network(identity: Identity) {
    assert_eq!(Run::new(identity).to_end(&["network"]), "ok\n");
}

fn endings(identity: Identity) {
    assert_eq!(Run::new(identity).to_end(&["endings"]), "ok\n");
}

/// A container whose files could be put together only in part, the working directory among them.
fn failed_start(identity: Identity) {
    let run = Run::new(identity);
    let precious = ["work/precious", "work/deep/down/precious"].map(|name| run.home().join(name));
    std::fs::create_dir_all(run.home().join("work/deep/down")).unwrap();
    for file in &precious {
        std::fs::write(file, "of the user").unwrap();
    }
    let deep = run.home().join("work/deep");
    std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(run.to_end(&["failed_start"]), "ok\n");
    for file in &precious {
        assert_eq!(std::fs::read_to_string(file).unwrap(), "of the user");
    }
    let mode = std::fs::metadata(&deep).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o777, "nobody has changed who may do what there");
}

fn commands(identity: Identity) {
    assert_eq!(Run::new(identity).to_end(&["commands"]), "ok\n");
}

fn rights(identity: Identity) {
    assert_eq!(Run::new(identity).to_end(&["rights"]), "ok\n");
}

/// What was open when the program was started is for itself alone.
fn descriptors(identity: Identity) {
    let run = Run::new(identity);
    std::fs::write(run.home().join("work/secret"), "for the run alone").unwrap();
    for arguments in [&["descriptors"][..], &["--plain", "descriptors"]] {
        assert_eq!(run.to_end_after("exec 9< secret;", arguments), "ok\n");
    }
}

/// Whoever is root in a pod gets hold of this program, and does not change it.
fn program(identity: Identity) {
    let run = Run::new(identity);
    let mode = || std::fs::metadata(run.program()).unwrap().permissions();
    let before = mode();
    let said = run.to_end(&["program"]);
    let after = mode();
    std::fs::set_permissions(run.program(), before.clone()).unwrap();
    assert_eq!((said.as_str(), after), ("ok\n", before));
}

fn program_without_file(identity: Identity) {
    let run = Run::new(identity);
    assert_eq!(run.to_end_without_file(&["program"]), "ok\n");
}

fn limits(identity: Identity) {
    let run = Run::new(identity);
    let said = run.to_end(&["limits"]);
    // Root may write groups nearly everywhere; who may not has no limits, and all else works.
    let possible = said == "enforced\nok\n";
    assert!(possible || said == "not enforced\nok\n", "{said}");
    if possible {
        let mut running = run.start(&["limits_wait"]);
        running.expect("running");
        assert!(!groups::groups(&run.names()).is_empty());
        let names = run.names();
        running.kill();
        assert_eq!(run.to_end(&["commands"]), "ok\n");
        assert_eq!(groups::groups(&names), Vec::<std::path::PathBuf>::new());
    }
}

fn limits_plain(identity: Identity) {
    let enforced = Run::new(identity).to_end(&["limits"]);
    assert_eq!(Run::new(identity).to_end(&["--plain", "limits"]), enforced);
}

fn delegated() {
    let group = machine::Delegated::make();
    let run = Run::new(Identity::User);
    assert_eq!(run.to_end_in(&group, &["limits"]), "enforced\nok\n");
}

fn host_network(identity: Identity) {
    assert_eq!(Run::new(identity).to_end(&["--host", "host_network"]), "ok\n");
}

fn plain(identity: Identity) {
    let run = Run::new(identity);
    assert_eq!(run.to_end(&["--plain", "plain"]), "ok\n");
    let mut running = run.start(&["--plain", "wait"]);
    running.expect("running");
    running.kill();
    // The container's own process ends with the run; what it started is found by the next run.
    assert_eq!(run.to_end(&["--plain", "plain"]), "ok\n");
    remains::of(&run).assert_none();
}

fn signals_and_exit_code(identity: Identity) {
    let run = Run::new(identity);
    let mut running = run.start(&["signals"]);
    running.expect("waiting");
    running.signal("INT");
    running.expect("INT");
    running.signal("TERM");
    running.expect("TERM");
    assert_eq!(running.end(), 42);
}

fn nothing_is_left(identity: Identity) {
    let run = Run::new(identity);
    let before = remains::of_machine();
    let mut running = run.start(&["wait"]);
    running.expect("running");
    let namespaces = remains::of(&run).namespaces();
    running.signal("TERM");
    assert_eq!(running.end(), 0);
    remains::of(&run).assert_none();
    namespaces.assert_gone();
    before.assert_same();
}

fn nothing_is_left_after_kill(identity: Identity) {
    let run = Run::new(identity);
    let before = remains::of_machine();
    let mut running = run.start(&["wait"]);
    running.expect("running");
    let namespaces = remains::of(&run).namespaces();
    running.kill();
    remains::of(&run).assert_none();
    namespaces.assert_gone();
    before.assert_same();
    // Files that it left are removed by the next run.
    assert_eq!(run.runs(), 1);
    assert_eq!(run.to_end(&["commands"]), "ok\n");
    assert_eq!(run.runs(), 0);
}
