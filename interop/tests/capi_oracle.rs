//! One program loads the original and our library, makes the same calls on both, and compares the results.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Debian, Failure, Librdkafka, Peer, compile, require, run, workspace_root};

const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// Properties whose values the original does not check when they are set.
const CHECKED_AT_ONCE: &[&str] = &[
    "broker.version.fallback",
    "sasl.mechanism",
    "sasl.mechanisms",
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
];

/// Properties whose refusals have texts of our own: other code is behind them.
const OWN_TEXTS: &[&str] =
    &["builtin.features", "compression.level", "plugin.library.paths", "topic.blacklist"];

/// Prefixes of calls whose results differ on purpose, with the reason.
const CALLS: &[(&str, &str)] = &[
    ("set broker.version.fallback=", "the empty text is the default, as of every other property"),
    ("set compression.level=0x10", "zstd has levels up to 22"),
    ("set ssl.ca.certificate.stores=", "the original was built without what Windows has"),
    ("set sticky.partitioning.linger.ms=", "fractions of a millisecond are kept"),
    ("dump socket_cb", "there is no function behind it until one is set"),
    ("get socket_cb", "there is no function behind it until one is set"),
    ("dump open_cb", "there is no function behind it until one is set"),
    ("get open_cb", "there is no function behind it until one is set"),
];

/// The reason why the results of a call differ on purpose, if they do. All others must be equal.
fn on_purpose(call: &str, original: &str, ours: &str, refused: &BTreeSet<String>) -> Option<&'static str> {
    let (name, value) = call.strip_prefix("set ").and_then(|set| set.split_once('=')).unwrap_or_default();
    let (accepted, declined) = (original.starts_with("0 "), ours.starts_with("-1 "));
    if accepted && declined && value == "99999999999999" {
        return Some("what is too large for a number is refused rather than cut to one");
    }
    if accepted && declined && refused.contains(name) {
        return Some("COMPAT.md says of this property why it is refused");
    }
    if original.starts_with("-1 ") && declined && value.ends_with("99999999999999") {
        return Some("a number that is too large for C's int is shown whole, not cut to one");
    }
    if original.starts_with("-1 ") && declined && OWN_TEXTS.contains(&name) {
        return Some("both refuse it: the original's text is about its own code, or cuts the value");
    }
    if accepted && declined && CHECKED_AT_ONCE.contains(&name) {
        return Some("the original finds it wrong when a client is made, or never");
    }
    if value.starts_with(' ') && original.replace(' ', "") == ours.replace(' ', "") {
        return Some("a space before a text is part of passwords, and of nothing else");
    }
    if call.ends_with(" builtin.features") && original == ours.replace("sasl_gssapi,", "") {
        return Some("the original in the wheel is built without Kerberos");
    }
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

/// Checks the comparison itself: a library does not differ from itself.
#[test]
fn the_original_agrees_with_itself() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let reference = Librdkafka::reference()?;
    let (calls, differences) = compare(&reference, &reference)?;
    assert!(calls > 10_000 && differences.is_empty(), "{calls} calls: {differences:?}");
    Ok(())
}

/// The number of calls, and the lines of those that differ.
fn compare(reference: &Librdkafka, ours: &Librdkafka) -> Result<(usize, Vec<String>), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("oracle");
    let source = workspace_root().join("interop/c/oracle.c");
    let debian = Debian::unpacked()?;
    // Some of the compared functions are deprecated but still called.
    compile(&source, &debian.include(), &[&debian.lib()?], &program, &["-Wno-deprecated-declarations"])?;
    let mut oracle = Command::new(&program);
    oracle.arg(reference.file()).arg(ours.file());
    let output = run("oracle", reference.load(&mut oracle), b"", ASKED_WITHIN)?.succeeded()?;
    let mut lines = output.lines();
    let summary = lines.pop().unwrap_or_default();
    let calls = summary.split(' ').next().and_then(|count| count.parse().ok());
    Ok((calls.ok_or_else(|| output.failure("no summary"))?, lines))
}
