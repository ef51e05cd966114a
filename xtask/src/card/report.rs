//! The tables of results in this folder, and docs/REPORT_CARD.md, which is made of them.

use std::fmt::Write as _;
use std::time::Duration;

use super::outcome::{Outcome, Verdict};
use super::results::Results;
use super::suite::Suite;

/// The results of one suite on both libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) suite: String,
    pub(super) version: String,
    pub(super) rows: Vec<Row>,
}

/// One test. `None` means that it did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) test: String,
    pub(super) original: Option<Verdict>,
    pub(super) ours: Option<Verdict>,
    /// The time that our library took, in whole seconds.
    pub(super) seconds: u64,
    /// The first failure of ours, or of the original if the test is not applicable.
    pub(super) detail: String,
}

impl Row {
    fn is_applicable(&self) -> bool {
        self.original == Some(Verdict::Passed)
    }

    fn is_passed(&self) -> bool {
        self.ours == Some(Verdict::Passed)
    }
}

/// The numbers of a suite.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) tests: usize,
    /// Passed by the original.
    pub(super) applicable: usize,
    /// The applicable tests that our library passes, crashes in, hangs in.
    pub(super) passed: usize,
    pub(super) crashed: usize,
    pub(super) hung: usize,
}

impl Table {
    pub(super) fn new(suite: &dyn Suite, original: &Results, ours: &Results) -> Self {
        let row = |test: String| {
            let (theirs, our) = (original.of(&test), ours.of(&test));
            let is_applicable = theirs.is_some_and(Outcome::has_passed);
            let quoted = if is_applicable { our } else { theirs };
            Row {
                original: theirs.map(|outcome| outcome.verdict),
                ours: our.map(|outcome| outcome.verdict),
                seconds: our.map_or(0, |outcome| outcome.took.as_secs_f64().ceil() as u64),
                detail: quoted.map_or_else(String::new, |outcome| outcome.detail.clone()),
                test,
            }
        };
        Self {
            suite: suite.name().to_owned(),
            version: suite.version().to_owned(),
            rows: suite.tests().iter().map(|test| row(test.name())).collect(),
        }
    }

    /// Replaces our results of the tests that ran again.
    pub(super) fn record(&mut self, ours: &Results) {
        for row in &mut self.rows {
            let Some(outcome) = ours.of(&row.test) else { continue };
            row.ours = Some(outcome.verdict);
            row.seconds = outcome.took.as_secs_f64().ceil() as u64;
            if row.is_applicable() {
                row.detail.clone_from(&outcome.detail);
            }
        }
    }

    /// Reads [`Table::text`]. Lines of another form are ignored.
    pub(super) fn parse(text: &str) -> Self {
        let mut words = text.lines().next().unwrap_or_default().trim_start_matches("# ").split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (suite, version) = (word(), word());
        let rows = text.lines().filter_map(|line| match line.splitn(5, '\t').collect::<Vec<_>>()[..] {
            [test, original, ours, seconds, detail] => Some(Row {
                test: test.to_owned(),
                original: Verdict::parse(original),
                ours: Verdict::parse(ours),
                seconds: seconds.parse().ok()?,
                detail: detail.to_owned(),
            }),
            _ => None,
        });
        Self { suite, version, rows: rows.collect() }
    }

    /// One line per test: its name, both results, the seconds of ours, and the first failure.
    pub(super) fn text(&self) -> String {
        let mut text = format!("# {} {} (written by `cargo xtask card`)\n", self.suite, self.version);
        let word = |verdict: Option<Verdict>| verdict.map_or("-", Verdict::word);
        for row in &self.rows {
            let (original, ours) = (word(row.original), word(row.ours));
            let _ = writeln!(text, "{}\t{original}\t{ours}\t{}\t{}", row.test, row.seconds, row.detail);
        }
        text
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts { tests: self.rows.len(), ..Counts::default() };
        for row in self.rows.iter().filter(|row| row.is_applicable()) {
            counts.applicable += 1;
            match row.ours {
                Some(Verdict::Passed) => counts.passed += 1,
                Some(Verdict::Crashed) => counts.crashed += 1,
                Some(Verdict::Hung) => counts.hung += 1,
                Some(Verdict::Failed | Verdict::Skipped) | None => {}
            }
        }
        counts
    }

    /// The tests that both libraries passed, the shortest first. Run `jobs` at a time, they take at most `budget`.
    /// Tests with a reason are left out: they do not always pass.
    pub(super) fn quick(&self, reasons: &Reasons, jobs: usize, budget: Duration) -> Vec<String> {
        let is_reliable = |row: &Row| reasons.of(&self.suite, &row.test).is_none();
        let rows = self.rows.iter();
        let mut passed: Vec<&Row> =
            rows.filter(|row| row.is_applicable() && row.is_passed() && is_reliable(row)).collect();
        passed.sort_by_key(|row| row.seconds);
        let mut left = budget.as_secs() * jobs as u64;
        let fit = passed.into_iter().take_while(|row| {
            let fits = row.seconds < left;
            left = left.saturating_sub(row.seconds.max(1));
            fits
        });
        fit.map(|row| row.test.clone()).collect()
    }

    fn sections(&self, reasons: &Reasons, text: &mut String) {
        let word = |verdict: Option<Verdict>| verdict.map_or("not run", Verdict::word);
        let _ = writeln!(
            text,
            "\n## {}\n\n| Test | Result | First failure | Reason |\n|---|---|---|---|",
            self.suite
        );
        for row in self.rows.iter().filter(|row| row.is_applicable() && !row.is_passed()) {
            let reason = reasons.of(&self.suite, &row.test).unwrap_or("not explained");
            let _ =
                writeln!(text, "| {} | {} | {} | {reason} |", row.test, word(row.ours), code(&row.detail));
        }
        let _ =
            writeln!(text, "\nNot applicable:\n\n| Test | Result of the original | Detail |\n|---|---|---|");
        for row in self.rows.iter().filter(|row| !row.is_applicable()) {
            let _ = writeln!(text, "| {} | {} | {} |", row.test, word(row.original), code(&row.detail));
        }
    }
}

/// The document: the counts of all suites, then the differences of each with their reasons.
pub(super) fn markdown(tables: &[Table], reasons: &Reasons) -> String {
    let mut text = format!("{INTRODUCTION}\n");
    for (suite, description) in DESCRIPTIONS {
        if tables.iter().any(|table| table.suite == *suite) {
            let _ = writeln!(text, "- `{suite}`: {description}");
        }
    }
    let _ = writeln!(
        text,
        "{METHOD}\n| Suite | Version | Tests | Applicable | Passed | Share | Crashed | Hung |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for table in tables {
        let Counts { tests, applicable, passed, crashed, hung } = table.counts();
        let share = if applicable == 0 { 0.0 } else { 100.0 * passed as f64 / applicable as f64 };
        let _ = writeln!(
            text,
            "| [{suite}](#{anchor}) | {} | {tests} | {applicable} | {passed} | {share:.1} % | {crashed} | {hung} |",
            table.version,
            suite = table.suite,
            // Links to headings have no dots.
            anchor = table.suite.replace('.', ""),
        );
    }
    for table in tables {
        table.sections(reasons, &mut text);
    }
    text
}

const INTRODUCTION: &str = "\
# Report card

The results of test suites that others wrote: of clients on the original librdkafka and on ours, and of brokers on Apache
Kafka and on Ottla's. `cargo xtask card` writes this file. It downloads the suites and builds them.
A test is applicable if the original passes it in the same environment.
";

/// The suites, for those that have results.
const DESCRIPTIONS: &[(&str, &str)] = &[
    (
        "librdkafka",
        "its numbered tests, from the sources in the npm package `@confluentinc/kafka-javascript`. The original is\n  \
         built from the same sources. These tests run against Apache Kafka 4.3.1, for share groups.",
    ),
    (
        "librdkafka-consumer",
        "the same tests with consumers in the new group protocol (`group.protocol=consumer`, KIP-848).",
    ),
    ("librdkafka-2.12", "the tests of an older release, from the npm package `node-rdkafka`."),
    ("rust-rdkafka", "the tests of the crate `rdkafka`, with the feature `dynamic-linking`."),
    ("confluent-kafka-go", "the tests of its package `kafka`, with the tag `dynamic`."),
    ("node-rdkafka", "its end-to-end tests; the original is built from the sources in its package."),
    (
        "librdkafka-brokers",
        "the tests of `librdkafka` that need a broker, with the original library, on three nodes.",
    ),
    (
        "kgo",
        "all tests of franz-go's package `kgo`, with 50,000 records in place of 500,000, on three nodes.",
    ),
    ("sarama", "its functional tests with Toxiproxy, on three nodes in place of five."),
    ("kafka-go", "the tests of the root package of segmentio's client, on one node."),
    (
        "kafka-python",
        "its integration tests, on one node, with two files that its source package lacks. Tests that start brokers\n  \
         with TLS or SASL themselves are not applicable.",
    ),
    (
        "kafka-tests",
        "Apache Kafka's own integration tests of its consumers, producers, admin client, share consumers and tools, from\n  \
         its packages `kafka-clients-integration-tests` and `kafka-tools`. Each starts clusters of its own; for ours, the class that\n  \
         starts them is replaced. Tests that need more than the brokers' network, for instance the log of a\n  \
         broker in their own process, are not applicable.",
    ),
];

const METHOD: &str = "
The original of the bindings for Rust and Go is the library in confluent-kafka's wheel. `LD_LIBRARY_PATH` selects the
library. In the suites for libraries each test runs against a cluster of three nodes or against the mock cluster; the cluster is
Apache Kafka 4.1 where the list above names no other version.

`librdkafka-brokers` and the suites below it compare brokers: the original is Apache Kafka 4.3.1, and ours is `ottla broker`.
Addresses and ids of nodes that tests have as constants are replaced by those of the running cluster; no other source of a suite is
changed.

Each test runs in a process of its own; tests of a class in `kafka-tests` share one. A test that fails beside others runs a second
time alone.
";

/// A table's cell with text of a program.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("`{}`", text.replace('`', "'").replace('|', "/"))
}

/// The reasons of known differences, one `SUITE TEST REASON` per line.
pub(super) struct Reasons(Vec<(String, String)>);

impl Reasons {
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let reason = |line: &str| {
            let (suite, rest) = line.split_once(' ')?;
            let (test, reason) = rest.split_once(' ')?;
            Some((format!("{suite} {test}"), reason.trim().to_owned()))
        };
        Self(lines.filter_map(reason).collect())
    }

    fn of(&self, suite: &str, test: &str) -> Option<&str> {
        let wanted = format!("{suite} {test}");
        self.0.iter().find(|(name, _)| *name == wanted).map(|(_, reason)| reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(test: &str, original: Verdict, ours: Verdict, seconds: u64) -> Row {
        let (original, ours, detail) = (Some(original), Some(ours), "a | `b`".to_owned());
        Row { test: test.to_owned(), original, ours, seconds, detail }
    }

    fn table() -> Table {
        use Verdict::{Crashed, Failed, Hung, Passed, Skipped};
        let rows = vec![
            row("0001", Passed, Passed, 30),
            row("0002", Passed, Failed, 1),
            row("0003", Passed, Crashed, 1),
            row("0004", Passed, Hung, 1),
            row("0005", Skipped, Skipped, 1),
            row("0006", Failed, Passed, 1),
            row("0007", Passed, Passed, 2),
            row("0008", Passed, Passed, 0),
        ];
        Table { suite: "numbered".to_owned(), version: "2.12".to_owned(), rows }
    }

    #[test]
    fn a_card_counts_the_tests_that_the_original_passes() {
        assert_eq!(table().counts(), Counts { tests: 8, applicable: 6, passed: 3, crashed: 1, hung: 1 });
        let text = markdown(&[table()], &Reasons::parse("# a head\nnumbered 0002 its cause\n"));
        assert!(text.contains("| 2.12 | 8 | 6 | 3 | 50.0 % | 1 | 1 |"), "{text}");
        assert!(text.contains("| 0002 | failed | `a / 'b'` | its cause |"), "{text}");
        assert!(text.contains("| 0003 | crashed | `a / 'b'` | not explained |"), "{text}");
        assert!(text.contains("| 0006 | failed | `a / 'b'` |\n") && !text.contains("| 0001 |"), "{text}");
    }

    /// The document described a suite without results.
    #[test]
    fn only_suites_with_results_are_described() {
        let suite = |name: &str| Table { suite: name.to_owned(), version: "1".to_owned(), rows: Vec::new() };
        let text = markdown(&[suite("librdkafka"), suite("kgo")], &Reasons::parse(""));
        assert!(text.contains("\n- `librdkafka`: its ") && text.contains("\n- `kgo`: all "), "{text}");
        assert!(!text.contains("\n- `librdkafka-consumer`: ") && !text.contains("\n- `sarama`: "), "{text}");
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        assert_eq!(Table::parse(&table().text()), table());
    }

    #[test]
    fn tests_that_ran_again_replace_their_rows() {
        let dir = tempfile::tempdir().unwrap();
        let mut ours = Results::create(&dir.path().join("some.tsv"));
        let outcome = Outcome::new(Verdict::Passed, Duration::from_millis(4200), "");
        ours.record("0002", outcome.clone()).unwrap();
        ours.record("0005", outcome).unwrap();
        let mut table = table();
        table.record(&ours);
        let cells = |at: usize| (table.rows[at].ours, table.rows[at].seconds, table.rows[at].detail.as_str());
        assert_eq!(cells(1), (Some(Verdict::Passed), 5, ""));
        assert_eq!(cells(4), (Some(Verdict::Passed), 5, "a | `b`"), "the original's reason stays");
        assert_eq!(cells(2).0, Some(Verdict::Crashed), "it did not run");
    }

    #[test]
    fn the_quick_run_takes_the_shortest_tests_that_fit() {
        let (none, seconds) = (Reasons::parse(""), Duration::from_secs(20));
        assert_eq!(table().quick(&none, 1, seconds), ["0008", "0007"]);
        assert_eq!(table().quick(&none, 2, seconds), ["0008", "0007", "0001"]);
        let reasons = Reasons::parse("numbered 0008 it passes sometimes\n");
        assert_eq!(table().quick(&reasons, 2, seconds), ["0007", "0001"]);
    }
}
