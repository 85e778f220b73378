//! What the pages for users of other operators show is what happens: their command lines that need
//! no cluster are called, and the manifests that the others apply are valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{list, output_of, printed, repository};

const PAGES: [&str; 4] = ["ares", "azure", "dl-operator", "et-operator"];

/// A command line of a page, and the lines that it shows as its output.
#[derive(Debug)]
struct Shown {
    line: String,
    output: Vec<String>,
}

fn page(name: &str) -> String {
    fs::read_to_string(repository().join(format!("docs/migrating/{name}.md"))).unwrap()
}

/// The commands in the code of a page, which is indented by four blanks, or by more in a list.
fn commands(page: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    // What follows a command with a prompt is its output; without one, every line is a command.
    let (mut has_prompts, mut goes_on) = (false, false);
    for line in page.lines() {
        let Some(code) = line.strip_prefix("    ").map(str::trim) else {
            has_prompts &= line.is_empty();
            continue;
        };
        let prompted = code.strip_prefix("$ ");
        has_prompts |= prompted.is_some();
        let code = prompted.unwrap_or(code);
        let (text, is_cut) = match code.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (code, false),
        };
        match shown.last_mut() {
            Some(last) if goes_on => last.line.push_str(text),
            Some(last) if has_prompts && prompted.is_none() => last.output.push(text.to_owned()),
            _ => shown.push(Shown {
                line: text.to_owned(),
                output: Vec::new(),
            }),
        }
        goes_on = is_cut;
    }
    shown
}

/// The words of a command line, up to a comment.
fn words(line: &str) -> Vec<&str> {
    let words = line.split_whitespace();
    words.take_while(|word| !word.starts_with('#')).collect()
}

/// The directory in which a reader calls them: the examples are there, and old manifests.
fn place(name: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let examples = repository().join("examples").canonicalize().unwrap();
    std::os::unix::fs::symlink(&examples, place.path().join("examples")).unwrap();
    fs::create_dir(place.path().join("old")).unwrap();
    let of_kind = |path: &PathBuf| {
        let name = name.split('-').next().unwrap();
        let file = path.file_name().unwrap().to_string_lossy();
        file.starts_with(name) && file.ends_with("job.yaml")
    };
    let manifests = fs::read_dir(examples.join("compat")).unwrap();
    let manifests = manifests.map(|entry| entry.unwrap().path());
    for manifest in manifests.filter(of_kind) {
        let file = manifest.file_name().unwrap();
        fs::copy(&manifest, place.path().join("old").join(file)).unwrap();
    }
    place
}

/// What `trainyard` prints when it is called with these words, which must succeed. A job is not
/// run, but printed as it would be.
fn call(place: &Path, words: &[&str], input: &str) -> String {
    let mut line: Vec<String> = Vec::new();
    for word in words {
        match word.strip_suffix("*.yaml") {
            Some(directory) => {
                let files = fs::read_dir(place.join(directory)).unwrap();
                line.extend(files.map(|file| file.unwrap().path().display().to_string()));
            }
            None => line.push((*word).to_owned()),
        }
    }
    if words.first() == Some(&"run") {
        line.push("--print".to_owned());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    let output = output_of(command.args(&line).current_dir(place), input);
    assert!(
        output.status.success(),
        "trainyard {line:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The manifests that kubectl is given must be there and valid.
fn check_kubectl(place: &Path, words: &[&str], input: &str) {
    match words {
        ["apply" | "create", "-f", "-"] | ["apply", "--server-side", "-f", "-"] => {
            let objects: Vec<Value> = serde_saphyr::from_multiple(input).unwrap();
            assert!(
                objects.iter().any(|object| object.get("kind").is_some()),
                "{input}"
            );
        }
        ["apply" | "create", "-f", file] => {
            call(place, &["validate", file], "");
        }
        ["apply", "-k", directory] => {
            let directory = place.join(directory);
            let kustomization = fs::read_to_string(directory.join("kustomization.yaml")).unwrap();
            let kustomization: Value = serde_saphyr::from_str(&kustomization).unwrap();
            let files: Vec<String> = list(&kustomization, "/resources")
                .iter()
                .map(|file| directory.join(file.as_str().unwrap()).display().to_string())
                .collect();
            let words: Vec<&str> = ["validate"]
                .into_iter()
                .chain(files.iter().map(String::as_str))
                .collect();
            call(place, &words, "");
        }
        // The others ask a cluster.
        [verb, ..] => {
            let verbs = ["delete", "get", "patch", "scale", "-n"];
            assert!(
                verbs.contains(verb),
                "kubectl {words:?} is not known to this test"
            );
        }
        [] => panic!("kubectl needs words"),
    }
}

/// Calls one command line. Returns how many programs of it were called.
fn check(place: &Path, shown: &Shown) -> usize {
    let (mut called, mut passed_on) = (0, String::new());
    // What goes into a file is not looked at by anybody else.
    let line = shown.line.split(" > ").next().unwrap();
    for part in line.split(" | ").flat_map(|part| part.split(" && ")) {
        match words(part).as_slice() {
            ["trainyard", words @ ..] => {
                passed_on = call(place, words, &passed_on);
                called += 1;
                if words.first() != Some(&"run") {
                    check_output(&shown.output, &passed_on);
                }
            }
            ["kubectl", words @ ..] => check_kubectl(place, words, &passed_on),
            // These need the network.
            ["python3", "-m", "venv", _] | ["env/bin/pip", "install", ..] => {}
            other => panic!("{other:?} is not known to this test"),
        }
    }
    called
}

/// All lines of a page are printed, in this order. `...` stands for any number of others.
fn check_output(shown: &[String], printed: &str) {
    let mut lines = printed.lines().map(str::trim);
    for wanted in shown.iter().filter(|line| *line != "...") {
        assert!(lines.any(|line| line == wanted), "{wanted} is not in:\n{printed}");
    }
}

#[test]
fn what_the_pages_show_happens() {
    let mut called = 0;
    for name in PAGES {
        let (place, commands) = (place(name), commands(&page(name)));
        assert!(commands.len() >= 4, "{name}: {commands:?}");
        called += commands
            .iter()
            .map(|shown| check(place.path(), shown))
            .sum::<usize>();
    }
    assert!(called >= 12, "{called} commands were called");
}

#[test]
fn no_page_is_left_out() {
    let pages = fs::read_dir(repository().join("docs/migrating")).unwrap();
    for page in pages.map(|page| page.unwrap().path()) {
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(PAGES.contains(&&*name), "{name}");
    }
}

/// The commands within sentences: they exist, and have these options.
#[test]
fn what_the_pages_mention_exists() {
    let mut checked = 0;
    for name in PAGES {
        let page = page(name).replace('\n', " ");
        let spans = page.split('`').skip(1).step_by(2);
        let commands = spans.flat_map(|span| span.split(" | ")).filter_map(|span| {
            let mut words = span.split_whitespace();
            (words.next() == Some("trainyard")).then(|| words.collect::<Vec<_>>())
        });
        for command in commands {
            let help = printed(&format!("{} --help", command.first().unwrap()));
            for option in command.iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap();
                assert!(help.contains(option), "{name}: {command:?}");
            }
            checked += 1;
        }
    }
    assert!(checked >= 6, "{checked} were found");
}

/// What another operator did wrong has a test, which the page names.
#[test]
fn what_works_that_did_not_has_a_test_each() {
    for (name, least) in [("ares", 14), ("dl-operator", 9)] {
        let page = page(name);
        let (_, section) = page.split_once("## What works that did not\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<&str> = rows.skip(1).collect();
        assert!(rows.len() >= least, "{name}: {rows:?}");
        for row in rows {
            let link = row
                .rsplit_once("[`")
                .and_then(|(_, link)| link.split_once("`](../../"));
            let (test, file) = link.unwrap_or_else(|| panic!("{row} names no test"));
            let file = repository().join(file.split_once(')').unwrap().0);
            let content = fs::read_to_string(&file).unwrap();
            assert!(
                content.contains(&format!("fn {test}(")),
                "{test} is not in {}",
                file.display()
            );
        }
    }
}

/// A page with a manifest shows one that is valid.
#[test]
fn manifests_in_the_pages_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    for name in PAGES {
        let page = page(name);
        let blocks = page.split("```yaml\n").skip(1);
        let blocks = blocks.filter_map(|block| block.split("```").next());
        for block in blocks.filter(|block| block.starts_with("apiVersion:")) {
            let file = directory.path().join("manifest.yaml");
            fs::write(&file, block).unwrap();
            printed(&format!("validate {}", file.display()));
        }
    }
}
