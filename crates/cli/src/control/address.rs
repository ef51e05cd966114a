//! The addresses that a broker is controlled at: a unix socket, or a loopback port with a token.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use crate::failure::sentence;

/// The address at which a broker is controlled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ControlAddress {
    /// A unix socket, which its owner alone may use.
    Unix(PathBuf),
    /// A port of this machine.
    Loopback(SocketAddr),
}

impl ControlAddress {
    /// The same address for a program in another directory.
    pub(crate) fn absolute(&self) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            Self::Loopback(address) => Self::Loopback(*address),
        }
    }
}

impl FromStr for ControlAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("`unix:`: the path of the socket is missing".into()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let mut addresses = text
            .to_socket_addrs()
            .map_err(|error| format!("`{text}`: {}; expected unix:PATH or HOST:PORT", sentence(&error)))?;
        match addresses.next() {
            Some(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Some(_) => {
                Err(format!("`{text}`: a broker is controlled from its own machine: expected 127.0.0.1:PORT"))
            }
            None => Err(format!("`{text}`: no address")),
        }
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_and_ports_of_this_machine() {
        let parse = str::parse::<ControlAddress>;
        assert_eq!(parse("unix:/run/o.sock"), Ok(ControlAddress::Unix("/run/o.sock".into())));
        assert_eq!(parse("127.0.0.1:0").expect("a port").to_string(), "127.0.0.1:0");
        let here = std::env::current_dir().expect("a directory");
        let relative = parse("unix:o.sock").expect("a path").absolute();
        assert_eq!(relative, ControlAddress::Unix(here.join("o.sock")));
        assert_eq!(parse("127.0.0.1:1").expect("a port").absolute().to_string(), "127.0.0.1:1");
        for wrong in ["unix:", "0.0.0.0:9644", "9644", "192.0.2.1:1"] {
            let refused = parse(wrong).expect_err("no such address");
            assert!(refused.starts_with(&format!("`{wrong}`")), "{refused}");
        }
    }
}
