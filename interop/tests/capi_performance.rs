//! `rdkafka_performance`: the commands in librdkafka's introduction run unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ottla_interop::{
    Cluster, Debian, Failure, Librdkafka, Output, compile, on_both_libraries, run, workspace_root,
};
use tempfile::TempDir;

on_both_libraries! { Librdkafka;
    the_introductions_commands_run_and_summarise
    what_was_produced_is_consumed_alone_and_in_a_group
}

/// Half a million messages, compressed by an unoptimised build on a loaded machine.
const RUN_WITHIN: Duration = Duration::from_secs(180);

/// Stories of both libraries can run on one Apache Kafka at a time: each has a topic of its own.
fn own_topic(name: &str) -> String {
    static STORIES: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", STORIES.fetch_add(1, Ordering::Relaxed))
}

fn the_introductions_commands_run_and_summarise(
    library: &Librdkafka,
    cluster: &dyn Cluster,
) -> Result<(), Failure> {
    let program = Program::built()?;
    let topic = own_topic("test2");
    cluster.create_topic_quickly(&topic, 2)?;
    let commands = [
        ("-m _____________Test1:TwoBrokers:500kmsgs:100bytes -S 1 -a 2", "no"),
        ("-m _____________Test2:OneBrokers:500kmsgs:100bytes -S 1 -a 0 -p 1", "no"),
        ("-m _____________Test3:TwoBrokers:500kmsgs:100bytes:snappy -S 1 -a 2 -z snappy", "snappy"),
        ("-m _____________Test3:TwoBrokers:500kmsgs:100bytes:gzip -S 1 -a 2 -z gzip", "gzip"),
    ];
    for (command, codec) in commands {
        let all = format!("-P -t {topic} -s 100 -c 500000 {command}");
        if command.contains("-a 2") {
            let refused = program.run(library, cluster, &all)?.failed()?;
            let why = refused.stderr_text();
            assert!(why.contains("-a 2") && why.contains("Use -a -1"), "{why}");
        }
        let output = program.run(library, cluster, &all.replace("-a 2", "-a -1"))?.succeeded()?;
        let summary = output.stdout_text();
        assert!(
            summary.starts_with("% 500000 messages and 50000000 bytes sent in ")
                && summary.contains("ms: ")
                && summary.contains(" msgs/s and ")
                && summary.ends_with(&format!(" Mb/s, 0 messages failed, {codec} compression\n")),
            "{summary}"
        );
    }
    Ok(())
}

fn what_was_produced_is_consumed_alone_and_in_a_group(
    library: &Librdkafka,
    cluster: &dyn Cluster,
) -> Result<(), Failure> {
    let program = Program::built()?;
    let topic = own_topic("performance");
    cluster.create_topic_quickly(&topic, 3)?;
    let run =
        |args: &str| program.run(library, cluster, args)?.succeeded().map(|output| output.stdout_text());
    // Not sticky: every partition must receive messages in this time.
    let produce = "-s 50 -c 30000 -z lz4 -X linger.ms=5 -X sticky.partitioning.linger.ms=0";
    run(&format!("-P -t {topic} {produce}"))?;
    let all = "% 30000 messages and 1500000 bytes received in ";
    for consumer in ["-C -e".to_owned(), "-C -c 30000".to_owned(), format!("-G readers-of-{topic} -e")] {
        let summary = run(&format!("{consumer} -t {topic}"))?;
        assert!(summary.starts_with(all), "{consumer}: {summary}");
    }
    let tail = run(&format!("-C -t {topic} -p 1 -o -10 -c 10"))?;
    assert!(tail.starts_with("% 10 messages and 500 bytes received in "), "{tail}");
    Ok(())
}

struct Program {
    path: PathBuf,
    _scratch: TempDir,
}

impl Program {
    fn built() -> Result<Self, Failure> {
        let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
        let path = scratch.path().join("rdkafka_performance");
        let source = workspace_root().join("crates/capi/examples/rdkafka_performance.c");
        let debian = Debian::unpacked()?;
        compile(&source, &debian.include(), &[&debian.lib()? as &Path], &path, &["-Werror"])?;
        Ok(Self { path, _scratch: scratch })
    }

    fn run(&self, library: &Librdkafka, cluster: &dyn Cluster, args: &str) -> Result<Output, Failure> {
        let mut command = Command::new(&self.path);
        command.args(args.split(' ')).args(["-b", &cluster.bootstrap()]);
        run("rdkafka_performance", library.load(&mut command), b"", RUN_WITHIN)
    }
}
