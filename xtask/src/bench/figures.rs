//! Samples by name, and how they are printed.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The peer of the samples.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Subject {
    Ottla,
    Kafka,
    /// The plain C program, the raw file: what a figure of ours is a multiple of.
    Floor,
}

const SUBJECTS: [(Subject, &str); 3] =
    [(Subject::Ottla, "ottla"), (Subject::Kafka, "kafka"), (Subject::Floor, "floor")];

#[derive(Debug)]
struct Row {
    what: String,
    samples: [Vec<f64>; SUBJECTS.len()],
}

/// All figures of a run, in the order in which they first came.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Row>);

impl Figures {
    pub(super) fn add(&mut self, what: &str, subject: Subject, sample: f64) {
        let at = self.0.iter().position(|row| row.what == what).unwrap_or_else(|| {
            self.0.push(Row { what: what.to_owned(), samples: Default::default() });
            self.0.len() - 1
        });
        self.0[at].samples[subject as usize].push(sample);
    }

    /// Medians with their spread, and how often the floor fits into ours.
    pub(super) fn table(&self) -> String {
        let mut text = String::from(
            "| measured | Ottla | Apache Kafka 4.1 | floor | Ottla / Kafka | Ottla / floor |\n|---|---|---|---|---|---|\n",
        );
        for Row { what, samples } in &self.0 {
            let [ours, kafka, floor] = [0, 1, 2].map(|subject: usize| median(&samples[subject]));
            let ratio = |other: Option<f64>| match (ours, other) {
                (Some(ours), Some(other)) if other > 0.0 => format!("{:.2}", ours / other),
                _ => String::new(),
            };
            let [first, second, third] = [0, 1, 2].map(|subject: usize| spread(&samples[subject]));
            let (by_kafka, by_floor) = (ratio(kafka), ratio(floor));
            let _ = writeln!(text, "| {what} | {first} | {second} | {third} | {by_kafka} | {by_floor} |");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let row = |row: &Row| {
            let of = |(subject, name): &(Subject, &str)| {
                let samples = &row.samples[*subject as usize];
                (!samples.is_empty())
                    .then(|| ((*name).to_owned(), json!({ "median": median(samples), "samples": samples })))
            };
            (row.what.clone(), Value::Object(SUBJECTS.iter().filter_map(of).collect()))
        };
        Value::Object(self.0.iter().map(row).collect::<Map<_, _>>())
    }
}

pub(super) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

pub(super) fn spread(samples: &[f64]) -> String {
    let Some(middle) = median(samples) else { return String::new() };
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if samples.len() == 1 {
        return short(middle);
    }
    format!("{} ({}–{})", short(middle), short(least), short(most))
}

/// Three digits are more than a shared machine can repeat.
fn short(number: f64) -> String {
    if number.abs() < 10.0 {
        format!("{number:.2}")
    } else if number.abs() < 100.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_medians_with_their_spread_and_ratios() {
        let mut figures = Figures::default();
        for sample in [300.0, 100.0, 150.0] {
            figures.add("produce", Subject::Ottla, sample);
        }
        figures.add("produce", Subject::Floor, 50.0);
        let table = figures.table();
        assert!(table.ends_with("| produce | 150 (100–300) |  | 50.0 |  | 3.00 |\n"), "{table}");
        assert_eq!(figures.json()["produce"]["ottla"]["median"], 150.0);
        assert!(figures.json()["produce"].get("kafka").is_none());
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5), "between the two in the middle");
    }
}
