//! TLS next to plaintext: our client on either listener of our broker, and the processor time of both.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, Process};
use serde_json::{Value, json};

use super::super::machine::cpu;
use super::super::table::{Samples, markdown};
use super::measured::met;
use super::{Compare, Options};

/// Our target: nanoseconds of a message over TLS above those over plaintext, of either side.
const ABOVE_PLAINTEXT_MAX_NS: f64 = 40.0;
/// The suite of the target.
const SUITE: &str = "ssl.cipher.suites=TLS_AES_128_GCM_SHA256";
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Two listeners of one broker.
struct Listeners {
    broker: Process,
    plaintext: String,
    tls: String,
    /// The certificate that clients trust.
    authority: String,
}

/// The figures of each pass.
const SIDES: [&str; 4] = ["produce, broker", "produce, client", "consume, broker", "consume, client"];

pub(super) fn wanted(options: &Options) -> bool {
    options.wants("tls")
}

impl Compare<'_> {
    pub(super) fn tls(&mut self) -> Result<(), Failure> {
        let count: u64 = if self.options.quick { 1_000_000 } else { 5_000_000 };
        let mut listeners = start(&self.peers.ottla.binary, self.scratch)?;
        let mut sides = SIDES.map(|side| (side, Samples::default()));
        // The first pass warms up.
        for pass in 0..=self.options.repeats(7, 2) {
            let plaintext = self.over(&listeners, false, count)?;
            let tls = self.over(&listeners, true, count)?;
            println!("  tls: plaintext {plaintext:.0?} ns, TLS {tls:.0?} ns");
            if pass == 0 {
                continue;
            }
            for (at, (_, samples)) in sides.iter_mut().enumerate() {
                samples.add("plaintext", plaintext[at]);
                samples.add("tls", tls[at]);
                samples.add("difference", tls[at] - plaintext[at]);
            }
        }
        let status = listeners.broker.stop()?;
        if !status.success() {
            return Err(listeners.broker.quoted(&Failure::new(format!("SIGTERM ended it with {status}"))));
        }
        self.outcome.tables += &table(count, &sides);
        let json = sides.iter().map(|(side, samples)| ((*side).to_owned(), samples.json()));
        self.outcome.json.push(json!({ "name": "ottla-1/tls", "sides": Value::Object(json.collect()) }));
        Ok(())
    }

    /// Produces and consumes a topic of its own. Returns nanoseconds per message, in the order of [`SIDES`].
    fn over(&mut self, listeners: &Listeners, is_tls: bool, count: u64) -> Result<[f64; 4], Failure> {
        let topic = self.topic();
        let messages = count.to_string();
        let servers = if is_tls { &listeners.tls } else { &listeners.plaintext };
        let mut common =
            vec!["--brokers", &**servers, "--topic", &*topic, "--count", &*messages, "--warmup", "0"];
        if is_tls {
            common.extend(["--tls", "--tls-ca", &*listeners.authority, "-X", SUITE]);
        }
        let ottla = &self.peers.ottla;
        ottla.command(&["topics", "create", &topic, "--brokers", &listeners.plaintext])?;
        let mut figures = [0.0; 4];
        for (at, command) in ["produce", "consume"].into_iter().enumerate() {
            let before = cpu(listeners.broker.id())?;
            let report = ottla.bench(&[&[command], &common[..]].concat())?;
            let broker = cpu(listeners.broker.id())?.saturating_sub(before);
            figures[2 * at] = broker.as_nanos() as f64 / count as f64;
            figures[2 * at + 1] = report.number("/cpu_ns_per_msg")?;
        }
        ottla.command(&["topics", "delete", &topic, "--brokers", &listeners.plaintext])?;
        Ok(figures)
    }
}

/// Starts a broker with a plaintext listener, and one with a certificate that `--secure` has made.
fn start(binary: &Path, scratch: &Path) -> Result<Listeners, Failure> {
    let secure = scratch.join("secure");
    let text = |path: &Path| path.display().to_string();
    let mut command = Command::new(binary);
    command.args(["broker", "--listen", "127.0.0.1:0", "--durability", "memory", "--secure", &text(&secure)]);
    let mut broker = Process::spawn("ottla broker --secure", &mut command)?;
    broker.wait_for_line("listening on", READY_WITHIN)?;
    broker.stop()?;

    let server = text(&secure.join("server.pem"));
    let mut command = Command::new(binary);
    command.args(["broker", "--durability", "os", "--data", &text(&scratch.join("tls"))]);
    for property in [
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0".to_owned(),
        "ssl.keystore.type=PEM".to_owned(),
        format!("ssl.keystore.location={server}"),
    ] {
        command.args(["-X", &property]);
    }
    let mut broker = Process::spawn("ottla broker", &mut command)?;
    let lines = broker.wait_for_lines("listening on ", 2, READY_WITHIN)?;
    let mut addresses = lines.iter().map(|line| line.trim_start_matches("listening on ").trim().to_owned());
    let (Some(plaintext), Some(tls)) = (addresses.next(), addresses.next()) else {
        return Err(broker.quoted(&Failure::new("ottla broker: it does not name two listeners")));
    };
    Ok(Listeners { broker, plaintext, tls, authority: text(&secure.join("ca.pem")) })
}

fn table(count: u64, sides: &[(&str, Samples)]) -> String {
    let rows = sides.iter().map(|(side, samples)| {
        let is_met = samples.median("difference").is_some_and(|ns| ns <= ABOVE_PLAINTEXT_MAX_NS);
        vec![
            (*side).to_owned(),
            samples.spread("plaintext"),
            samples.spread("tls"),
            samples.spread("difference"),
            met(is_met).to_owned(),
        ]
    });
    let header = ["", "plaintext ns", "TLS ns", "difference", "at most 40 ns"];
    let title = format!("TLS 1.3 with AES-128-GCM: {count} messages of 100 B, one partition");
    markdown(&title, &header, &rows.collect::<Vec<_>>())
}
