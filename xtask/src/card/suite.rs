//! A suite of tests written by others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir};

use super::kafka::{Apache, Kafka};
use super::outcome::{Outcome, Verdict};

const COPIED_WITHIN: Duration = Duration::from_secs(60);
const FETCHED_WITHIN: Duration = Duration::from_secs(300);

/// The scenario of a test that names none.
pub(super) const DEFAULT_SCENARIO: &str = "default";

/// The scenario of a suite for which new topics have one partition.
pub(super) const ONE_PARTITION: &str = "onepartition";

/// One test, or the tests of one number, in a cluster of one scenario. It runs in a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    pub(super) scenario: String,
    /// The name for the suite's runner.
    pub(super) id: String,
}

impl Test {
    /// The name in results and reports, for instance `0045` or `0045-noautocreate`.
    pub(super) fn name(&self) -> String {
        // A suite with topics of one partition has no other scenario.
        if [DEFAULT_SCENARIO, ONE_PARTITION].contains(&self.scenario.as_str()) {
            return self.id.clone();
        }
        format!("{}-{}", self.id, self.scenario)
    }
}

/// The common data of a suite.
pub(super) struct Package {
    /// The name on the command line and in the report.
    pub(super) name: &'static str,
    /// The version of the package.
    pub(super) version: &'static str,
    /// The directory of the original library.
    pub(super) original: PathBuf,
    /// All tests, in the order of the report.
    pub(super) tests: Vec<Test>,
}

/// The two sides that a suite compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The original library, or Apache Kafka.
    Original,
    /// Our library, or our broker.
    Ours,
}

/// A suite that is fetched and built.
pub(super) trait Suite: Sync {
    fn package(&self) -> &Package;

    /// Returns `true` if the suite compares brokers and not libraries.
    fn compares_brokers(&self) -> bool {
        false
    }

    /// Starts the cluster of a scenario; `dir` holds its files.
    fn cluster(&self, scenario: &str, _side: Side, dir: &Path) -> Result<Kafka, Failure> {
        Kafka::start(Apache::V4_1, scenario, dir)
    }

    /// The most tests that may run at a time.
    fn jobs_max(&self) -> usize {
        usize::MAX
    }

    /// The command of one test. It may write files to `scratch`.
    fn command(&self, test: &Test, library: &Path, kafka: &Kafka, scratch: &Path)
    -> Result<Command, Failure>;

    /// Groups tests of a scenario by process, which runs those of a group one after the other. By default each has its own.
    fn batches<'a>(&self, tests: &[&'a Test]) -> Vec<Vec<&'a Test>> {
        tests.iter().map(|test| vec![*test]).collect()
    }

    /// The command of a group of several tests.
    fn batch_command(&self, _batch: &[&Test], _: &Kafka) -> Result<Command, Failure> {
        Err(Failure::new(format!("{}: each test needs a process of its own", self.name())))
    }

    /// Reads the outcome of a test from the output of its group. `None` for a test that runs again alone: its process ended before it, or it
    /// hung.
    fn outcome_in_batch(&self, _: &Test, _output: &str) -> Option<Outcome> {
        None
    }

    /// Reads the verdict and its reason from the end of a process within its deadline, and from its output.
    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String);

    fn name(&self) -> &'static str {
        self.package().name
    }

    fn version(&self) -> &'static str {
        self.package().version
    }

    fn tests(&self) -> &[Test] {
        &self.package().tests
    }

    fn original(&self) -> &Path {
        &self.package().original
    }
}

/// Runs a program of a suite's preparation.
pub(super) fn execute(name: &str, command: &mut Command, within: Duration) -> Result<(), Failure> {
    run(name, command, b"", within)?.succeeded().map(|_| ())
}

/// Unpacks a package of npm into `package` in an empty directory.
pub(super) fn fetch_npm(dir: &Path, name: &str, version: &str) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", &format!("{name}@{version}")]).current_dir(dir);
    execute("npm", &mut npm, FETCHED_WITHIN)?;
    let mut tar = Command::new("tar");
    // The scope of a name becomes its first part.
    let file = name.trim_start_matches('@').replace('/', "-");
    tar.args(["-xzf", &format!("{file}-{version}.tgz")]).current_dir(dir);
    execute("tar", &mut tar, FETCHED_WITHIN)
}

/// The directory of everything that a suite downloads, builds and records.
pub(super) fn suite_dir(name: &str, version: &str) -> PathBuf {
    target_dir().join("card").join(format!("{name}-{version}"))
}

/// Copies the source of a package from a registry's cache, whose files may be read-only, and makes it writable.
pub(super) fn copied(from: &Path, to: &Path) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(to);
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(|error| Failure::new(format!("{}: {error}", parent.display())))?;
    let run = |command: &mut Command| run("copy", command, b"", COPIED_WITHIN)?.succeeded().map(|_| ());
    run(Command::new("cp").arg("-R").arg(from).arg(to))?;
    run(Command::new("chmod").args(["-R", "u+w"]).arg(to))
}

/// The tests with these names.
pub(super) fn named<'a>(suite: &'a dyn Suite, names: &[String]) -> Result<Vec<&'a Test>, Failure> {
    let find = |name: &String| {
        let found = suite.tests().iter().find(|test| test.name() == *name);
        found.ok_or_else(|| Failure::new(format!("{} {} has no test {name}", suite.name(), suite.version())))
    };
    names.iter().map(find).collect()
}

/// Tests by scenario: each scenario needs a cluster.
pub(super) fn by_scenario<'a>(tests: &[&'a Test]) -> BTreeMap<&'a str, Vec<&'a Test>> {
    let mut scenarios: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
    for &test in tests {
        scenarios.entry(&test.scenario).or_default().push(test);
    }
    scenarios
}
