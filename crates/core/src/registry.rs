//! The frameworks that jobs can name: those that are built in, and those that were declared.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use trainyard_api::{DeclaredFramework, FieldError, TrainingJob};

use crate::declared;
use crate::frameworks;
use crate::job::Framework;

/// How many declarations of jobs that run are kept compiled. More are compiled when they are
/// needed.
const MAX_ACCEPTED: usize = 256;

/// The frameworks that one job can name: all that are built in, and the declared one that it names.
/// [`Registry::for_job`] makes it.
#[derive(Clone, Debug, Default)]
pub struct Frameworks {
    declared: Option<Declared>,
}

/// A framework that is not built in, as a job finds it.
#[derive(Clone, Debug)]
enum Declared {
    Ready(Arc<Framework>),
    /// It is declared, and something is wrong with the declaration.
    Invalid(Arc<[FieldError]>),
    /// It is not known whether it is declared: the operator may not ask.
    Unknown,
}

static BUILT_IN: Frameworks = Frameworks { declared: None };

impl Frameworks {
    /// Those that are built in, and no other.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// The framework of the job that these are for.
    pub fn of<'a>(&'a self, job: &TrainingJob) -> Option<&'a Framework> {
        let built_in = frameworks::of(job);
        built_in.or_else(|| match &self.declared {
            Some(Declared::Ready(framework)) if framework.name == job.spec.framework.name => {
                Some(&**framework)
            }
            _ => None,
        })
    }

    /// Why the job that these are for has no framework.
    pub(crate) fn problem(&self, name: &str) -> String {
        match &self.declared {
            Some(Declared::Invalid(errors)) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!(
                    "the Framework {name:?} can't be used until its declaration is corrected: {}",
                    errors.join("; ")
                )
            }
            Some(Declared::Unknown) => format!(
                "{}; Frameworks that are declared are not served here, as the operator may not read them in the whole \
                 cluster",
                frameworks::not_built_in(name)
            ),
            _ => frameworks::unknown(name),
        }
    }
}

/// All frameworks that were declared, compiled.
#[derive(Debug, Default)]
pub struct Registry {
    declared: HashMap<String, Declared>,
    /// Whether the operator may not read declarations.
    is_forbidden: bool,
    /// The declarations that jobs which run were accepted with, compiled.
    accepted: Mutex<HashMap<String, Arc<Framework>>>,
}

impl Registry {
    /// A registry of an operator that may not read declarations.
    pub fn forbidden() -> Self {
        Self {
            is_forbidden: true,
            ..Self::default()
        }
    }

    /// Sets whether the operator may not read declarations.
    pub fn set_forbidden(&mut self, is_forbidden: bool) {
        self.is_forbidden = is_forbidden;
    }

    /// Adds a declaration, or puts it in place of the one of its name. Returns what is wrong with
    /// it; then jobs that name it say the same.
    pub fn declare(&mut self, object: &DeclaredFramework) -> Vec<FieldError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let (declared, errors) = match compile(object) {
            Ok(framework) => (Declared::Ready(Arc::new(framework)), Vec::new()),
            Err(errors) => (Declared::Invalid(errors.clone().into()), errors),
        };
        self.declared.insert(name, declared);
        errors
    }

    /// Takes the place of a declaration that can't be read: jobs that name it say why.
    pub fn declare_unreadable(&mut self, name: &str, errors: Vec<FieldError>) {
        self.declared
            .insert(name.to_owned(), Declared::Invalid(errors.into()));
    }

    /// Removes a declaration.
    pub fn remove(&mut self, name: &str) {
        self.declared.remove(name);
    }

    /// The declared framework of a name, if there is one that can be used.
    pub fn find(&self, name: &str) -> Option<&Framework> {
        match self.declared.get(name) {
            Some(Declared::Ready(framework)) => Some(framework),
            _ => None,
        }
    }

    /// The frameworks that a job can name. A job that runs finds its framework as it was declared
    /// when the job was accepted.
    pub fn for_job(&self, job: &TrainingJob) -> Frameworks {
        let name = &job.spec.framework.name;
        if frameworks::find(name).is_some() {
            return Frameworks::default();
        }
        let accepted = job
            .status
            .as_ref()
            .and_then(|status| status.accepted_framework.as_deref());
        let accepted = accepted.and_then(|json| self.accepted(name, json));
        let current = || match self.declared.get(name) {
            None if self.is_forbidden => Some(Declared::Unknown),
            current => current.cloned(),
        };
        Frameworks {
            declared: accepted.map(Declared::Ready).or_else(current),
        }
    }

    /// The framework that a job was accepted with. `None` if that can't be read: anybody may have
    /// edited the status.
    fn accepted(&self, name: &str, json: &str) -> Option<Arc<Framework>> {
        if let Some(Declared::Ready(current)) = self.declared.get(name)
            && current.declaration.as_deref() == Some(json)
        {
            return Some(Arc::clone(current));
        }
        let key = format!("{name}:{json}");
        let mut accepted = self.accepted.lock();
        if let Some(framework) = accepted.get(&key) {
            return Some(Arc::clone(framework));
        }
        let mut object = DeclaredFramework::new(name, serde_json::from_str(json).ok()?);
        object.metadata.name = Some(name.to_owned());
        let framework = Arc::new(compile(&object).ok()?);
        if accepted.len() >= MAX_ACCEPTED {
            accepted.clear();
        }
        accepted.insert(key, Arc::clone(&framework));
        Some(framework)
    }
}

/// All that is wrong with a declaration.
pub fn check(object: &DeclaredFramework) -> Vec<FieldError> {
    compile(object).err().unwrap_or_default()
}

fn compile(object: &DeclaredFramework) -> Result<Framework, Vec<FieldError>> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if frameworks::find(name).is_some() {
        let message = format!("{name} is built in, and jobs would find that one: choose another name");
        return Err(vec![FieldError::new("metadata.name", message)]);
    }
    declared::compile(object)
}
