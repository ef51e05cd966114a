//! Our release binary: its broker as a process, its benchmarks run to their end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ottla_interop::{Failure, Process, probe, run};
use serde_json::Value;

const READY_WITHIN: Duration = Duration::from_secs(60);
const BENCH_WITHIN: Duration = Duration::from_secs(10 * 60);

/// A connection is tried again so soon: short against the times that are measured, long enough to leave the CPU to
/// the broker that is starting.
const TRY_EVERY: Duration = Duration::from_micros(100);

#[derive(Clone)]
pub(super) struct Ottla {
    pub(super) binary: PathBuf,
}

/// The output of a benchmark.
pub(super) struct Report {
    name: String,
    fields: Value,
    text: String,
}

impl Ottla {
    /// Starts a broker on `data`; with it, the time from the start of the process to its first Metadata answer.
    pub(super) fn broker(&self, data: &Path, durability: &str) -> Result<Broker, Failure> {
        self.broker_with(data, durability, &[])
    }

    /// The same with more options.
    pub(super) fn broker_with(
        &self,
        data: &Path,
        durability: &str,
        options: &[&str],
    ) -> Result<Broker, Failure> {
        let port = probe::free_ports(1).map_err(|error| Failure::new(format!("a port: {error}")))?[0];
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = Command::new(&self.binary);
        command.args(["broker", "--durability", durability, "--listen", &address.to_string()]);
        // A broker in memory refuses a directory.
        if durability != "memory" {
            command.arg("--data").arg(data);
        }
        command.args(options);
        let started = Instant::now();
        let mut process = Process::spawn("ottla broker", &mut command)?;
        while probe::brokers(address).is_err() {
            if process.try_exit().is_some() || started.elapsed() > READY_WITHIN {
                return Err(process.quoted(&Failure::new("ottla broker: it does not answer")));
            }
            std::thread::sleep(TRY_EVERY);
        }
        Ok(Broker { process, address, ready_after: started.elapsed() })
    }

    /// Runs `ottla bench ARGS --json`.
    pub(super) fn bench(&self, args: &[&str]) -> Result<Report, Failure> {
        let output = self.command(&[&["bench"], args, &["--json"]].concat())?;
        Report::parse("ottla bench", output.stdout_text())
    }

    /// Runs any command, which must succeed.
    pub(super) fn command(&self, args: &[&str]) -> Result<ottla_interop::Output, Failure> {
        let mut command = Command::new(&self.binary);
        command.args(args);
        run(&format!("ottla {}", args.join(" ")), &mut command, b"", BENCH_WITHIN)?.succeeded()
    }
}

impl Report {
    /// The last line is JSON.
    pub(super) fn parse(name: &str, text: String) -> Result<Self, Failure> {
        let last = text.lines().last().unwrap_or_default();
        let fields = serde_json::from_str(last)
            .map_err(|error| Failure::new(format!("{name}: its last line is no JSON: {error}: {text}")))?;
        Ok(Self { name: name.to_owned(), fields, text })
    }

    /// The number at `path`, whose parts are separated by slashes.
    pub(super) fn number(&self, path: &str) -> Result<f64, Failure> {
        let number = self.fields.pointer(path).and_then(Value::as_f64);
        number.ok_or_else(|| Failure::new(format!("{}: no number {path} in {}", self.name, self.fields)))
    }

    /// The verification sum, which is in the title.
    pub(super) fn sum(&self) -> Result<&str, Failure> {
        let sum = self.text.split("sum ").nth(1).and_then(|rest| rest.split_whitespace().next());
        sum.ok_or_else(|| Failure::new(format!("{}: no sum in {}", self.name, self.text)))
    }
}

pub(super) struct Broker {
    process: Process,
    address: SocketAddr,
    pub(super) ready_after: Duration,
}

impl Broker {
    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn bootstrap(&self) -> String {
        self.address.to_string()
    }

    /// Stops it with SIGTERM and demands a clean exit.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let status = self.process.stop()?;
        if status.success() {
            return Ok(());
        }
        Err(self.process.quoted(&Failure::new(format!("ottla broker: SIGTERM ended it with {status}"))))
    }
}
