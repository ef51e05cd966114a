//! The documents generated from the table of properties, and the tests that the table names.
//!
//! `cargo xtask compat` regenerates the documents.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may read the environment and files")]
#![allow(clippy::format_push_string, reason = "what is written once need not save a copy")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ottla_client::properties::{self, Importance, Kind, Property, Role, Scope, State};
use serde_json::{Value, json};

use crate::fields::{Kind as FieldKind, SECTIONS};

/// If set, the documents are written instead of compared.
const WRITE: &str = "OTTLA_WRITE_DOCUMENTS";

/// The markers before and after the generated part of COMPAT.md.
const COMPAT_BEGIN: &str = "<!-- properties: made by `cargo xtask compat` -->\n";
const COMPAT_END: &str = "<!-- end of properties -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compare(path: &str, expected: &str) {
    let file = root().join(path);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, expected).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == expected, "{path} is stale: run `cargo xtask compat`");
}

#[test]
fn configuration_md_is_made_of_the_table() {
    compare("docs/CONFIGURATION.md", &configuration());
}

#[test]
fn the_properties_in_compat_md_are_made_of_the_table() {
    let found = fs::read_to_string(root().join("COMPAT.md")).expect("COMPAT.md");
    let (before, rest) = found.split_once(COMPAT_BEGIN).expect("the beginning is marked");
    let (_, after) = rest.split_once(COMPAT_END).expect("the end is marked");
    compare("COMPAT.md", &format!("{before}{COMPAT_BEGIN}{}{COMPAT_END}{after}", compat()));
}

#[test]
fn statistics_md_and_its_schema_are_made_of_the_table_of_fields() {
    compare("docs/STATISTICS.md", &statistics());
    let schema = serde_json::to_string_pretty(&schema()).expect("JSON");
    compare("docs/statistics-schema.json", &format!("{schema}\n"));
}

fn statistics() -> String {
    let mut out = String::from(
        "# Statistics\n\n\
         Made by `cargo xtask compat` from the table in `crates/client/tests/fields/mod.rs`; do not edit.\n\n\
         With `statistics.interval.ms` above 0 a client publishes a snapshot of its numbers at each interval. `Client::statistics`\n\
         is the queue of the snapshots. They are values, whose `to_json` has the keys below; a test validates them against\n\
         [statistics-schema.json](statistics-schema.json). Keys and nesting are librdkafka's: a program that reads its statistics\n\
         reads these. While the interval is 0, the client counts only if a broker subscribes to its metrics (`enable.metrics.push`).\n\
         Counting reads a clock per batch and per request, never per record.\n\n\
         `Client::prometheus_text` has the numbers of the last interval in Prometheus' text format. With the cargo feature `metrics`\n\
         they also go through the `metrics` facade. There, windows are summaries whose `_sum` and `_count` count from the client's\n\
         start.\n\n\
         A *counter* only grows; a *gauge* goes up and down.\n",
    );
    for section in SECTIONS {
        out.push_str(&format!(
            "\n## {}\n\n{}\n\n| Key | Kind | Meaning |\n|---|---|---|\n",
            section.name, section.text
        ));
        for (key, kind, text) in section.fields {
            let kind = match kind {
                FieldKind::Text => "text".into(),
                FieldKind::Flag => "true or false".into(),
                FieldKind::Counter => "counter".into(),
                FieldKind::Gauge => "gauge".into(),
                FieldKind::Counters => "map of counters".into(),
                FieldKind::Object(of) | FieldKind::Maybe(of) => format!("[{of}](#{of})"),
                FieldKind::Objects(of) => format!("map of [{of}](#{of})"),
            };
            out.push_str(&format!("| `{key}` | {kind} | {text} |\n"));
        }
    }
    out
}

/// Draft 2020-12: all keys are required, and no others are allowed.
fn schema() -> Value {
    let mut definitions = serde_json::Map::new();
    for section in SECTIONS {
        let of_section = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
        let properties: serde_json::Map<_, _> = section
            .fields
            .iter()
            .map(|(key, kind, text)| {
                let mut schema = match kind {
                    FieldKind::Text => json!({ "type": "string" }),
                    FieldKind::Flag => json!({ "type": "boolean" }),
                    FieldKind::Counter => json!({ "type": "integer", "minimum": 0 }),
                    FieldKind::Gauge => json!({ "type": "integer" }),
                    FieldKind::Counters => {
                        json!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 0 } })
                    }
                    FieldKind::Object(of) | FieldKind::Maybe(of) => of_section(of),
                    FieldKind::Objects(of) => json!({ "type": "object", "additionalProperties": of_section(of) }),
                };
                schema["description"] = json!(text);
                ((*key).to_owned(), schema)
            })
            .collect();
        let optional = |kind: &FieldKind| matches!(kind, FieldKind::Maybe(_));
        let required = section.fields.iter().filter(|(_, kind, _)| !optional(kind)).map(|(key, _, _)| *key);
        let definition = json!({
            "type": "object",
            "description": section.text,
            "properties": properties,
            "required": required.collect::<Vec<_>>(),
            "additionalProperties": false,
        });
        definitions.insert(section.name.to_owned(), definition);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Statistics of an Ottla client",
        "$ref": "#/$defs/client",
        "$defs": definitions,
    })
}

#[test]
fn every_effect_has_the_test_that_the_table_names() {
    let mut sources = String::new();
    for folder in ["crates", "interop", "sim"] {
        read_sources(&root().join(folder), &mut sources);
    }
    let missing: Vec<_> = properties::all()
        .filter_map(|property| match property.state {
            State::Effective { test } => Some((property.name, test)),
            State::Accepted { .. } | State::Refused { .. } => None,
        })
        .filter(|(_, test)| !sources.contains(&format!("fn {test}(")))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

fn read_sources(folder: &Path, into: &mut String) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            read_sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(&path).expect("a source file"));
        }
    }
}

fn configuration() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         Made by `cargo xtask compat` from the table in `crates/client/src/config/table/mod.rs`; do not edit.\n\n\
         Properties are set by name with `Config::set`, with `-X name=value` on the command line, or in a file of\n\
         `name=value` lines. A name may be librdkafka's or Java's. Those of topics may be in a `TopicConfig`; in a\n\
         client's configuration they are the default of its topics. `Config::default` has the defaults below;\n\
         where librdkafka's differ, `Config::librdkafka` has them.\n\n\
         The *effect* of an entry:\n\n\
         - no word: it does what the text says, and a test shows it;\n\
         - *accepted*: it is checked, kept and read back, and nothing needs to change;\n\
         - *refused*: only its default may be set.\n",
    );
    for (title, rows) in properties::groups() {
        out.push_str(&format!("\n## {title}\n"));
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_by_key(|property| property.name);
        for property in rows {
            out.push_str(&entry(property));
        }
    }
    out
}

fn entry(property: &Property) -> String {
    let mut out = format!("\n### `{}`", property.name);
    if property.scope == Scope::Topic
        && properties::find(property.name).is_some_and(|it| it.scope != Scope::Topic)
    {
        out.push_str(" (of a topic)");
    }
    out.push_str(&format!("\n\n{}\n\n", property.text));
    let mut facts = Vec::new();
    if !property.aliases.is_empty() {
        facts.push(format!("also called `{}`", property.aliases.join("`, `")));
    }
    facts.push(role(property.role).to_owned());
    if property.scope == Scope::Topic {
        facts.push("of topics".into());
    }
    if property.kind == Kind::Pointer {
        facts.push("no textual form".into());
    } else {
        facts.push(format!("takes {}", property.range()));
        facts.push(format!("default {}", shown(property.default)));
        if property.default != property.default_librdkafka {
            facts.push(format!("behind the C interface {}", shown(property.default_librdkafka)));
        }
    }
    facts.push(importance(property.importance).to_owned());
    if property.secret {
        facts.push("secret".into());
    }
    out.push_str(&format!("{}.\n", facts.join("; ")));
    match property.state {
        State::Effective { .. } => {}
        State::Accepted { why } => out.push_str(&format!("*Accepted*: {why}.\n")),
        State::Refused { why } => out.push_str(&format!("*Refused*: {why}.\n")),
    }
    out
}

fn compat() -> String {
    let count =
        |state: fn(&State) -> bool| properties::all().filter(|property| state(&property.state)).count();
    let (effective, accepted, refused) = (
        count(|state| matches!(state, State::Effective { .. })),
        count(|state| matches!(state, State::Accepted { .. })),
        count(|state| matches!(state, State::Refused { .. })),
    );
    let mut out = format!(
        "\n## Properties\n\n\
         All 199 names of librdkafka 2.16 are known. Aliases put together, and with a few of Java's and our own, there\n\
         are {} properties: {effective} are effective, {accepted} accepted without effect, {refused} refused unless\n\
         set to their default. [docs/CONFIGURATION.md](docs/CONFIGURATION.md) explains each.\n\n\
         | Property | State | Reason, or the test that shows the effect |\n|---|---|---|\n",
        effective + accepted + refused
    );
    let mut rows: BTreeMap<(&str, Scope), &Property> = BTreeMap::new();
    for property in properties::all() {
        rows.insert((property.name, property.scope), property);
    }
    for ((name, scope), property) in rows {
        let of = if scope == Scope::Topic { " (topic)" } else { "" };
        let names: Vec<_> = std::iter::once(name).chain(property.aliases.iter().copied()).collect();
        let (state, reason) = match property.state {
            State::Effective { test } => ("effective", format!("`{test}`")),
            State::Accepted { why } => ("accepted", why.to_owned()),
            State::Refused { why } => ("refused", why.to_owned()),
        };
        out.push_str(&format!("| `{}`{of} | {state} | {reason} |\n", names.join("`, `")));
    }
    out.push('\n');
    out
}

fn shown(value: &str) -> String {
    if value.is_empty() { "empty".into() } else { format!("`{value}`") }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::All => "for every client",
        Role::Producer => "for producers",
        Role::Consumer => "for consumers",
    }
}

fn importance(importance: Importance) -> &'static str {
    match importance {
        Importance::High => "of high importance",
        Importance::Medium => "of medium importance",
        Importance::Low => "of low importance",
    }
}
