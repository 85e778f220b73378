//! The Unix socket of a run, by which other programs of its user find it and reach its API.
//!
//! It is a file in a directory of the run, which only that user may enter. Files are shared
//! between network namespaces, so that it can be reached although the run lives in a yard. The pods
//! of the run can't see that directory.
//!
//! Permissions of files are not all: both sides ask the kernel who the other one is. The run
//! answers its own user alone. A client speaks only to a process of its own user, and to the same
//! one for as long as it speaks to that run.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tower::{BoxError, Service};

use super::{NAMESPACE, runs};
use crate::host::is_this_user;
use crate::node::runtime::state::RUN;

/// The directory of the socket, in that of the run: others may have to enter that one, because
/// containers without files of their own may run as other users.
const DIRECTORY: &str = "control";
const SOCKET: &str = "api";
/// What it is called until somebody listens: a socket that nobody listens to is a leftover.
const UNFINISHED: &str = "api.new";
/// The longest path that the address of a socket can hold on every system.
const MAX_PATH: usize = 100;

/// Makes the socket of the run that has this directory.
pub(super) fn bind(run: &Path) -> io::Result<UnixListener> {
    let directory = run.join(DIRECTORY);
    DirBuilder::new().mode(0o700).create(&directory)?;
    let unfinished = directory.join(UNFINISHED);
    let listener = {
        let path = ShortPath::of(&unfinished)?;
        UnixListener::bind(&path.path)?
    };
    fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
    fs::rename(unfinished, directory.join(SOCKET))?;
    Ok(listener)
}

/// A path that fits into the address of a socket.
struct ShortPath {
    path: PathBuf,
    /// Keeps the path what it is.
    _directory: Option<File>,
}

impl ShortPath {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= MAX_PATH {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::InvalidFilename.into());
        };
        let directory = File::open(parent)?;
        Ok(Self {
            path: by_descriptor(&directory).join(name),
            _directory: Some(directory),
        })
    }
}

fn by_descriptor(directory: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string())
}

/// A run of this user on this machine.
#[derive(Clone, Debug)]
pub struct RunSocket {
    name: String,
    socket: PathBuf,
}

/// A run that answers.
pub struct OpenRun {
    /// What the run is called.
    pub name: String,
    /// A client of its API.
    pub client: kube::Client,
    /// Where it works, if that can be seen.
    pub working_directory: Option<PathBuf>,
}

impl std::fmt::Debug for OpenRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenRun")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Whether a directory is of this user, and all others lack these rights.
fn is_closed(directory: &Path, rights: u32) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|found| {
        let is_shared = found.permissions().mode() & rights != 0;
        found.is_dir() && found.uid() == super::user() && !is_shared
    })
}

/// Whether nobody else can have put a socket there.
fn is_own(run: &Path) -> bool {
    is_closed(run, 0o022) && is_closed(&run.join(DIRECTORY), 0o077)
}

/// The runs below a base directory that have a socket, in the order of their names. Some may have
/// ended. A directory of somebody else, or one that others may enter, is of no run.
pub fn find(base_directory: &Path) -> Vec<RunSocket> {
    let entries = fs::read_dir(runs(base_directory)).into_iter().flatten().flatten();
    let mut found: Vec<RunSocket> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_prefix(RUN)?.to_owned();
            let socket = entry.path().join(DIRECTORY).join(SOCKET);
            let is_run = is_own(&entry.path()) && fs::symlink_metadata(&socket).is_ok();
            is_run.then_some(RunSocket { name, socket })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl RunSocket {
    /// What the run is called, as in the name of its directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connects to the run. Returns None if it has ended, and removes the socket of one that was
    /// killed.
    pub async fn open(self) -> io::Result<Option<OpenRun>> {
        let (_, peer) = match connect(&self.socket).await {
            Ok(connected) => connected,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                remove(&self.socket)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Some(OpenRun {
            name: self.name,
            working_directory: working_directory(&peer),
            client: kube::Client::new(
                Connector {
                    socket: self.socket,
                    process: peer.pid(),
                },
                NAMESPACE,
            ),
        }))
    }
}

fn remove(socket: &Path) -> io::Result<()> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Connects to who listens there, a process of this user.
async fn connect(socket: &Path) -> io::Result<(UnixStream, UCred)> {
    let path = ShortPath::of(socket)?;
    let stream = UnixStream::connect(&path.path).await?;
    let peer = stream.peer_cred()?;
    if !is_this_user(&peer) {
        let who = peer.uid();
        let why = format!("another user ({who}) listens at {}", socket.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    Ok((stream, peer))
}

/// Where the process works that listens on the other side.
fn working_directory(peer: &UCred) -> Option<PathBuf> {
    let process = peer.pid()?;
    let directory = fs::read_link(format!("/proc/{process}/cwd")).ok()?;
    // The kernel says so of one that is gone.
    let is_there = !directory
        .as_os_str()
        .as_bytes()
        .ends_with(OsStr::new(" (deleted)").as_bytes());
    is_there.then_some(directory)
}

/// Makes a connection for each request: there are few, and a run may end between two.
#[derive(Clone, Debug)]
struct Connector {
    socket: PathBuf,
    /// The process of the run, where the kernel tells it.
    process: Option<i32>,
}

impl Service<Request<Body>> for Connector {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { socket, process } = self.clone();
        Box::pin(async move {
            let (stream, peer) = connect(&socket).await?;
            if peer.pid() != process {
                return Err(format!("another run listens at {}", socket.display()).into());
            }
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection.with_upgrades());
            let host = header::HeaderValue::from_static("localhost");
            request.headers_mut().insert(header::HOST, host);
            Ok(sender.send_request(request).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::ListParams;

    use super::*;
    use crate::api::Api;
    use crate::env::Environment;

    /// The directory of a run, below a base directory.
    fn run(base: &Path, name: &str) -> PathBuf {
        let run = runs(base).join(format!("{RUN}{name}"));
        fs::create_dir_all(&run).unwrap();
        run
    }

    fn socket(run: &Path) -> PathBuf {
        run.join(DIRECTORY).join(SOCKET)
    }

    async fn namespaces(run: OpenRun) -> usize {
        let namespaces = kube::Api::<Namespace>::all(run.client);
        namespaces.list(&ListParams::default()).await.unwrap().items.len()
    }

    #[tokio::test]
    async fn the_api_is_served_to_its_user_alone_however_long_the_path_is() {
        for depth in [0, 5] {
            let place = tempfile::tempdir().unwrap();
            let base = place.path().join("a-long-name-of-a-directory/".repeat(depth));
            let run = run(&base, "one");
            let listener = bind(&run).unwrap();
            let mode = fs::metadata(socket(&run)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let api = Api::new(Environment::seeded(7));
            let serving = tokio::spawn(async move { api.serve_user(listener).await });
            let found = find(&base);
            assert_eq!(found.iter().map(RunSocket::name).collect::<Vec<_>>(), ["one"]);
            let open = found[0].clone().open().await.unwrap().unwrap();
            assert_eq!(open.working_directory, std::env::current_dir().ok());
            assert!(namespaces(open).await > 1);
            serving.abort();
        }
    }

    #[tokio::test]
    async fn a_directory_that_others_may_enter_is_of_no_run() {
        let place = tempfile::tempdir().unwrap();
        let open = run(place.path(), "open");
        let _listener = bind(&open).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(find(place.path()).len(), 1);
        for mode in [0o710, 0o701, 0o755] {
            set(&open.join(DIRECTORY), mode);
            assert!(find(place.path()).is_empty(), "{mode:o}");
        }
        set(&open.join(DIRECTORY), 0o700);
        assert_eq!(find(place.path()).len(), 1);
        set(&open, 0o777);
        assert!(
            find(place.path()).is_empty(),
            "somebody else may have put it there"
        );
    }

    #[tokio::test]
    async fn another_process_at_the_same_place_is_not_spoken_to() {
        let place = tempfile::tempdir().unwrap();
        let run = run(place.path(), "one");
        let listener = bind(&run).unwrap();
        let api = Api::new(Environment::seeded(7));
        let serving = tokio::spawn(async move { api.serve_user(listener).await });
        let mut connector = Connector {
            socket: socket(&run),
            process: i32::try_from(std::process::id()).ok(),
        };
        let ask = || Request::get("/version").body(Body::empty()).unwrap();
        assert!(connector.call(ask()).await.is_ok());
        connector.process = Some(1);
        let error = connector.call(ask()).await.unwrap_err().to_string();
        assert!(error.starts_with("another run listens at "), "{error}");
        serving.abort();
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_to_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let killed = run(place.path(), "killed");
        drop(bind(&killed).unwrap());
        assert!(socket(&killed).exists());
        let found = find(place.path());
        assert!(found[0].clone().open().await.unwrap().is_none());
        assert!(!socket(&killed).exists());
        // It may have ended since it was found.
        assert!(found[0].clone().open().await.unwrap().is_none());
        assert!(find(place.path()).is_empty());
    }

    #[tokio::test]
    async fn what_is_no_run_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        assert!(find(place.path()).is_empty());
        // One that does not listen yet, and one without a socket.
        let begins = run(place.path(), "begins");
        drop(bind(&begins).unwrap());
        fs::rename(socket(&begins), begins.join(DIRECTORY).join(UNFINISHED)).unwrap();
        run(place.path(), "older");
        fs::create_dir(runs(place.path()).join(".made")).unwrap();
        assert!(find(place.path()).is_empty());
        let other = run(place.path(), "other");
        drop(bind(&other).unwrap());
        fs::remove_file(socket(&other)).unwrap();
        fs::write(socket(&other), "").unwrap();
        let opened = find(place.path()).remove(0).open().await;
        assert!(opened.is_ok_and(|run| run.is_none()), "a file is no socket");
    }
}
