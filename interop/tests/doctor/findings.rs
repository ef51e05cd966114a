//! A run of the doctor and its report.

use ottla_interop::{Failure, ottla};
use serde_json::Value;

/// The report of a run.
pub(crate) struct Findings {
    pub(crate) report: Value,
    pub(crate) succeeded: bool,
}

impl Findings {
    pub(crate) fn step(&self, name: &str) -> &Value {
        let steps = self.report["steps"].as_array().expect("steps");
        let step = steps.iter().find(|step| step["step"] == name);
        step.unwrap_or_else(|| panic!("no step `{name}` in {:#}", self.report))
    }

    /// Asserts the step's status, and that its facts and advice contain these words.
    #[track_caller]
    pub(crate) fn expect(&self, name: &str, status: &str, words: &[&str]) {
        let step = self.step(name);
        assert_eq!(step["status"], status, "{:#}", self.report);
        let text = format!("{} {}", step["facts"], step["advice"]);
        for word in words {
            assert!(text.contains(word), "`{word}` is not in {text}");
        }
        assert_eq!(self.succeeded, self.report["ok"] == true);
        if status == "fail" {
            assert!(!self.succeeded, "a failed step is a failed command");
        }
    }
}

pub(crate) fn doctor(brokers: &str, args: &[&str]) -> Result<Findings, Failure> {
    let all = [&["doctor", "--json", "--brokers", brokers], args].concat();
    let output = ottla(&all, b"")?;
    let report = serde_json::from_str(&output.stdout_text())
        .map_err(|error| Failure::new(format!("{error}: {}", output.stdout_text())))?;
    Ok(Findings { report, succeeded: output.status.success() })
}
