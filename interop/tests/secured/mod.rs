//! Clients that others wrote at brokers with security: the configurations that `ottla broker --secure` writes, each mechanism, and
//! stories at one cluster with TLS, SASL, an authorizer and share groups.

mod cluster;
mod mechanisms;
mod refusals;
mod share_groups;
mod tools;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Failure, OttlaBroker, Output, Peer, build_foreign_go, console, java_tool, require, run, wheel,
};

const WITHIN: Duration = Duration::from_secs(90);
const TOPIC: &str = "secured";

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = text(path);
    move |error| Failure::new(format!("{path}: {error}"))
}

#[test]
fn the_configurations_of_a_secure_broker_work_for_other_peoples_clients() -> Result<(), Failure> {
    require!(Peer::Java);
    require!(Peer::Go);
    require!(Peer::Librdkafka);
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let secure = scratch.path().join("secure");
    let broker = OttlaBroker::start(&["--secure", &text(&secure), "--topic", TOPIC])?;
    let bootstrap = broker.bootstrap();
    let java = secure.join("client-java.properties");
    assert_eq!(java_round_trip(&bootstrap, &java, "from java")?, ["from java"]);
    let wrong = scratch.path().join("wrong.properties");
    let right = fs::read_to_string(&java).map_err(failed(&java))?;
    fs::write(&wrong, right.replace("password=\"", "password=\"x")).map_err(failed(&wrong))?;
    let refused = java_produce(&bootstrap, &wrong, "never")?;
    let said = refused.stdout_text() + &refused.stderr_text();
    let expected = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512";
    assert!(said.contains("SaslAuthenticationException") && said.contains(expected), "{said}");

    let librdkafka = secure.join("client.properties");
    assert_eq!(python(&librdkafka, TOPIC, "from python", &[])?, ["read: from java", "read: from python"]);
    let refused = python(&librdkafka, TOPIC, "never", &["sasl.password=wrong"])?;
    assert!(refused[0].starts_with("refused:") && refused[0].contains(expected), "{refused:?}");

    let snippet = secure.join("client_franz.go");
    let code = fs::read_to_string(&snippet).map_err(failed(&snippet))?;
    let imports = "import (\n\t\"context\"\n\t\"fmt\"\n\t\"time\"\n";
    let code = code.replacen("import (\n", imports, 1);
    for (code, expected) in [
        (code.clone(), "read: from go"),
        (code.replace("Pass: \"", "Pass: \"x"), "SASL_AUTHENTICATION_FAILED"),
    ] {
        let (source, program) = (scratch.path().join("main.go"), scratch.path().join("program"));
        fs::write(&source, code + include_str!("main.go")).map_err(failed(&source))?;
        build_foreign_go(&source, &program)?;
        let printed = run("franz-go", Command::new(&program).args([TOPIC, "from go"]), b"", WITHIN)?;
        let said = printed.succeeded()?.stdout_text();
        assert!(said.contains(expected), "{expected}: {said}");
    }
    broker.stop()
}

fn java_produce(bootstrap: &str, config: &Path, value: &str) -> Result<Output, Failure> {
    let config = text(config);
    let args = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--producer.config", &config];
    let short = ["--producer-property", "max.block.ms=20000"];
    java_tool(console::PRODUCER, &[&args[..], &short].concat(), format!("{value}\n").as_bytes())
}

/// Produces a record with Java's console and returns what its consumer reads, up to this record.
fn java_round_trip(bootstrap: &str, config: &Path, value: &str) -> Result<Vec<String>, Failure> {
    java_produce(bootstrap, config, value)?.succeeded()?;
    let config = text(config);
    let args =
        ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--from-beginning", "--timeout-ms", "10000"];
    let consumer = [&args[..], &["--consumer.config", &config]].concat();
    Ok(java_tool(console::CONSUMER, &consumer, b"")?.lines())
}

/// The lines that the program on confluent-kafka prints.
fn python(config: &Path, topic: &str, value: &str, more: &[&str]) -> Result<Vec<String>, Failure> {
    let mut python = Command::new("python3");
    python.arg(ottla_interop::workspace_root().join("interop/foreign/python/secured.py"));
    python.env("PYTHONPATH", wheel()?).env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg(config).args([topic, value]).args(more);
    Ok(run("confluent-kafka", &mut python, b"", WITHIN)?.succeeded()?.lines())
}
