//! Apache Kafka's own integration tests of clients and tools, on its clusters for tests and on clusters of Ottla.
//!
//! Each test starts its clusters. For ours, a class of `interop/java/cluster-tests` takes the place of Kafka's class of the
//! same name, which starts them. Another class of that folder aborts tests that need more than the brokers' network, on both
//! sides: they are not applicable.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, KafkaJars, cluster_test_jars, ottla_binary, run, workspace_root};

use super::kafka::Kafka;
use super::outcome::{Outcome, Verdict, last_line};
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
const COMMON: &[&str] = &["ListTests.java", "MethodUses.java", "NetworkOnly.java", "RunTests.java"];
/// JUnit finds `NetworkOnly` by this file.
const SERVICE: (&str, &str) =
    ("META-INF/services/org.junit.jupiter.api.extension.Extension", "ottla.card.NetworkOnly\n");

const BUILT_WITHIN: Duration = Duration::from_secs(120);
/// Up to five brokers of Apache Kafka are in the JVM of their test.
const HEAP_MB_MAX: u32 = 2048;

/// The most tests in one JVM. Its code is compiled once for all of them, and a JVM's clusters leave some memory behind.
const BATCH_MAX: usize = 12;

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

    /// Tests of a class share a JVM, which takes longer to start than most of them.
    fn batches<'a>(&self, tests: &[&'a Test]) -> Vec<Vec<&'a Test>> {
        let class = |test: &Test| test.id.split('#').next().unwrap_or_default().to_owned();
        let mut by_class: BTreeMap<String, Vec<&'a Test>> = BTreeMap::new();
        for &test in tests {
            by_class.entry(class(test)).or_default().push(test);
        }
        by_class.values().flat_map(|tests| tests.chunks(BATCH_MAX)).map(<[_]>::to_vec).collect()
    }

    fn batch_command(&self, batch: &[&Test], kafka: &Kafka) -> Result<Command, Failure> {
        let mut java = self.jars.java_with_classes(&self.classes.join(word(kafka.side())), HEAP_MB_MAX);
        if kafka.side() == Side::Ours {
            let mut binary = std::ffi::OsString::from("-Dottla.binary=");
            binary.push(ottla_binary()?);
            java.arg(binary);
        }
        java.arg("ottla.card.RunTests").args(batch.iter().filter_map(|test| self.selector(test)));
        Ok(java)
    }

    fn outcome_in_batch(&self, test: &Test, output: &str) -> Option<Outcome> {
        // A test that hung may have waited for what another one left behind.
        result_line(output, self.selector(test)?).filter(|outcome| outcome.verdict != Verdict::Hung)
    }

    fn command(&self, test: &Test, _: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        self.batch_command(&[test], kafka)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        verdict_alone(status, output)
    }
}

impl ClusterTests {
    fn selector(&self, test: &Test) -> Option<&str> {
        let at = self.tests().iter().position(|known| known == test)?;
        Some(&self.selectors[at])
    }
}

/// Reads the line of `RunTests` about a method.
fn result_line(output: &str, selector: &str) -> Option<Outcome> {
    output.lines().find_map(|line| {
        let (method, verdict, took, reason) = fields(line)?;
        (method == selector).then(|| Outcome::new(verdict, took, reason))
    })
}

/// The fields of a line of `RunTests`: the method, the verdict, the time and the reason.
fn fields(line: &str) -> Option<(&str, Verdict, Duration, &str)> {
    let mut fields = line.strip_prefix("RESULT\t")?.splitn(4, '\t');
    let (method, verdict) = (fields.next()?, Verdict::parse(fields.next()?)?);
    let took = Duration::from_millis(fields.next()?.parse().ok()?);
    Some((method, verdict, took, fields.next().unwrap_or_default()))
}

/// The verdict of the only method of a process.
fn verdict_alone(status: ExitStatus, output: &str) -> (Verdict, String) {
    if let Some((_, verdict, _, reason)) = output.lines().find_map(fields) {
        return (verdict, reason.to_owned());
    }
    let last = last_line(output).unwrap_or_default();
    match status.code() {
        Some(_) => (Verdict::Failed, last),
        None => (Verdict::Crashed, format!("{status} after: {last}")),
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
    fn outcomes_are_read_from_the_lines_about_methods() {
        let output = "INFO\nRESULT\ta.A#b()\tpassed\t1200\t\nRESULT\ta.A#c()\tfailed\t15\tError: 2 of 3\n";
        let passed = result_line(output, "a.A#b()").expect("a line");
        assert_eq!((passed.verdict, passed.took), (Verdict::Passed, Duration::from_millis(1200)));
        let failed = result_line(output, "a.A#c()").expect("a line");
        assert_eq!((failed.verdict, failed.detail.as_str()), (Verdict::Failed, "Error: 2 of 3"));
        assert_eq!(result_line(output, "a.A#d()"), None, "the process ended before");
    }

    #[test]
    fn a_process_without_a_line_about_its_method_failed_or_crashed() {
        let (ended, killed) = (ExitStatus::from_raw(1 << 8), ExitStatus::from_raw(9));
        assert_eq!(verdict_alone(ended, "no such class\n"), (Verdict::Failed, "no such class".to_owned()));
        assert_eq!(verdict_alone(killed, "").0, Verdict::Crashed);
        let hung = "RESULT\ta.A#b()\thung\t120000\tb() timed out after 120 seconds\n";
        assert_eq!(verdict_alone(ended, hung).0, Verdict::Hung);
    }
}
