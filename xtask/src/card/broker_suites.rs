//! Tests of Go's clients, which their modules bring, on Apache Kafka and on the Ottla broker.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use ottla_interop::{Failure, run};

use super::go::{module_source, verdict_of_go};
use super::kafka::{ClusterNeeds, Kafka};
use super::outcome::Verdict;
use super::suite::{DEFAULT_SCENARIO, Package, Side, Suite, Test, copied, suite_dir};
use super::toxiproxy::Toxiproxy;

const BUILT_WITHIN: Duration = Duration::from_secs(25 * 60);

/// The time limit of one test, for Go's own report with the stacks of its goroutines.
const TEST_TIMEOUT: &str = "-test.timeout=240s";

/// The release of Apache Kafka that the tests read from the environment.
const KAFKA_VERSION: &str = "4.3.1";

/// The variable with the address or the port that the tests have as a constant; see [`Recipe::rewrites`].
const ADDRESS: &str = "OTTLA_CARD_ADDRESS";

/// The way to build and to run the tests of a client.
pub(super) struct Recipe {
    /// The name of the suite.
    pub(super) name: &'static str,
    module: &'static str,
    version: &'static str,
    /// The folder of the package in the module.
    folder: &'static str,
    tag: &'static str,
    /// The prefix of the files with the tests.
    files: &'static str,
    /// Files, each with a text and its replacement: addresses that the tests have as constants are read from [`ADDRESS`].
    rewrites: &'static [(&'static str, &'static str, &'static str)],
    /// A file to add to the package, for the rewritten addresses.
    address_file: Option<(&'static str, &'static str)>,
    nodes: usize,
    properties: &'static [(&'static str, &'static str)],
    needs_toxiproxy: bool,
    /// All tests use the same topics.
    runs_alone: bool,
    variables: &'static [(&'static str, &'static str)],
}

/// franz-go's client. Fewer records than by default: 500,000 records for each of its long tests take an hour.
pub(super) const KGO: Recipe = Recipe {
    name: "kgo",
    module: "github.com/twmb/franz-go",
    version: "v1.22.2",
    folder: "pkg/kgo",
    tag: "",
    files: "",
    rewrites: &[],
    address_file: None,
    nodes: 3,
    properties: &[("auto.create.topics.enable", "true")],
    needs_toxiproxy: false,
    runs_alone: false,
    variables: &[("KGO_TEST_RECORDS", "50000"), ("KGO_LOG_LEVEL", "none")],
};

/// Sarama's functional tests, with its own proxies. They expect five nodes and run on three.
pub(super) const SARAMA: Recipe = Recipe {
    name: "sarama",
    module: "github.com/IBM/sarama",
    version: "v1.61.1",
    folder: "",
    tag: "functional",
    files: "functional_",
    rewrites: &[("functional_test.go", "29090+i", "cardBasePort()+i")],
    address_file: Some((
        "card_functional_test.go",
        "//go:build functional\n\npackage sarama\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\n\
         func cardBasePort() int {\n\tport, _ := strconv.Atoi(os.Getenv(\"OTTLA_CARD_ADDRESS\"))\n\treturn port\n}\n",
    )),
    nodes: 3,
    properties: &[
        ("auto.create.topics.enable", "false"),
        ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    ],
    needs_toxiproxy: true,
    runs_alone: true,
    variables: &[("KAFKA_VERSION", KAFKA_VERSION)],
};

/// segmentio's client, with one node as in its own environment.
pub(super) const KAFKA_GO: Recipe = Recipe {
    name: "kafka-go",
    module: "github.com/segmentio/kafka-go",
    version: "v0.4.51",
    folder: "",
    tag: "",
    files: "",
    rewrites: &[
        ("conn_test.go", "const (\n\t\ttcp ", "var (\n\t\ttcp "),
        ("conn_test.go", ".Port != 9092", ".Port != cardPort"),
        ("reader_test.go", "const broker = ", "var broker = "),
        ("client_test.go", "TCP(\"localhost\")", "TCP(cardAddress)"),
        ("dialer_test.go", "Host: \"localhost\", Port: 9092", "Host: cardHost, Port: cardPort"),
        ("", ".Host != \"localhost\"", ".Host != cardHost"),
        ("", "\"127.0.0.1:9092\"", "cardAddress"),
        ("", "\"localhost:9092\"", "cardAddress"),
    ],
    address_file: Some((
        "card_test.go",
        "package kafka\n\nimport (\n\t\"net\"\n\t\"os\"\n\t\"strconv\"\n)\n\n\
         var cardAddress = os.Getenv(\"OTTLA_CARD_ADDRESS\")\n\
         var cardHost, cardPortText, _ = net.SplitHostPort(cardAddress)\n\
         var cardPort, _ = strconv.Atoi(cardPortText)\n",
    )),
    nodes: 1,
    properties: &[
        ("auto.create.topics.enable", "true"),
        ("message.max.bytes", "200000000"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("allow.everyone.if.no.acl.found", "true"),
        // Kafka's default; ours is lower.
        ("group.min.session.timeout.ms", "6000"),
    ],
    needs_toxiproxy: false,
    runs_alone: false,
    variables: &[("KAFKA_VERSION", KAFKA_VERSION), ("KAFKA_SKIP_NETTEST", "1")],
};

/// The built tests of a client.
pub(super) struct BrokerTests {
    recipe: &'static Recipe,
    package: Package,
    /// The directory of the package: its tests start there.
    source: PathBuf,
    program: PathBuf,
    toxiproxy: Option<PathBuf>,
}

impl BrokerTests {
    /// Downloads and builds the tests.
    pub(super) fn prepare(recipe: &'static Recipe) -> Result<Self, Failure> {
        let dir = suite_dir(recipe.name, recipe.version);
        let source = dir.join("source").join(recipe.folder);
        let program = dir.join("suite.test");
        let failed = |path: &Path, error| Failure::new(format!("{}: {error}", path.display()));
        if !program.is_file() {
            copied(&module_source(&format!("{}@{}", recipe.module, recipe.version))?, &dir.join("source"))?;
            recipe.rewrite(&source)?;
            let mut go = Command::new("go");
            // kafka-go's go.mod is older than this Go.
            go.args(["test", "-c", "-mod=mod", "-tags", recipe.tag, "-o"])
                .arg(&program)
                .arg(".")
                .current_dir(&source);
            run("go", go.env("CGO_ENABLED", "0"), b"", BUILT_WITHIN)?.succeeded()?;
        }
        let mut functions = BTreeSet::new();
        for file in test_files(&source)?.iter().filter(|file| name_of(file).starts_with(recipe.files)) {
            functions.extend(tests_in(&fs::read_to_string(file).map_err(|error| failed(file, error))?));
        }
        let tests =
            functions.into_iter().map(|id| Test { scenario: DEFAULT_SCENARIO.to_owned(), id }).collect();
        let toxiproxy = if recipe.needs_toxiproxy { Some(Toxiproxy::build(&dir)?) } else { None };
        let package = Package { name: recipe.name, version: recipe.version, original: PathBuf::new(), tests };
        Ok(Self { recipe, package, source, program, toxiproxy })
    }
}

impl Recipe {
    /// Makes the copied tests read their addresses from the environment.
    fn rewrite(&self, source: &Path) -> Result<(), Failure> {
        let failed = |path: &Path, error| Failure::new(format!("{}: {error}", path.display()));
        for file in test_files(source)? {
            let text = fs::read_to_string(&file).map_err(|error| failed(&file, error))?;
            // Examples are a package of their own, and tests of addresses connect to none.
            let name = name_of(&file);
            if name.starts_with("example_") || name == "address_test.go" {
                continue;
            }
            let mut rewritten = text.clone();
            for (_, from, to) in self.rewrites.iter().filter(|(of, _, _)| of.is_empty() || *of == name) {
                rewritten = rewritten.replace(from, to);
            }
            if rewritten != text {
                fs::write(&file, rewritten).map_err(|error| failed(&file, error))?;
            }
        }
        if let Some((name, text)) = self.address_file {
            let file = source.join(name);
            fs::write(&file, text).map_err(|error| failed(&file, error))?;
        }
        Ok(())
    }
}

impl Suite for BrokerTests {
    fn package(&self) -> &Package {
        &self.package
    }

    fn compares_brokers(&self) -> bool {
        true
    }

    fn cluster(&self, _: &str, side: Side, dir: &Path) -> Result<Kafka, Failure> {
        let needs = ClusterNeeds {
            nodes: self.recipe.nodes,
            properties: self.recipe.properties.to_vec(),
            toxiproxy: self.toxiproxy.clone(),
        };
        Kafka::start_side(side, &needs, dir)
    }

    fn jobs_max(&self) -> usize {
        if self.recipe.runs_alone { 1 } else { usize::MAX }
    }

    fn command(&self, test: &Test, _: &Path, kafka: &Kafka, _: &Path) -> Result<Command, Failure> {
        let mut command = Command::new(&self.program);
        command.args(["-test.v", TEST_TIMEOUT, "-test.run", &format!("^{}$", test.id)]);
        command.current_dir(&self.source).envs(self.recipe.variables.iter().copied());
        command.env("KGO_SEEDS", kafka.bootstrap());
        match kafka.proxies() {
            Some(proxies) => {
                command.env(ADDRESS, proxies.base_port().to_string()).env("TOXIPROXY_ADDR", proxies.url());
            }
            None => {
                command.env(ADDRESS, kafka.addresses()[0].to_string());
            }
        }
        Ok(command)
    }

    fn verdict(&self, status: ExitStatus, output: &str) -> (Verdict, String) {
        if output.contains("panic: test timed out after") {
            return (Verdict::Hung, TEST_TIMEOUT.to_owned());
        }
        // Parts of a test are skipped on both brokers alike, for instance those for another protocol.
        if status.success() && output.lines().any(|line| line.starts_with("--- PASS")) {
            return (Verdict::Passed, String::new());
        }
        verdict_of_go(status, output)
    }
}

/// The files of a package that end in `_test.go`, in order.
fn test_files(package: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::new(format!("{}: {error}", package.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(package).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if name_of(&path).ends_with("_test.go") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn name_of(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The test functions of a file.
fn tests_in(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("func ")?.split_once("(t *testing.T)"));
    names.filter(|(name, _)| name.starts_with("Test")).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_the_functions_of_the_files() {
        let text = "func TestA(t *testing.T) {\nfunc testB(t *testing.T) {\nfunc TestMain(m *testing.M) {\n";
        assert_eq!(tests_in(text), ["TestA"]);
    }

    #[test]
    fn addresses_are_read_from_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let test = dir.path().join("conn_test.go");
        fs::write(&test, "const (\n\t\ttcp   = 1\n\t\tkafka = \"localhost:9092\"\n)\n").unwrap();
        KAFKA_GO.rewrite(dir.path()).unwrap();
        let rewritten = fs::read_to_string(&test).unwrap();
        assert_eq!(rewritten, "var (\n\t\ttcp   = 1\n\t\tkafka = cardAddress\n)\n");
        let added = fs::read_to_string(dir.path().join("card_test.go")).unwrap();
        assert!(added.contains(ADDRESS), "{added}");
    }
}
