//! Apache Kafka's own integration tests of clients and tools, on its clusters for tests and on clusters of Ottla.
//!
//! Each test starts its clusters. For ours, a class of `interop/java/cluster-tests` takes the place of Kafka's class of the
//! same name, which starts them. Another class of that folder aborts tests that need more than the brokers' network, on both
//! sides: they are not applicable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, KafkaJars, cluster_test_jars, ottla_binary, run, workspace_root};

use super::kafka::Kafka;
use super::outcome::{Verdict, last_line};
use super::suite::{DEFAULT_SCENARIO, Package, Side, Suite, Test, execute, suite_dir};

/// The name of the suite of Apache Kafka's tests.
pub(super) const NAME: &str = "kafka-tests";

/// The version in interop/java/pom-cluster-tests.xml.
const VERSION: &str = "4.3.1";

/// The classes with the tests.
const CLASSES: &str = include_str!("kafka-tests-classes.txt");

/// The folder of our Java classes.
const FOLDER: &str = "interop/java/cluster-tests";
/// Those for both sides. Ours has all.
const COMMON: &[&str] = &["ListTests.java", "NetworkOnly.java"];
/// JUnit finds `NetworkOnly` by this file.
const SERVICE: (&str, &str) =
    ("META-INF/services/org.junit.jupiter.api.extension.Extension", "ottla.card.NetworkOnly\n");

const BUILT_WITHIN: Duration = Duration::from_secs(120);
/// Up to five brokers of Apache Kafka are in the JVM of their test.
const HEAP_MB_MAX: u32 = 2048;

/// Time limits of tests without one, and of all in a thread of their own, so that JUnit reports them.
const JUNIT: &[&str] = &[
    "junit.jupiter.extensions.autodetection.enabled=true",
    "junit.jupiter.execution.timeout.default=120s",
    "junit.jupiter.execution.timeout.thread.mode.default=SEPARATE_THREAD",
];

/// The tests and our compiled classes.
pub(super) struct ClusterTests {
    package: Package,
    jars: KafkaJars,
    /// The directory of compiled classes, one for each side.
    classes: PathBuf,
    /// The argument of JUnit for each test.
    selectors: Vec<String>,
}

impl ClusterTests {
    /// Downloads the jars, compiles our classes, and lists the tests.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let jars = cluster_test_jars()?;
        let classes = suite_dir(NAME, VERSION).join("classes");
        let folder = workspace_root().join(FOLDER);
        let all = files(&folder, "java")?;
        let common: Vec<PathBuf> = COMMON.iter().map(|name| folder.join(name)).collect();
        compile(&jars, &common, &classes.join(word(Side::Original)))?;
        compile(&jars, &all, &classes.join(word(Side::Ours)))?;
        let mut list = jars.java_with_classes(&classes.join(word(Side::Original)), HEAP_MB_MAX);
        list.arg("ottla.card.ListTests").args(CLASSES.lines().filter(|line| !line.starts_with('#')));
        let listed = run("ListTests", &mut list, b"", BUILT_WITHIN)?.succeeded()?;
        let (mut tests, mut selectors) = (Vec::new(), Vec::new());
        for selector in listed.lines() {
            let test = Test { scenario: DEFAULT_SCENARIO.to_owned(), id: id_of(&selector) };
            if !tests.contains(&test) {
                tests.push(test);
                selectors.push(selector);
            }
        }
        let package = Package { name: NAME, version: VERSION, original: PathBuf::new(), tests };
        Ok(Self { package, jars, classes, selectors })
    }
}

impl Suite for ClusterTests {
    fn package(&self) -> &Package {
        &self.package
    }

    fn compares_brokers(&self) -> bool {
        true
    }

    fn cluster(&self, _: &str, side: Side, dir: &Path) -> Result<Kafka, Failure> {
        Ok(Kafka::of_tests(side, dir))
    }

    /// The tests wait little, and each has a JVM and brokers.
    fn jobs_max(&self) -> usize {
        2
    }

    fn command(&self, test: &Test, _: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        let at = self.tests().iter().position(|known| known == test).expect("of the same list");
        let mut java = self.jars.java_with_classes(&self.classes.join(word(kafka.side())), HEAP_MB_MAX);
        if kafka.side() == Side::Ours {
            let mut binary = std::ffi::OsString::from("-Dottla.binary=");
            binary.push(ottla_binary()?);
            java.arg(binary);
        }
        java.args(["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]);
        java.args(["--disable-ansi-colors", "--details=tree", "--details-theme=ascii", "--fail-if-no-tests"]);
        java.args(JUNIT.iter().map(|parameter| format!("--config={parameter}")));
        java.args(["--select-method", &self.selectors[at]]);
        Ok(java)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        verdict_of_junit(status, output)
    }
}

/// Reads JUnit's summary, and the first failure or the reason of an aborted test.
fn verdict_of_junit(status: ExitStatus, output: &str) -> (Verdict, String) {
    let lines = || output.lines().map(str::trim);
    let last = || last_line(output).unwrap_or_default();
    match status.code() {
        // A test of several runs passes if one does and the others do not apply.
        Some(0) if count(output, "tests successful") > 0 => (Verdict::Passed, String::new()),
        Some(0) => {
            let aborted = lines().find_map(|line| line.split_once(" [A] ")).map(|(_, reason)| reason);
            (Verdict::Skipped, aborted.map_or_else(last, str::to_owned))
        }
        Some(_) => {
            let failure = lines().find_map(|line| line.strip_prefix("=> ")).map_or_else(last, str::to_owned);
            let is_late = failure.starts_with("java.util.concurrent.TimeoutException: ")
                && failure.contains(") timed out after ");
            (if is_late { Verdict::Hung } else { Verdict::Failed }, failure)
        }
        None => (Verdict::Crashed, format!("{status} after: {}", last())),
    }
}

/// The name of a side's directory.
fn word(side: Side) -> &'static str {
    match side {
        Side::Original => "original",
        Side::Ours => "ours",
    }
}

/// Compiles our classes into an empty directory. The runtime has the compiler, even without the program `javac`.
fn compile(jars: &KafkaJars, sources: &[PathBuf], to: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("{}: {error}", to.display()));
    let _ = fs::remove_dir_all(to);
    let service = to.join(SERVICE.0);
    fs::create_dir_all(service.parent().unwrap_or(to)).map_err(failed)?;
    fs::write(service, SERVICE.1).map_err(failed)?;
    let class_path = std::env::join_paths(files(jars.dir(), "jar")?)
        .map_err(|error| Failure::new(format!("{}: {error}", jars.dir().display())))?;
    let mut java = Command::new("java");
    java.args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-cp"]).arg(class_path);
    execute("javac", java.arg("-d").arg(to).args(sources), BUILT_WITHIN)
}

/// The files of a folder with this extension, in order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::new(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|of_file| of_file == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The name of a test: its class without the package, and its method without parameters.
fn id_of(selector: &str) -> String {
    let method = selector.split('(').next().unwrap_or_default();
    method.rsplit('.').next().unwrap_or_default().to_owned()
}

/// A number of JUnit's summary, whose lines have the form `[   2 tests successful   ]`.
fn count(output: &str, what: &str) -> usize {
    let number = |line: &str| {
        let line = line.strip_prefix('[')?.strip_suffix(']')?.trim();
        line.strip_suffix(what)?.trim().parse().ok()
    };
    output.lines().rev().find_map(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_test_is_named_by_its_class_and_method() {
        assert_eq!(id_of("org.apache.A#testB(org.apache.kafka.ClusterInstance)"), "A#testB");
        assert_eq!(id_of("org.apache.A#testB()"), "A#testB");
    }

    #[test]
    fn numbers_are_read_from_the_summary() {
        let output = "[         2 tests found           ]\n[        12 tests successful      ]\n";
        assert_eq!(count(output, "tests successful"), 12);
        assert_eq!(count(output, "tests failed"), 0);
    }

    #[test]
    fn verdicts_are_read_from_the_summary_and_the_first_failure() {
        let (ok, failed) = (ExitStatus::from_raw(0), ExitStatus::from_raw(1 << 8));
        assert_eq!(verdict_of_junit(ok, "[         1 tests successful      ]\n").0, Verdict::Passed);
        let aborted = "      '-- b [1] Type... [A] it is the same\n[         0 tests successful      ]\n";
        assert_eq!(verdict_of_junit(ok, aborted), (Verdict::Skipped, "it is the same".to_owned()));
        let output = "    => a.Error: first\n       b.C.d(C.java:1)\n    => a.Error: second\n";
        assert_eq!(verdict_of_junit(failed, output), (Verdict::Failed, "a.Error: first".to_owned()));
        let late = "    => java.util.concurrent.TimeoutException: b() timed out after 60 seconds\n";
        assert_eq!(verdict_of_junit(failed, late).0, Verdict::Hung);
        assert_eq!(verdict_of_junit(ExitStatus::from_raw(9), "").0, Verdict::Crashed);
    }
}
