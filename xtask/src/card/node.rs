//! node-rdkafka's end-to-end tests, which its package brings. Its addon is linked with the original's C and C++ libraries.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, our_prefix, run};
use serde_json::Value;

use super::kafka::Kafka;
use super::librdkafka::{self, NODE_RDKAFKA, NumberedTests};
use super::outcome::{Verdict, last_line};
use super::suite::{ONE_PARTITION, Package, Suite, Test, execute, fetch_npm, suite_dir};
use crate::install;

/// The name of the suite.
pub(super) const NAME: &str = "node-rdkafka";

/// The packages that the addon and the tests need, as in node-rdkafka's package.json.
const MODULES: &[&str] =
    &["nan@2.24.0", "bindings@1.5.0", "bluebird@3.7.2", "mocha@10.8.2", "node-gyp@11.1.0"];

const FETCHED_WITHIN: Duration = Duration::from_secs(300);
const BUILT_WITHIN: Duration = Duration::from_secs(25 * 60);
/// A test and each of its hooks take seconds; node-rdkafka's Makefile allows two minutes.
const MOCHA_TIMEOUT_MS: u32 = 30_000;

/// A consumer that still polls in a thread keeps Node from its end.
const ENDED_WITHIN_S: u32 = 120;
/// The exit code of `timeout` after SIGKILL.
const KILLED: i32 = 128 + 9;

/// The built addon and its tests.
pub(super) struct NodeTests {
    package: Package,
    /// The directory of the package.
    source: PathBuf,
    /// The file and the full title of each test.
    titles: Vec<(String, String)>,
}

impl NodeTests {
    /// Downloads and builds the package unless the target directory has it.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let original = NumberedTests::prepare(&librdkafka::OLDER)?.original().to_owned();
        let dir = suite_dir(NAME, NODE_RDKAFKA);
        let source = dir.join("package");
        // Written last.
        let complete = dir.join("complete");
        if !complete.is_file() {
            println!("card: fetching and building node-rdkafka {NODE_RDKAFKA}; minutes");
            fetch(&dir)?;
            build(&dir, &source, &original)?;
            fs::write(&complete, "").map_err(|error| failure(&complete, &error))?;
        }
        install::install(&install::Options::for_tests())?;
        let mut files = Vec::new();
        let specs = source.join("e2e");
        for entry in fs::read_dir(&specs).map_err(|error| failure(&specs, &error))? {
            let name = entry.map_err(|error| failure(&specs, &error))?.file_name();
            files.extend(name.to_str().and_then(|name| name.strip_suffix(".spec.js")).map(str::to_owned));
        }
        files.sort();
        let (mut tests, mut titles) = (Vec::new(), Vec::new());
        for file in files {
            let mut list = mocha(&source, &file);
            list.args(["--dry-run", "--reporter", "json"]).env("LD_LIBRARY_PATH", our_prefix().join("lib"));
            let listed = run("mocha", &mut list, b"", FETCHED_WITHIN)?.succeeded()?;
            for title in titles_in(&listed.stdout)? {
                let test = Test { scenario: ONE_PARTITION.to_owned(), id: id_of(&file, &title) };
                // A pattern selects all tests of one title.
                if !tests.contains(&test) {
                    tests.push(test);
                    titles.push((file.clone(), title));
                }
            }
        }
        let package = Package { name: NAME, version: NODE_RDKAFKA, original, tests };
        Ok(Self { package, source, titles })
    }
}

impl Suite for NodeTests {
    fn package(&self) -> &Package {
        &self.package
    }

    /// All tests use the topic `test`.
    fn jobs_max(&self) -> usize {
        1
    }

    fn command(&self, test: &Test, library: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        let at = self.tests().iter().position(|known| known == test).expect("of the same list");
        let (file, title) = &self.titles[at];
        let mut command = mocha(&self.source, file);
        command.args(["--exit", "--reporter", "tap", "--grep", &pattern_of(title)]);
        command.args(["--timeout", &MOCHA_TIMEOUT_MS.to_string()]);
        command.env("KAFKA_HOST", kafka.bootstrap()).env("LD_LIBRARY_PATH", library);
        Ok(command)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        if status.success() {
            let ran = output.lines().any(|line| line.starts_with("ok ") && !line.contains("# SKIP"));
            return (if ran { Verdict::Passed } else { Verdict::Skipped }, String::new());
        }
        if status.code() == Some(KILLED) {
            return (Verdict::Hung, format!("not done within {ENDED_WITHIN_S} s"));
        }
        // Mocha ends with the number of failed tests.
        let unclear = || format!("{status} after: {}", last_line(output).unwrap_or_default());
        let failure = first_failure(output);
        let crashed = failure.is_none() && status.code().is_none();
        (if crashed { Verdict::Crashed } else { Verdict::Failed }, failure.unwrap_or_else(unclear))
    }
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

fn fetch(dir: &Path) -> Result<(), Failure> {
    fetch_npm(dir, "node-rdkafka", NODE_RDKAFKA)?;
    // Beside the package: npm would build the addon with a library of its own.
    let manifest = dir.join("package.json");
    fs::write(&manifest, "{\"private\": true}\n").map_err(|error| failure(&manifest, &error))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund"]).args(MODULES).current_dir(dir);
    execute("npm", &mut npm, FETCHED_WITHIN)
}

/// Builds the addon against the original's headers and libraries. Node brings its own headers.
fn build(dir: &Path, package: &Path, original: &Path) -> Result<(), Failure> {
    let link = dir.join("link");
    fs::create_dir_all(&link).map_err(|error| failure(&link, &error))?;
    for name in ["librdkafka", "librdkafka++"] {
        let at = link.join(format!("{name}.so"));
        symlink(original.join(format!("{name}.so.1")), &at).map_err(|error| failure(&at, &error))?;
    }
    let mut prefix = Command::new("node");
    prefix.args(["-p", "require('path').resolve(process.execPath, '../..')"]);
    let prefix = run("node", &mut prefix, b"", FETCHED_WITHIN)?.succeeded()?;
    let prefix = prefix.lines().concat();
    if !Path::new(&prefix).join("include/node/node.h").is_file() {
        let advice = "install them (on Debian: libnode-dev)";
        return Err(Failure::new(format!("Node's headers are not below {prefix}/include: {advice}")));
    }
    let sources = package.join("deps/librdkafka");
    let headers = [sources.join("src"), sources.join("src-cpp")].map(|path| path.display().to_string());
    let mut gyp = Command::new("node");
    gyp.arg(dir.join("node_modules/node-gyp/bin/node-gyp.js")).args(["rebuild", "--nodedir", &prefix]);
    gyp.env("BUILD_LIBRDKAFKA", "0").env("CPLUS_INCLUDE_PATH", headers.join(":"));
    gyp.env("LDFLAGS", format!("-L{}", link.display())).current_dir(package);
    execute("node-gyp", &mut gyp, BUILT_WITHIN)
}

/// The runner for one file of tests.
fn mocha(package: &Path, file: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &ENDED_WITHIN_S.to_string(), "node"]);
    command.arg(package.join("../node_modules/mocha/bin/mocha.js"));
    command.arg(format!("e2e/{file}.spec.js")).current_dir(package);
    command
}

/// The full titles in mocha's JSON.
fn titles_in(json: &[u8]) -> Result<Vec<String>, Failure> {
    let listed: Value = serde_json::from_slice(json)
        .map_err(|error| Failure::new(format!("mocha's list of tests is no JSON: {error}")))?;
    let tests = listed["tests"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(tests.iter().filter_map(|test| test["fullTitle"].as_str()).map(str::to_owned).collect())
}

/// The name of a test in the tables, without spaces and commas.
fn id_of(file: &str, title: &str) -> String {
    let words: Vec<&str> =
        title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    format!("{file}/{}", words.join("-"))
}

/// The regular expression of exactly this title.
fn pattern_of(title: &str) -> String {
    let mut pattern = String::from("^");
    for c in title.chars() {
        if !c.is_alphanumeric() && c != ' ' {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('$');
    pattern
}

/// The first line of the message below the first `not ok`.
fn first_failure(output: &str) -> Option<String> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("not ok "));
    let title = lines.next()?;
    let message = lines.take_while(|line| line.starts_with(' ')).find(|line| !line.trim().is_empty());
    Some(message.unwrap_or(title).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_named_and_selected_by_its_title() {
        let listed = br#"{"tests": [{"title": "b", "fullTitle": "Consumer a, (b)"}]}"#;
        let titles = titles_in(listed).expect("JSON");
        assert_eq!(titles, ["Consumer a, (b)"]);
        assert_eq!(id_of("consumer", &titles[0]), "consumer/Consumer-a-b");
        assert_eq!(pattern_of(&titles[0]), r"^Consumer a\, \(b\)$");
    }

    #[test]
    fn the_failure_is_the_message_below_the_failed_test() {
        let output = "1..1\nnot ok 1 Consumer commits\n  Error: timed out\n      at a.js:1\n# fail 1\n";
        assert_eq!(first_failure(output).as_deref(), Some("Error: timed out"));
        assert_eq!(first_failure("ok 1 Consumer commits\n"), None);
    }
}
