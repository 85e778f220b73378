//! The API server, in process and in memory. It knows nothing of nodes.
//!
//! Three layers, each of which could be replaced: the `store` keeps versions and tells what
//! happened; the `semantics` say what the verbs of Kubernetes mean; the `transport` turns requests
//! into verbs and back. Time and randomness are handed in with an [`Environment`], so that it can
//! be driven by a simulator.
//!
//! What is not served is refused with the right code and a sentence: server-side apply, strategic
//! merge patches, deletion of collections, attach, portforward.

mod access;
mod admission;
mod authority;
mod built_in;
mod crd;
mod error;
mod kinds;
mod meta;
mod rules;
mod selector;
mod semantics;
mod status;
mod store;
mod tokens;
mod transport;

use std::collections::HashMap;
use std::sync::Arc;

pub use access::{LogOptions, LogStream, NodeAccess, PodRef, Process, Resize, Start};
pub use admission::{Admission, Operation, Rejection, Review};
pub use error::FieldError;
pub use transport::ResponseBody;

use crate::env::Environment;
use authority::Authority;
use kinds::Kinds;
use parking_lot::{Mutex, RwLock};
use semantics::expiry::Expiry;
use semantics::service::Addresses;
use store::{Store, TableId};
use tokens::Signer;

/// Events of each kind that are kept for watches from an older version.
const MAX_REMEMBERED_EVENTS: usize = 4096;

/// The API server.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
    nodes: Arc<RwLock<HashMap<String, Arc<dyn NodeAccess>>>>,
}

pub(crate) struct Shared {
    store: Store,
    kinds: Kinds,
    environment: Environment,
    admission: RwLock<Vec<Arc<dyn Admission>>>,
    addresses: Addresses,
    signer: Signer,
    authority: Authority,
    expiry: Expiry,
    /// Tables of custom kinds, deleted ones included, by the name of the definition.
    tables: Mutex<HashMap<String, TableId>>,
}

impl Api {
    /// The API of a new cluster: a few namespaces with nothing in them.
    pub fn new(environment: Environment) -> Self {
        let shared = Shared {
            store: Store::new(MAX_REMEMBERED_EVENTS),
            kinds: Kinds::default(),
            environment,
            admission: RwLock::default(),
            addresses: Addresses::default(),
            signer: Signer::default(),
            authority: Authority::default(),
            expiry: Expiry::default(),
            tables: Mutex::default(),
        };
        built_in::serve(&shared.kinds, &shared.store);
        semantics::namespace::furnish(&shared);
        Self {
            shared: Arc::new(shared),
            nodes: Arc::default(),
        }
    }

    /// Adds an admission plug-in.
    #[must_use]
    pub fn with_admission(self, admission: Arc<dyn Admission>) -> Self {
        let mut all = self.shared.admission.write();
        all.push(admission);
        drop(all);
        self
    }

    /// A client that calls this API without sockets. Must be called within a tokio runtime.
    pub fn client(&self, namespace: &str) -> kube::Client {
        kube::Client::new(self.clone(), namespace)
    }

    /// Serves logs and exec of the pods of a node through `access`.
    pub fn attach_node(&self, node: &str, access: Arc<dyn NodeAccess>) {
        let mut nodes = self.nodes.write();
        nodes.insert(node.to_owned(), access);
    }

    /// Drops all events, so that watches from an older version get 410 Gone, as every server does
    /// from time to time.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    fn node(&self, name: &str) -> Option<Arc<dyn NodeAccess>> {
        let nodes = self.nodes.read();
        nodes.get(name).cloned()
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Shared {
    /// The table of a custom kind. It stays the same if the definition is deleted and created
    /// again.
    fn table_of(&self, definition: &str) -> TableId {
        let mut tables = self.tables.lock();
        *tables
            .entry(definition.to_owned())
            .or_insert_with(|| self.store.add_table())
    }

    fn is_custom(&self, kind: &kinds::Kind) -> bool {
        let tables = self.tables.lock();
        tables.values().any(|table| *table == kind.table)
    }

    /// Definitions that are terminating until their objects are gone.
    fn ending_definitions(&self) -> Vec<Box<str>> {
        let Some(kind) = self.kinds.get(crd::API_VERSION, crd::PLURAL) else {
            return Vec::new();
        };
        let definitions = self
            .store
            .list(kind.table, "", None, None)
            .map(|page| page.objects);
        let definitions = definitions.unwrap_or_default();
        let ending = definitions
            .iter()
            .filter(|definition| definition.head.terminating);
        ending.map(|definition| definition.head.name.clone()).collect()
    }
}
