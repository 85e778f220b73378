//! The environment variables that a framework gives a pod.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};

/// Variables, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Env(Vec<EnvVar>);

impl Env {
    /// Adds a variable.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are given as they are"
    )]
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.set_text(name, value.to_string());
    }

    /// Adds a variable of a text that may be long, and is not copied.
    pub fn set_text(&mut self, name: &str, value: String) {
        self.0.push(EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        });
    }

    /// Adds a variable with a field of the pod that is known only when it starts, such as
    /// `status.podIP`.
    pub fn set_field(&mut self, name: &str, path: &str) {
        let field = ObjectFieldSelector {
            api_version: None,
            field_path: path.to_owned(),
        };
        self.0.push(EnvVar {
            name: name.to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                field_ref: Some(field),
                ..EnvVarSource::default()
            }),
        });
    }

    /// Keeps the variables whose names are wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|variable| is_wanted(&variable.name));
    }
}

impl<V: ToString> Extend<(&'static str, V)> for Env {
    fn extend<I: IntoIterator<Item = (&'static str, V)>>(&mut self, variables: I) {
        for (name, value) in variables {
            self.set(name, value);
        }
    }
}

impl<V: ToString, const N: usize> From<[(&'static str, V); N]> for Env {
    fn from(variables: [(&'static str, V); N]) -> Self {
        let mut env = Self::default();
        env.extend(variables);
        env
    }
}

impl IntoIterator for Env {
    type Item = EnvVar;
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
