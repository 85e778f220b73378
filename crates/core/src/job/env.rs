//! The environment variables that a framework gives a pod.

/// Variables by name, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env(Vec<(String, String)>);

impl Env {
    /// Adds a variable.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are given as they are"
    )]
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// Keeps the variables whose names are wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| is_wanted(name));
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
    type Item = (String, String);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
