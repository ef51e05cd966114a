//! confluent-kafka-go's tests, which its module brings.

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

/// The name of the suite.
pub(super) const NAME: &str = "confluent-kafka-go";

/// The version of the module in interop/go/go.mod.
const VERSION: &str = "v2.11.1";
const MODULE: &str = "github.com/confluentinc/confluent-kafka-go/v2";

const FETCHED_WITHIN: Duration = Duration::from_secs(300);
const BUILT_WITHIN: Duration = Duration::from_secs(25 * 60);

/// The configuration that the integration tests read: the brokers are in the environment.
const TESTCONF: &str = "\
{\"Brokers\": \"$BROKERS\", \"TopicName\": \"test\", \"GroupID\": \"testgroup\", \"PerfMsgCount\": 100000, \
\"PerfMsgSize\": 100, \"Config\": [\"api.version.request=true\"]}\n";

/// The built tests.
pub(super) struct GoTests {
    package: Package,
    /// The directory of the package: its tests start there.
    source: PathBuf,
    program: PathBuf,
}

impl GoTests {
    /// Builds the tests of the package `kafka`, linked with our library.
    pub(super) fn prepare() -> Result<Self, Failure> {
        let dir = suite_dir(NAME, VERSION);
        let source = dir.join("source/kafka");
        if !source.is_dir() {
            copied(&module_source(&format!("{MODULE}@{VERSION}"))?, &dir.join("source"))?;
        }
        let conf = source.join("testconf.json");
        fs::write(&conf, TESTCONF).map_err(|error| Failure::new(format!("{}: {error}", conf.display())))?;
        install::install(&install::Options::for_tests())?;
        let program = dir.join("kafka.test");
        let mut go = Command::new("go");
        go.args(["test", "-c", "-tags", "dynamic", "-o"]).arg(&program).arg(".").current_dir(&source);
        go.env("PKG_CONFIG_PATH", our_prefix().join("lib/pkgconfig"));
        // Go caches pkg-config's output, but not this variable.
        go.env("CGO_LDFLAGS", format!("-L{}", our_prefix().join("lib").display()));
        run("go", &mut go, b"", BUILT_WITHIN)?.succeeded()?;
        let mut list = Command::new(&program);
        list.args(["-test.list", "."]).env("LD_LIBRARY_PATH", our_prefix().join("lib"));
        let listed = run("kafka.test", &mut list, b"", FETCHED_WITHIN)?.succeeded()?;
        let methods = source.join("integration_test.go");
        let methods = fs::read_to_string(&methods)
            .map_err(|error| Failure::new(format!("{}: {error}", methods.display())))?;
        let tests = tests_of(&listed.lines(), &methods);
        let original = Librdkafka::reference()?.lib().to_owned();
        Ok(Self { package: Package { name: NAME, version: VERSION, original, tests }, source, program })
    }
}

impl Suite for GoTests {
    fn package(&self) -> &Package {
        &self.package
    }

    fn command(&self, test: &Test, library: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        let pattern: Vec<String> = test.id.split('/').map(|part| format!("^{part}$")).collect();
        let mut command = Command::new(&self.program);
        command.args(["-test.v", "-test.run", &pattern.join("/")]).current_dir(&self.source);
        command.env("LD_LIBRARY_PATH", library);
        kafka.describe_to(&mut command);
        Ok(command)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        verdict_of_go(status, output)
    }
}

/// Reads the output of one test of a Go program with `-test.v`.
pub(super) fn verdict_of_go(status: ExitStatus, output: &str) -> (Verdict, String) {
    if status.success() {
        let is_skipped = output.lines().any(|line| line.trim_start().starts_with("--- SKIP"));
        let ran = output.lines().any(|line| line.starts_with("--- PASS")) && !is_skipped;
        return (if ran { Verdict::Passed } else { Verdict::Skipped }, String::new());
    }
    let failure = first_failure(output).or_else(|| last_line(output)).unwrap_or_default();
    // A panic in Go, a failed test and a signal that Go's runtime caught: only the last is a crash.
    let is_crash = status.code().is_none()
        || output.lines().any(|line| line.starts_with("SIG") || line.starts_with("fatal error: "));
    (if is_crash { Verdict::Crashed } else { Verdict::Failed }, failure)
}

/// Functions of the program, and the methods of its integration suite in their place.
fn tests_of(functions: &[String], methods: &str) -> Vec<Test> {
    let test = |id: String| Test { scenario: DEFAULT_SCENARIO.to_owned(), id };
    let mut tests = Vec::new();
    for function in functions.iter().filter(|function| function.starts_with("Test")) {
        if function != "TestIntegration" {
            tests.push(test(function.clone()));
            continue;
        }
        let names = methods.lines().filter_map(|line| {
            let (_, name) = line.strip_prefix("func (")?.split_once("IntegrationTestSuite) ")?;
            let (name, _) = name.split_once('(')?;
            name.starts_with("Test").then(|| format!("TestIntegration/{name}"))
        });
        tests.extend(names.map(test));
    }
    tests
}

/// The first `Error:` of an assertion, or the first panic, or the last line of the form `FILE_test.go:LINE: MESSAGE`
/// before the first failed test: earlier ones may be notes.
fn first_failure(output: &str) -> Option<String> {
    let before: Vec<&str> =
        output.lines().take_while(|line| !line.trim_start().starts_with("--- FAIL")).collect();
    let is_error = |line: &&&str| {
        let line = line.trim_start();
        ["Error:", "panic: ", "fatal error: "].iter().any(|start| line.starts_with(start))
    };
    let error = before.iter().find(is_error);
    let last = || before.iter().rfind(|line| line.contains("_test.go:"));
    error.or_else(last).map(|line| line.trim().to_owned())
}

/// The folder in which Go keeps the module's source after a download.
pub(super) fn module_source(module: &str) -> Result<PathBuf, Failure> {
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", module]);
    go.current_dir(workspace_root().join("interop/go"));
    let output = run("go", &mut go, b"", FETCHED_WITHIN)?.succeeded()?;
    let module: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("go mod download: {error}")))?;
    let directory = module["Dir"].as_str().map(PathBuf::from);
    directory.ok_or_else(|| Failure::new(format!("go mod download reports no directory for {module}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_the_integration_suite_are_tests() {
        let functions = ["TestA", "TestIntegration", "ok  \tkafka"].map(str::to_owned);
        let methods =
            "func (its *IntegrationTestSuite) TestB() {\nfunc (its *IntegrationTestSuite) help() {\n";
        let ids: Vec<String> = tests_of(&functions, methods).into_iter().map(|test| test.id).collect();
        assert_eq!(ids, ["TestA", "TestIntegration/TestB"]);
    }

    #[test]
    fn the_failure_is_the_last_line_before_the_failed_test() {
        let output =
            "=== RUN   TestA\n    a_test.go:3: a note\n    a_test.go:4: expected 1\n--- FAIL: TestA\nFAIL\n";
        assert_eq!(first_failure(output).as_deref(), Some("a_test.go:4: expected 1"));
        let output = "    a_test.go:3: a note\npanic: no broker\n";
        assert_eq!(first_failure(output).as_deref(), Some("panic: no broker"));
    }
}
