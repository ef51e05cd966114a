//! Misuse of the API: each case has a defined result, and valgrind and AddressSanitizer find no error.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Cluster, Debian, Failure, Librdkafka, OttlaBroker, Output, Peer, compile, require, run, workspace_root,
};

/// valgrind is 30 times slower.
const RUN_WITHIN: Duration = Duration::from_secs(400);

#[test]
fn every_case_has_a_result() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    all_right(&misuse(&[], None)?)
}

#[test]
fn valgrind_finds_nothing() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    require!(Peer::Valgrind);
    let valgrind = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "--show-leak-kinds=definite",
        "--child-silent-after-fork=yes",
    ];
    all_right(&misuse(&[], Some(&valgrind))?)
}

#[test]
fn address_sanitizer_finds_nothing() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    all_right(&misuse(&["-fsanitize=address", "-fno-omit-frame-pointer"], None)?)
}

/// The program counts its cases, so that an early exit is noticed.
const CASES_MIN: usize = 120;

fn all_right(output: &Output) -> Result<(), Failure> {
    let said = output.stdout_text();
    let counted = said.lines().last().and_then(|line| line.strip_suffix(" cases")?.parse().ok());
    let cases: usize = counted.unwrap_or(0);
    if output.status.success() && !said.contains("WRONG") && cases >= CASES_MIN {
        return Ok(());
    }
    Err(output.failure(&format!("misuse was not without consequences\n{said}")))
}

/// Compiles the program with `flags` and runs it on our library, under `tool` if one is given.
fn misuse(flags: &[&str], tool: Option<&[&str]>) -> Result<Output, Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("misuse");
    let debian = Debian::unpacked()?;
    let source = workspace_root().join("interop/c/misuse.c");
    compile(&source, &debian.include(), &[&debian.lib()?], &program, flags)?;
    let broker = OttlaBroker::start(&[])?;
    broker.create_topic("misused", 1)?;
    let mut command = match tool {
        Some([tool, arguments @ ..]) => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(&program);
            command
        }
        _ => Command::new(&program),
    };
    command.args(["misused", &broker.bootstrap()]);
    run("misuse", Librdkafka::ours()?.load(&mut command), b"", RUN_WITHIN)
}
