//! The C processor: a program built against the installed header and library, in every mode, and with transactions.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Cluster, Failure, KafkaCluster, Librdkafka, OttlaBroker, Peer, compile, require, run, workspace_root,
};

/// Each run takes a second or two; longer on a loaded machine.
const RUN_WITHIN: Duration = Duration::from_secs(120);

#[test]
fn every_mode_on_ottla() -> Result<(), Failure> {
    modes(&OttlaBroker::start(&[])?, &[])
}

#[test]
fn every_mode_on_kafka() -> Result<(), Failure> {
    require!(Peer::Java);
    modes(&*KafkaCluster::shared()?, &[("multi-async", Some("till"))])
}

/// Runs the four modes, and those of `once` with transactions, which Ottla's broker does not support.
fn modes(cluster: &dyn Cluster, once: &[(&str, Option<&str>)]) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("processor");
    let source = workspace_root().join("interop/c/processor.c");
    let ours = Librdkafka::ours()?;
    compile(&source, ours.include(), &[ours.lib()], &program, &["-std=gnu11", "-pedantic", "-Werror"])?;
    let plain = ["sync", "batch", "multi-async", "multi-batch"].map(|mode| (mode, None));
    for (mode, id) in plain.iter().chain(once) {
        handles_all(cluster, &ours, &program, mode, *id)?;
    }
    Ok(())
}

fn handles_all(
    cluster: &dyn Cluster,
    library: &Librdkafka,
    program: &Path,
    mode: &str,
    id: Option<&str>,
) -> Result<(), Failure> {
    let topic = format!("c-processor-{mode}{}", if id.is_some() { "-once" } else { "" });
    cluster.create_topic(&topic, 3)?;
    cluster.create_topic(&format!("{topic}-out"), 1)?;
    cluster.create_topic(&format!("{topic}-dead"), 1)?;
    let mut command = Command::new(program);
    command.args([&cluster.bootstrap(), &topic, mode]).args(id);
    let output = run("processor.c", library.load(&mut command), b"", RUN_WITHIN)?.succeeded()?;
    assert_eq!(output.stdout_text(), format!("{mode}: 990 handled, sum right: 1\n"));
    Ok(())
}
