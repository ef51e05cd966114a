//! kafka-python's integration tests, which its source package brings, on Apache Kafka and on the Ottla broker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, run};

use super::kafka::{ClusterNeeds, Kafka};
use super::outcome::{Verdict, last_line};
use super::suite::{DEFAULT_SCENARIO, Package, Side, Suite, Test, execute, suite_dir};

/// The name of the suite of kafka-python.
pub(super) const NAME: &str = "kafka-python";

const VERSION: &str = "3.0.12";

/// The release of Apache Kafka that the tests read from the environment.
const KAFKA_VERSION: &str = "4.3.1";

/// pytest with the plugins of the tests, and the codecs of kafka-python.
const PACKAGES: &[&str] = &[
    "pytest==9.2.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
    "py==1.11.0",
    "crc32c==2.9.post0",
    "lz4==4.4.5",
    "python-snappy==0.7.3",
    "zstandard==0.25.0",
];

/// The folder of the tests in the package.
const FOLDER: &str = "test/integration/";

const FETCHED_WITHIN: Duration = Duration::from_secs(300);
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// The time limit of one test, for pytest's own report with its stack.
const TEST_TIMEOUT: &str = "--timeout=120";

const PROPERTIES: &[(&str, &str)] = &[
    ("auto.create.topics.enable", "true"),
    ("num.partitions", "4"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "1000"),
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
    ("super.users", "User:ANONYMOUS"),
];

/// Files that the source package lacks: without them the tests do not load. Its own service starts processes, which tests
/// of a running cluster do not need.
const ADDED: &[(&str, &str)] = &[
    ("test/__init__.py", ""),
    (
        "test/service.py",
        "class ExternalService:\n    def __init__(self, host, port):\n        pass\n\n\nSpawnedService = None\n",
    ),
];

/// A file with a text and its replacement: the only node has the id 1 on both sides, and not 0.
const REWRITE: (&str, &str, &str) =
    ("test/integration/test_admin_integration.py", "[[0], [0]]", "[[1], [1]]");

/// The tests and pytest.
pub(super) struct PythonTests {
    package: Package,
    /// The directory of the unpacked source package.
    source: PathBuf,
    /// The directory of [`PACKAGES`].
    packages: PathBuf,
}

impl PythonTests {
    /// Downloads the tests and pytest unless the target directory has them, and lists the tests.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let dir = suite_dir(NAME, VERSION);
        let package = Package { name: NAME, version: VERSION, original: PathBuf::new(), tests: Vec::new() };
        let source = dir.join(format!("kafka_python-{VERSION}"));
        let mut suite = Self { package, source, packages: dir.join("packages") };
        // Written last, with the versions.
        let complete = dir.join("complete");
        let wanted = PACKAGES.join(" ");
        if !fs::read_to_string(&complete).is_ok_and(|made_from| made_from == wanted) {
            suite.fetch(&dir)?;
            write(&complete, &wanted)?;
        }
        let mut list = suite.pytest();
        list.args(["--collect-only", FOLDER]);
        let listed = run("pytest", &mut list, b"", LISTED_WITHIN)?.succeeded()?;
        suite.package.tests = tests_in(&listed.stdout_text());
        Ok(suite)
    }

    fn fetch(&self, dir: &Path) -> Result<(), Failure> {
        for old in [&self.source, &self.packages] {
            let _ = fs::remove_dir_all(old);
        }
        fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
        let mut install = pip("install");
        install.arg("--target").arg(&self.packages).args(PACKAGES);
        execute("pip", &mut install, FETCHED_WITHIN)?;
        let mut download = pip("download");
        download.args(["--no-deps", "--no-binary", NAME, "--dest"]).arg(dir);
        execute("pip", download.arg(format!("{NAME}=={VERSION}")), FETCHED_WITHIN)?;
        let mut tar = Command::new("tar");
        tar.args(["-xzf", &format!("kafka_python-{VERSION}.tar.gz")]).current_dir(dir);
        execute("tar", &mut tar, FETCHED_WITHIN)?;
        for (name, text) in ADDED {
            write(&self.source.join(name), text)?;
        }
        let (name, from, to) = REWRITE;
        let file = self.source.join(name);
        let text = fs::read_to_string(&file)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        write(&file, &text.replace(from, to))
    }

    /// A pytest command in the directory of the package, whose own options it ignores.
    fn pytest(&self) -> Command {
        let mut pytest = Command::new("python3");
        pytest.args([
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-o",
            "addopts=",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:warnings",
        ]);
        pytest
            .current_dir(&self.source)
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        // The tests check that the second is a directory; only tests that start brokers use it.
        pytest.env("KAFKA_VERSION", KAFKA_VERSION).env("KAFKA_ROOT", &self.source);
        // Of a terminal with long lines, so that reasons are whole.
        pytest.env("COLUMNS", "500");
        pytest
    }
}

impl Suite for PythonTests {
    fn package(&self) -> &Package {
        &self.package
    }

    fn compares_brokers(&self) -> bool {
        true
    }

    fn cluster(&self, _: &str, side: Side, dir: &Path) -> Result<Kafka, Failure> {
        let needs = ClusterNeeds { nodes: 1, properties: PROPERTIES.to_vec(), toxiproxy: None };
        Kafka::start_side(side, &needs, dir)
    }

    /// Some tests elect leaders or list reassignments of all topics.
    fn jobs_max(&self) -> usize {
        1
    }

    fn command(&self, test: &Test, _: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        let mut pytest = self.pytest();
        pytest.args([TEST_TIMEOUT, "--timeout-method=signal", "--tb=short", "--show-capture=no"]);
        pytest.arg(format!("{FOLDER}{}", test.id));
        pytest.env("KAFKA_URI", format!("kafka://{}", kafka.addresses()[0]));
        Ok(pytest)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        let first_after =
            |start: &str| output.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
        let last = || last_line(output).unwrap_or_default();
        // Lines of the tests' own handlers of the exit may follow the summary.
        let is_passed = || output.lines().any(|line| line.starts_with("1 passed in "));
        match status.code() {
            Some(0) if is_passed() => (Verdict::Passed, String::new()),
            Some(0) => (Verdict::Skipped, first_after("SKIPPED [1] ").map_or_else(last, str::to_owned)),
            Some(_) => {
                let failure = first_after("E  ").map_or_else(last, str::to_owned);
                let is_late = failure.starts_with("Failed: Timeout ");
                (if is_late { Verdict::Hung } else { Verdict::Failed }, failure)
            }
            None => (Verdict::Crashed, format!("{status} after: {}", last())),
        }
    }
}

/// A quiet command of pip, whose other arguments follow.
fn pip(verb: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", verb, "--quiet", "--no-cache-dir"]);
    pip
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

/// The tests of pytest's list, each with its file and its parameters.
fn tests_in(listed: &str) -> Vec<Test> {
    let ids = listed.lines().filter_map(|line| line.strip_prefix(FOLDER));
    ids.map(|id| Test { scenario: DEFAULT_SCENARIO.to_owned(), id: id.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn suite() -> PythonTests {
        let package = Package { name: NAME, version: VERSION, original: PathBuf::new(), tests: Vec::new() };
        PythonTests { package, source: PathBuf::new(), packages: PathBuf::new() }
    }

    #[test]
    fn tests_are_the_lines_of_the_list() {
        let listed = "test/integration/test_a.py::test_b[gzip]\n\n1 test collected in 0.18s\n";
        let tests = tests_in(listed);
        assert_eq!(tests.iter().map(Test::name).collect::<Vec<_>>(), ["test_a.py::test_b[gzip]"]);
    }

    #[test]
    fn verdicts_are_read_from_the_last_line_and_the_first_error() {
        let (ok, failed) = (ExitStatus::from_raw(0), ExitStatus::from_raw(1 << 8));
        let verdict = |status, output| suite().verdict(status, output);
        assert_eq!(verdict(ok, ".  [100%]\n1 passed in 0.36s\nDone!\n").0, Verdict::Passed);
        let skipped = "SKIPPED [1] test/integration/test_a.py:75: external\n1 skipped in 0.02s\n";
        assert_eq!(
            verdict(ok, skipped),
            (Verdict::Skipped, "test/integration/test_a.py:75: external".to_owned())
        );
        let output =
            "a.py:3: in test_a\nE   KafkaError: first\nE   AssertionError: second\n1 failed in 0.3s\n";
        assert_eq!(verdict(failed, output), (Verdict::Failed, "KafkaError: first".to_owned()));
        let late = "E   Failed: Timeout (>120.0s) from pytest-timeout.\n1 failed in 120.1s\n";
        assert_eq!(verdict(failed, late).0, Verdict::Hung);
        assert_eq!(verdict(ExitStatus::from_raw(11), "").0, Verdict::Crashed);
    }
}
