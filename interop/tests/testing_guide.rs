//! The examples of docs/TESTING.md run as printed, each with a client of its language.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Failure, Librdkafka, Peer, build_foreign_go, compile, foreign_node, foreign_python_packages, jars,
    ottla_binary, require, run, workspace_root,
};

/// An example takes seconds; a machine under load takes longer.
const EXAMPLE_WITHIN: Duration = Duration::from_secs(180);

#[test]
fn the_python_example_writes_after_two_failures() -> Result<(), Failure> {
    require!(Peer::Python);
    let example = Example::write("python", "example.py")?;
    let mut python = Command::new("python3");
    python.arg(&example.source).env("PYTHONPATH", foreign_python_packages()?);
    example.run(&mut python)
}

#[test]
fn the_go_example_writes_after_two_failures() -> Result<(), Failure> {
    require!(Peer::Go);
    let example = Example::write("go", "main.go")?;
    let program = example.dir.path().join("example");
    build_foreign_go(&example.source, &program)?;
    example.run(&mut Command::new(program))
}

#[test]
fn the_java_example_writes_after_two_failures() -> Result<(), Failure> {
    require!(Peer::Java);
    let example = Example::write("java", "FaultTest.java")?;
    example.run(jars()?.java(256).arg(&example.source))
}

#[test]
fn the_node_example_writes_after_two_failures() -> Result<(), Failure> {
    require!(Peer::Node);
    let example = Example::write("js", "example.js")?;
    let mut node = Command::new("node");
    node.arg(&example.source).env("NODE_PATH", foreign_node()?);
    example.run(&mut node)
}

#[test]
fn the_c_example_writes_after_two_failures() -> Result<(), Failure> {
    let example = Example::write("c", "example.c")?;
    let program = example.dir.path().join("example");
    let ours = Librdkafka::ours()?;
    compile(
        &example.source,
        ours.include(),
        &[ours.lib()],
        &program,
        &["-std=gnu11", "-pedantic", "-Werror"],
    )?;
    example.run(ours.load(&mut Command::new(program)))
}

#[test]
fn the_shell_commands_start_and_stop_a_broker() -> Result<(), Failure> {
    let example = Example::write("sh", "example.sh")?;
    let mut shell = Command::new("sh");
    shell.arg("-eu").arg(&example.source);
    let printed = example.printed(&mut shell)?;
    let ready = printed.lines().next().unwrap_or_default();
    let ready: serde_json::Value = serde_json::from_str(ready).map_err(|_| Failure::new(printed.clone()))?;
    assert_eq!(ready["nodes"].as_array().map(Vec::len), Some(1), "{printed}");
    assert!(ready["control"].is_string(), "{printed}");
    Ok(())
}

/// The example itself is a program of the crate `ottla-broker`.
#[test]
fn the_rust_example_is_the_one_that_is_built_and_run() -> Result<(), Failure> {
    let printed = block("rust")?;
    let path = workspace_root().join("crates/broker/examples/misbehave.rs");
    let built = std::fs::read_to_string(&path).map_err(|error| Failure::new(error.to_string()))?;
    let code: String = built.lines().skip_while(|line| line.is_empty() || line.starts_with("//!")).collect();
    assert_eq!(code, printed.lines().collect::<String>());
    Ok(())
}

/// An example in a directory of its own.
struct Example {
    dir: tempfile::TempDir,
    source: PathBuf,
}

impl Example {
    fn write(language: &str, name: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(error.to_string());
        let dir = tempfile::tempdir().map_err(failed)?;
        let source = dir.path().join(name);
        std::fs::write(&source, block(language)?).map_err(failed)?;
        Ok(Self { dir, source })
    }

    fn run(&self, command: &mut Command) -> Result<(), Failure> {
        assert_eq!(self.printed(command)?, "written after two failures\n");
        Ok(())
    }

    /// Runs the example with `ottla` in its path. Returns its standard output.
    fn printed(&self, command: &mut Command) -> Result<String, Failure> {
        let binary = ottla_binary()?;
        let binaries = binary.parent().map(Path::display).map(|dir| dir.to_string()).unwrap_or_default();
        let search = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());
        command.current_dir(self.dir.path()).env("PATH", search);
        Ok(run("the example", command, b"", EXAMPLE_WITHIN)?.succeeded()?.stdout_text())
    }
}

/// The only block of the guide in a language.
fn block(language: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(workspace_root().join("docs/TESTING.md"))
        .map_err(|error| Failure::new(format!("docs/TESTING.md: {error}")))?;
    let opened = format!("```{language}\n");
    let blocks: Vec<&str> = text.split(&opened).skip(1).filter_map(|rest| rest.split("```").next()).collect();
    match *blocks {
        [block] => Ok(block.to_owned()),
        _ => Err(Failure::new(format!("docs/TESTING.md has {} blocks of {language}", blocks.len()))),
    }
}
