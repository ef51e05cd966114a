//! A suite of tests written by others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir};

use super::kafka::Kafka;
use super::outcome::{Exit, Outcome};

const COPIED_WITHIN: Duration = Duration::from_secs(60);

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

/// A suite that is fetched and built.
pub(super) trait Suite: Sync {
    /// The name on the command line and in the report.
    fn name(&self) -> &'static str;

    /// The version of the package.
    fn version(&self) -> &'static str;

    /// All tests, in the order of the report.
    fn tests(&self) -> &[Test];

    /// The directory of the original library.
    fn original(&self) -> &Path;

    /// The command of one test. It may write files to `scratch`.
    fn command(&self, test: &Test, library: &Path, kafka: &Kafka, scratch: &Path)
    -> Result<Command, Failure>;

    /// Reads the outcome from the end of the process and from its output.
    fn outcome(&self, exit: Exit, took: Duration, output: &str) -> Outcome;
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
