//! Who is on the other side of a Unix socket.

use tokio::net::unix::UCred;

/// Whether it is a process of this user. In a user namespace both have the numbers that they have
/// there, and users who are not in it have one that nobody has.
pub(crate) fn is_this_user(peer: &UCred) -> bool {
    peer.uid() == nix::unistd::geteuid().as_raw()
}
