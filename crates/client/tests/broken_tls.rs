//! Members of a group while TLS with the brokers fails: they stay members, and continue when it works again.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread};
use ottla_client::{
    Client, Config, Connecting, Connector, Consumer, Error, Event, Io, Polled, Record, SecurityProtocol,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Authority;
use crate::seats::{PATIENCE, block_on};

/// The time for which TLS fails: many heartbeats and attempts to connect.
const OUTAGE: Duration = Duration::from_millis(1500);

/// In-memory connections to a TLS server in front of a broker. While it is broken, it ends connections without close_notify and
/// handshakes without an answer.
struct Relay {
    acceptor: TlsAcceptor,
    broker: SocketAddr,
    is_broken: watch::Sender<bool>,
}

impl Relay {
    fn before(broker: &BrokerThread, authority: &Authority) -> Arc<Self> {
        let certificate = authority.sign(&["broker.test", "127.0.0.1"]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let chain = vec![CertificateDer::from(certificate.der)];
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).expect("a key");
        let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).expect("a pair")));
        let broker = broker.bootstrap_servers().parse().expect("one address");
        Arc::new(Self { acceptor, broker, is_broken: watch::Sender::new(false) })
    }
}

impl Connector for Relay {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (acceptor, broker, mut breaks) = (self.acceptor.clone(), self.broker, self.is_broken.subscribe());
        tokio::spawn(async move {
            let relaying = async {
                let mut tls = acceptor.accept(theirs).await?;
                let mut tcp = TcpStream::connect(broker).await?;
                tokio::io::copy_bidirectional(&mut tls, &mut tcp).await?;
                io::Result::Ok(())
            };
            tokio::select! {
                biased;
                _ = breaks.wait_for(|is_broken| *is_broken) => {}
                _ = relaying => {}
            }
        });
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    }
}

/// Heartbeats at short intervals.
fn broker() -> BrokerThread {
    let builder = Broker::builder().memory().topic("orders", 2).topic("refunds", 1);
    let builder = builder.configure(|config| {
        for group in ["consumer", "share"] {
            for name in ["min.heartbeat.interval.ms", "heartbeat.interval.ms"] {
                config.set(&format!("group.{group}.{name}"), "100").expect("a property");
            }
        }
    });
    builder.spawn().expect("a broker in memory")
}

fn config(authority: &Authority, properties: &[(&str, &str)]) -> Config {
    let mut config = Config::new("broker.test:9093");
    config.security.protocol = SecurityProtocol::Ssl;
    config.security.tls.ca_pem = Some(authority.pem.clone());
    let often = [("reconnect.backoff.ms", "10"), ("reconnect.backoff.max.ms", "50")];
    config.set_all(often).expect("known properties");
    config.set_all(properties.iter().copied()).expect("known properties");
    config
}

/// The events of a consumer, and its TLS errors.
#[derive(Default)]
struct Seen {
    owned: usize,
    lost: usize,
    errors: usize,
}

impl Seen {
    fn poll_until(&mut self, consumer: &mut Consumer, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "in time: {what}");
            match consumer.poll_blocking(Duration::from_millis(20)) {
                Ok(Some(Polled::Event(Event::Assigned(partitions)))) => self.owned += partitions.len(),
                Ok(Some(Polled::Event(Event::Revoked(partitions) | Event::Lost(partitions)))) => {
                    self.owned -= partitions.len();
                    self.lost += partitions.len();
                }
                Ok(_) => {}
                Err(Error::Tls { .. }) => self.errors += 1,
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

/// A consumer that subscribed to `refunds` while TLS failed, and the events until it owned the partition.
fn ride_out(properties: &[(&str, &str)], heartbeat: ApiKey) -> Seen {
    let (broker, authority) = (broker(), Authority::new("authority"));
    let relay = Relay::before(&broker, &authority);
    let client = Client::with_connector(config(&authority, properties), relay.clone()).expect("a client");
    let mut consumer = client.consumer();
    let control = consumer.control().clone();
    control.subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let mut seen = Seen::default();
    seen.poll_until(&mut consumer, "the first assignment", |seen| seen.owned == 2);

    relay.is_broken.send_replace(true);
    control.subscribe(&["orders", "refunds"]).wait(PATIENCE).expect("subscribed");
    let outage = Instant::now() + OUTAGE;
    seen.poll_until(&mut consumer, "the outage", |seen| Instant::now() > outage && seen.errors > 0);
    relay.is_broken.send_replace(false);

    seen.poll_until(&mut consumer, "the second assignment", |seen| seen.owned == 3);
    let heartbeats = broker.cluster().requests(heartbeat) + 3;
    seen.poll_until(&mut consumer, "heartbeats", |_| broker.cluster().requests(heartbeat) >= heartbeats);
    seen
}

#[test]
fn a_member_keeps_its_partitions_while_tls_fails() {
    let properties = [("group.id", "billing"), ("group.protocol", "consumer")];
    let seen = ride_out(&properties, ApiKey::ConsumerGroupHeartbeat);
    assert_eq!((seen.owned, seen.lost), (3, 0));
}

#[test]
fn a_cooperative_member_keeps_its_partitions_while_tls_fails() {
    let properties = [
        ("group.id", "billing"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("heartbeat.interval.ms", "100"),
    ];
    let seen = ride_out(&properties, ApiKey::Heartbeat);
    assert_eq!((seen.owned, seen.lost), (3, 0));
}

#[test]
fn a_share_consumer_reports_that_tls_fails_and_continues_after_that() {
    let (broker, authority) = (broker(), Authority::new("authority"));
    let relay = Relay::before(&broker, &authority);
    let config = config(&authority, &[("group.id", "workers")]);
    let client = Client::with_connector(config, relay.clone()).expect("a client");
    let mut consumer = client.share_consumer().expect("a share consumer");
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while block_on(consumer.assignment()).expect("known").len() < 2 {
        assert!(Instant::now() < deadline, "the assignment comes");
        let _ = consumer.poll_blocking(Duration::from_millis(20)).expect("no error");
    }

    relay.is_broken.send_replace(true);
    let (outage, mut errors) = (Instant::now() + OUTAGE, 0);
    while Instant::now() < outage || errors == 0 {
        assert!(Instant::now() < deadline, "the error comes");
        match consumer.poll_blocking(Duration::from_millis(20)) {
            Ok(batch) => assert!(batch.is_none()),
            Err(Error::Tls { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // One for the heartbeats, and one for the connection to the leader.
    assert!(errors <= 2, "{errors} errors");
    relay.is_broken.send_replace(false);

    // The group begins at the end of the log, so that records before the next fetch would not be delivered.
    let producer = client.producer();
    loop {
        assert!(Instant::now() < deadline, "a record comes");
        let _unawaited = producer.enqueue_blocking(Record::to("orders").value("paid")).expect("taken");
        if consumer.poll_blocking(Duration::from_millis(20)).expect("no error").is_some() {
            break;
        }
    }
}

/// The failure of TLS counted as final: the producer was closed, and the application had to make another.
#[test]
fn a_commit_while_tls_fails_can_be_tried_again() {
    let (broker, authority) = (broker(), Authority::new("authority"));
    let relay = Relay::before(&broker, &authority);
    let config = config(&authority, &[("transactional.id", "till-1")]);
    let client = Client::with_connector(config, relay.clone()).expect("a client");
    let producer = client.producer();
    block_on(producer.init_transactions(PATIENCE)).expect("initialized");
    producer.begin_transaction().expect("ready");
    block_on(producer.send(Record::to("orders").partition(0).value("paid"))).expect("written");

    relay.is_broken.send_replace(true);
    let error = block_on(producer.commit_transaction(OUTAGE)).expect_err("not while TLS fails");
    assert!(error.is_retriable(), "{error}");
    relay.is_broken.send_replace(false);

    block_on(producer.commit_transaction(PATIENCE)).expect("committed");
    producer.begin_transaction().expect("ready for another");
}
