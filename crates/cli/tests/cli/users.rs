//! `trainyard run` and users: who owns its files, who containers are, and what they may not do
//! here.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::home::{Home, Output, job, said};

/// A run without a home, in a place for temporary files.
fn homeless(home: &Home) -> Output {
    let mut command = home.command(&["run", "--", "echo", "up"]);
    command.env_remove("HOME").env("TMPDIR", home.work());
    said(command)
}

#[test]
fn without_a_home_files_are_in_a_directory_of_ones_own() {
    for home in Home::each() {
        let user = fs::metadata(home.work()).unwrap().uid();
        let own = home.work().join(format!("trainyard-{user}"));
        let ran = homeless(&home);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (Some(0), "worker-0 | up\n"),
            "{ran:?}"
        );
        let found = fs::metadata(&own).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (user, 0o700));

        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = homeless(&home);
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.words.contains("others can look into"), "{refused:?}");
        assert!(refused.words.contains("TRAINYARD_CACHE"), "{refused:?}");
    }
}

#[test]
fn a_container_is_the_user_that_it_asks_for() {
    let note = "see themselves as that user and group, and are you";
    for home in Home::each() {
        let probe = "readinessProbe: {periodSeconds: 1, exec: {command: [sh, -c, '(id -u; id -g) > part; mv part probed']}}";
        let script = "until test -s probed; do sleep 0.05; done; cat probed; id -u; id -g";
        let context = "securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1001}";
        // Who is a user of this machine can write only where that user may.
        let mount = format!(
            "{probe}\n          workingDir: /v\n          volumeMounts: [{{name: v, mountPath: /v}}]"
        );
        let pod = format!("{context}\n        volumes: [{{name: v, emptyDir: {{}}}}]");
        home.file("job.yaml", &job(script, &pod, &mount));
        let ran = home.call(&["run", "job.yaml"]);
        let lines = "worker-0 | 1000\nworker-0 | 1001\n";
        assert_eq!((ran.code, ran.out), (Some(0), lines.repeat(2)), "{}", ran.words);
        assert_eq!(ran.words.contains(note), !home.is_roots(), "{}", ran.words);

        let ran = home.call(&[
            "run",
            "--isolation",
            "plain",
            "--set",
            "roles.worker.template.spec.containers.train.workingDir=null",
            "--set",
            "roles.worker.template.spec.containers.train.command=[id, -u]",
            "job.yaml",
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told = ran.words.contains("runAsUser and runAsGroup have no effect here");
        assert_eq!(
            (told, ran.out == "worker-0 | 1000\n"),
            (!home.is_roots(), home.is_roots()),
            "{ran:?}"
        );
    }
}

#[test]
fn rights_that_a_container_does_not_get_are_told() {
    let home = Home::own();
    let context = "securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN]}, seccompProfile: {type: RuntimeDefault}}";
    home.file("job.yaml", &job("true", "hostIPC: true", context));
    let ran = home.call(&["run", "job.yaml"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let note = "no effect here: capabilities.add, hostIPC, privileged; containers have";
    assert!(ran.words.contains(note), "{ran:?}");
}

#[test]
fn a_container_that_its_probe_ends_is_not_merely_killed() {
    let home = Home::own();
    let probe = "livenessProbe: {periodSeconds: 1, failureThreshold: 2, exec: {command: [sh, -c, 'echo it hangs; exit 1']}}";
    home.file(
        "job.yaml",
        &job("sleep 1000", "terminationGracePeriodSeconds: 1", probe),
    );
    let ran = home.call(&["run", "job.yaml", "--output", "json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let told = "Unhealthy: Liveness probe failed: it hangs";
    assert!(ran.words.contains(told) && ran.out.contains(told), "{ran:?}");
}

#[test]
fn paths_of_images_begin_where_the_run_works() {
    let home = Home::own();
    let inner = home.work().join("inner");
    fs::create_dir_all(inner.join("env/bin")).unwrap();
    fs::write(inner.join("env/pyvenv.cfg"), "").unwrap();
    fs::write(inner.join("env/bin/hello"), "#!/bin/sh\necho hello\n").unwrap();
    fs::set_permissions(inner.join("env/bin/hello"), fs::Permissions::from_mode(0o755)).unwrap();
    home.file("inner/job.yaml", &job("hello", "", ""));
    let ran = home.call(&["run", "-C", "inner", "job.yaml", "--image", "none=env"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "worker-0 | hello\n"),
        "{ran:?}"
    );
    let refused = home.call(&["run", "-C", "inner", "job.yaml", "--image", "none=inner/env"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .words
            .contains("--image none=inner/env: there is no directory"),
        "{refused:?}"
    );
}

#[test]
fn shared_memory_is_as_large_as_a_volume_in_memory_makes_it() {
    let home = Home::own();
    let script = "head -c 100000000 /dev/zero > /dev/shm/x && echo enough";
    home.file("job.yaml", &job(script, "", ""));
    let ran = home.call(&["run", "job.yaml"]);
    assert_eq!(
        (ran.code, ran.out.contains("enough")),
        (Some(1), false),
        "{ran:?}"
    );
    let volume = "volumes: [{name: memory, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]";
    let mount = "volumeMounts: [{name: memory, mountPath: /dev/shm}]";
    home.file("job.yaml", &job(script, volume, mount));
    let ran = home.call(&["run", "job.yaml"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "worker-0 | enough\n"),
        "{ran:?}"
    );
}
