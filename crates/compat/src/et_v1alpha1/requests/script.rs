//! The script of a request: there a line for a shell, with the pods behind it. Here no shell reads
//! it, so that values arrive as they are.

use trainyard_api::{FieldError, ScriptVariable};

use super::Spec;

/// What a request of ours has of a script.
#[derive(Default)]
pub struct Script {
    pub program: Option<String>,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<ScriptVariable>>,
    pub backoff_limit: Option<i32>,
}

impl Script {
    pub fn of(spec: &mut Spec, notes: &mut Vec<String>, errors: &mut Vec<FieldError>) -> Self {
        let mut words = match words(spec.script.as_deref().unwrap_or_default()) {
            Ok(words) => words.into_iter(),
            Err(message) => {
                errors.push(FieldError::new("spec.script", message));
                return Self::default();
            }
        };
        let Some(program) = words.next() else {
            if spec.env.is_some() || spec.backoff_limit.is_some() {
                notes.push(
                    "spec: env and backoffLimit are for scripts, and there is none; left out".to_owned(),
                );
            }
            return Self::default();
        };
        let given = spec.env.take().unwrap_or_default();
        for (position, _) in given
            .iter()
            .enumerate()
            .filter(|(_, known)| known.value_from.is_some())
        {
            let path = format!("spec.env[{position}].valueFrom");
            errors.push(FieldError::new(path, "is not for scripts: give value"));
        }
        let variable = |name, value| ScriptVariable { name, value };
        let env: Vec<_> = given
            .into_iter()
            .map(|known| variable(known.name, known.value))
            .collect();
        Self {
            program: Some(program),
            args: Some(words.collect::<Vec<_>>()).filter(|args| !args.is_empty()),
            env: Some(env).filter(|env| !env.is_empty()),
            backoff_limit: spec.backoff_limit,
        }
    }
}

/// The words of a line. What only a shell could make of it is an error.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (Some('"') | None, c) if is_for_a_shell(c, quote.is_some()) => {
                return Err(format!(
                    "{c:?} is for a shell, and none reads this: give a program and its arguments, such as \
                     `/scripts/resize --delete`"
                ));
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("{open} is opened and not closed: close it"));
    }
    words.extend(word);
    Ok(words)
}

fn is_for_a_shell(c: char, is_quoted: bool) -> bool {
    matches!(c, '$' | '`' | '\\') || !is_quoted && "\n;&|<>(){}[]*?~#!".contains(c)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/usr/local/bin/scaler.sh --delete", &["/usr/local/bin/scaler.sh", "--delete"])]
    #[case("  /a\t--b='it is; $HOME'  \"c d\"'' ", &["/a", "--b=it is; $HOME", "c d"])]
    #[case("/a ''", &["/a", ""])]
    #[case(" \t", &[])]
    fn a_line_is_its_words(#[case] line: &str, #[case] expected: &[&str]) {
        assert_eq!(words(line).unwrap(), expected);
    }

    #[rstest]
    #[case("/a $HOME", "'$' is for a shell")]
    #[case("/a \"$(b)\"", "'$' is for a shell")]
    #[case("/a; /b", "';' is for a shell")]
    #[case("/a\n/b", "'\\n' is for a shell")]
    #[case("/a > /b", "'>' is for a shell")]
    #[case("/a 'b", "' is opened and not closed")]
    fn what_needs_a_shell_is_refused(#[case] line: &str, #[case] expected: &str) {
        let message = words(line).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
    }
}
