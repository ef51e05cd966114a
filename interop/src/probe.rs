//! A minimal Kafka client that requests a broker's metadata.
//!
//! It is written by hand, so that the harness does not depend on the protocol code under test.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::failure::{Failure, wait_until};

/// Time limit of one connection before the next attempt.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Maximum size of an answer; a Metadata response with a few brokers is much smaller.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The ports of programs that need theirs before they start. Below 32768, where the kernel takes the ports of outgoing
/// connections from: while a program restarts, no connection can occupy its port.
const PORTS: std::ops::Range<u16> = 10_000..32_768;

/// `count` different loopback TCP ports that were free a moment ago.
///
/// Another process may take one meanwhile, so callers retry with other ports if the bind fails.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    const TRIES_MAX: usize = 10_000;
    let listeners: Vec<TcpListener> = (0..TRIES_MAX)
        .filter_map(|_| TcpListener::bind(("127.0.0.1", fastrand::u16(PORTS))).ok())
        .take(count)
        .collect();
    if listeners.len() < count {
        return Err(io::Error::other(format!("{} of {count} free ports in {PORTS:?}", listeners.len())));
    }
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// The first of `count` consecutive loopback TCP ports that were free a moment ago, for programs that count their ports.
pub fn consecutive_free_ports(count: u16) -> io::Result<u16> {
    const TRIES_MAX: usize = 1000;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..TRIES_MAX)
        .map(|_| fastrand::u16(PORTS.start..PORTS.end - count))
        .find(|&first| (first..first + count).all(is_free))
        .ok_or_else(|| io::Error::other(format!("no {count} free ports in {PORTS:?}")))
}

/// Starts a program that binds [`free_ports`], and retries if another process took one of them.
pub fn with_free_ports<T>(mut start: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    const STARTS_MAX: usize = 3;
    let mut starts = 1;
    loop {
        match start() {
            Err(failure) if starts < STARTS_MAX && failure.to_string().contains("Address already in use") => {
                starts += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Waits until the broker at `address` answers a Metadata request with at least `count` brokers.
pub fn wait_for_brokers(address: SocketAddr, count: usize, within: Duration) -> Result<(), Failure> {
    wait_until(&format!("{count} brokers in the metadata of {address}"), within, || {
        brokers(address).is_ok_and(|brokers| brokers.len() >= count).then_some(())
    })
}

/// The brokers in the metadata of the broker at `address`, as `(node id, host, port)`.
pub fn brokers(address: SocketAddr) -> io::Result<Vec<(i32, String, i32)>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(&metadata_request())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(io::Error::other(format!("a Metadata answer of {length} bytes")));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    parse(&answer)
        .ok_or_else(|| io::Error::other(format!("a Metadata answer that ends early: {answer:02x?}")))
}

/// Metadata v1 with an empty topic list: brokers only. Version 1 is the lowest in which an empty list means none, and
/// every broker since 0.10 supports it.
fn metadata_request() -> Vec<u8> {
    const METADATA: i16 = 3;
    const VERSION: i16 = 1;
    const CORRELATION_ID: i32 = 7;
    const CLIENT_ID: &[u8] = b"probe";
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(VERSION.to_be_bytes());
    body.extend(CORRELATION_ID.to_be_bytes());
    body.extend((CLIENT_ID.len() as i16).to_be_bytes());
    body.extend(CLIENT_ID);
    body.extend(0_i32.to_be_bytes());
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

fn parse(answer: &[u8]) -> Option<Vec<(i32, String, i32)>> {
    let mut rest = answer.get(4..)?;
    let count = take_i32(&mut rest)?;
    (0..count)
        .map(|_| {
            let node_id = take_i32(&mut rest)?;
            let host = take_string(&mut rest)?;
            let port = take_i32(&mut rest)?;
            let _rack = take_string(&mut rest)?;
            Some((node_id, host, port))
        })
        .collect()
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    rest.split_off(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
}

/// A nullable string; null is read as empty.
fn take_string(rest: &mut &[u8]) -> Option<String> {
    let length = i16::from_be_bytes(rest.split_off(..2)?.try_into().ok()?);
    let bytes = rest.split_off(..usize::try_from(length).unwrap_or(0))?;
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_two_brokers_is_read_and_a_short_one_refused() {
        let mut answer = vec![0, 0, 0, 7, 0, 0, 0, 2];
        for (node_id, port) in [(1_u8, 0x23_u8), (2, 0x24)] {
            answer.extend([0, 0, 0, node_id, 0, 1, b'h', 0, 0, 0, port, 0xff, 0xff]);
        }
        assert_eq!(parse(&answer).unwrap(), [(1, "h".to_owned(), 0x23), (2, "h".to_owned(), 0x24)]);
        assert_eq!(parse(&answer[..answer.len() - 1]), None);
    }

    #[test]
    fn free_ports_differ_and_are_not_those_of_outgoing_connections() {
        let mut ports = free_ports(8).unwrap();
        assert!(ports.iter().all(|port| PORTS.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}
