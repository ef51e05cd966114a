//! IPv6: the broker listens on `[::1]` and advertises it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{Client, Config, Record};
use ottla_interop::{Peer, require};

/// Delivery timeout while the broker is reachable.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_broker_on_ipv6_is_reachable() {
    require!(Peer::Ipv6);
    let address = "[::1]:0".parse().expect("an address");
    let broker = Broker::builder().memory().listen(address).topic("orders", 1).spawn().expect("a broker");
    let servers = broker.bootstrap_servers();
    assert!(servers.starts_with("[::1]:"), "{servers}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (family, reached) in [("any", true), ("v6", true), ("v4", false)] {
        let mut config = Config::new(&*servers);
        config.set("broker.address.family", family).expect("known");
        config.delivery_timeout = if reached { PATIENCE } else { Duration::from_millis(300) };
        let client = Client::new(config).expect("a client");
        let sent = client.producer().try_enqueue(Record::to("orders").value("through six"));
        let fate = sent.expect("taken").wait(PATIENCE).expect("in time");
        if reached {
            fate.expect("written");
            let cluster = runtime.block_on(client.admin().describe_cluster()).expect("described");
            assert_eq!(cluster.brokers[0].host, "::1", "{family}");
        } else {
            let error = fate.expect_err("no such address").to_string();
            assert!(error.contains("[::1]"), "{error}");
        }
    }
}
