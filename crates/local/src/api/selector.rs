//! Label and field selectors.

use serde_json::Value;

use super::error::StatusError;
use super::status;
use super::store::Head;

#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    label: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// Parses both selectors of a request. `known` are the selectable fields of the kind.
    pub(crate) fn parse(
        labels: Option<&str>,
        fields: Option<&str>,
        known: impl Fn(&str) -> bool,
    ) -> Result<Self, StatusError> {
        let labels = parse_labels(labels.unwrap_or_default())
            .map_err(|why| status::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = parse_fields(fields.unwrap_or_default())?;
        if let Some((name, ..)) = fields.iter().find(|(name, ..)| !known(name)) {
            return Err(status::bad_request(format!("field label not supported: {name}")));
        }
        Ok(Self { labels, fields })
    }

    /// Parses a LabelSelector of an object.
    pub(crate) fn of_labels(selector: &Value) -> Self {
        let of_labels = selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let equal = of_labels.map(|(label, value)| Requirement {
            label: label.clone(),
            test: Test::In(vec![value.as_str().unwrap_or_default().to_owned()]),
        });
        let expressions = selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let others = expressions.map(|expression| {
            let member = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
            let values = expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let values = values.filter_map(Value::as_str).map(ToOwned::to_owned).collect();
            let test = match member("operator") {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                _ => Test::Absent,
            };
            Requirement {
                label: member("key").to_owned(),
                test,
            }
        });
        Self {
            labels: equal.chain(others).collect(),
            fields: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn selects(&self, head: &Head) -> bool {
        let labelled = self.labels.iter().all(|requirement| {
            let value = head.label(&requirement.label);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            }
        });
        labelled
            && self.fields.iter().all(|(name, equal, wanted)| {
                (head.field(name).unwrap_or_default() == wanted.as_str()) == *equal
            })
    }
}

/// The name that a field selector requires, if any.
pub(crate) fn name_in(fields: &str) -> Result<Option<String>, StatusError> {
    let mut fields = parse_fields(fields)?.into_iter();
    let named = fields.find(|(field, equal, _)| field == "metadata.name" && *equal);
    Ok(named.map(|(_, _, name)| name))
}

/// `name=value`, `name==value`, `name!=value`, separated by commas; a backslash escapes.
fn parse_fields(text: &str) -> Result<Vec<(String, bool, String)>, StatusError> {
    let mut terms = vec![String::new()];
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match (sign, terms.last_mut()) {
            ('\\', Some(term)) => term.extend(signs.next()),
            (',', _) => terms.push(String::new()),
            (sign, Some(term)) => term.push(sign),
            (_, None) => {}
        }
    }
    let mut fields = Vec::new();
    for term in terms.iter().filter(|term| !term.is_empty()) {
        let (name, equal, value) = if let Some((name, value)) = term.split_once("!=") {
            (name, false, value)
        } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (name, true, value)
        } else {
            let why = format!("invalid selector: {term:?}; can't understand {term:?}");
            return Err(status::bad_request(why));
        };
        fields.push((name.to_owned(), equal, value.to_owned()));
    }
    Ok(fields)
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut rest = text.trim();
    let mut requirements = Vec::new();
    while !rest.is_empty() {
        let (requirement, left) = parse_requirement(rest)?;
        requirements.push(requirement);
        rest = match left.trim_start().strip_prefix(',') {
            Some(left) if left.trim().is_empty() => {
                return Err("found '', expected: identifier after ','".to_owned());
            }
            Some(left) => left.trim_start(),
            None if left.trim().is_empty() => "",
            None => {
                return Err(format!(
                    "found {:?}, expected: ',' or 'end of string'",
                    left.trim()
                ));
            }
        };
    }
    Ok(requirements)
}

fn parse_requirement(written: &str) -> Result<(Requirement, &str), String> {
    let must = |label: &str, test| Requirement {
        label: label.to_owned(),
        test,
    };
    if let Some(rest) = written.strip_prefix('!') {
        let (label, rest) = word(rest.trim_start());
        checked(label)?;
        return Ok((must(label, Test::Absent), rest));
    }
    let (label, rest) = word(written);
    checked(label)?;
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with(',') {
        return Ok((must(label, Test::Exists), rest));
    }
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some(rest) = rest.strip_prefix(sign) {
            let (value, rest) = word(rest.trim_start());
            let values = vec![value.to_owned()];
            let test = if equal {
                Test::In(values)
            } else {
                Test::NotIn(values)
            };
            return Ok((must(label, test), rest));
        }
    }
    let (operator, rest) = word(rest);
    let (values, rest) = rest
        .trim_start()
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .ok_or_else(|| format!("found {operator:?}, expected: in, notin, =, ==, !="))?;
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    match operator {
        "in" => Ok((must(label, Test::In(values)), rest)),
        "notin" => Ok((must(label, Test::NotIn(values)), rest)),
        _ => Err(format!("found {operator:?}, expected: in, notin, =, ==, !=")),
    }
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|sign: char| sign.is_whitespace() || "=!,()<>".contains(sign));
    text.split_at(end.unwrap_or(text.len()))
}

fn checked(label: &str) -> Result<(), String> {
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "-_./".contains(sign);
    if label.is_empty() || !label.chars().all(fits) {
        return Err(format!("found {label:?}, expected: a label"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head() -> Head {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "web", "tier": "", "x.io/y": "1"}}});
        Head::of(object.as_object().unwrap(), vec![("spec.nodeName", "n1".into())])
    }

    #[rstest::rstest]
    #[case("", true)]
    #[case("app=web", true)]
    #[case("app==web,x.io/y=1", true)]
    #[case("app!=web", false)]
    #[case("other!=web", true)]
    #[case("app", true)]
    #[case("!app", false)]
    #[case("!other", true)]
    #[case("app in (db, web)", true)]
    #[case("app notin (db,web)", false)]
    #[case("other notin (db)", true)]
    #[case("tier=", true)]
    #[case("tier=,app", true)]
    #[case("app = web , tier", true)]
    #[case("app in (web),other", false)]
    fn labels_are_selected_by(#[case] selector: &str, #[case] selected: bool) {
        let selector = Selector::parse(Some(selector), None, |_| true).unwrap();
        assert_eq!(selector.selects(&head()), selected);
    }

    #[rstest::rstest]
    #[case("a in b")]
    #[case("a,")]
    #[case("=b")]
    #[case("a b")]
    #[case("a of (b)")]
    fn what_is_no_selector_is_refused(#[case] selector: &str) {
        let refusal = Selector::parse(Some(selector), None, |_| true).unwrap_err();
        assert_eq!(refusal.code, 400, "{selector}");
    }

    #[rstest::rstest]
    #[case("spec.nodeName=n1", true)]
    #[case("spec.nodeName!=n1", false)]
    #[case("metadata.name=a,spec.nodeName=n1", true)]
    #[case("status.phase=", true)]
    fn fields_are_selected_by(#[case] selector: &str, #[case] selected: bool) {
        let selector = Selector::parse(None, Some(selector), |_| true).unwrap();
        assert_eq!(selector.selects(&head()), selected);
    }

    #[test]
    fn a_field_that_can_not_be_selected_by_is_refused() {
        let refusal = Selector::parse(None, Some("spec.x=1"), |_| false).unwrap_err();
        assert_eq!(refusal.message, "field label not supported: spec.x");
    }
}
