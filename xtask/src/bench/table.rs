//! Samples of several runs, and Markdown tables of them.

use std::fmt::Write as _;

use serde_json::{Value, json};

pub(super) use super::figures::{median, spread};

/// One peer's runs of one measurement, by field.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<(&'static str, Vec<f64>)>);

impl Samples {
    pub(super) fn add(&mut self, field: &'static str, sample: f64) {
        match self.0.iter_mut().find(|(name, _)| *name == field) {
            Some((_, samples)) => samples.push(sample),
            None => self.0.push((field, vec![sample])),
        }
    }

    pub(super) fn of(&self, field: &str) -> &[f64] {
        self.0.iter().find(|(name, _)| *name == field).map_or(&[], |(_, samples)| samples)
    }

    pub(super) fn median(&self, field: &str) -> Option<f64> {
        median(self.of(field))
    }

    /// The median with the least and the most.
    pub(super) fn spread(&self, field: &str) -> String {
        spread(self.of(field))
    }

    pub(super) fn json(&self) -> Value {
        let fields = self.0.iter().map(|(name, samples)| {
            ((*name).to_owned(), json!({ "median": median(samples), "samples": samples }))
        });
        Value::Object(fields.collect())
    }
}

/// A heading, a header and rows.
pub(super) fn markdown(title: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("### {title}\n\n| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text + "\n"
}

/// `a / b` with two digits; empty where one is missing.
pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => format!("{:.2}", a / b),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_give_medians_and_rows_a_table() {
        let mut samples = Samples::default();
        for sample in [3.0, 1.0, 2.0] {
            samples.add("ns", sample);
        }
        assert_eq!(samples.median("ns"), Some(2.0));
        assert_eq!(samples.median("us"), None);
        assert_eq!(samples.json()["ns"]["samples"][1], 1.0);
        let table = markdown("Cost", &["peer", "ns"], &[vec!["a".into(), samples.spread("ns")]]);
        assert_eq!(table, "### Cost\n\n| peer | ns |\n|---|---|\n| a | 2.00 (1.00–3.00) |\n\n");
        assert_eq!(ratio(Some(1.0), Some(4.0)), "0.25");
        assert_eq!(ratio(None, Some(4.0)), "");
    }
}
