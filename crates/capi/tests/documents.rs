//! The section of COMPAT.md on functions and events. It is generated from the list of symbols and from the tests that call each of
//! them. `cargo xtask compat` updates it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may read the environment and files")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Set, the document is written instead of compared.
const WRITE: &str = "OTTLA_WRITE_DOCUMENTS";

const BEGIN: &str = "<!-- functions: made by `cargo xtask compat` -->\n";
const END: &str = "<!-- end of functions -->\n";

#[test]
fn the_functions_in_compat_md_are_made_of_the_sources() {
    let file = root().join("COMPAT.md");
    let found = fs::read_to_string(&file).expect("COMPAT.md");
    let (before, rest) = found.split_once(BEGIN).expect("the beginning is marked");
    let (_, after) = rest.split_once(END).expect("the end is marked");
    let expected = format!("{before}{BEGIN}{}{END}{after}", section());
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, expected).expect("COMPAT.md is written");
        return;
    }
    assert!(found == expected, "COMPAT.md is stale: run `cargo xtask compat`");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The state of one name in the document.
enum State {
    /// A test calls it and checks the result.
    Works(String),
    /// It is implemented, but no test calls it by its name.
    Implemented,
    /// It stores its argument, but nothing reads that yet.
    Kept,
}

/// Functions that store a function or pointer which the library does not use; their test checks that it is stored.
const KEPT: &[&str] = &[
    "rd_kafka_conf_set_engine_callback_data",
    "rd_kafka_conf_set_open_cb",
    "rd_kafka_topic_conf_set_msg_order_cmp",
];

/// The test that checks that functions are stored, not that they are called.
const REMEMBERS: &str = "every_function_of_the_application_is_kept";

fn section() -> String {
    let functions: BTreeSet<&str> = include_str!("../abi/symbols.txt").lines().collect();
    let events: Vec<&str> = include_str!("../src/ffi/values.rs")
        .lines()
        .filter_map(|line| {
            line.strip_prefix("pub const ")?.split_once(": rd_kafka_event_type_t").map(|it| it.0)
        })
        .filter(|name| *name != "RD_KAFKA_EVENT_NONE")
        .collect();
    let shown = shown();
    let state = |name: &str| match shown.get(name) {
        _ if KEPT.contains(&name) => State::Kept,
        Some(test) => State::Works(test.clone()),
        None => State::Implemented,
    };
    let states: Vec<(&str, State)> = functions.iter().map(|name| (*name, state(name))).collect();
    let count = |like: fn(&State) -> bool| states.iter().filter(|(_, state)| like(state)).count();
    let mut lines = vec![
        String::new(),
        "## Functions of the C interface".into(),
        String::new(),
        format!(
            "Of the {} functions that librdkafka 2.16 exports, {} work: the test that is named calls the function and checks",
            states.len(),
            count(|state| matches!(state, State::Works(_)))
        ),
        format!(
            "what comes of it. {} more are implemented, and no test calls them by their name. {} are kept: they remember what",
            count(|state| matches!(state, State::Implemented)),
            count(|state| matches!(state, State::Kept))
        ),
        "they are given, and this version does not ask for it. In a build without the feature `mock`, the functions".into(),
        "`rd_kafka_mock_*` return `RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED`, NULL or 0.".into(),
        String::new(),
        "| Function | State | Test |".into(),
        "|---|---|---|".into(),
    ];
    lines.extend(states.iter().map(|(name, state)| row(name, state)));
    lines.extend([
        String::new(),
        "## Events".into(),
        String::new(),
        "| Event | State | Test |".into(),
        "|---|---|---|".into(),
    ]);
    lines.extend(events.iter().map(|name| row(name, &state(name))));
    lines.extend([
        String::new(),
        "## Functions of ottla.h".into(),
        String::new(),
        "The same library has functions that librdkafka does not have: the [processor](docs/GUIDE.md#from-c) and the [embedded broker](docs/TESTING.md#c).".into(),
        String::new(),
        "| Function | State | Test |".into(),
        "|---|---|---|".into(),
    ]);
    lines.extend(include_str!("../abi/ottla.txt").lines().map(|name| row(name, &state(name))));
    lines.push(String::new());
    lines.join("\n")
}

fn row(name: &str, state: &State) -> String {
    match state {
        State::Works(test) => format!("| `{name}` | works | `{test}` |"),
        State::Implemented => format!("| `{name}` | implemented | |"),
        State::Kept => format!("| `{name}` | kept | |"),
    }
}

/// Names of C, each with the first test that uses it, itself or by a function of its file.
fn shown() -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    let mut files = sources(&root().join("crates/capi/tests"));
    files.extend(sources(&root().join("crates/capi/src")));
    files.extend(sources(&root().join("interop/tests")));
    for file in files.iter().filter(|file| !file.ends_with("documents.rs") && !file.ends_with("headers.rs")) {
        let text = fs::read_to_string(file).expect("a source");
        let functions = functions(&text);
        for (test, body) in functions.iter().filter(|(name, body)| body.is_test && **name != REMEMBERS) {
            let (mut reached, mut open) = (BTreeSet::from([*test]), vec![body]);
            while let Some(body) = open.pop() {
                let is_c = |word: &&&str| {
                    ["rd_kafka_", "RD_KAFKA_EVENT_", "ottla_"].iter().any(|prefix| word.starts_with(prefix))
                };
                for word in body.words.iter().filter(is_c) {
                    shown.entry((*word).to_owned()).or_insert_with(|| (*test).to_owned());
                }
                for word in &body.words {
                    if let Some((name, body)) = functions.get_key_value(word)
                        && reached.insert(name)
                    {
                        open.push(body);
                    }
                }
            }
        }
    }
    shown
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    entries
        .into_iter()
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

struct Body<'a> {
    is_test: bool,
    words: BTreeSet<&'a str>,
}

/// The functions of a file: each ends where the next begins.
fn functions(text: &str) -> BTreeMap<&str, Body<'_>> {
    let mut functions = BTreeMap::new();
    let mut is_test = text.split("fn ").next().is_some_and(ends_in_test);
    for chunk in text.split("fn ").skip(1) {
        let name =
            chunk.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default();
        let words = chunk.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
        if !name.is_empty() {
            functions.insert(name, Body { is_test, words });
        }
        is_test = ends_in_test(chunk);
    }
    functions
}

fn ends_in_test(before: &str) -> bool {
    before.lines().rev().take(4).any(|line| line.trim() == "#[test]")
}
