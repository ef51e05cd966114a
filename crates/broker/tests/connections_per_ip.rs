//! `max.connections.per.ip` and its overrides, from the start on and changed while the broker runs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, Listener, StartError};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

use crate::common::{PATIENCE, Raw};
use crate::{security, tls};

const BROKERS: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Changes settings of all brokers; `None` deletes one.
fn alter(connection: &mut Raw, changes: &[(&str, Option<&str>)]) -> ErrorCode {
    let configs = changes.iter().map(|(name, value)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: if value.is_some() { SET } else { DELETE },
        value: value.map(str::to_owned),
    });
    let resource = AlterConfigsResource {
        resource_type: BROKERS,
        resource_name: String::new(),
        configs: configs.collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    connection.ask(1, &request).expect("an answer").responses.remove(0).error_code
}

/// Connects once the broker has noticed that another connection has ended.
fn connect_in_time(address: SocketAddr) -> Raw {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut connection = Raw::connect(address);
        if connection.is_served() {
            return connection;
        }
        assert!(Instant::now() < deadline, "the address has no room");
    }
}

/// They had no effect.
#[test]
fn the_connections_of_an_address_are_limited_and_the_limit_changes_at_once() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let address = broker.addresses()[0];
    let mut admin = Raw::connect(address);
    let mut second = Raw::connect(address);
    assert!(admin.is_served() && second.is_served());
    assert_eq!(alter(&mut admin, &[("max.connections.per.ip", Some("2"))]), ErrorCode::None);
    assert!(!Raw::connect(address).is_served(), "two are open");
    assert!(second.is_served());
    drop(second);
    let mut second = connect_in_time(address);
    let overrides = ("max.connections.per.ip.overrides", Some("10.0.0.1:1,127.0.0.1:3"));
    assert_eq!(alter(&mut admin, &[overrides]), ErrorCode::None);
    let mut third = connect_in_time(address);
    assert!(!Raw::connect(address).is_served(), "three are open");
    let lower = [("max.connections.per.ip", Some("1")), ("max.connections.per.ip.overrides", None)];
    assert_eq!(alter(&mut admin, &lower), ErrorCode::None);
    assert!(second.is_served() && third.is_served(), "a lower limit closes no connection");
    assert!(!Raw::connect(address).is_served());
    let text = broker.cluster().metrics_text(10);
    assert!(!text.contains("ottla_connections_refused_total 0\n"), "{text}");
    assert_eq!(alter(&mut admin, &[("max.connections.per.ip", None)]), ErrorCode::None);
    assert!(Raw::connect(address).is_served());
}

/// They counted after their handshake: an address could have a thousand of them beside its connections.
#[test]
fn connections_that_do_not_finish_their_tls_handshake_count() {
    for limit in ["max.connections.per.ip", "max.connections"] {
        let secure = Listener::new("SECURE", security::any_port()).tls(security::tls(tls::certificate()));
        let builder = Broker::builder().memory().listener(secure);
        let builder = builder.configure(|config| config.set(limit, "2").expect("a number"));
        let broker = builder.spawn().expect("a broker");
        let address = broker.addresses()[0];
        let silent = tls::connect(address, 1 << 16);
        let served = tls::TlsClient::connect(address, 1 << 16).expect("a handshake");
        let deadline = Instant::now() + PATIENCE;
        while broker.cluster().connections_open() < 2 {
            assert!(Instant::now() < deadline, "{limit}: the silent connection does not count");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(tls::TlsClient::connect(address, 1 << 16).is_none(), "{limit}: one is shaking hands");
        drop(silent);
        while tls::TlsClient::connect(address, 1 << 16).is_none() {
            assert!(Instant::now() < deadline, "{limit}: the silent connection counts after its end");
        }
        drop(served);
    }
}

#[test]
fn limits_that_would_let_no_client_in_are_refused() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut admin = Raw::connect(broker.addresses()[0]);
    let (per_ip, overrides) = ("max.connections.per.ip", "max.connections.per.ip.overrides");
    for changes in [
        &[(per_ip, Some("0"))][..],
        &[(per_ip, Some("0")), (overrides, Some(""))],
        &[(per_ip, Some("-1"))],
        &[(overrides, Some("localhost:5"))],
        &[(overrides, Some("127.0.0.1"))],
    ] {
        assert_eq!(alter(&mut admin, changes), ErrorCode::InvalidRequest, "{changes:?}");
    }
    let both = [(per_ip, Some("0")), (overrides, Some("127.0.0.1:5"))];
    assert_eq!(alter(&mut admin, &both), ErrorCode::None);
    assert_eq!(alter(&mut admin, &[(overrides, None)]), ErrorCode::InvalidRequest);
    assert!(Raw::connect(broker.addresses()[0]).is_served());
}

#[test]
fn the_limit_of_the_start_applies() {
    let start = |value: &'static str| {
        let builder = Broker::builder().memory();
        builder.configure(|config| config.set("max.connections.per.ip", value).expect("a number")).spawn()
    };
    let broker = start("1").expect("a broker");
    let mut first = Raw::connect(broker.addresses()[0]);
    assert!(first.is_served() && !Raw::connect(broker.addresses()[0]).is_served());
    assert!(matches!(start("0"), Err(StartError::Property(reason)) if reason.contains("overrides")));
}

/// The check took the default for a deleted setting: the limit of the start let no client in, and its exceptions were not found.
#[test]
fn a_deleted_limit_is_checked_as_that_of_the_start() {
    let (per_ip, overrides) = ("max.connections.per.ip", "max.connections.per.ip.overrides");
    let builder = Broker::builder().memory().configure(|config| {
        config.set(per_ip, "0").expect("a number");
        config.set(overrides, "127.0.0.1:5").expect("an address");
    });
    let broker = builder.spawn().expect("a broker");
    let mut admin = Raw::connect(broker.addresses()[0]);
    assert_eq!(alter(&mut admin, &[(overrides, Some("127.0.0.1:7"))]), ErrorCode::None);
    assert_eq!(alter(&mut admin, &[(overrides, None)]), ErrorCode::None, "those of the start apply");
    assert_eq!(alter(&mut admin, &[(per_ip, Some("9")), (overrides, Some(""))]), ErrorCode::None);
    assert_eq!(alter(&mut admin, &[(per_ip, None)]), ErrorCode::InvalidRequest, "it is 0 from the start on");
    assert!(Raw::connect(broker.addresses()[0]).is_served());
}
