//! The commands that the guide shows do what it says: each of its shell blocks runs against a broker.

use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, OttlaBroker, ottla_binary, run, workspace_root};

#[test]
fn the_guides_commands_run() -> Result<(), Failure> {
    let path = workspace_root().join("docs/GUIDE.md");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::new(error.to_string()))?;
    let blocks = shell_blocks(&text);
    assert!(blocks.len() >= 4, "{} blocks", blocks.len());
    let broker = OttlaBroker::start(&["--topic", "orders:3"])?;
    let binary = ottla_binary()?;
    let binaries = binary.parent().expect("a file lies in a directory");
    let search = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut outputs = Vec::new();
    for block in &blocks {
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", block]).env("PATH", &search).env("OTTLA_BROKERS", broker.bootstrap());
        outputs.push(run(block, &mut shell, b"", Duration::from_secs(60))?.succeeded()?.stdout_text());
    }
    assert_eq!(outputs[0], "paid\n", "the first block writes a record and reads it back");
    Ok(())
}

/// What stands between ```` ```sh ```` and ```` ``` ````.
fn shell_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```sh\n").skip(1);
    blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned())).collect()
}
