//! GSSAPI: our client and our C library log in at Apache Kafka 4.3 with tickets of MIT's Kerberos server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, Kdc, Librdkafka, Output, Peer, ottla_command, require, run,
};

/// The service and the host of the listener's address.
const BROKER: &str = "kafka/127.0.0.1";
/// A login is refused at once; the client retries until then.
const GIVES_UP: &str = "message.timeout.ms=4000";
/// Several times as long as a slow machine needs.
const WITHIN: Duration = Duration::from_secs(60);

/// A Kerberos server, and Apache Kafka with a listener that wants its tickets.
struct World {
    kafka: KafkaCluster,
    // After Kafka, which renews its own ticket.
    kdc: Kdc,
}

impl World {
    fn start() -> Result<Self, Failure> {
        let kdc = Kdc::start()?;
        kdc.add(BROKER)?;
        let keytab = kdc.keytab(BROKER, "broker.keytab")?;
        let login = format!(
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab=\"{}\" principal=\"{}\";",
            keytab.display(),
            kdc.principal(BROKER)
        );
        let kafka = KafkaCluster::start_with(
            1,
            &KafkaOptions {
                properties: &[
                    ("listener.name.kerberos.sasl.enabled.mechanisms", "GSSAPI"),
                    ("listener.name.kerberos.gssapi.sasl.jaas.config", &login),
                    ("sasl.kerberos.service.name", "kafka"),
                ],
                listeners: &[("KERBEROS", "SASL_PLAINTEXT")],
                newest: true,
                jvm: &[&format!("-Djava.security.krb5.conf={}", kdc.config().display())],
                ..KafkaOptions::default()
            },
        )?;
        Ok(Self { kafka, kdc })
    }

    /// Runs a program with the properties of a client of the listener, and with a cache of tickets.
    fn run(
        &self,
        mut command: Command,
        properties: &[String],
        cache: &str,
        input: &[u8],
    ) -> Result<Output, Failure> {
        let address = self.kafka.listener("KERBEROS").to_string();
        // GSSAPI is the default of sasl.mechanism.
        command.args(["-b", &address, "-X", "security.protocol=sasl_plaintext"]);
        command.args(properties.iter().flat_map(|property| ["-X", property]));
        let name = command.get_program().to_string_lossy().into_owned();
        run(&name, self.kdc.enter(&mut command, cache), input, WITHIN)
    }

    fn ottla(
        &self,
        args: &[&str],
        properties: &[String],
        cache: &str,
        input: &[u8],
    ) -> Result<Output, Failure> {
        self.run(ottla_command(args)?, properties, cache, input)
    }
}

fn login(principal: &str, keytab: &Path) -> Vec<String> {
    vec![format!("sasl.kerberos.principal={principal}"), format!("sasl.kerberos.keytab={}", keytab.display())]
}

fn no_command() -> Vec<String> {
    vec!["sasl.kerberos.kinit.cmd=".to_owned(), GIVES_UP.to_owned()]
}

#[track_caller]
fn assert_refused(output: Output, parts: &[&str]) -> Result<(), Failure> {
    let output = output.failed()?;
    let errors = output.stderr_text();
    for part in ["127.0.0.1", "GSSAPI"].iter().chain(parts) {
        assert!(errors.contains(part), "`{part}` is missing: {}", output.failure("was refused"));
    }
    Ok(())
}

#[test]
fn a_client_logs_in_with_a_keytab_and_a_wrong_one_is_named() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    require!(Peer::Kerberos);
    require!(Peer::Kcat);
    let world = World::start()?;
    world.kdc.add("alice")?;
    let stale = world.kdc.keytab("alice", "stale.keytab")?;
    let keytab = world.kdc.keytab("alice", "alice.keytab")?;
    our_client(&world, &keytab, &stale)?;
    our_library(&world, &keytab, &stale)
}

fn our_client(world: &World, keytab: &Path, stale: &Path) -> Result<(), Failure> {
    let alice = login("alice", keytab);
    world.ottla(&["produce", "-t", "tickets"], &alice, "client", b"one\ntwo\n")?.succeeded()?;
    let consume = ["consume", "-t", "tickets", "-o", "beginning", "-e", "-f", "%s\n"];
    let consumed = world.ottla(&consume, &alice, "client", b"")?.succeeded()?;
    assert_eq!(consumed.lines(), ["one", "two"]);
    // SaslHandshake 0: tokens without Kafka's framing, and no response to the last one.
    let old = [&alice[..], &["api.version.request=false".to_owned()]].concat();
    world.ottla(&["produce", "-t", "tickets"], &old, "client", b"old\n")?.succeeded()?;
    let examined = world.ottla(&["doctor"], &alice, "client", b"")?.succeeded()?.stdout_text();
    assert!(examined.contains("sasl.mechanism=GSSAPI, the broker offers GSSAPI"), "{examined}");
    // The ticket of the last run is enough.
    world.ottla(&["produce", "-t", "tickets"], &no_command(), "client", b"three\n")?.succeeded()?;

    let produce = ["produce", "-t", "tickets"];
    let refused = |properties: &[String], cache: &str, parts: &[&str]| {
        let properties = [properties, &[GIVES_UP.to_owned()]].concat();
        assert_refused(world.ottla(&produce, &properties, cache, b"never\n")?, parts)
    };
    refused(&login("alice", stale), "stale", &["kinit: Preauthentication failed"])?;
    refused(&login("bob", keytab), "bob", &["kinit: Keytab contains no suitable keys for bob@OTTLA.TEST"])?;
    refused(&no_command(), "empty", &["no proof for kafka/127.0.0.1", "No Kerberos credentials available"])?;
    let unknown = [&alice[..], &["sasl.kerberos.service.name=orders".to_owned()]].concat();
    refused(&unknown, "client", &["no proof for orders/127.0.0.1", "not found in Kerberos database"])
}

fn our_library(world: &World, keytab: &Path, stale: &Path) -> Result<(), Failure> {
    let library = Librdkafka::ours()?;
    let kcat = |args: &[&str], properties: &[String], cache: &str, input: &[u8]| {
        let mut command = Command::new("kcat");
        library.load(&mut command).args(args);
        world.run(command, properties, cache, input)
    };
    let alice = login("alice", keytab);
    kcat(&["-P", "-t", "kcat-tickets"], &alice, "kcat", b"one\ntwo\n")?.succeeded()?;
    let consume = ["-C", "-t", "kcat-tickets", "-o", "beginning", "-e", "-q", "-f", "%s\n"];
    assert_eq!(kcat(&consume, &alice, "kcat", b"")?.succeeded()?.lines(), ["one", "two"]);
    let refused = kcat(&["-L", "-m", "5"], &login("alice", stale), "kcat-stale", b"")?;
    assert_refused(refused, &["kinit: Preauthentication failed"])
}
