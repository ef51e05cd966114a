//! `cargo xtask bench compaction`: the rate of our cleaner next to that of Apache Kafka's, in one run.
//!
//! Both brokers get the same records, and compact them once when `min.compaction.lag.ms` is lowered. Each reports its own
//! time: Kafka in the line of its `LogCleaner`, ours in the line `compacted a partition`. Both count the bytes of the
//! segments once, although they are read twice, and not the removal of the old files: Kafka removes them a minute later.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, Process, console, java_tool, ottla_command, run, target_dir,
};

use super::{number, print_tables};

const TOPIC: &str = "compacted";
const RECORD_BYTES: [u64; 2] = [100, 1000];
const KEY_BYTES: usize = 16;
/// Each key has so many records on average.
const UPDATES: u64 = 10;
const PRODUCE_WITHIN: Duration = Duration::from_secs(300);
const CLEAN_WITHIN: Duration = Duration::from_secs(300);
const CREATE: [&str; 10] = [
    "--create",
    "--partitions",
    "1",
    "--config",
    "cleanup.policy=compact",
    "--config",
    "segment.bytes=67108864",
    "--config",
    // Until then nothing is cleaned.
    "min.compaction.lag.ms=604800000",
    "--topic",
];

pub(crate) struct Options {
    mib: u64,
    repeat: usize,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { mib: 512, repeat: 3 };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("{arg} needs a value"));
            match arg {
                "--mib" => options.mib = number(arg, value()?)?,
                "--repeat" => options.repeat = number(arg, value()?)?,
                other => return Err(format!("bench compaction does not know {other}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run_all(options: &Options) -> ExitCode {
    let is_given = std::env::var_os("OTTLA_BIN").is_some();
    let packages: &[&str] = if is_given { &[] } else { &["--package", "ottla"] };
    print_tables("compaction", packages, || measure(options))
}

fn measure(options: &Options) -> Result<String, Failure> {
    let mut table = String::from("| Record | Kafka MiB/s | Ottla MiB/s | Ratio |\n|---|---|---|---|\n");
    for record_bytes in RECORD_BYTES {
        let lines = tempfile("lines")?;
        let path = lines.path().join("records");
        write_records(&path, options.mib, record_bytes)?;
        for _ in 0..options.repeat {
            let kafka = of_kafka(&path)?;
            let ottla = of_ottla(&path)?;
            let _ =
                writeln!(table, "| {record_bytes} bytes | {kafka:.0} | {ottla:.0} | {:.1} |", ottla / kafka);
        }
    }
    Ok(table)
}

fn tempfile(what: &str) -> Result<tempfile::TempDir, Failure> {
    let dir = tempfile::Builder::new().prefix("ottla-compaction-").tempdir_in(target_dir());
    dir.map_err(|error| Failure::new(format!("a directory for {what}: {error}")))
}

/// Writes lines `key:value` with random keys.
fn write_records(path: &Path, mib: u64, record_bytes: u64) -> Result<(), Failure> {
    let records = (mib << 20) / record_bytes;
    let mut rng = fastrand::Rng::with_seed(7);
    let mut text = String::with_capacity((mib << 20) as usize + (1 << 20));
    for _ in 0..records {
        let _ = write!(text, "{:0KEY_BYTES$}:", rng.u64(0..records / UPDATES));
        text.extend((0..record_bytes as usize - KEY_BYTES).map(|_| rng.alphanumeric()));
        text.push('\n');
    }
    fs::write(path, text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn produce(bootstrap: &str, records: &Path) -> Result<(), Failure> {
    let create = [&["--bootstrap-server", bootstrap][..], &CREATE, &[TOPIC]].concat();
    java_tool(console::TOPICS, &create, b"")?.succeeded()?;
    let mut command = ottla_command(&[])?;
    command.args(["produce", "-b", bootstrap, "-K", ":", "-l"]).arg(records).arg(TOPIC);
    run("ottla produce", &mut command, b"", PRODUCE_WITHIN)?.succeeded().map(drop)
}

/// Lets the cleaner begin.
fn release(bootstrap: &str) -> Result<(), Failure> {
    let lag = "min.compaction.lag.ms=0,min.cleanable.dirty.ratio=0.01";
    let alter = ["--bootstrap-server", bootstrap, "--alter", "--topic", TOPIC, "--add-config", lag];
    java_tool(console::CONFIGS, &alter, b"")?.succeeded().map(drop)
}

fn of_kafka(records: &Path) -> Result<f64, Failure> {
    let properties = [("log.cleaner.backoff.ms", "100"), ("log.cleaner.threads", "1")];
    let options = KafkaOptions { properties: &properties, warm: true, ..KafkaOptions::default() };
    let mut cluster = KafkaCluster::start_with(1, &options)?;
    produce(&cluster.bootstrap(), records)?;
    release(&cluster.bootstrap())?;
    // `512.0 MB of log processed in 5.1 seconds (100.4 MB/sec).`
    let line = cluster.wait_for_line(1, "of log processed in", CLEAN_WITHIN)?;
    number_before(&line, " MB/sec")
}

fn of_ottla(records: &Path) -> Result<f64, Failure> {
    let data = tempfile("data")?;
    let mut command = ottla_command(&[])?;
    command.args(["broker", "--durability", "os", "--listen", "127.0.0.1:0"]);
    command.args(["-X", "log.cleaner.backoff.ms=100", "-X", "log.cleaner.dedupe.buffer.size=134217728"]);
    command.env("OTTLA_LOG", "ottla_broker=info").arg("--data").arg(data.path().join("data"));
    let mut broker = Process::spawn("ottla broker", &mut command)?;
    let listening = broker.wait_for_line("listening on ", Duration::from_secs(30))?;
    let bootstrap = listening.trim_start_matches("listening on ").trim();
    produce(bootstrap, records)?;
    release(bootstrap)?;
    let line = broker.wait_for_line("compacted a partition", CLEAN_WITHIN)?;
    let field = |name: &str| {
        let found = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = found.and_then(|text| text.parse::<f64>().ok());
        number.ok_or_else(|| Failure::new(format!("no {name} in {line}")))
    };
    let rate = field("bytes_before")? / f64::from(1 << 20) / (field("ms")? / 1000.0);
    broker.stop()?;
    Ok(rate)
}

/// Reads the number in front of a unit.
fn number_before(line: &str, unit: &str) -> Result<f64, Failure> {
    let before = line.split(unit).next().unwrap_or_default();
    let digits =
        before.rsplit(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').next().unwrap_or_default();
    let number = digits.replace(',', "").parse();
    number.map_err(|_| Failure::new(format!("no number before `{unit}` in {line}")))
}
