//! `cargo xtask card`: test suites written by others, on the original librdkafka and on ours, or on Apache Kafka and on
//! the Ottla broker.
//!
//! The suites come from the package registries into the target directory. The results are a table per suite in this
//! folder, and docs/REPORT_CARD.md, which is made of them. `--quick` runs tests that passed according to the tables.

mod broker_suites;
mod go;
mod kafka;
mod kafka_python;
mod kafka_tests;
mod librdkafka;
mod node;
mod outcome;
mod report;
mod results;
mod runner;
mod rust;
mod suite;
mod toxiproxy;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ottla_interop::{Failure, our_prefix, workspace_root};

use self::broker_suites::BrokerTests;
use self::go::GoTests;
use self::kafka_python::PythonTests;
use self::kafka_tests::ClusterTests;
use self::librdkafka::NumberedTests;
use self::node::NodeTests;
use self::outcome::Outcome;
use self::report::{Reasons, Table};
use self::results::Results;
use self::runner::Run;
use self::rust::RustTests;
use self::suite::{Side, Suite, Test, named, suite_dir};
use crate::{install, shell};

/// The folder of the tables, and of the reasons for differences: `SUITE TEST REASON` per line.
const FOLDER: &str = "xtask/src/card";
const REPORT: &str = "docs/REPORT_CARD.md";

const BUILT_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The longest test, 0045, takes eight minutes.
const ORIGINAL_WITHIN: Duration = Duration::from_secs(900);
/// The deadline of ours is a multiple of the original's time, and some time to fail.
const OURS_TIMES: u32 = 2;
const OURS_BESIDES: Duration = Duration::from_secs(60);
/// The tests of `--quick`: with the start of the cluster and second tries at most six minutes.
const QUICK_WITHIN: Duration = Duration::from_secs(200);

type Prepare = fn() -> Result<Box<dyn Suite>, Failure>;

/// The suites in the order of the report.
const SUITES: &[(&str, Prepare)] = &[
    (librdkafka::NEWEST.name, || Ok(Box::new(NumberedTests::prepare(&librdkafka::NEWEST)?))),
    (librdkafka::NEW_PROTOCOL.name, || Ok(Box::new(NumberedTests::prepare(&librdkafka::NEW_PROTOCOL)?))),
    (librdkafka::OLDER.name, || Ok(Box::new(NumberedTests::prepare(&librdkafka::OLDER)?))),
    (rust::NAME, || Ok(Box::new(RustTests::prepare()?))),
    (go::NAME, || Ok(Box::new(GoTests::prepare()?))),
    (node::NAME, || Ok(Box::new(NodeTests::prepare()?))),
    (librdkafka::BROKERS.name, || Ok(Box::new(NumberedTests::prepare(&librdkafka::BROKERS)?))),
    (broker_suites::KGO.name, || Ok(Box::new(BrokerTests::prepare(&broker_suites::KGO)?))),
    (broker_suites::SARAMA.name, || Ok(Box::new(BrokerTests::prepare(&broker_suites::SARAMA)?))),
    (broker_suites::KAFKA_GO.name, || Ok(Box::new(BrokerTests::prepare(&broker_suites::KAFKA_GO)?))),
    (kafka_python::NAME, || Ok(Box::new(PythonTests::prepare()?))),
    (kafka_tests::NAME, || Ok(Box::new(ClusterTests::prepare()?))),
];

/// The options of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// All suites by default.
    suite: Option<String>,
    quick: bool,
    /// Only write the report again, from the tables and the reasons.
    report: bool,
    /// Tests by name; empty for all.
    tests: Vec<String>,
    /// The results of these tests on our library go into the table and the report.
    record: bool,
    /// `original`, or a directory with a `librdkafka.so.1`; otherwise ours, as `cargo xtask install` builds it.
    library: Option<String>,
    jobs: Option<usize>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("card: {arg} needs a value"));
            match arg {
                "--quick" => options.quick = true,
                "--report" => options.report = true,
                "--record" => options.record = true,
                "--test" => options.tests.extend(value()?.split(',').map(str::to_owned)),
                "--library" => options.library = Some(value()?.to_owned()),
                "--jobs" => {
                    let jobs = value()?.parse().ok().filter(|&jobs| jobs > 0);
                    options.jobs = Some(jobs.ok_or("card: --jobs is a number above 0")?);
                }
                suite if SUITES.iter().any(|&(name, _)| name == suite) => {
                    options.suite = Some(suite.to_owned());
                }
                other => return Err(format!("card: no suite or option {other}")),
            }
        }
        if options.quick && (options.library.is_some() || !options.tests.is_empty()) {
            return Err("card: --quick chooses its tests and runs our library".to_owned());
        }
        if options.record && (options.tests.is_empty() || options.library.is_some()) {
            return Err("card: --record needs --test, and is about our library".to_owned());
        }
        if options.suite.is_none() && (options.library.is_some() || !options.tests.is_empty()) {
            return Err("card: --test and --library need a suite".to_owned());
        }
        Ok(options)
    }

    /// For `cargo xtask test`.
    pub(crate) fn quick() -> Self {
        Self { quick: true, ..Self::default() }
    }

    /// All suites by default. A quick run has the first only: the build of another takes all its time.
    fn wants(&self, suite: &str) -> bool {
        match &self.suite {
            Some(wanted) => wanted == suite,
            None => !self.quick || suite == SUITES[0].0,
        }
    }

    /// One more than processors, because most tests wait most of the time.
    fn jobs(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or_else(|| processors() + 1)
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match run_suites(options) {
        Ok(checked) if checked.not_passed.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("card: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Tests that were expected to pass. A full run expects nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) passed: usize,
    /// The names of the others, each with its suite.
    pub(crate) not_passed: Vec<String>,
}

/// Runs tests that passed when the report was written.
pub(crate) fn run_quick() -> Result<Checked, Failure> {
    run_suites(&Options::quick())
}

fn run_suites(options: &Options) -> Result<Checked, Failure> {
    let mut all = Checked::default();
    if options.report {
        write(REPORT, &report_of_tables()?)?;
        return Ok(all);
    }
    for (name, prepare) in SUITES.iter().filter(|(name, _)| options.wants(name)) {
        let suite = prepare()?;
        let suite = suite.as_ref();
        let checked = if options.quick {
            quick(suite, options)?
        } else if options.tests.is_empty() && options.library.is_none() {
            full(suite, options)?;
            Checked::default()
        } else {
            some(suite, options)?
        };
        all.passed += checked.passed;
        all.not_passed.extend(checked.not_passed);
        println!("card: {name} is done");
    }
    Ok(all)
}

/// Everything on the original, and on ours what the original passes. The original's results are taken from the target
/// directory if they are there.
fn full(suite: &dyn Suite, options: &Options) -> Result<(), Failure> {
    let mut original = recorded(suite);
    let missing: Vec<&Test> =
        suite.tests().iter().filter(|test| original.of(&test.name()).is_none()).collect();
    if !missing.is_empty() {
        println!("card: {} tests of {} on the original", missing.len(), suite.name());
        original_run(suite, options).run(&missing, |_| ORIGINAL_WITHIN, &mut original)?;
    }
    let is_applicable = |test: &&Test| original.of(&test.name()).is_some_and(Outcome::has_passed);
    let mut tests: Vec<&Test> = suite.tests().iter().filter(is_applicable).collect();
    // The longest first, so that no long one is left for the end.
    tests.sort_by_key(|test| std::cmp::Reverse(original.of(&test.name()).map(|outcome| outcome.took)));
    let mut ours = Results::create(&dir(suite).join("ours.tsv"));
    ours_run(suite, options)?.run(&tests, |test| deadline(&original, test), &mut ours)?;
    let table = Table::new(suite, &original, &ours);
    write(&table_file(suite.name()), &table.text())?;
    let counts = table.counts();
    println!("card: {}: {counts:?}", suite.name());
    write(REPORT, &report_of_tables()?)
}

/// The text of docs/REPORT_CARD.md, from the tables and the reasons.
fn report_of_tables() -> Result<String, Failure> {
    let tables: Vec<Table> = SUITES.iter().filter_map(|(name, _)| read_table(name)).collect();
    Ok(report::markdown(&tables, &read_reasons()?))
}

fn read_reasons() -> Result<Reasons, Failure> {
    let file = workspace_root().join(FOLDER).join("reasons.txt");
    let text =
        fs::read_to_string(&file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(Reasons::parse(&text))
}

/// The tests that passed when the table was written, as many as fit.
fn quick(suite: &dyn Suite, options: &Options) -> Result<Checked, Failure> {
    let Some(table) = read_table(suite.name()) else {
        return Err(Failure::new(format!("{} is missing: run cargo xtask card", table_file(suite.name()))));
    };
    let run = ours_run(suite, options)?;
    let tests = named(suite, &table.quick(&read_reasons()?, run.jobs, QUICK_WITHIN))?;
    let mut results = Results::create(&dir(suite).join("quick.tsv"));
    run.run(&tests, |_| OURS_BESIDES * OURS_TIMES, &mut results)?;
    Ok(check(&run, &tests, &results))
}

/// Some tests, or all on one library; the table and the report change only with `--record`.
fn some(suite: &dyn Suite, options: &Options) -> Result<Checked, Failure> {
    let tests = match &options.tests {
        all if all.is_empty() => suite.tests().iter().collect(),
        names => named(suite, names)?,
    };
    let mut original = recorded(suite);
    let run = match options.library.as_deref() {
        None => ours_run(suite, options)?,
        Some("original") => {
            let run = original_run(suite, options);
            run.run(&tests, |_| ORIGINAL_WITHIN, &mut original)?;
            return Ok(check(&run, &tests, &original));
        }
        Some(library) => {
            let found = fs::canonicalize(library);
            let library = found.map_err(|error| Failure::new(format!("--library {library}: {error}")))?;
            Run { suite, side: Side::Ours, library, dir: dir(suite).join("some"), jobs: options.jobs() }
        }
    };
    let mut results = Results::create(&dir(suite).join("some.tsv"));
    run.run(&tests, |test| deadline(&original, test), &mut results)?;
    if options.record {
        let name = suite.name();
        let mut table = read_table(name).unwrap_or_else(|| Table::new(suite, &original, &results));
        table.record(&results);
        write(&table_file(name), &table.text())?;
        write(REPORT, &report_of_tables()?)?;
    }
    Ok(check(&run, &tests, &results))
}

fn dir(suite: &dyn Suite) -> PathBuf {
    suite_dir(suite.name(), suite.version())
}

/// The original's outcomes so far.
fn recorded(suite: &dyn Suite) -> Results {
    Results::open(&dir(suite).join("original.tsv"))
}

fn original_run<'a>(suite: &'a dyn Suite, options: &Options) -> Run<'a> {
    let library = suite.original().to_owned();
    Run { suite, side: Side::Original, library, dir: dir(suite).join("original"), jobs: options.jobs() }
}

/// A run on our library or our broker, which is built first.
fn ours_run<'a>(suite: &'a dyn Suite, options: &Options) -> Result<Run<'a>, Failure> {
    let library = if suite.compares_brokers() {
        build_broker()?;
        println!("card: tests of {} on the Ottla broker", suite.name());
        suite.original().to_owned()
    } else {
        install::install(&install::Options::for_tests())?;
        println!("card: tests of {} on our library", suite.name());
        our_prefix().join("lib")
    };
    Ok(Run { suite, side: Side::Ours, library, dir: dir(suite).join("ours"), jobs: options.jobs() })
}

/// Builds `ottla`, unless `OTTLA_BIN` names another binary.
fn build_broker() -> Result<(), Failure> {
    if std::env::var_os("OTTLA_BIN").is_some() {
        return Ok(());
    }
    // With the features of the whole workspace, as for the tests.
    let build = ["build", "--workspace"];
    let built = shell::run(&mut shell::cargo(&build), BUILT_WITHIN).map_err(Failure::new)?;
    if !built.status.success() {
        return Err(Failure::new(format!("cargo {} ({})", build.join(" "), built.status)));
    }
    Ok(())
}

fn deadline(original: &Results, test: &Test) -> Duration {
    match original.of(&test.name()) {
        Some(outcome) if outcome.has_passed() => outcome.took * OURS_TIMES + OURS_BESIDES,
        // Without the original's time, ours may take as long as the original may.
        None => ORIGINAL_WITHIN,
        Some(_) => OURS_BESIDES * OURS_TIMES,
    }
}

fn check(run: &Run, tests: &[&Test], results: &Results) -> Checked {
    let has_passed = |test: &&&Test| results.of(&test.name()).is_some_and(Outcome::has_passed);
    let others: Vec<&Test> = tests.iter().filter(|test| !has_passed(test)).copied().collect();
    for test in &others {
        println!("card: {} did not pass: {}", test.name(), run.log(test).display());
    }
    let passed = tests.len() - others.len();
    println!("card: {passed} passed, {} did not pass", others.len());
    let not_passed = others.iter().map(|test| format!("{} {}", run.suite.name(), test.name())).collect();
    Checked { passed, not_passed }
}

fn table_file(suite: &str) -> String {
    format!("{FOLDER}/{suite}.tsv")
}

fn read_table(suite: &str) -> Option<Table> {
    let text = fs::read_to_string(workspace_root().join(table_file(suite))).ok()?;
    Some(Table::parse(&text))
}

fn write(path: &str, text: &str) -> Result<(), Failure> {
    let path: PathBuf = workspace_root().join(path);
    fs::write(&path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_made_of_the_tables_and_the_reasons() {
        let report = fs::read_to_string(workspace_root().join(REPORT)).unwrap();
        assert!(report == report_of_tables().unwrap(), "{REPORT} is older: run cargo xtask card --report");
    }

    #[test]
    fn options_select_a_suite_tests_and_a_library() {
        let options =
            Options::parse(&["librdkafka", "--test", "0001,0002", "--library", "original"]).unwrap();
        assert_eq!(options.tests, ["0001", "0002"]);
        assert_eq!(options.library.as_deref(), Some("original"));
        assert!(options.wants("librdkafka") && !options.wants("another"));
        assert_eq!(Options::parse(&["--quick"]).unwrap(), Options::quick());
        assert!(Options::quick().wants(librdkafka::NEWEST.name) && !Options::quick().wants(go::NAME));
        assert!(Options::parse(&["librdkafka", "--test", "0001", "--record"]).unwrap().record);
        assert!(Options::parse(&["librdkafka", "--record"]).is_err(), "a full run records always");
        assert!(Options::parse(&["--quick", "--test", "0001"]).is_err());
        assert_eq!(
            Options::parse(&["--test", "0001"]).unwrap_err(),
            "card: --test and --library need a suite"
        );
        assert_eq!(Options::parse(&["--jobs", "0"]).unwrap_err(), "card: --jobs is a number above 0");
        assert_eq!(Options::parse(&["unknown"]).unwrap_err(), "card: no suite or option unknown");
    }
}
