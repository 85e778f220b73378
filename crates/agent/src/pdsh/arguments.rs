//! The command line of `pdsh`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Options that have a value, of which those for hosts and numbers are looked at.
const WITH_VALUE: &[u8] = b"cflRtuw";
/// Options that have none. `-S` and `-k` mean something; labels can be left out by `-N`.
const FLAGS: &[u8] = b"bdkKNS";

/// How many commands run at once, unless it is said.
const FANOUT: usize = 32;

/// What to run where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The hosts, in the order of their numbers.
    pub hosts: Vec<String>,
    /// How many commands run at once.
    pub fanout: usize,
    /// Whether the exit code is the largest of the commands.
    pub tells_code: bool,
    /// Whether one that fails ends the others.
    pub ends_all: bool,
    /// Whether lines begin with the host that they are from.
    pub labels: bool,
    /// A line for a shell, before `%` is replaced in it.
    line: Vec<u8>,
}

/// What is wrong with a command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// There are no hosts.
    #[error("say on which hosts to run what: -w host,host...")]
    NoHosts,
    /// A host is no name.
    #[error("{0:?} can't be the name of a host; ranges such as w[0-3] are not taken: name each")]
    Host(String),
    /// There is no command.
    #[error("say what to run; there are no sessions without a command")]
    NoCommand,
    /// There is no such option.
    #[error("there is no option -{0}")]
    Option(char),
    /// An option lacks its value.
    #[error("-{0} wants a value")]
    NoValue(char),
    /// A number is none.
    #[error("-f wants a number of hosts, at least 1; it is {0:?}")]
    Fanout(String),
}

impl Call {
    /// Reads words as `pdsh` does.
    pub fn parse(args: &[OsString]) -> Result<Self, ArgumentError> {
        let mut call = Self {
            hosts: Vec::new(),
            fanout: FANOUT,
            tells_code: false,
            ends_all: false,
            labels: true,
            line: Vec::new(),
        };
        let mut words = args.iter().map(|word| word.as_bytes()).peekable();
        while let Some(options) = words.next_if(|word| word.len() > 1 && word.starts_with(b"-")) {
            if options == b"--" {
                break;
            }
            let mut rest = options.get(1..).unwrap_or_default();
            while let Some((&option, after)) = rest.split_first() {
                rest = after;
                if WITH_VALUE.contains(&option) {
                    let value = if after.is_empty() {
                        words.next()
                    } else {
                        Some(after)
                    };
                    let value = value.ok_or(ArgumentError::NoValue(char::from(option)))?;
                    call.take(option, &String::from_utf8_lossy(value))?;
                    break;
                }
                call.switch(option)?;
            }
        }
        call.line = words.collect::<Vec<_>>().join(&b' ');
        if call.hosts.is_empty() {
            Err(ArgumentError::NoHosts)
        } else if call.line.iter().all(u8::is_ascii_whitespace) {
            Err(ArgumentError::NoCommand)
        } else {
            Ok(call)
        }
    }

    fn take(&mut self, option: u8, value: &str) -> Result<(), ArgumentError> {
        match option {
            b'w' => {
                for host in value.split(',') {
                    self.hosts.push(host_name(host)?);
                }
            }
            b'f' => {
                let number = value.parse().ok().filter(|number| *number > 0);
                self.fanout = number.ok_or_else(|| ArgumentError::Fanout(value.to_owned()))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn switch(&mut self, option: u8) -> Result<(), ArgumentError> {
        match option {
            b'S' => self.tells_code = true,
            b'k' => self.ends_all = true,
            b'N' => self.labels = false,
            option if FLAGS.contains(&option) => {}
            option => return Err(ArgumentError::Option(char::from(option))),
        }
        Ok(())
    }

    /// The line for a host: `%n` is its number, `%h` its name, and `%%` is `%`.
    pub fn line(&self, number: usize, host: &str) -> Vec<u8> {
        let number = number.to_string();
        let mut line = Vec::new();
        let mut rest = &*self.line;
        while let Some((&byte, after)) = rest.split_first() {
            let (text, skipped): (&[u8], _) = match (byte, after.first()) {
                (b'%', Some(b'n')) => (number.as_bytes(), 1),
                (b'%', Some(b'h')) => (host.as_bytes(), 1),
                (b'%', Some(b'%')) => (b"%", 1),
                _ => (&[byte], 0),
            };
            line.extend_from_slice(text);
            rest = after.get(skipped..).unwrap_or_default();
        }
        line
    }
}

/// The host of `user@host`.
fn host_name(word: &str) -> Result<String, ArgumentError> {
    let host = word.rsplit_once('@').map_or(word, |(_, host)| host);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if host.is_empty() || host.starts_with('-') || !host.chars().all(is_allowed) {
        return Err(ArgumentError::Host(word.to_owned()));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(words: &[&str]) -> Result<Call, ArgumentError> {
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        Call::parse(&args)
    }

    fn line(call: &Call, number: usize, host: &str) -> String {
        String::from_utf8(call.line(number, host)).unwrap()
    }

    /// As DeepSpeed calls it.
    #[test]
    fn is_read_as_pdsh_does() {
        let words = [
            "-S",
            "-f",
            "1024",
            "-w",
            "a.x,b.x",
            "export A=\"b c\"; ",
            "cd /work;",
            "python3",
            "-u",
            "-m",
            "launch",
            "--node_rank=%n",
        ];
        let call = parse(&words).unwrap();
        assert_eq!(call.hosts, ["a.x", "b.x"]);
        assert_eq!(
            (call.fanout, call.tells_code, call.ends_all, call.labels),
            (1024, true, false, true)
        );
        assert_eq!(
            line(&call, 1, "b.x"),
            "export A=\"b c\";  cd /work; python3 -u -m launch --node_rank=1"
        );
    }

    #[rstest]
    #[case(&["-w", "me@a,b", "-w", "c", "x"], &["a", "b", "c"], 32, false)]
    #[case(&["-Rssh", "-wa", "-f2", "-l", "me", "x"], &["a"], 2, false)]
    #[case(&["-Skw", "a", "-t", "5", "--", "-x"], &["a"], 32, true)]
    fn options_may_be_written_together(
        #[case] words: &[&str],
        #[case] hosts: &[&str],
        #[case] fanout: usize,
        #[case] ends_all: bool,
    ) {
        let call = parse(words).unwrap();
        assert_eq!(
            (&*call.hosts, call.fanout, call.ends_all),
            (
                &*hosts.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>(),
                fanout,
                ends_all
            )
        );
    }

    #[test]
    fn signs_are_replaced() {
        let call = parse(&["-w", "a", "echo", "%n %h %%n %d 100%"]).unwrap();
        assert_eq!(line(&call, 7, "a"), "echo 7 a %n %d 100%");
    }

    #[rstest]
    #[case(&[], "say on which hosts to run what: -w host,host...")]
    #[case(&["ls"], "say on which hosts to run what: -w host,host...")]
    #[case(&["-w", "a"], "say what to run; there are no sessions without a command")]
    #[case(&["-w", "a", " "], "say what to run; there are no sessions without a command")]
    #[case(&["-w"], "-w wants a value")]
    #[case(&["-q", "-w", "a", "ls"], "there is no option -q")]
    #[case(&["-f", "0", "-w", "a", "ls"], "-f wants a number of hosts, at least 1; it is \"0\"")]
    #[case(&["-w", "a,", "ls"], "\"\" can't be the name of a host; ranges such as w[0-3] are not taken: name each")]
    #[case(&["-w", "w[0-3]", "ls"], "\"w[0-3]\" can't be the name of a host; ranges such as w[0-3] are not taken: name each")]
    fn nonsense_is_told(#[case] words: &[&str], #[case] expected: &str) {
        assert_eq!(parse(words).unwrap_err().to_string(), expected);
    }
}
