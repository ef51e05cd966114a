//! Each shipped file is installed in a scratch directory and used there, as its user does.

mod image;
mod library;
mod root;
mod service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, Process, run as run_command};

use super::tools::downloaded;

/// One use of the shipped files.
type Story = (&'static str, fn(&Path) -> Result<(), Failure>);

const STORIES: &[Story] = &[
    ("the sums are those of the files", sums),
    ("the tarball works where it is unpacked", library::tarball),
    ("the package ottla has a broker and commands", service::broker_and_commands),
    ("the package ottla has manual pages and completions", service::manual_and_completions),
    ("systemd accepts the unit, and its exposure is low", service::unit),
    ("the example properties are properties", service::properties),
    ("C and C++ programs find the library next to Debian's", library::next_to_debian),
    ("a program with the static library needs no other", library::linked_statically),
    ("callbacks may leave the library", library::callbacks_leave),
    ("the library takes the place of Debian's, and gives it back", library::in_the_place_of_debian),
    ("the image starts a broker as its user", image::broker),
];

const READY_WITHIN: Duration = Duration::from_secs(60);
const COMMAND_WITHIN: Duration = Duration::from_secs(120);

/// Runs all stories on the files in `results`; the names of those that succeeded, which are all.
pub(super) fn run(results: &Path) -> Result<Vec<&'static str>, Failure> {
    let results =
        fs::canonicalize(results).map_err(|error| Failure::new(format!("{}: {error}", results.display())))?;
    for (name, story) in STORIES {
        story(&results).map_err(|failure| Failure::new(format!("{name}: {failure}")))?;
        println!("used: {name}");
    }
    Ok(STORIES.iter().map(|(name, _)| *name).collect())
}

fn sums(results: &Path) -> Result<(), Failure> {
    let mut check = Command::new("sha256sum");
    let file = results.join("SHA256SUMS");
    if !file.is_file() {
        // The packages of the tests have none.
        return Ok(());
    }
    check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(results);
    run_command("sha256sum", &mut check, b"", COMMAND_WITHIN)?.succeeded().map(|_| ())
}

/// The file of a Debian package.
fn package(results: &Path, name: &str) -> Result<PathBuf, Failure> {
    downloaded(results, name)
}

/// The tarball, the debug information and the image have names with a version.
fn named(results: &Path, ending: &str) -> Result<PathBuf, Failure> {
    let files = fs::read_dir(results).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files = files.filter(|path| path.to_string_lossy().ends_with(ending));
    files.next().ok_or_else(|| Failure::new(format!("{} has no *{ending}", results.display())))
}

/// A broker on a free port of loopback, in memory unless `args` say otherwise.
struct Broker {
    // Dropping it stops the broker.
    _process: Process,
    address: String,
}

impl Broker {
    fn start(mut ottla: Command, args: &[&str]) -> Result<Self, Failure> {
        ottla.arg("broker").args(args).args(["--listen", "127.0.0.1:0"]);
        Self::spawn(&mut ottla)
    }

    /// `command` starts a broker that prints its address.
    fn spawn(command: &mut Command) -> Result<Self, Failure> {
        let mut process = Process::spawn("ottla broker", command)?;
        let line = process.wait_for_line("listening on ", READY_WITHIN)?;
        let address = line.rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(Self { _process: process, address })
    }

    /// Writes a line with one command and reads it with another.
    fn roundtrip(&self, ottla: &dyn Fn() -> Command, topic: &str) -> Result<(), Failure> {
        let mut produce = ottla();
        produce.args(["produce", topic, "--brokers", &self.address]);
        run_command("ottla produce", &mut produce, b"hello\n", COMMAND_WITHIN)?.succeeded()?;
        let mut consume = ottla();
        consume.args(["consume", topic, "--brokers", &self.address, "--from", "beginning", "--exit-at-end"]);
        let output = run_command("ottla consume", &mut consume, b"", COMMAND_WITHIN)?.succeeded()?;
        require(output.stdout_text() == "hello\n", &format!("consumed {:?}", output.stdout_text()))
    }
}

fn require(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new(what)) }
}
