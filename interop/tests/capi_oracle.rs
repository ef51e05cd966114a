//! One program opens the original and our library side by side, makes the same calls on both, and compares the answers.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Debian, Failure, Librdkafka, Peer, compile, require, run, workspace_root};

const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// Why the answers to a call differ on purpose, if they do. Everything else must agree.
fn on_purpose(call: &str, original: &str, ours: &str, refused: &BTreeSet<String>) -> Option<&'static str> {
    let (name, value) = call.strip_prefix("set ").and_then(|set| set.split_once('=')).unwrap_or_default();
    let (accepted, declined) = (original.starts_with("0 "), ours.starts_with("-1 "));
    if accepted && declined && ["12x", "1.5", "99999999999999"].contains(&value) {
        return Some("what is no number, or too large, is refused rather than cut to one");
    }
    if accepted && declined && refused.contains(name) {
        return Some("COMPAT.md says of this property why it is refused");
    }
    const CHECKED_AT_ONCE: &[&str] = &[
        "broker.version.fallback",
        "sasl.mechanism",
        "sasl.mechanisms",
        "ssl.cipher.suites",
        "ssl.curves.list",
    ];
    if accepted && declined && CHECKED_AT_ONCE.contains(&name) {
        return Some("the original finds it wrong when a client is made, or never");
    }
    if call.starts_with("get ") && original.starts_with("-2 ") && ours.starts_with("0 ") {
        return Some("a topic's properties are among a client's, their defaults too");
    }
    const CALLS: &[(&str, &str)] = &[
        ("set ssl.ca.certificate.stores=", "the original was built without what Windows has"),
        ("dump socket_cb", "there is no function behind it until one is set"),
        ("get socket_cb", "there is no function behind it until one is set"),
        ("dump open_cb", "there is no function behind it until one is set"),
        ("get open_cb", "there is no function behind it until one is set"),
        ("dump builtin.features", "it lists what this library has"),
        ("get builtin.features", "it lists what this library has"),
        ("set builtin.features", "it lists what this library has"),
    ];
    CALLS.iter().find(|(beginning, _)| call.starts_with(beginning)).map(|&(_, reason)| reason)
}

/// The names that COMPAT.md lists as refused.
fn refused() -> BTreeSet<String> {
    let compat =
        std::fs::read_to_string(workspace_root().join("COMPAT.md")).expect("it is part of the repository");
    let rows = compat.lines().filter(|line| line.contains("| refused |"));
    rows.filter_map(|row| row.split('|').nth(1))
        .flat_map(|names| names.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn both_libraries_give_the_same_answers() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let (reference, ours) = (Librdkafka::reference()?, Librdkafka::ours()?);
    let (calls, differences) = compare(&reference, &ours)?;
    assert!(calls > 10_000, "only {calls} calls were compared");
    let refused = refused();
    let unexplained: Vec<&String> = differences
        .iter()
        .filter(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [call, original, ours] = columns[..] else { return true };
            on_purpose(call, original, ours, &refused).is_none()
        })
        .collect();
    assert!(
        unexplained.is_empty(),
        "{} answers differ (call, the original's, ours):\n{}",
        unexplained.len(),
        unexplained.iter().take(300).fold(String::new(), |text, line| text + line + "\n")
    );
    Ok(())
}

/// How the program judges is judged first: a library does not differ from itself.
#[test]
fn the_original_agrees_with_itself() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let reference = Librdkafka::reference()?;
    let (calls, differences) = compare(&reference, &reference)?;
    assert!(calls > 10_000 && differences.is_empty(), "{calls} calls: {differences:?}");
    Ok(())
}

/// How many calls were made, and the lines of those that differ.
fn compare(reference: &Librdkafka, ours: &Librdkafka) -> Result<(usize, Vec<String>), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("oracle");
    let source = workspace_root().join("interop/c/oracle.c");
    let debian = Debian::unpacked()?;
    // Some of what is compared is old, and still called.
    compile(&source, &debian.include(), &[&debian.lib()?], &program, &["-Wno-deprecated-declarations"])?;
    let mut oracle = Command::new(&program);
    oracle.arg(reference.file()).arg(ours.file());
    let output = run("oracle", reference.load(&mut oracle), b"", ASKED_WITHIN)?.succeeded()?;
    let mut lines = output.lines();
    let summary = lines.pop().unwrap_or_default();
    let calls = summary.split(' ').next().and_then(|count| count.parse().ok());
    Ok((calls.ok_or_else(|| output.failure("no summary"))?, lines))
}
