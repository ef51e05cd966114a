//! One program opens the original and our library side by side, makes the same calls on both, and compares the answers.

use std::process::Command;
use std::time::Duration;

use ottla_interop::{Debian, Failure, Librdkafka, Peer, compile, require, run, workspace_root};

const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// Calls whose answers differ on purpose, by their beginning, each with its reason.
const ON_PURPOSE: &[(&str, &str)] = &[];

#[test]
fn both_libraries_give_the_same_answers() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let (reference, ours) = (Librdkafka::reference()?, Librdkafka::ours()?);
    let (calls, differences) = compare(&reference, &ours)?;
    assert!(calls > 10_000, "only {calls} calls were compared");
    let unexplained: Vec<&String> = differences
        .iter()
        .filter(|line| !ON_PURPOSE.iter().any(|(beginning, _)| line.starts_with(beginning)))
        .collect();
    assert!(
        unexplained.is_empty(),
        "{} answers differ (call, the original's, ours):\n{}",
        unexplained.len(),
        unexplained.iter().take(200).fold(String::new(), |text, line| text + line + "\n")
    );
    for (beginning, reason) in ON_PURPOSE {
        let used = differences.iter().any(|line| line.starts_with(beginning));
        assert!(used, "{beginning} no longer differs ({reason}): remove the exception");
    }
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
