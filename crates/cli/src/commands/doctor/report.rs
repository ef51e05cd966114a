//! The results of the steps: as lines during the run, or as JSON at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::goal::Suggestion;
use crate::failure::Failure;
use crate::json_log::json_lines;
use crate::output::print;
use crate::printable::printable;

/// The result of a step.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Status {
    Skipped,
    Ok,
    Warn,
    Fail,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skip",
            Self::Ok => "ok",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

/// A check and its result.
#[derive(Debug)]
pub(super) struct Step {
    name: &'static str,
    target: String,
    took: Option<Duration>,
    status: Status,
    facts: Vec<String>,
    advice: Vec<String>,
}

impl Step {
    /// A step with status `Ok`.
    pub(super) fn new(name: &'static str, target: impl Into<String>) -> Self {
        Self {
            name,
            target: target.into(),
            took: None,
            status: Status::Ok,
            facts: Vec::new(),
            advice: Vec::new(),
        }
    }

    pub(super) fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }

    /// Raises the status; a worse status is kept.
    pub(super) fn status(mut self, status: Status) -> Self {
        self.status = if self.status == Status::Ok { status } else { self.status.max(status) };
        self
    }

    pub(super) fn fact(mut self, text: impl Into<String>) -> Self {
        self.facts.push(text.into());
        self
    }

    pub(super) fn advice(mut self, text: impl Into<String>) -> Self {
        self.advice.push(text.into());
        self
    }

    pub(super) fn is_failed(&self) -> bool {
        self.status == Status::Fail
    }

    /// The text of the step, without advice that an earlier step gave.
    fn line(&self, given: &mut BTreeSet<String>) -> String {
        let took = self.took.map_or_else(String::new, millis);
        let mut facts = self.facts.iter();
        let first = printable(facts.next().map_or("", String::as_str));
        let target = printable(&self.target);
        let line = format!("{:<4}  {:<14} {target:<28} {took:>10}  {first}", self.status.name(), self.name);
        let mut text = format!("{}\n", line.trim_end());
        facts.for_each(|fact| text += &format!("      {}\n", printable(fact)));
        let new = self.advice.iter().filter(|advice| given.insert((*advice).clone()));
        new.for_each(|advice| text += &format!("      -> {}\n", printable(advice)));
        text
    }

    fn to_json(&self) -> Value {
        json!({
            "step": self.name,
            "target": self.target,
            "status": self.status.name().to_lowercase(),
            "ms": self.took.map(|took| took.as_secs_f64() * 1000.0),
            "facts": self.facts,
            "advice": self.advice,
        })
    }
}

/// Milliseconds, with enough digits for a round trip on one machine.
pub(super) fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// The steps so far.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    steps: Vec<Step>,
    suggestions: Vec<Suggestion>,
    /// The printed advice.
    given: BTreeSet<String>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, steps: Vec::new(), suggestions: Vec::new(), given: BTreeSet::new() }
    }

    pub(super) fn add(&mut self, step: Step) -> Result<(), Failure> {
        if !self.json {
            print(&step.line(&mut self.given))?;
        }
        self.steps.push(step);
        Ok(())
    }

    pub(super) fn suggest(&mut self, suggestions: Vec<Suggestion>) -> Result<(), Failure> {
        if !self.json {
            let lines: String = suggestions.iter().map(Suggestion::line).collect();
            print(&format!("\nsettings for the goal:\n{lines}"))?;
        }
        self.suggestions = suggestions;
        Ok(())
    }

    /// Prints the result and determines the exit code.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let failed: Vec<String> = (self.steps.iter().filter(|step| step.is_failed()))
            .map(|step| format!("{} {}", step.name, step.target))
            .collect();
        if self.json {
            let steps: Vec<Value> = self.steps.iter().map(Step::to_json).collect();
            let suggestions: Vec<Value> = self.suggestions.iter().map(Suggestion::to_json).collect();
            let report = json!({ "ok": failed.is_empty(), "steps": steps, "suggestions": suggestions });
            print(&(json_lines(&report) + "\n"))?;
        }
        match failed.as_slice() {
            [] => Ok(()),
            failed => Err(Failure::failed(format!(
                "{} of {} steps failed: {}",
                failed.len(),
                self.steps.len(),
                failed.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_line_with_facts_and_advice() {
        let step =
            Step::new("dns", "localhost:9092").took(Duration::from_micros(1234)).fact("::1").fact("more");
        let step = step.advice("do it").status(Status::Warn).status(Status::Ok);
        let mut given = BTreeSet::new();
        let line = step.line(&mut given);
        assert!(line.starts_with("WARN  dns            localhost:9092 "), "{line}");
        assert!(line.ends_with("   1.23 ms  ::1\n      more\n      -> do it\n"), "{line}");
        assert_eq!(step.to_json()["status"], "warn");
        assert!(!step.line(&mut given).contains("->"), "each piece of advice once");
    }

    /// An error text or a name from a broker could change the terminal, and look like other steps.
    #[test]
    fn control_characters_from_a_broker_are_escaped() {
        let step = Step::new("topic", "a\nFAIL").fact("\u{1b}[2J").fact("b\u{1b}").advice("c\r");
        let line = step.line(&mut BTreeSet::new());
        assert_eq!(line.lines().count(), 3, "{line}");
        assert!(!line.contains(['\r', '\u{1b}']), "{line:?}");
        let step = Step::new("topic", "\u{9b}2J").fact("\u{7f}\u{85}");
        let json = json_lines(&step.to_json());
        assert!(!json.contains(|letter: char| letter.is_control() && letter != '\n'), "{json:?}");
        assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), step.to_json());
        assert!(line.contains("a\\nFAIL") && line.contains("\\x1b[2J") && line.contains("b\\x1b"), "{line}");
    }
}
