//! `ottla broker` as a process of its own, so that its memory is its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::tls;

/// Partitions that clients may create in all.
const PARTITIONS_MAX: u32 = 200;
pub(crate) const HONEST_TOPIC: &str = "honest";

pub(crate) struct BrokerProcess {
    child: Child,
    address: SocketAddr,
    sasl_address: SocketAddr,
    tls_address: SocketAddr,
    log: Option<thread::JoinHandle<String>>,
}

impl BrokerProcess {
    pub(crate) fn start(data: &Path, budget_mib: u64) -> Self {
        let program = std::env::var_os("OTTLA_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_ottla").into());
        let mut command = Command::new(program);
        command.args(["broker", "--durability", "os", "--data"]).arg(data);
        for topic in [HONEST_TOPIC, "orders"] {
            command.args(["--topic", &format!("{topic}:1")]);
        }
        for (name, value) in
            [("memory.max.bytes", budget_mib << 20), ("partitions.total.max", PARTITIONS_MAX.into())]
        {
            command.args(["-X", &format!("{name}={value}")]);
        }
        let certificate = tls::certificate();
        for (name, value) in [
            ("listeners", "PLAINTEXT://127.0.0.1:0,LOGINS://127.0.0.1:0,SECURE://127.0.0.1:0"),
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,SECURE:SSL"),
            ("listener.name.secure.ssl.keystore.type", "PEM"),
            ("listener.name.secure.ssl.keystore.certificate.chain", &certificate.pem),
            ("listener.name.secure.ssl.keystore.key", &certificate.key_pem),
            ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256"),
            ("listener.name.logins.plain.sasl.jaas.config", "PlainLoginModule required user_alice=right;"),
        ] {
            command.args(["-X", &format!("{name}={value}")]);
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the broker starts");
        let mut stderr = child.stderr.take().expect("piped");
        let log = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut address = || {
            let mut line = String::new();
            out.read_line(&mut line).expect("a line");
            line.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok())
        };
        let (Some(address), Some(sasl_address), Some(tls_address)) = (address(), address(), address()) else {
            let _ = child.kill();
            panic!("no listeners: {}", log.join().expect("no panic"));
        };
        Self { child, address, sasl_address, tls_address, log: Some(log) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener that requires a login.
    pub(crate) fn sasl_address(&self) -> SocketAddr {
        self.sasl_address
    }

    /// The listener with TLS.
    pub(crate) fn tls_address(&self) -> SocketAddr {
        self.tls_address
    }

    /// The largest resident memory so far.
    pub(crate) fn resident_peak_mib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the broker runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line for it");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
        kib / 1024
    }

    /// Ends the broker. Its log must have no panic.
    pub(crate) fn stop(mut self) {
        self.child.kill().expect("it runs");
        let log = self.log.take().expect("not taken yet").join().expect("no panic");
        assert!(!log.contains("panicked"), "{log}");
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(log) = self.log.take().filter(|_| thread::panicking()) {
            let log = log.join().unwrap_or_default();
            eprintln!("the end of the broker's log:\n{}", &log[log.len().saturating_sub(4000)..]);
        }
    }
}
