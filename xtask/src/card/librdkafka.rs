//! librdkafka's numbered tests: their sources from packages of npm, built with the original library.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::Signal;

use ottla_interop::Failure;

use super::kafka::{Apache, Kafka};
use super::outcome::{Verdict, last_line, without_colours};
use super::suite::{DEFAULT_SCENARIO, Package, Side, Suite, Test, execute, fetch_npm, suite_dir};

/// A release of librdkafka whose sources a package of npm contains.
pub(super) struct Release {
    /// The name of the suite.
    pub(super) name: &'static str,
    version: &'static str,
    npm: &'static str,
    npm_version: &'static str,
    apache: Apache,
    /// The suite whose sources and programs this one uses; its own name if it has them itself.
    built_as: &'static str,
    /// `group.protocol` of the consumers in the tests; `None` is the default of the library.
    group_protocol: Option<&'static str>,
    /// The original library runs on Apache Kafka and on the Ottla broker, instead of two libraries on Apache Kafka.
    compares_brokers: bool,
}

/// The newest release that a package contains.
pub(super) const NEWEST: Release = Release {
    name: "librdkafka",
    version: "2.15.1",
    npm: "@confluentinc/kafka-javascript",
    npm_version: "1.10.1",
    apache: Apache::Newest,
    built_as: "librdkafka",
    group_protocol: None,
    compares_brokers: false,
};

/// The newest release with consumers in the new group protocol, KIP-848.
pub(super) const NEW_PROTOCOL: Release =
    Release { name: "librdkafka-consumer", group_protocol: Some("consumer"), ..NEWEST };

/// The newest release on the two brokers.
pub(super) const BROKERS: Release = Release { name: "librdkafka-brokers", compares_brokers: true, ..NEWEST };

/// The release in `node-rdkafka`.
pub(super) const OLDER: Release = Release {
    name: "librdkafka-2.12",
    version: "2.12.0",
    npm: "node-rdkafka",
    npm_version: NODE_RDKAFKA,
    apache: Apache::V4_1,
    built_as: "librdkafka-2.12",
    group_protocol: None,
    compares_brokers: false,
};

/// The version of the package `node-rdkafka`.
pub(super) const NODE_RDKAFKA: &str = "3.6.1";

const FETCHED_WITHIN: Duration = Duration::from_secs(300);
/// The library and 150 tests, on two busy cores.
const BUILT_WITHIN: Duration = Duration::from_secs(25 * 60);

/// The tests' own time limits are multiplied by this: they are made for a machine of their own.
const TIMEOUT_MULTIPLIER: u32 = 2;

/// The built tests.
pub(super) struct NumberedTests {
    /// The directory of the sources' `tests`, in which the runner must start.
    tests_dir: PathBuf,
    package: Package,
    apache: Apache,
    group_protocol: Option<&'static str>,
    compares_brokers: bool,
}

impl NumberedTests {
    /// Downloads and builds the suite unless the target directory has it.
    pub(super) fn prepare(release: &Release) -> Result<Self, Failure> {
        let &Release { name, version, npm, npm_version, built_as, .. } = release;
        let dir = suite_dir(built_as, version);
        let sources = dir.join("package/deps/librdkafka");
        // Written last.
        let complete = dir.join("complete");
        if !complete.is_file() {
            println!(
                "card: fetching and building the tests of librdkafka {version} ({npm} {npm_version}); minutes"
            );
            fetch_npm(&dir, npm, npm_version)?;
            build(&dir, &sources)?;
            write(&complete, "")?;
        }
        let table = sources.join("tests/test.c");
        let text = fs::read_to_string(&table)
            .map_err(|error| Failure::new(format!("{}: {error}", table.display())))?;
        let tests = tests_of(&text, release.compares_brokers);
        if tests.is_empty() {
            return Err(Failure::new(format!("{} lists no tests", table.display())));
        }
        let package = Package { name, version, original: dir.join("lib"), tests };
        let &Release { apache, group_protocol, compares_brokers, .. } = release;
        Ok(Self { tests_dir: sources.join("tests"), package, apache, group_protocol, compares_brokers })
    }
}

impl Suite for NumberedTests {
    fn package(&self) -> &Package {
        &self.package
    }

    fn compares_brokers(&self) -> bool {
        self.compares_brokers
    }

    fn cluster(&self, scenario: &str, side: Side, dir: &Path) -> Result<Kafka, Failure> {
        if self.compares_brokers && side == Side::Ours {
            return Kafka::start_ottla(scenario, dir);
        }
        Kafka::start(self.apache, scenario, dir)
    }

    fn command(
        &self,
        test: &Test,
        library: &Path,
        kafka: &Kafka,
        scratch: &Path,
    ) -> Result<Command, Failure> {
        let conf = scratch.join(format!("{}.conf", test.name()));
        let bootstrap = kafka.bootstrap();
        write(
            &conf,
            &format!("bootstrap.servers={bootstrap}\ntest.timeout.multiplier={TIMEOUT_MULTIPLIER}\n"),
        )?;
        let mut runner = Command::new(self.tests_dir.join("test-runner"));
        // One test of a number after the other: each has its own time limits.
        runner.arg("-p1").current_dir(&self.tests_dir);
        runner.env("TESTS", &test.id).env("TEST_SCENARIO", &test.scenario);
        runner.env("RDKAFKA_TEST_CONF", conf).env("LD_LIBRARY_PATH", library);
        if let Some(protocol) = self.group_protocol {
            runner.env("TEST_CONSUMER_GROUP_PROTOCOL", protocol);
        }
        // With `CI` set the tests leave parts out.
        runner.env_remove("CI");
        kafka.describe_to(&mut runner);
        Ok(runner)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        verdict_of_runner(status, output)
    }
}

fn build(dir: &Path, sources: &Path) -> Result<(), Failure> {
    let unpacked = unpacked_packages(dir)?;
    let include = unpacked.join("include");
    let libraries = unpacked.join("lib/x86_64-linux-gnu");
    let in_sources = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(sources);
        // As system directories, because the checks for them make errors of warnings.
        command.env("C_INCLUDE_PATH", &include).env("CPLUS_INCLUDE_PATH", &include);
        command.env("LIBRARY_PATH", &libraries);
        execute(program, &mut command, BUILT_WITHIN)
    };
    in_sources("./configure", &["--disable-gssapi", "--disable-curl"])?;
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(1, usize::from));
    in_sources("make", &[&jobs, "libs"])?;
    in_sources("make", &[&jobs, "-C", "tests", "build"])?;
    let lib = dir.join("lib");
    fs::create_dir_all(&lib).map_err(|error| Failure::new(format!("{}: {error}", lib.display())))?;
    for (from, name) in [("src", "librdkafka.so.1"), ("src-cpp", "librdkafka++.so.1")] {
        symlink(sources.join(from).join(name), lib.join(name))
            .map_err(|error| Failure::new(format!("{}: {error}", lib.join(name).display())))?;
    }
    Ok(())
}

/// RapidJSON for the tests, and zstd, from Debian's packages, unpacked and not installed: the directory `usr`.
fn unpacked_packages(dir: &Path) -> Result<PathBuf, Failure> {
    let mut download = Command::new("apt-get");
    download.args(["download", "rapidjson-dev", "libzstd-dev", "libzstd1"]).current_dir(dir);
    execute("apt-get", &mut download, FETCHED_WITHIN)?;
    let mut unpack = Command::new("sh");
    unpack.args(["-c", "for package in *.deb; do dpkg-deb -x \"$package\" packages || exit; done"]);
    execute("dpkg-deb", unpack.current_dir(dir), FETCHED_WITHIN)?;
    Ok(dir.join("packages/usr"))
}

/// Reads the table `tests[]`, one `_TEST(NAME, FLAGS, .. .scenario = "A,B" ..)` per test. Manual tests are left out, and with
/// `on_brokers` those without a broker.
fn tests_of(source: &str, on_brokers: bool) -> Vec<Test> {
    let table = source.split_once("struct test tests[]").map_or("", |(_, table)| table);
    let table = table.split_once("{NULL}").map_or(table, |(table, _)| table);
    let mut tests = BTreeSet::new();
    for entry in table.split("_TEST(").skip(1) {
        let number = entry.split(['_', ',']).next().unwrap_or_default().trim();
        let is_left_out = entry.contains("TEST_F_MANUAL") || on_brokers && entry.contains("TEST_F_LOCAL");
        if is_left_out || number.is_empty() {
            continue;
        }
        let listed = entry.split_once(".scenario").and_then(|(_, rest)| rest.split('"').nth(1));
        // Of several scenarios the first is the usual one; the others need an older broker.
        let scenario = listed.and_then(|list| list.split(',').next()).unwrap_or(DEFAULT_SCENARIO);
        tests.insert(Test { scenario: scenario.to_owned(), id: number.to_owned() });
    }
    tests.into_iter().collect()
}

/// Reads the output of `test-runner`.
///
/// A failed test ends the runner with an abort, so that SIGABRT after a reported failure is no crash. A test beyond
/// its own deadline ends it with SIGKILL.
fn verdict_of_runner(status: ExitStatus, output: &str) -> (Verdict, String) {
    let lines: Vec<String> = output.lines().map(without_colours).collect();
    if status.success() {
        return match skipped(&lines) {
            Some(why) => (Verdict::Skipped, why),
            None => (Verdict::Passed, String::new()),
        };
    }
    match (status.signal(), first_failure(&lines)) {
        (Some(signal), Some(failure)) if signal == Signal::KILL.as_raw() => (Verdict::Hung, failure),
        (Some(signal), Some(failure)) if signal == Signal::ABORT.as_raw() => (Verdict::Failed, failure),
        (None, Some(failure)) => (Verdict::Failed, failure),
        (Some(signal), failure) => {
            let after = failure.or_else(|| last_line(output)).unwrap_or_default();
            (Verdict::Crashed, format!("signal {signal} after: {after}"))
        }
        (None, None) => (Verdict::Failed, last_line(output).unwrap_or_else(|| status.to_string())),
    }
}

/// The message below the first `### Test "NAME" failed at FILE:LINE:.. ###`.
fn first_failure(lines: &[String]) -> Option<String> {
    let at =
        lines.iter().position(|line| line.starts_with("### Test \"") && line.contains("\" failed at "))?;
    let message = lines[at + 1..].iter().find(|line| !line.trim().is_empty())?;
    Some(message.trim().to_owned())
}

/// The reason, if the summary lists no test that ran.
fn skipped(lines: &[String]) -> Option<String> {
    let mut why = None;
    for line in lines {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // `| NAME | STATE | SECONDS | REASON`; `<MAIN>` is the runner itself.
        let ["", name, state, _, reason] = cells[..] else { continue };
        match state {
            "SKIPPED" => {
                why.get_or_insert_with(|| reason.to_owned());
            }
            "PASSED" if name != "<MAIN>" => return None,
            _ => {}
        }
    }
    why
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_by_number_and_scenario_without_the_manual_ones() {
        let source = r#"
            struct test tests[] = {
                {.name = "<MAIN>", .flags = TEST_F_LOCAL},
                _TEST(0022_consume_batch, 0),
                _TEST(0022_consume_batch_local, TEST_F_LOCAL),
                _TEST(0045_subscribe_update, 0, TEST_BRKVER(0, 9, 0, 0)),
                _TEST(0045_topic_remove, 0, .scenario = "noautocreate"),
                _TEST(0103_transactions, 0, .scenario = "default,ak23"),
                _TEST(0104_mock, TEST_F_LOCAL),
                _TEST(8000_idle, TEST_F_MANUAL),
                {NULL}};
            _TEST(9999_elsewhere, 0),"#;
        let names =
            |on_brokers| -> Vec<String> { tests_of(source, on_brokers).iter().map(Test::name).collect() };
        assert_eq!(names(false), ["0022", "0045", "0103", "0104", "0045-noautocreate"]);
        assert_eq!(names(true), ["0022", "0045", "0103", "0045-noautocreate"]);
    }

    fn outcome(raw_status: i32, output: &str) -> (Verdict, String) {
        verdict_of_runner(ExitStatus::from_raw(raw_status), output)
    }

    const FAILURE: &str = "\
[0034_offset_reset /  0.1s] TEST FAILURE
\u{1b}[31m### Test \"0034_offset_reset\" failed at test.c:12:check() at Mon Nov 23: ###
check():12: expected 3 messages
";

    #[test]
    fn a_failed_test_aborts_its_runner_and_is_no_crash() {
        let failure = "check():12: expected 3 messages".to_owned();
        assert_eq!(outcome(6, FAILURE), (Verdict::Failed, failure.clone()));
        assert_eq!(outcome(1 << 8, FAILURE), (Verdict::Failed, failure.clone()));
        assert_eq!(outcome(9, FAILURE), (Verdict::Hung, failure.clone()), "its own deadline");
        assert_eq!(outcome(11, FAILURE), (Verdict::Crashed, format!("signal 11 after: {failure}")));
        let (verdict, detail) = outcome(6, "thread panicked\n");
        assert_eq!((verdict, detail.as_str()), (Verdict::Crashed, "signal 6 after: thread panicked"));
    }

    #[test]
    fn a_test_is_skipped_when_all_of_its_number_are() {
        let skipped = "|\u{1b}[36m 0053_stats  |    SKIPPED |   0.000s \u{1b}[0m| no parser\n";
        let main = "|\u{1b}[32m <MAIN>  |     PASSED |   1.0s \u{1b}[0m|\n";
        let passed = "|\u{1b}[32m 0053_stats_timing  |     PASSED |   1.0s \u{1b}[0m|\n";
        assert_eq!(outcome(0, &format!("{main}{skipped}")), (Verdict::Skipped, "no parser".to_owned()));
        assert_eq!(outcome(0, &format!("{main}{passed}{skipped}")), (Verdict::Passed, String::new()));
    }
}
