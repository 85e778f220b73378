//! Where the observer is.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

const SCHEME: &str = "https://";
const DEFAULT_PORT: u16 = 443;

/// A server that speaks HTTP over TLS: `https://name:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    name: ServerName<'static>,
}

/// Why a text is no address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing else than HTTPS: a token is sent there.
    #[error("must begin with {SCHEME}")]
    Scheme,
    /// There is more than a name and a port.
    #[error("must be {SCHEME}name:port with nothing after it")]
    Excess,
    /// The name can't be that of a machine.
    #[error("must have the name of a host or an IP address after {SCHEME}, IPv6 in brackets")]
    Host,
    /// The port is none.
    #[error("must have a port from 1 to 65535 after the colon")]
    Port,
}

impl Address {
    /// What to look up: a name or an IP address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// For what the server's certificate must be.
    pub fn name(&self) -> &ServerName<'static> {
        &self.name
    }

    /// The name and the port, as a request carries them.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.authority())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(SCHEME).ok_or(AddressError::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(AddressError::Excess);
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or(AddressError::Host)?;
                host.parse::<Ipv6Addr>().map_err(|_| AddressError::Host)?;
                let port = after.strip_prefix(':');
                if port.is_none() && !after.is_empty() {
                    return Err(AddressError::Excess);
                }
                (host, port)
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| AddressError::Host)?;
        Ok(Self {
            host: host.to_owned(),
            port: port.map_or(Ok(DEFAULT_PORT), parse_port)?,
            name,
        })
    }
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    // Rust would accept a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if is_number { text.parse().ok() } else { None };
    port.filter(|port| *port > 0).ok_or(AddressError::Port)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "https://observer.yard.svc:9444",
        "observer.yard.svc",
        9444,
        "observer.yard.svc:9444"
    )]
    #[case(
        "https://observer.yard.svc:9444/",
        "observer.yard.svc",
        9444,
        "observer.yard.svc:9444"
    )]
    #[case("https://observer", "observer", 443, "observer:443")]
    #[case("https://10.0.0.1:1", "10.0.0.1", 1, "10.0.0.1:1")]
    #[case("https://[fd00::1]:9444", "fd00::1", 9444, "[fd00::1]:9444")]
    #[case("https://[::1]", "::1", 443, "[::1]:443")]
    fn is_read(#[case] text: &str, #[case] host: &str, #[case] port: u16, #[case] authority: &str) {
        let address: Address = text.parse().unwrap();
        assert_eq!((address.host(), address.port()), (host, port));
        assert_eq!(address.authority(), authority);
        assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[rstest]
    #[case("", AddressError::Scheme)]
    #[case("observer:9444", AddressError::Scheme)]
    #[case("http://observer:9444", AddressError::Scheme)]
    #[case("https://observer:9444/v1", AddressError::Excess)]
    #[case("https://observer:9444?x", AddressError::Excess)]
    #[case("https://me@observer:9444", AddressError::Excess)]
    #[case("https://[::1]9444", AddressError::Excess)]
    #[case("https://", AddressError::Host)]
    #[case("https://:9444", AddressError::Host)]
    #[case("https://two words:9444", AddressError::Host)]
    #[case("https://line\r\nbreak:9444", AddressError::Host)]
    #[case("https://[::1", AddressError::Host)]
    #[case("https://[observer]:9444", AddressError::Host)]
    #[case("https://observer:", AddressError::Port)]
    #[case("https://observer:0", AddressError::Port)]
    #[case("https://observer:+1", AddressError::Port)]
    #[case("https://observer:65536", AddressError::Port)]
    #[case("https://fd00::1", AddressError::Port)]
    fn is_refused(#[case] text: &str, #[case] expected: AddressError) {
        assert_eq!(text.parse::<Address>(), Err(expected));
    }
}
