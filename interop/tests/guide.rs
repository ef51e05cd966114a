//! Runs each shell block of the guide and the README.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, OttlaBroker, Peer, ottla_binary, require, run, workspace_root};

/// A million records with a build that is not optimised for speed.
const BLOCK_WITHIN: Duration = Duration::from_secs(120);

#[test]
fn the_guides_commands_run() -> Result<(), Failure> {
    let blocks = shell_blocks("docs/GUIDE.md")?;
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
    let broker = OttlaBroker::start(&["--topic", "orders:3"])?;
    let dir = scratch()?;
    let outputs: Result<Vec<_>, _> =
        blocks.iter().map(|block| shell(block, &broker.bootstrap(), dir.path())).collect();
    assert_eq!(outputs?[0], "paid\n", "the first block writes a record and reads it back");
    Ok(())
}

/// Unchanged, except for what a test cannot do. It uses the binary under test, runs the broker in the background on a
/// free port, and leaves out the test command.
#[test]
fn the_readmes_commands_run() -> Result<(), Failure> {
    require!(Peer::Kcat);
    let dir = scratch()?;
    let mut broker: Option<OttlaBroker> = None;
    let (mut ran, mut read) = (Vec::new(), String::new());
    for line in shell_blocks("README.md")?.iter().flat_map(|block| block.lines()) {
        let command = line.split(" #").next().unwrap_or_default().trim();
        if command.starts_with("cargo build --release && ") || command == "cargo xtask test" {
            continue;
        }
        if let Some(args) = command.strip_prefix("ottla broker --data data ") {
            let args: Vec<&str> = args.split(' ').collect();
            let data = dir.path().join("data");
            broker = Some(OttlaBroker::start_on(&data, &args)?);
            continue;
        }
        let bootstrap = broker.as_ref().map(OttlaBroker::bootstrap).unwrap_or_default();
        let mut command = command.replace("cargo run --release -- ", "ottla ");
        if !bootstrap.is_empty() {
            command = command.replace("127.0.0.1:9092", &bootstrap);
        }
        read += &shell(&command, &bootstrap, dir.path())?;
        ran.push(command);
    }
    assert!(ran.len() >= 6 && broker.is_some(), "{ran:#?}");
    // kcat and the group read the records of the first command.
    assert_eq!(read.lines().filter(|line| *line == "hello").count(), 2, "{read}");
    Ok(())
}

/// Runs a script until it exits, with the binary in its path. Returns its standard output.
fn shell(script: &str, bootstrap: &str, dir: &Path) -> Result<String, Failure> {
    let binary = ottla_binary()?;
    let binaries = binary.parent().expect("a file lies in a directory");
    let search = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", script]).current_dir(dir).env("PATH", &search);
    if !bootstrap.is_empty() {
        shell.env("OTTLA_BROKERS", bootstrap);
    }
    Ok(run(script, &mut shell, b"", BLOCK_WITHIN)?.succeeded()?.stdout_text())
}

/// The text between ```` ```sh ```` and ```` ``` ````.
fn shell_blocks(document: &str) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(workspace_root().join(document))
        .map_err(|error| Failure::new(format!("{document}: {error}")))?;
    let blocks = text.split("```sh\n").skip(1);
    Ok(blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned())).collect())
}

fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))
}
