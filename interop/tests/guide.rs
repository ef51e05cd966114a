//! The commands that the guide and the README show do what they say: each of their shell blocks runs.

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

/// Word for word, but for what a test cannot do as a user does: the release build is whichever binary is tested, the
/// broker stays in the background and takes a free port, and the test command would start this test.
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
    // kcat and the group read what the first command wrote.
    assert_eq!(read.lines().filter(|line| *line == "hello").count(), 2, "{read}");
    Ok(())
}

/// Runs a script to its end, with the binary on its path; gives its standard output.
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

/// What stands between ```` ```sh ```` and ```` ``` ````.
fn shell_blocks(document: &str) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(workspace_root().join(document))
        .map_err(|error| Failure::new(format!("{document}: {error}")))?;
    let blocks = text.split("```sh\n").skip(1);
    Ok(blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned())).collect())
}

fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))
}
