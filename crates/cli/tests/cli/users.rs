//! `trainyard run` and users: who owns its files, who containers are, and what they may not do here.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::home::{Home, Said, said};

/// A run without a home, in a place for temporary files.
fn homeless(home: &Home) -> Said {
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
