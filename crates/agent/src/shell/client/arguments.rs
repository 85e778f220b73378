//! The command line of the client, which is that of `ssh` and `rsh`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Options of `ssh` that have a value.
const WITH_VALUE: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";
/// Options by which the command has no input.
const WITHOUT_INPUT: &[u8] = b"nf";

/// What to run where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name or the address of the host.
    pub host: String,
    /// Whether the command has the input of this program.
    pub has_input: bool,
    /// A line for a shell.
    pub line: Vec<u8>,
}

/// What is wrong with a command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// There is no host.
    #[error("say on which host to run what")]
    NoHost,
    /// The host is no name.
    #[error("{0:?} can't be the name of a host")]
    Host(String),
    /// There is no command.
    #[error("say what to run on {0}; there are no sessions without a command")]
    NoCommand(String),
}

impl Call {
    /// Reads words as `ssh` does. All options are taken and none but `-n` and `-f` mean anything:
    /// who may do what is settled otherwise.
    pub fn parse(args: &[OsString]) -> Result<Self, ArgumentError> {
        let mut words = args.iter().map(|word| word.as_bytes());
        let mut host = None;
        let mut has_input = true;
        let mut are_options = true;
        let first = loop {
            let Some(word) = words.next() else {
                return Err(host.map_or(ArgumentError::NoHost, ArgumentError::NoCommand));
            };
            match word {
                b"--" if are_options => are_options = false,
                [b'-', options @ ..] if are_options && !options.is_empty() => {
                    let valued = options.iter().position(|option| WITH_VALUE.contains(option));
                    let flags = options.get(..valued.unwrap_or(options.len())).unwrap_or_default();
                    has_input &= !flags.iter().any(|flag| WITHOUT_INPUT.contains(flag));
                    // The value is the rest of the word, or else the next word.
                    if valued.is_some_and(|index| index + 1 == options.len()) {
                        words.next();
                    }
                }
                word if host.is_none() => host = Some(host_name(word)?),
                word => break word,
            }
        };
        let line = words.fold(first.to_vec(), |mut line, word| {
            line.push(b' ');
            line.extend(word);
            line
        });
        Ok(Self {
            host: host.ok_or(ArgumentError::NoHost)?,
            has_input,
            line,
        })
    }
}

/// The host of `user@host` or `[address]`.
fn host_name(word: &[u8]) -> Result<String, ArgumentError> {
    let text = String::from_utf8_lossy(word);
    let host = text.rsplit_once('@').map_or(&*text, |(_, host)| host);
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '%');
    if host.is_empty() || !host.chars().all(is_allowed) {
        return Err(ArgumentError::Host(text.into_owned()));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(line: &str) -> Result<Call, ArgumentError> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Call::parse(&args)
    }

    #[rstest]
    #[case("w-0 orted", "w-0", true, "orted")]
    #[case("w-0.train.ns orted -mca ess env", "w-0.train.ns", true, "orted -mca ess env")]
    #[case("-x w-0 orted", "w-0", true, "orted")]
    #[case("-x -q -T -t w-0 a", "w-0", true, "a")]
    #[case("-n w-0 a", "w-0", false, "a")]
    #[case("-xn w-0 a", "w-0", false, "a")]
    #[case("-f w-0 a", "w-0", false, "a")]
    #[case("-o StrictHostKeyChecking=no -p 2222 -l me w-0 a", "w-0", true, "a")]
    #[case("-oConnectionAttempts=10 -p2222 w-0 a", "w-0", true, "a")]
    #[case("-lnobody w-0 a", "w-0", true, "a")]
    #[case("-xl n w-0 a", "w-0", true, "a")]
    #[case("w-0 -l me -n a -n", "w-0", false, "a -n")]
    #[case("me@w-0 a", "w-0", true, "a")]
    #[case("-- w-0 a", "w-0", true, "a")]
    #[case("w-0 -- -a b", "w-0", true, "-a b")]
    #[case("[fd00::1] a", "fd00::1", true, "a")]
    #[case("10.0.0.1 a -- b", "10.0.0.1", true, "a -- b")]
    fn is_read_as_ssh_does(
        #[case] line: &str,
        #[case] host: &str,
        #[case] has_input: bool,
        #[case] command: &str,
    ) {
        let call = parse(line).unwrap();
        assert_eq!((&*call.host, call.has_input), (host, has_input));
        assert_eq!(String::from_utf8(call.line).unwrap(), command);
    }

    #[test]
    fn words_are_joined_as_they_are() {
        let args = ["w-0", "echo", "a  b", "", "'c'"].map(OsString::from);
        assert_eq!(Call::parse(&args).unwrap().line, b"echo a  b  'c'");
    }

    #[rstest]
    #[case("", "say on which host to run what")]
    #[case("-x -o A=b", "say on which host to run what")]
    #[case("-l me", "say on which host to run what")]
    #[case("w-0", "say what to run on w-0; there are no sessions without a command")]
    #[case("w-0 -n", "say what to run on w-0; there are no sessions without a command")]
    #[case("a/b c", r#""a/b" can't be the name of a host"#)]
    #[case("me@ c", r#""me@" can't be the name of a host"#)]
    fn nonsense_is_told(#[case] line: &str, #[case] expected: &str) {
        assert_eq!(parse(line).unwrap_err().to_string(), expected);
    }
}
