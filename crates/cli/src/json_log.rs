//! The log as JSON, one object per line with the same keys.

use std::fmt::{self, Write};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::output::note_lines;
use crate::time::{format_ms, now_ms};

/// A layer that prints events to standard error. Each line has `time`, `level`, `target`, `message` and `fields`.
#[derive(Debug)]
pub(crate) struct JsonLog;

impl<S: Subscriber> Layer<S> for JsonLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let metadata = event.metadata();
        let line = json!({
            "time": format_ms(now_ms()),
            "level": metadata.level().as_str(),
            "target": metadata.target(),
            "message": seen.message,
            "fields": seen.fields,
        });
        note_lines(&json_line(&line));
    }
}

/// A value as one line of JSON. Control characters that JSON allows in strings are escaped too: they must not change the
/// terminal.
pub(crate) fn json_line(value: &Value) -> String {
    escape_controls(value.to_string())
}

/// The same as several lines, for people.
pub(crate) fn json_lines(value: &Value) -> String {
    let pretty = format!("{value:#}");
    pretty.lines().map(|line| escape_controls(line.to_owned())).collect::<Vec<_>>().join("\n")
}

/// Escapes the control characters of a line of JSON.
fn escape_controls(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if letter.is_control() {
            // All control characters are below U+00A0. Writing to a String cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// The message and the other fields of an event.
#[derive(Default)]
struct Seen {
    message: String,
    fields: Map<String, Value>,
}

impl Seen {
    fn add(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Seen {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value.into());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.add(field, format!("{value:?}").into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Collects what the visitor sees of each event.
    #[derive(Clone, Default)]
    struct Events(std::sync::Arc<std::sync::Mutex<Vec<(String, Value)>>>);

    impl<S: Subscriber> Layer<S> for Events {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut seen = Seen::default();
            event.record(&mut seen);
            self.0.lock().expect("not poisoned").push((seen.message, Value::Object(seen.fields)));
        }
    }

    #[test]
    fn fields_keep_their_types() {
        let events = Events::default();
        let log = tracing_subscriber::registry().with(events.clone());
        tracing::subscriber::with_default(log, || {
            let (topic, error) = ("orders", "a \"quoted\"\nreason");
            tracing::warn!(%error, topic, partition = 3, ok = false, "cannot {}", "read");
        });
        let expected = json!({
            "error": "a \"quoted\"\nreason", "topic": "orders", "partition": 3, "ok": false,
        });
        assert_eq!(*events.0.lock().expect("not poisoned"), [("cannot read".to_owned(), expected)]);
    }

    /// DEL and the C1 control characters were printed as `\x7f`, which is no JSON.
    #[test]
    fn a_line_is_json_and_has_no_control_characters() {
        let value = json!({ "message": "größe \u{7f} \u{9b}31m \u{85} \n \u{1b} \\x7f" });
        let line = json_line(&value);
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.contains("größe \\u007f \\u009b31m \\u0085 \\n \\u001b \\\\x7f"), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), value);
    }
}
