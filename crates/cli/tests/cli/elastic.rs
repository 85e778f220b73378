//! Elastic jobs on one machine: `trainyard run` in one terminal, `trainyard scale` in another.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use trainyard_eventually::eventually;

use super::home::{Home, Output};
use super::repository;

/// A run whose output is read as it comes.
struct Training {
    child: Child,
    streams: [Stream; 2],
}

/// What a run has printed so far, and who reads it.
struct Stream {
    printed: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn read(mut stream: impl Read + Send + 'static) -> Self {
        let printed = Arc::<Mutex<Vec<u8>>>::default();
        let all = printed.clone();
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            // A live view has no ends of lines. A terminal that closes is the end.
            while let Ok(count @ 1..) = stream.read(&mut part) {
                all.lock().unwrap().extend(&part[..count]);
            }
        });
        Self { printed, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed.lock().unwrap()).into_owned()
    }
}

impl Training {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let out = Stream::read(child.stdout.take().unwrap());
        let words = Stream::read(child.stderr.take().unwrap());
        Self {
            child,
            streams: [out, words],
        }
    }

    /// What it has printed, on both streams.
    fn log(&self) -> String {
        let [out, words] = &self.streams;
        out.text() + &words.text()
    }

    /// Waits until the rest of its output, after so many bytes of it, contains a text.
    fn until_after(&mut self, start: usize, text: &str) {
        // It may begin in the middle of a character that has not come whole.
        let is_said = |log: &str| log.get(start..).is_some_and(|rest| rest.contains(text));
        eventually(&format!("the run says {text:?}"), || {
            let log = self.log();
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() || is_said(&log), "{ended:?}: {log}");
            if is_said(&log) { Ok(()) } else { Err(log) }
        });
    }

    fn until(&mut self, text: &str) {
        self.until_after(0, text);
    }

    /// Waits for its end.
    fn end(mut self) -> Output {
        let code = eventually("the run ends", || {
            let ended = self.child.try_wait().unwrap();
            ended.ok_or_else(|| self.log())
        });
        let [out, words] = self.streams.each_mut().map(|stream| {
            // A thread that does nothing is joined in its place.
            let reader = std::mem::replace(&mut stream.reader, thread::spawn(|| ()));
            reader.join().unwrap();
            stream.text()
        });
        Output {
            code: code.code(),
            out,
            words,
        }
    }
}

/// Also where a test has failed.
impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example, in a directory in which it runs.
fn example(home: &Home) {
    for name in ["job.yaml", "train.py"] {
        let content = fs::read_to_string(repository().join("examples/elastic").join(name)).unwrap();
        home.file(name, &content);
    }
}

/// The process of a worker of the example.
fn worker(home: &Home, index: i32) -> Option<String> {
    let mark = format!("INDEX={index}");
    let processes = home.processes().into_iter().map(|(process, _)| process);
    let mut trains = processes.filter(|process| process.contains("python3\0/workspace/train.py"));
    let found = trains.find(|process| {
        let directory = process.split(' ').next().unwrap();
        let environment = fs::read(format!("{directory}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == mark.as_bytes())
    });
    found.map(|process| process.split(['/', ' ']).nth(2).unwrap().to_owned())
}

/// Kills a worker, and waits until there is another of its number.
fn kill_worker(home: &Home, index: i32) {
    let killed = worker(home, index).unwrap();
    let sent = Command::new("kill").args(["-KILL", &killed]).status();
    assert!(sent.unwrap().success());
    eventually("another worker takes its place", || {
        let now = worker(home, index);
        let is_another = now.as_ref().is_some_and(|now| *now != killed);
        is_another.then_some(()).ok_or_else(|| format!("{now:?}"))
    });
}

/// What is saved stays so, whoever leaves and is lost. Returns the last step.
fn assert_no_saved_step_is_lost(log: &str) -> u64 {
    let number = |line: &str, before: &str| {
        let rest = line.split_once(before)?.1;
        rest.split([' ', ',']).next()?.parse::<u64>().ok()
    };
    let mut saved = 0;
    for line in log.lines().filter(|line| line.starts_with("worker-0 |")) {
        for before in ["goes on after step ", "saved step "] {
            if let Some(step) = number(line, before) {
                assert!(step >= saved, "{saved} was saved: {line}\n{log}");
                saved = step;
            }
        }
    }
    saved
}

#[test]
fn a_training_grows_and_shrinks_and_loses_workers_and_no_step() {
    for home in Home::each() {
        example(&home);
        let sizes = [
            "--env",
            "SIZES=3 5 4 5",
            "--env",
            "PRINT_EVERY=1",
            "--env",
            "PAUSE=0.03",
        ];
        let line = ["run", "job.yaml", "--output", "json"];
        let mut training = Training::start(home.command(&[&line[..], &sizes].concat()));
        training.until("rank 0 of 3 goes on");

        let scaled = home.call(&["scale", "elastic", "--to", "5"]);
        assert_eq!(scaled.code, Some(0), "{scaled:?}");
        assert_eq!(scaled.out, "trainingjob.trainyard.dev/elastic scaled\n");
        let run = home.runs().remove(0).replace("run-", "");
        let which = format!("the run {run} on this machine, in {}", home.work().display());
        assert!(scaled.words.contains(&which), "{scaled:?}");
        training.until("rank 0 of 5 goes on");

        let scaled = home.call(&["scale", "elastic", "--by", "-1", "--wait"]);
        assert_eq!(scaled.code, Some(0), "{scaled:?}");
        assert!(
            scaled.out.starts_with("scalein.trainyard.dev/elastic-"),
            "{scaled:?}"
        );
        training.until("worker 4 leaves after step ");
        training.until("rank 0 of 4 goes on");

        kill_worker(&home, 1);
        training.until("worker 1 is lost");
        let before = training.streams[1].text().len();
        kill_worker(&home, 0);
        training.until_after(before, "goes on after step ");
        assert_no_saved_step_is_lost(&training.log());

        // With that it has had all sizes, and ends.
        let scaled = home.call(&["scale", "elastic", "--to", "5"]);
        assert_eq!(scaled.code, Some(0), "{scaled:?}");
        let ended = training.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let summary: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(summary["outcome"], "Succeeded", "{summary}");
        assert_eq!(summary["restarts"], 2, "{summary}");
        let loss = summary["progress"]["metrics"]["loss"].as_f64().unwrap();
        assert!(loss < 1e-3, "{summary}");
        assert!(assert_no_saved_step_is_lost(&ended.words) >= 300, "{ended:?}");
    }
}

/// A job of some workers that wait for their end.
fn waiting(name: &str, more: &str, replicas: &str) -> String {
    format!(
        "
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: {name}}}
spec:
  framework: {{name: custom}}
  {more}
  roles:
  - name: worker
    {replicas}
    template:
      spec:
        containers:
        - name: main
          image: none
          command: [sh, -c, \"trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done\"]
"
    )
}

const ELASTIC: &str = "elastic: {replicas: 1, maxReplicas: 3}";

/// What is wrong with a call.
fn refused(home: &Home, line: &[&str]) -> String {
    let said = home.call(line);
    assert_eq!((said.code, &*said.out), (Some(2), ""), "{said:?}");
    said.words
}

/// The sockets of runs.
fn sockets(home: &Home) -> Vec<PathBuf> {
    let runs = home.runs().into_iter();
    let runs = runs.map(|run| {
        home.path()
            .join(".cache/trainyard/local/runs")
            .join(run)
            .join("control/api")
    });
    runs.filter(|socket| socket.exists()).collect()
}

#[test]
fn what_does_not_run_here_is_looked_for_on_the_cluster() {
    let home = Home::own();
    home.file("job.yaml", &waiting("here", ELASTIC, ""));
    let said = refused(&home, &["scale", "here", "--to", "2"]);
    assert!(
        said.contains("no run on this machine has a job \"here\""),
        "{said}"
    );
    assert!(said.contains("there is no kubeconfig"), "{said}");

    let _run = home.start(&["run", "job.yaml"]);
    let said = refused(&home, &["scale", "there", "--to", "2"]);
    assert!(
        said.contains("no run on this machine has a job \"there\""),
        "{said}"
    );
    let said = refused(&home, &["scale", "here", "--to", "2", "-n", "elsewhere"]);
    assert!(said.contains("no run on this machine"), "{said}");

    // A cluster, which does not answer. It is asked only if it is meant.
    let kubeconfig = "
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: one, context: {cluster: one, user: one, namespace: default}}]
users: [{name: one, user: {}}]
";
    fs::create_dir(home.path().join(".kube")).unwrap();
    fs::write(home.path().join(".kube/config"), kubeconfig).unwrap();
    let scaled = home.call(&["scale", "here", "--to", "2"]);
    assert_eq!(scaled.code, Some(0), "{scaled:?}");
    assert!(scaled.words.contains("on this machine"), "{scaled:?}");
    for asked in [&["--remote"][..], &["--context", "one"]] {
        let said = refused(&home, &[&["scale", "here", "--to", "3"], asked].concat());
        assert!(said.contains("cannot read the job"), "{said}");
    }
    let said = refused(&home, &["scale", "here", "--to", "3", "--context", "two"]);
    assert!(
        said.contains("the context \"two\" of the kubeconfig can't be used"),
        "{said}"
    );
}

#[test]
fn of_two_runs_with_one_name_the_user_chooses_one() {
    for home in Home::each() {
        let mut runs = Vec::new();
        for place in ["a", "b"] {
            fs::create_dir(home.work().join(place)).unwrap();
            home.file(&format!("{place}/job.yaml"), &waiting("same", ELASTIC, ""));
            runs.push(home.start(&["run", "-C", place, "job.yaml"]));
        }
        let said = refused(&home, &["scale", "same", "--to", "2"]);
        assert!(
            said.contains("2 runs on this machine have a job \"same\"; choose one:"),
            "{said}"
        );
        let second = said
            .lines()
            .find(|line| line.contains("/work/b, since "))
            .unwrap();
        let choice: Vec<&str> = second.split_whitespace().take(2).collect();
        let scaled = home.call(&[&["scale", "same", "--to", "2", "--wait"], &choice[..]].concat());
        assert_eq!(scaled.code, Some(0), "{scaled:?}");
        assert!(scaled.words.contains("/work/b\n"), "{scaled:?}");
        let said = refused(&home, &["scale", "same", "--to", "2", "--run", "none"]);
        assert!(
            said.contains("there is no run none with a job \"same\""),
            "{said}"
        );

        // One of them is left.
        let mut second = runs.remove(1);
        second.signal("INT");
        let ended = second.rest();
        assert_eq!(
            (ended.code, ended.out.matches("up").count()),
            (Some(130), 1),
            "{ended:?}"
        );
        let scaled = home.call(&["scale", "same", "--by", "1", "--wait"]);
        assert_eq!(scaled.code, Some(0), "{scaled:?}");
        assert!(scaled.words.contains("/work/a\n"), "{scaled:?}");
    }
}

#[test]
fn a_run_that_was_killed_is_no_run() {
    for home in Home::each() {
        home.file("job.yaml", &waiting("gone", ELASTIC, ""));
        let mut run = home.start(&["run", "job.yaml"]);
        assert_eq!(sockets(&home).len(), 1);
        run.signal("KILL");
        run.rest();
        // The rest of the yard is ended by the kernel.
        super::home::until_none("processes", || home.processes());
        assert_eq!(sockets(&home).len(), 1);
        let said = refused(&home, &["scale", "gone", "--to", "2"]);
        assert!(
            said.contains("no run on this machine has a job \"gone\""),
            "{said}"
        );
        assert_eq!(sockets(&home), [""; 0].map(PathBuf::from));
    }
}

#[test]
fn a_job_of_a_fixed_size_keeps_it() {
    let home = Home::own();
    home.file("job.yaml", &waiting("fixed", "", "replicas: 1"));
    let _run = home.start(&["run", "job.yaml"]);
    let said = refused(&home, &["scale", "fixed", "--to", "2"]);
    assert!(
        said.contains("the job \"fixed\" can't change its size: it has no spec.elastic"),
        "{said}"
    );
}

#[test]
fn pods_do_not_see_the_socket_of_their_run() {
    for home in Home::each() {
        let script = "echo up; ls -aR $HOME/.cache/trainyard/local/runs";
        let mut run = home.start(&["run", "--", "sh", "-c", script]);
        let ended = run.rest();
        let has_socket = ended.out.lines().any(|line| line.ends_with("| api"));
        assert!(ended.code == Some(0) && !has_socket, "{ended:?}");
    }
}

/// A run on a terminal of its own, and what is typed there.
fn on_a_terminal(home: &Home, line: &str) -> (Training, ChildStdin) {
    on_a_terminal_after(home, "true", line)
}

/// The same, after another command there.
fn on_a_terminal_after(home: &Home, before: &str, line: &str) -> (Training, ChildStdin) {
    // It says at the end how it has left the terminal.
    let inner = format!("stty rows 50 cols 200; {before}; $PROGRAM {line}; stty -a");
    let terminal = "exec script --quiet --return --echo always --command \"$INNER\" /dev/null";
    let mut command = home.wrapped(&["sh", "-c", terminal], &[]);
    let program = home.path().join("trainyard");
    command
        .envs([
            ("INNER", inner.as_ref()),
            ("TERM", "xterm".as_ref()),
            ("PROGRAM", program.as_os_str()),
        ])
        .stdin(Stdio::piped());
    let mut training = Training::start(command);
    let typed = training.child.stdin.take().unwrap();
    (training, typed)
}

#[test]
fn keys_change_the_size_of_a_job() {
    for home in Home::each() {
        for isolation in ["auto", "plain"] {
            example(&home);
            // Plain processes have no volumes at their paths, and only its owner may look into the
            // home.
            let line = format!(
                "run job.yaml --env 'SIZES=3 4 3' --env PAUSE=0.03 --isolation {isolation} \
                 --set 'roles.worker.template.spec.containers.main.command=[python3, train.py]' \
                 --set roles.worker.template.spec.securityContext=null"
            );
            let (mut training, mut typed) = on_a_terminal(&home, &line);
            training.until("rank 0 of 3 goes on");
            typed.write_all(b"+").unwrap();
            training.until("rank 0 of 4 goes on");
            let before = training.log().len();
            typed.write_all(b"-").unwrap();
            training.until_after(before, "rank 0 of 3 goes on");
            let ended = training.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
            for text in ["keys + and - change it", "elastic succeeded"] {
                assert!(ended.out.contains(text), "{text}: {}", ended.out);
            }
            assert_shows_what_is_typed(&ended);
        }
    }
}

/// The terminal waits for whole lines, and shows what is typed.
fn assert_shows_what_is_typed(ended: &Output) {
    let settings: Vec<&str> = ended.out.split_whitespace().collect();
    let is_usual = settings.contains(&"icanon") && settings.contains(&"echo");
    assert!(is_usual, "{}", ended.out);
}

#[test]
fn a_terminal_that_a_killed_run_has_left_is_repaired_by_the_next_one() {
    let home = Home::own();
    let script = "until test -e go; do sleep 0.1; done";
    let size = "--set elastic='{replicas: 1, maxReplicas: 3}' --set roles.worker.replicas=null";
    let line = format!("run --framework custom {size} -- sh -c '{script}'");
    let (mut training, _typed) = on_a_terminal_after(&home, "stty -icanon -echo", &line);
    training.until("keys + and - change it");
    home.file("go", "");
    let ended = training.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_shows_what_is_typed(&ended);
}

/// What a worker does that leaves in order, but not before it may take the next step: then there is
/// a file of that name.
const LEAVES_IN_ORDER: &str = "
trap 'echo asked by TERM; exit 0' TERM
may() { until test -e $1; do sleep 0.1; done; }
echo begins $INDEX
may $TRAINYARD_DRAIN/leave
may acknowledge
touch $TRAINYARD_DRAIN/acknowledged
may save
echo 7 > $TRAINYARD_DRAIN/checkpoint
may go
echo has left
";

/// A job of workers that run a script.
fn workers(name: &str, more: &Value, script: &str) -> String {
    let container = json!({"name": "main", "image": "none", "command": ["sh", "-c", script]});
    let mut job = json!({
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": {"name": "custom"},
            "roles": [{"name": "worker", "template": {"spec": {"containers": [container]}}}],
        },
    });
    for (field, value) in more.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job.to_string()
}

/// Whether pods of its runs hear from the observer: where files can be put into them.
fn has_observer(home: &Home) -> bool {
    let report = home.doctor();
    let abilities = super::list(&report, "/abilities");
    let mut files = abilities
        .iter()
        .filter(|ability| super::text(ability, "/name").contains("files"));
    report["isolation"] != "Plain" && files.all(|ability| ability["possible"] == true)
}

#[test]
fn a_worker_leaves_in_order_and_is_asked_by_no_signal() {
    for home in Home::each().into_iter().filter(has_observer) {
        for network in ["pod", "host"] {
            for name in ["acknowledge", "save", "go"] {
                let _ = fs::remove_file(home.work().join(name));
            }
            let elastic = json!({"elastic": {"replicas": 2, "drainTimeoutSeconds": 3600}});
            home.file("job.yaml", &workers("orderly", &elastic, LEAVES_IN_ORDER));
            let line = format!("run job.yaml --network {network}");
            let (mut training, mut typed) = on_a_terminal(&home, &line);
            training.until("begins 1");
            training.until("Running");
            let scaled = home.call(&["scale", "orderly", "--by", "-1"]);
            assert_eq!(scaled.code, Some(0), "{scaled:?}");
            let steps = [
                ("Requested", "acknowledge"),
                ("Acknowledged", "save"),
                ("CheckpointDone", "go"),
            ];
            for (step, next) in steps {
                training.until(&format!("worker 1 leaves: {step}"));
                home.file(next, "");
            }
            training.until("has left");
            training.until("size 1 ");
            let log = training.log();
            assert!(!log.contains("asked by TERM"), "{log}");
            typed.write_all(&[3]).unwrap();
            assert_eq!(training.end().code, Some(130));
        }
    }
}

#[test]
fn a_launcher_runs_the_script_of_a_request() {
    for home in Home::each().into_iter().filter(has_observer) {
        let container = |words: &[&str]| {
            let container = json!({"name": "main", "image": "none", "command": words});
            json!({"spec": {"containers": [container]}})
        };
        let waits = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done";
        let roles = json!([
            {"name": "launcher", "replicas": 1, "template": container(&["sh", "-c", waits])},
            {"name": "worker", "template": container(&["sh", "-c", waits])},
        ]);
        let more = json!({
            "framework": {"name": "horovod", "horovod": {"controller": "Gloo"}},
            "elastic": {"replicas": 1, "maxReplicas": 3},
            "roles": roles,
        });
        home.file("job.yaml", &workers("asks", &more, waits));
        home.file("resize", "echo resize $1 because of $WHY > resized");
        home.file("fails", "echo there is no room; exit 7");
        let mut training = Training::start(home.command(&["run", "job.yaml"]));
        training.until("Running after");

        let script = home.work().join("resize").display().to_string();
        let line = [
            "scale",
            "asks",
            "--by",
            "1",
            "--wait",
            "--env",
            "WHY=it's late",
            "--script",
            &script,
        ];
        let scaled = home.call(&line);
        assert_eq!(scaled.code, Some(0), "{scaled:?}: {}", training.log());
        let said = fs::read_to_string(home.work().join("resized")).unwrap();
        assert_eq!(said, "resize asks-worker-1:1 because of it's late\n");
        let script = home.work().join("fails").display().to_string();
        let refused = home.call(&["scale", "asks", "--by", "-1", "--wait", "--script", &script]);
        let why = "Nobody leaves. Attempt 1 of 1 has ended with exit code 7: there is no room";
        assert!(
            refused.code == Some(1) && refused.out.contains(why),
            "{refused:?}"
        );
    }
}

/// The job as the API of its run has it.
fn job_of_run(home: &Home, name: &str) -> Value {
    let mut socket = UnixStream::connect(&sockets(home)[0]).unwrap();
    let path = format!("/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs/{name}");
    write!(socket, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[test]
fn progress_is_in_the_status_of_the_job_and_in_what_is_shown() {
    let home = Home::own();
    let script =
        "echo up; echo step=3 total=9 loss=0.5 >> $TRAINYARD_PROGRESS; until test -e go; do sleep 0.1; done";
    let mut manifest: Value =
        serde_json::from_str(&workers("tells", &json!({"progress": "Report"}), script)).unwrap();
    manifest["spec"]["roles"][0]["replicas"] = json!(1);
    home.file("job.yaml", &manifest.to_string());
    let mut training = Training::start(home.command(&["run", "job.yaml", "--output", "json"]));
    training.until("worker-0 | up");
    if has_observer(&home) {
        eventually("the operator has written the progress", || {
            let job = job_of_run(&home, "tells");
            let progress = &job["status"]["progress"];
            let is_there = progress["step"] == 3 && progress["metrics"]["loss"] == "0.5";
            is_there.then_some(()).ok_or_else(|| job.to_string())
        });
    }
    home.file("go", "");
    let ended = training.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&summary["progress"]["step"], &summary["progress"]["total"]),
        (&json!(3), &json!(9))
    );
}

#[test]
fn keys_are_left_to_others_where_the_size_is_fixed() {
    let home = Home::own();
    let line = "run -- sh -c 'until test -e go; do sleep 0.1; done'";
    let (mut training, mut typed) = on_a_terminal(&home, line);
    training.until("worker 1/1");
    // What is typed is shown, as ever.
    typed.write_all(b"echo-me\n").unwrap();
    training.until("echo-me");
    home.file("go", "");
    let ended = training.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.out.contains("keys + and -"), "{}", ended.out);
}
