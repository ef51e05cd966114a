//! The outcomes of a suite on one library, kept in a file with one line per test.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ottla_interop::Failure;

use super::outcome::{Outcome, Verdict};

/// Outcomes by test. Each is appended to the file at once, so that an interrupted run keeps its outcomes; the last
/// line of a test counts.
pub(super) struct Results {
    file: PathBuf,
    by_test: BTreeMap<String, Outcome>,
}

impl Results {
    /// The outcomes of an earlier run.
    pub(super) fn open(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        Self { file: file.to_owned(), by_test: text.lines().filter_map(parse).collect() }
    }

    /// No outcomes; those of an earlier run are removed.
    pub(super) fn create(file: &Path) -> Self {
        let _ = fs::remove_file(file);
        Self { file: file.to_owned(), by_test: BTreeMap::new() }
    }

    pub(super) fn of(&self, test: &str) -> Option<&Outcome> {
        self.by_test.get(test)
    }

    pub(super) fn record(&mut self, test: &str, outcome: Outcome) -> Result<(), Failure> {
        let line = format(test, &outcome);
        let append = || {
            if let Some(dir) = self.file.parent() {
                fs::create_dir_all(dir)?;
            }
            let mut file = OpenOptions::new().create(true).append(true).open(&self.file)?;
            file.write_all(line.as_bytes())
        };
        append().map_err(|error| Failure::new(format!("{}: {error}", self.file.display())))?;
        self.by_test.insert(test.to_owned(), outcome);
        Ok(())
    }
}

fn format(test: &str, outcome: &Outcome) -> String {
    format!("{test}\t{}\t{:.1}\t{}\n", outcome.verdict, outcome.took.as_secs_f64(), outcome.detail)
}

fn parse(line: &str) -> Option<(String, Outcome)> {
    let mut cells = line.splitn(4, '\t');
    let test = cells.next()?.to_owned();
    let verdict = Verdict::parse(cells.next()?)?;
    let took = Duration::try_from_secs_f64(cells.next()?.parse().ok()?).ok()?;
    let detail = cells.next().unwrap_or_default().to_owned();
    Some((test, Outcome { verdict, took, detail }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_run_keeps_its_outcomes_and_the_last_line_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ours.tsv");
        let failed = Outcome {
            verdict: Verdict::Failed,
            took: Duration::from_millis(1500),
            detail: "main():3: no message".to_owned(),
        };
        let passed =
            Outcome { verdict: Verdict::Passed, took: Duration::from_secs(2), detail: String::new() };
        let mut results = Results::create(&file);
        results.record("0001", failed.clone()).unwrap();
        results.record("0002", failed.clone()).unwrap();
        results.record("0001", passed.clone()).unwrap();
        let read = Results::open(&file);
        assert_eq!((read.of("0001"), read.of("0002")), (Some(&passed), Some(&failed)));
        assert_eq!(Results::create(&file).of("0001"), None);
    }
}
