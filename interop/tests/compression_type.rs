//! `compression.type`: Java's producer sends one codec, and Apache Kafka's `kafka-dump-log.sh` finds that of the topic in the files.

use std::path::Path;

use ottla_interop::{Failure, OttlaBroker, Output, Peer, console, java_tool, require};

#[test]
fn the_stored_codec_is_that_of_the_topic() -> Result<(), Failure> {
    require!(Peer::Java);
    let broker = OttlaBroker::start(&[])?;
    for (codec, stored) in
        [("uncompressed", "none"), ("gzip", "gzip"), ("snappy", "snappy"), ("lz4", "lz4"), ("zstd", "zstd")]
    {
        let config = format!("compression.type={codec}");
        tool(&broker, console::TOPICS, &["--create", "--topic", codec, "--config", &config], b"")?
            .succeeded()?;
        let lines: Vec<String> = (0..200)
            .map(|n| format!("{n} is a line that can be compressed {}", "again ".repeat(n % 9)))
            .collect();
        // An idempotent producer, as Java's is by default. No topic has the codec of both.
        let sent = if codec == "lz4" { "gzip" } else { "lz4" };
        let producer = ["--topic", codec, "--compression-codec", sent];
        tool(&broker, console::PRODUCER, &producer, (lines.join("\n") + "\n").as_bytes())?.succeeded()?;
        let consumer =
            ["--topic", codec, "--from-beginning", "--max-messages", "200", "--timeout-ms", "20000"];
        assert_eq!(tool(&broker, console::CONSUMER, &consumer, b"")?.succeeded()?.lines(), lines, "{codec}");
        let dump = dumped(broker.data(), codec)?;
        let batches: Vec<&str> = dump.lines().filter(|line| line.starts_with("baseOffset")).collect();
        assert!(!batches.is_empty(), "{dump}");
        for batch in batches {
            assert!(batch.contains(&format!("compresscodec: {stored} ")), "{codec}: {batch}");
            assert!(batch.contains("isvalid: true") && !batch.contains("producerId: -1"), "{codec}: {batch}");
        }
    }
    broker.stop()
}

fn dumped(data: &Path, topic: &str) -> Result<String, Failure> {
    let segment = data.join(format!("{topic}-0/00000000000000000000.log")).display().to_string();
    Ok(java_tool(console::DUMP_LOG, &["--deep-iteration", "--files", &segment], b"")?
        .succeeded()?
        .stdout_text())
}

fn tool(broker: &OttlaBroker, class: &str, args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    let bootstrap = broker.bootstrap();
    java_tool(class, &[&["--bootstrap-server", &bootstrap], args].concat(), stdin)
}
