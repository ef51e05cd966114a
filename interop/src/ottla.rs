//! The `ottla` binary: its broker as a process, and its commands.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::process::{Output, Process, run};
use crate::workspace::target_dir;

/// The broker starts in milliseconds; recovery of a large log, or a loaded machine, takes longer.
const READY_WITHIN: Duration = Duration::from_secs(30);

const COMMAND_WITHIN: Duration = Duration::from_secs(60);

/// The prefix of the line that the broker prints for each listener once it accepts connections.
const READY_LINE: &str = "listening on ";

/// A running `ottla broker`. Dropping it stops it and removes its temporary data.
pub struct OttlaBroker {
    process: Process,
    addresses: Vec<SocketAddr>,
    data: PathBuf,
    // After the process, so that the broker stops before its data is removed.
    _scratch: Option<TempDir>,
}

/// The `ottla` binary: `OTTLA_BIN`, or the newer of the release and the debug build.
pub fn ottla_binary() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("OTTLA_BIN") {
        return Ok(path.into());
    }
    let built = ["release", "debug"].map(|profile| target_dir().join(profile).join("ottla"));
    let modified = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified()).ok();
    let newest = built.iter().filter(|path| modified(path).is_some()).max_by_key(|path| modified(path));
    newest.cloned().ok_or_else(|| {
        Failure::new(format!("{} does not exist: run cargo build --package ottla", built[1].display()))
    })
}

/// Runs an `ottla` command until it exits.
pub fn ottla(args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    let name = format!("ottla {}", args.first().unwrap_or(&""));
    run(&name, &mut ottla_command(args)?, stdin, COMMAND_WITHIN)
}

/// An `ottla` command that is not started, for a test that needs its own [`Process`].
pub fn ottla_command(args: &[&str]) -> Result<Command, Failure> {
    let mut command = Command::new(ottla_binary()?);
    command.args(args);
    Ok(command)
}

impl OttlaBroker {
    /// Starts a broker on an empty data directory and an ephemeral port. `args` are appended to the command line.
    pub fn start(args: &[&str]) -> Result<Self, Failure> {
        let scratch = tempfile::Builder::new()
            .prefix("ottla-data-")
            .tempdir()
            .map_err(|error| Failure::new(format!("a data directory: {error}")))?;
        let (process, addresses) = launch(scratch.path(), args)?;
        Ok(Self { process, addresses, data: scratch.path().to_owned(), _scratch: Some(scratch) })
    }

    /// Starts a broker on `data`, which is kept when the broker is dropped.
    pub fn start_on(data: &Path, args: &[&str]) -> Result<Self, Failure> {
        let (process, addresses) = launch(data, args)?;
        Ok(Self { process, addresses, data: data.to_owned(), _scratch: None })
    }

    /// The value for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        addresses.join(",")
    }

    /// The addresses it listens on, in the order in which it printed them.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Stops the broker with SIGTERM and requires a clean exit.
    pub fn stop(mut self) -> Result<(), Failure> {
        let status = self.process.stop()?;
        if status.success() {
            return Ok(());
        }
        Err(self.process.quoted(&Failure::new(format!("ottla broker: SIGTERM ended it with {status}"))))
    }

    /// Kills the broker with SIGKILL.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.process.kill().map(|_| ())
    }
}

/// Starts the process and reads the addresses from its output, one line per listener.
fn launch(data: &Path, args: &[&str]) -> Result<(Process, Vec<SocketAddr>), Failure> {
    let mut command = Command::new(ottla_binary()?);
    command.arg("broker").args(args);
    if !args.contains(&"memory") {
        command.arg("--data").arg(data);
    }
    let listeners = args.iter().filter(|&&arg| arg == "--listen").count();
    let configured = args.iter().find_map(|arg| arg.strip_prefix("listeners="));
    let configured = configured.map_or(0, |listeners| listeners.split(',').count());
    if listeners + configured == 0 {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let nodes = args.iter().position(|&arg| arg == "--nodes").and_then(|at| args.get(at + 1)?.parse().ok());
    let expected = listeners.max(configured).max(nodes.unwrap_or(1));
    let mut process = Process::spawn("ottla broker", &mut command)?;
    let lines = process.wait_for_lines(READY_LINE, expected, READY_WITHIN)?;
    let addresses: Result<Vec<SocketAddr>, Failure> = lines
        .iter()
        .map(|line| {
            let address = line.split(READY_LINE).nth(1).and_then(|rest| rest.split_whitespace().next());
            address.and_then(|text| text.parse().ok()).ok_or_else(|| {
                process.quoted(&Failure::new(format!("ottla broker: no address in the line {line:?}")))
            })
        })
        .collect();
    Ok((process, addresses?))
}
