//! Workers that are lost while the launcher needs them.

use std::time::Duration;

use serde_json::{Value, json};
use trainyard_testkit::lab::Lab;

use super::{ATTACH_MODES, OPEN_MPI_4, mpi_job, ranks, with_ssh};

/// What the launcher calls to run a command in a worker: what mpirun calls. The options are there
/// only with `Ssh`.
const SHELL: &str = "/etc/mpi/kubexec.sh $OMPI_MCA_plm_rsh_args";

/// The name by which the launcher of a job finds a worker.
fn host(lab: &Lab, job: &str) -> String {
    format!("{job}-worker-1.{job}.{}.svc.cluster.local", lab.namespace)
}

/// A line of a script that says when a remote shell begins and ends, and what it says.
fn watched(lab: &Lab, job: &str) -> String {
    let host = host(lab, job);
    format!(
        "{SHELL} {host} 'echo shell in $(hostname); sleep 1000' 2>/tmp/said; code=$?; \
         sed 's/^/shell says: /' /tmp/said; echo shell ended with $code at $(cut -d ' ' -f 1 /proc/uptime)"
    )
}

/// A job of two workers, one for each way, of which only the scripts differ.
fn jobs(ways: &[&str], script: impl Fn(&str) -> String) -> Vec<Value> {
    let job = |way: &&str| {
        let name = way.to_lowercase();
        let script = script(&name);
        let mut manifest = mpi_job(&name, &OPEN_MPI_4, 2, &script, &json!({"attach": way}));
        if *way == "Ssh" {
            with_ssh(&mut manifest);
        }
        manifest
    };
    ways.iter().map(job).collect()
}

/// Has remote shells wait as long for a worker that is silent as they do where nobody has set it.
fn tolerate_silence_by_default(manifest: &mut Value) {
    for role in manifest["spec"]["roles"].as_array_mut().unwrap() {
        let container = role["template"]["spec"]["containers"][0].as_object_mut();
        container.unwrap().remove("env").unwrap();
    }
}

/// Waits until the launcher of a job has said all of it. All that it has said.
fn says(lab: &Lab, job: &str, what: impl Fn(&str) -> bool) -> String {
    lab.until("all of it is said", || {
        let log = lab.try_logs(&format!("{job}-launcher-0"))?;
        if what(&log) { Ok(log) } else { Err(log) }
    })
}

/// With which code the watched shell ended, how long that was after a moment of this machine, and
/// all that was said.
///
/// The job may have failed for want of the worker before.
fn ended(lab: &Lab, job: &str, since: Duration) -> (String, Duration, String) {
    let end = |log: &str| {
        let (told, _) = log.split("shell ended with ").nth(1)?.split_once('\n')?;
        let (code, at) = told.split_once(" at ")?;
        Some((code.to_owned(), Duration::from_secs_f64(at.parse().ok()?)))
    };
    let log = says(lab, job, |log| end(log).is_some());
    let (code, at) = end(&log).unwrap();
    (code, at.saturating_sub(since), log)
}

pub fn a_worker_that_fails_ends_the_run_and_is_the_root_cause() {
    let (lab, _operator) = Lab::with_agent("lost");
    // With `exec`, so that the launcher ends as its remote shells do.
    let script = format!("exec {} -np 2 {} forever", OPEN_MPI_4.mpirun, OPEN_MPI_4.program);
    let ways = ["Agent", "Exec"];
    for way in ways {
        let mut manifest = mpi_job(
            &way.to_lowercase(),
            &OPEN_MPI_4,
            2,
            &script,
            &json!({"attach": way}),
        );
        let worker = &mut manifest["spec"]["roles"][1]["template"]["spec"];
        worker["containers"][0]["command"] = json!([
            "sh",
            "-c",
            "until [ -e /tmp/fail ]; do sleep 0.1; done; echo the disk is full; exit 9"
        ]);
        lab.apply(&manifest.to_string()).unwrap();
    }
    for way in ways.map(str::to_lowercase) {
        says(&lab, &way, |log| ranks(log, 2).len() == 2);
        let victim = format!("{way}-worker-1");
        let told = lab.exec(&victim, None, &["touch", "/tmp/fail"], "").unwrap();
        assert_eq!(told.code, 0, "{}", told.stderr);
        let status = lab.wait_until_ended(&way, "Failed")["status"].clone();
        let cause = &status["rootCause"];
        assert_eq!(cause["pod"], *victim, "{status:#}");
        assert_eq!(cause["exitCode"], 9, "{status:#}");
    }
}

/// As a machine that kills for want of memory does it: nobody in the worker can say goodbye.
pub fn a_worker_that_is_killed_ends_its_shells_at_once_and_is_the_root_cause() {
    let (lab, _operator) = Lab::with_agent("killed");
    let manifests = jobs(&ATTACH_MODES, |job| {
        format!(
            "({}) &\n{} -np 2 {} forever; code=$?; wait; exit $code",
            watched(&lab, job),
            OPEN_MPI_4.mpirun,
            OPEN_MPI_4.program
        )
    });
    for manifest in &manifests {
        lab.apply(&manifest.to_string()).unwrap();
    }
    for way in ATTACH_MODES {
        let job = way.to_lowercase();
        let victim = format!("{job}-worker-1");
        let shell = format!("shell in {victim}");
        says(&lab, &job, |log| ranks(log, 2).len() == 2 && log.contains(&shell));
        let killed = lab.kill(&victim);
        let status = lab.wait_until_ended(&job, "Failed")["status"].clone();
        let (code, after, log) = ended(&lab, &job, killed);
        let cause = &status["rootCause"];
        assert_eq!(cause["pod"], *victim, "{status:#}\n{log}");
        assert_eq!(cause["exitCode"], 137, "{status:#}\n{log}");
        assert_eq!(code, "255", "{way}: {log}");
        eprintln!("{way}: the remote shell ended {after:?} after the worker was killed");
        assert_closed(way, &host(&lab, &job), &log);
    }
}

/// The watched shell has ended because its connection did, and not because nothing was heard for
/// too long: that is at once, however long it takes on a busy machine.
fn assert_closed(way: &str, host: &str, log: &str) {
    let words: &[&str] = match way {
        // These are the words of the image's client.
        "Ssh" => &[
            "Connection to {host} closed by remote host.",
            "Read from remote host {host}: Connection reset by peer",
        ],
        _ => &[
            "trainyard-agent: {host}: the connection was closed",
            "trainyard-agent: {host}: the connection failed: ",
            "trainyard-agent: {host}: its agent has ended: ",
        ],
    };
    let mut said = log.lines().filter_map(|line| line.strip_prefix("shell says: "));
    let closed = |line: &str| {
        words
            .iter()
            .any(|words| line.starts_with(&words.replace("{host}", host)))
    };
    assert!(said.any(closed), "{way}: {log}");
}

/// Has each way lose its worker once a shell is in it. The shell must notice, and the status say
/// what it said, though it is the launcher that failed.
fn given_up<Lost>(
    name: &str,
    ways: &[&str],
    happens: impl Fn(&Lab, &str) -> Lost,
    at: impl Fn(&Lost) -> Duration,
    said: impl Fn(&str, &str) -> String,
) {
    let (lab, _operator) = Lab::with_agent(name);
    for mut manifest in jobs(ways, |job| format!("{}; exit $code", watched(&lab, job))) {
        tolerate_silence_by_default(&mut manifest);
        lab.apply(&manifest.to_string()).unwrap();
    }
    let lost: Vec<_> = ways
        .iter()
        .map(|way| {
            let job = way.to_lowercase();
            let victim = format!("{job}-worker-1");
            let shell = format!("shell in {victim}");
            says(&lab, &job, |log| log.contains(&shell));
            happens(&lab, &victim)
        })
        .collect();
    for (way, lost) in ways.iter().zip(&lost) {
        let job = way.to_lowercase();
        let status = lab.wait_until_ended(&job, "Failed")["status"].clone();
        let (code, after, log) = ended(&lab, &job, at(lost));
        assert_eq!(code, "255", "{way}: {log}");
        eprintln!("{way}: the remote shell ended {after:?} after the worker was lost");
        let cause = &status["rootCause"];
        assert_eq!(cause["pod"], format!("{job}-launcher-0"), "{status:#}");
        // Who reads the status alone learns it, too.
        let said = said(way, &host(&lab, &job));
        let words = cause["message"].as_str().unwrap_or_default();
        assert!(words.contains(&said), "{way}: {status:#}\n{log}");
    }
}

fn agent_says(host: &str) -> String {
    format!("trainyard-agent: {host}: nothing was heard from it for 4 s\n")
}

/// As a worker whose machine has no time for it: it acknowledges what it is sent, and says nothing.
pub fn a_worker_that_falls_silent_is_given_up() {
    // A server of SSH may be silent for a minute.
    let ways = ["Agent", "Exec"];
    let stop = |lab: &Lab, pod: &str| lab.stop(pod);
    given_up(
        "silent",
        &ways,
        stop,
        |stopped| stopped.at,
        |_, host| agent_says(host),
    );
}

/// As a worker whose node is lost: nothing is closed, and nothing comes any more.
pub fn a_worker_that_is_cut_off_is_given_up() {
    // With Exec it is the API server that is connected to the worker's node, which is still there.
    let ways = ["Agent", "Ssh"];
    let cut = |lab: &Lab, pod: &str| lab.disconnect(pod);
    let said = |way: &str, host: &str| match way {
        // These are the words of the image's client, which does not name the host.
        "Ssh" => "client_loop: send disconnect: Broken pipe".to_owned(),
        _ => agent_says(host),
    };
    given_up("cut", &ways, cut, |at| *at, said);
}
