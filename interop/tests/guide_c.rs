//! The C program of the guide compiles as printed and adds up the amounts in a topic of the Ottla broker.

use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, Librdkafka, OttlaBroker, compile, ottla, run, workspace_root};

/// The run takes a second; a machine under load takes longer.
const RUN_WITHIN: Duration = Duration::from_secs(120);

#[test]
fn the_guides_c_program_compiles_and_runs() -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let source = scratch.path().join("sum.c");
    std::fs::write(&source, c_program()?).map_err(|error| Failure::new(error.to_string()))?;
    let program = scratch.path().join("sum");
    let ours = Librdkafka::ours()?;
    compile(&source, ours.include(), &[ours.lib()], &program, &["-std=gnu11", "-pedantic", "-Werror"])?;

    let broker = OttlaBroker::start(&["--topic", "orders:3"])?;
    let bootstrap = broker.bootstrap();
    ottla(&["produce", "orders", "--brokers", &bootstrap], b"17\n4\nno amount\n")?.succeeded()?;
    let mut sum = Command::new(&program);
    sum.args([&bootstrap, "2"]);
    let output = run("sum.c", ours.load(&mut sum), b"", RUN_WITHIN)?.succeeded()?;
    assert_eq!(output.stdout_text(), "2 orders, total 21\n");
    Ok(())
}

/// The only C block of the guide.
fn c_program() -> Result<String, Failure> {
    let text = std::fs::read_to_string(workspace_root().join("docs/GUIDE.md"))
        .map_err(|error| Failure::new(format!("docs/GUIDE.md: {error}")))?;
    let blocks: Vec<&str> =
        text.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    match blocks.as_slice() {
        [block] => Ok((*block).to_owned()),
        _ => Err(Failure::new(format!("docs/GUIDE.md has {} C programs", blocks.len()))),
    }
}
