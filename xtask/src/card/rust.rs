//! rust-rdkafka's tests, which the crate brings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, Librdkafka, our_prefix, run, workspace_root};
use serde_json::Value;

use super::kafka::Kafka;
use super::outcome::{Verdict, last_line};
use super::suite::{DEFAULT_SCENARIO, Package, Suite, Test, copied, suite_dir};
use crate::install;
use crate::shell::cargo;

/// The name of the suite.
pub(super) const NAME: &str = "rust-rdkafka";

/// The version of the crate in interop/rust/Cargo.toml.
const VERSION: &str = "0.39.0";

const FETCHED_WITHIN: Duration = Duration::from_secs(300);
const BUILT_WITHIN: Duration = Duration::from_secs(25 * 60);

/// The built tests.
pub(super) struct RustTests {
    package: Package,
    /// The directory of the crate: its tests start there.
    source: PathBuf,
    /// The test programs with their names.
    programs: Vec<(String, PathBuf)>,
}

impl RustTests {
    /// Builds the crate's tests, linked with our library.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let dir = suite_dir(NAME, VERSION);
        let source = dir.join("source");
        if !source.is_dir() {
            copied(&crate_source()?, &source)?;
            // Below the workspace of this repository, of which it is no member.
            let manifest = source.join("Cargo.toml");
            let wrong = |error| Failure::new(format!("{}: {error}", manifest.display()));
            let text = fs::read_to_string(&manifest).map_err(wrong)?;
            fs::write(&manifest, format!("{text}\n[workspace]\n")).map_err(wrong)?;
        }
        install::install(&install::Options::for_tests())?;
        let programs = build(&source, &dir.join("target"))?;
        let mut tests = Vec::new();
        for (name, program) in &programs {
            let mut list = Command::new(program);
            list.args(["--list", "--format", "terse"]).env("LD_LIBRARY_PATH", our_prefix().join("lib"));
            let listed = run(name, &mut list, b"", FETCHED_WITHIN)?.succeeded()?;
            let names = listed.lines();
            let ids = names.iter().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(
                ids.map(|test| Test { scenario: DEFAULT_SCENARIO.to_owned(), id: format!("{name}::{test}") }),
            );
        }
        let original = Librdkafka::reference()?.lib().to_owned();
        Ok(Self { package: Package { name: NAME, version: VERSION, original, tests }, source, programs })
    }
}

impl Suite for RustTests {
    fn package(&self) -> &Package {
        &self.package
    }

    fn command(&self, test: &Test, library: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        let (name, id) = test.id.split_once("::").expect("made in `prepare`");
        let (_, program) =
            self.programs.iter().find(|(program, _)| program == name).expect("of the same list");
        let mut command = Command::new(program);
        command.args([id, "--exact"]).current_dir(&self.source);
        command.env("KAFKA_HOST", kafka.bootstrap()).env("LD_LIBRARY_PATH", library);
        Ok(command)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        match status.code() {
            Some(0) => {
                let ran = output.contains("test result: ok. 1 passed");
                (if ran { Verdict::Passed } else { Verdict::Skipped }, String::new())
            }
            // Rust's test programs end with 101 after a failed test.
            Some(101) => (Verdict::Failed, first_panic(output).unwrap_or_default()),
            _ => (Verdict::Crashed, format!("{status} after: {}", last_line(output).unwrap_or_default())),
        }
    }
}

/// The message below the first `panicked at FILE:LINE:`: of an assertion with both values.
fn first_panic(output: &str) -> Option<String> {
    let mut lines = output.lines().skip_while(|line| !line.contains(" panicked at "));
    lines.next()?;
    let first = lines.next()?;
    let values = lines.take_while(|line| line.trim_start().starts_with(['l', 'r']) && line.contains(": "));
    Some(values.fold(first.to_owned(), |message, value| message + " " + value.trim()))
}

/// The folder in which cargo keeps the crate's source after a download.
fn crate_source() -> Result<PathBuf, Failure> {
    let manifest = workspace_root().join("interop/rust/Cargo.toml");
    let mut metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--manifest-path"]);
    let output = run("cargo metadata", metadata.arg(manifest), b"", FETCHED_WITHIN)?.succeeded()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("cargo metadata: {error}")))?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = packages.iter().find(|package| package["name"] == "rdkafka" && package["version"] == VERSION);
    let manifest = found.and_then(|package| package["manifest_path"].as_str()).map(Path::new);
    let directory = manifest.and_then(Path::parent).map(Path::to_owned);
    directory.ok_or_else(|| Failure::new(format!("interop/rust does not use rdkafka {VERSION}")))
}

fn build(source: &Path, target: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut build = cargo(&["test", "--no-run", "--locked", "--message-format", "json"]);
    build.args(["--tests", "--lib", "--features", "dynamic-linking"]).current_dir(source);
    build.env("CARGO_TARGET_DIR", target).env("PKG_CONFIG_PATH", our_prefix().join("lib/pkgconfig"));
    let built = run("cargo test", &mut build, b"", BUILT_WITHIN)?.succeeded()?;
    let mut programs = Vec::new();
    for line in built.lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let name = message["target"]["name"].as_str();
        if let (Some(name), Some(program)) = (name, message["executable"].as_str()) {
            programs.push((name.to_owned(), PathBuf::from(program)));
        }
    }
    programs.sort();
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_below_the_first_panic() {
        let output = "running 1 test\n\nthread 'a' panicked at tests/a.rs:3:5:\nno message\nnote: run\n";
        assert_eq!(first_panic(output).as_deref(), Some("no message"));
        let output = "thread 'a' panicked at a.rs:3:5:\nassertion failed\n  left: 1\n right: 2\nnote: run\n";
        assert_eq!(first_panic(output).as_deref(), Some("assertion failed left: 1 right: 2"));
        assert_eq!(first_panic("running 1 test\n"), None);
    }
}
