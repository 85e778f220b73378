//! Programs that connect back to who has called them, at once and once only.
//!
//! Those are the proxies of Hydra, which MPICH and Intel MPI start on workers. They are told the
//! name of the launcher's pod, and give up if it can't be looked up. The name of a pod that has
//! just been started takes a moment to be known everywhere.

use std::net::ToSocketAddrs;
use std::thread;
use std::time::{Duration, Instant};

/// The options with which proxies are told where to connect to: MPICH's and Intel MPI's.
const OPTIONS: [&str; 2] = ["--control-port", "--upstream-host"];
/// As long as clients wait for the names of servers. After that the program says what is wrong.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
const LOOKUP_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the host to which a command line will connect can be looked up, if there is one and
/// not for too long.
pub fn await_host(line: &[u8]) {
    let Some(host) = host_of(line) else { return };
    let deadline = Instant::now() + LOOKUP_TIMEOUT;
    while (host, 0).to_socket_addrs().is_err() && Instant::now() < deadline {
        thread::sleep(LOOKUP_INTERVAL);
    }
}

/// The host to which a command line will connect.
fn host_of(line: &[u8]) -> Option<&str> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.find(|word| OPTIONS.contains(word))?;
    let place = words.next()?.trim_matches(['"', '\'']);
    let host = match place.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => place,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::mpich(
        "\"/opt/mpich/bin/hydra_pmi_proxy\" --control-port sum-launcher-0:39499 --rmk user --proxy-id 1",
        Some("sum-launcher-0")
    )]
    #[case::intel(
        "/opt/impi/bin/hydra_bstrap_proxy --upstream-host sum-launcher-0 --upstream-port 4711 --pgid 0",
        Some("sum-launcher-0")
    )]
    #[case::quoted("proxy --control-port 'sum-launcher-0:1'", Some("sum-launcher-0"))]
    #[case::nobody("orted -mca ess env --hnp-uri '1;tcp://10.0.0.1:4000'", None)]
    #[case::nothing_follows("proxy --control-port", None)]
    #[case::no_host("proxy --control-port :4711", None)]
    fn proxies_of_hydra_say_where_they_connect_to(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(host_of(line.as_bytes()), expected);
    }

    #[test]
    fn what_is_no_text_is_not_waited_for() {
        assert_eq!(host_of(b"proxy \xff --control-port a:1"), None);
    }
}
