//! `ottla log import`: the data of a stopped Apache Kafka.

use std::io::IsTerminal;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use ottla_broker::{ImportOptions, import_kafka};

use crate::failure::Failure;
use crate::output::{Output, counted};

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// All directories of log.dirs of one node in KRaft mode, and metadata.log.dir if it is another one
    #[arg(required = true, value_name = "KAFKA_DIR")]
    sources: Vec<PathBuf>,
    /// The data directory of a broker that does not run; created if it is missing
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Only this topic; can be repeated. __consumer_offsets has the committed offsets, __transaction_state the transactions
    #[arg(short, long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// Prints the topics, and writes nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    let options = ImportOptions { topics: args.topic.clone(), dry_run: args.dry_run };
    let bar = bar();
    let imported = import_kafka(&args.sources, &args.data, &options, &mut |copied, all| {
        bar.set_length(all);
        bar.set_position(copied);
    });
    bar.finish_and_clear();
    let report = imported.map_err(|error| Failure::failed(error.to_string()))?;
    let mut text = String::new();
    for topic in &report.topics {
        text += &format!(
            "{}: {}, {} bytes\n",
            topic.name,
            counted(topic.partitions as u64, "partition"),
            topic.bytes
        );
    }
    for note in &report.notes {
        text += &format!("{note}\n");
    }
    let (count, place) = (counted(report.topics.len() as u64, "topic"), args.data.display());
    text += &if args.dry_run {
        format!("{count} would be imported into {place}; nothing was written\n")
    } else {
        format!("{count} imported into {place}\n")
    };
    let mut output = Output::new();
    output.write(text.as_bytes())?;
    output.flush()
}

/// A progress bar on a terminal; hidden elsewhere.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes}  {bytes_per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
