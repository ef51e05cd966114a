//! `ottla produce`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::builder::StringValueParser;
use ottla_client::{
    Acks, Admin, Client, ClusterDescription, Config, ConfigResource, Delivery, DescribeConfigs, Error,
    ErrorCode, ProduceError, ProduceErrorKind, Producer, Record, TopicProducer,
};

use crate::acks_arg::AcksArg;
use crate::choices::{CODECS, completed};
use crate::connect::{ConnectArgs, contact, runtime};
use crate::failure::{Failure, is_forbidden, missing_acl, remember_operation};
use crate::format::escape;
use crate::lines::{LineLimit, Lines, TO_RAISE};
use crate::metrics::MetricsArgs;
use crate::output::{counted, note};
use crate::signals::Interrupt;
use crate::topic_args::TopicArg;
use crate::warnings;

/// Time limit for the creation of a missing topic.
const TOPIC_WITHIN: Duration = Duration::from_secs(10);

/// Time limit for the answer whether the broker creates topics.
const SETTING_WITHIN: Duration = Duration::from_secs(2);

/// Time limit for the acknowledgement of sent records after a signal.
const FLUSH_AFTER_SIGNAL: Duration = Duration::from_secs(3);

/// Deliveries are checked after this many records.
const LOOK_EVERY: usize = 256;

/// Produces lines or files to a topic
///
/// Each line of standard input becomes a record. Exit code 1 if any record was not acknowledged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    topic: TopicArg,
    /// Lines of this file instead of standard input
    #[arg(short = 'l', long, value_name = "FILE", conflicts_with = "whole_file")]
    file: Option<PathBuf>,
    /// Each of these files becomes one record
    #[arg(long, value_name = "FILE", num_args = 1..)]
    whole_file: Vec<PathBuf>,
    /// The text between key and value in a line; a line without it has no key. \t, \n, \0, \\ and \xHH stand for a
    /// tab, a line feed, NUL, a backslash and the byte HH
    #[arg(short = 'K', long, value_name = "TEXT", value_parser = Delimiter::parse, conflicts_with = "whole_file")]
    key_delimiter: Option<Delimiter>,
    /// The key of every record
    #[arg(short, long, conflicts_with = "key_delimiter")]
    key: Option<String>,
    /// A header of every record; may be repeated
    #[arg(short = 'H', long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// An empty value becomes null: a tombstone in a compacted topic
    #[arg(short = 'Z', long)]
    tombstone: bool,
    /// The partition; otherwise chosen by key, or one after the other
    #[arg(short, long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Compression of the batches: none, gzip, snappy, lz4, zstd
    #[arg(short = 'z', long, value_parser = completed(StringValueParser::new(), CODECS), hide_possible_values = true)]
    codec: Option<String>,
    /// The condition for an acknowledgement by the broker
    #[arg(long, allow_negative_numbers = true)]
    acks: Option<AcksArg>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    remember_operation("write");
    let mut config = args.connect.config(&[])?;
    if config.transactional_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return Err(Failure::usage(
            "transactional.id: `ottla produce` writes without transactions; leave the property out",
        ));
    }
    if let Some(codec) = &args.codec {
        config.set("compression.codec", codec)?;
    }
    if let Some(acks) = args.acks {
        config.set("acks", acks.value())?;
    }
    warnings::watch(&mut config, true)?;
    args.metrics.apply(&mut config)?;
    // A missing file is detected before any record is sent.
    let input = Input::open(args, &config)?;
    let is_acknowledged = config.acks != Acks::None;
    let client = ready(config, args.topic.name())?;
    let _metrics = args.metrics.serve(&client)?;
    let producer = client.producer();
    let progress = Arc::new(Mutex::new(Progress::new(is_acknowledged)));
    let interrupt = Interrupt::watch_and({
        let (producer, progress) = (producer.clone(), progress.clone());
        move |signal| end_interrupted(&producer, &progress, signal)
    })?;
    let mut sending = Sending::new(args, &client, producer, progress, interrupt);
    let read = sending.send_all(input);
    let summary = sending.finish();
    note(&summary.to_string());
    read?;
    match summary.not_acknowledged() {
        None => Ok(()),
        Some(failed) => {
            let first = summary.first.as_ref().map(refusal).unwrap_or_default();
            Err(Failure::failed(format!("{failed}; the first: {first}")))
        }
    }
}

/// The text of a record's error. It names the limits that a large record exceeds.
fn refusal(error: &ProduceError) -> String {
    match &error.kind {
        ProduceErrorKind::TooLarge { .. } => format!("{error}: {TO_RAISE}"),
        ProduceErrorKind::Broker { code: ErrorCode::MessageTooLarge, .. } => format!(
            "{error}: the topic's max.message.bytes is smaller than the batch: raise it with \
             `ottla topics configs {} --set max.message.bytes=BYTES`",
            error.topic
        ),
        ProduceErrorKind::Broker { code, .. } if is_forbidden(*code) => {
            let text = error.to_string();
            format!("{text}; {}", missing_acl(&text, *code))
        }
        _ => error.to_string(),
    }
}

/// Returns a client after its cluster has answered and has the topic, or has created it.
pub(crate) fn ready(config: Config, topic: &str) -> Result<Client, Failure> {
    runtime()?.block_on(async {
        let (client, cluster) = contact(config).await?;
        await_topic(&client, &cluster, topic).await?;
        Ok(client)
    })
}

/// Waits for a topic, which the broker may create.
pub(crate) async fn await_topic(
    client: &Client,
    cluster: &ClusterDescription,
    topic: &str,
) -> Result<(), Failure> {
    let admin = client.admin();
    // The first request does not create the topic, so that a creation, perhaps by a misspelt name, is reported.
    let existed = match admin.describe_topics(&[topic]).await {
        Err(Error::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => false,
        // The wait for the topic reports any other error.
        Ok(_) | Err(_) => true,
    };
    let creates = client.config().allow_auto_create_topics;
    let may_appear = existed || creates && creates_topics(&admin, cluster).await;
    if !may_appear {
        let what = format!("topic `{topic}`");
        return Err(Error::Broker { what, code: ErrorCode::UnknownTopicOrPartition }.into());
    }
    let partitions = admin.await_topic(topic, TOPIC_WITHIN).await?;
    if !existed {
        note(&format!("topic `{topic}` did not exist: the broker created it, partitions: {partitions}"));
    }
    Ok(())
}

/// `false` if a broker reports that it creates no missing topics; the command does not wait for the topic then.
async fn creates_topics(admin: &Admin, cluster: &ClusterDescription) -> bool {
    let Some(node) = cluster.brokers.first() else { return true };
    let broker = [ConfigResource::broker(node.id)];
    let asked =
        tokio::time::timeout(SETTING_WITHIN, admin.describe_configs(&broker, DescribeConfigs::default()));
    // A user may lack the permission to read the broker's configs.
    let Ok(Ok(described)) = asked.await else { return true };
    let mut entries = described.into_iter().filter_map(|(_, entries)| entries.ok()).flatten();
    let setting = entries.find(|entry| entry.name == "auto.create.topics.enable");
    setting.is_none_or(|setting| setting.value.as_deref() != Some("false"))
}

enum Input {
    Lines(Lines),
    Files(Vec<PathBuf>),
}

impl Input {
    fn open(args: &Args, config: &Config) -> Result<Self, Failure> {
        let bytes_max = record_bytes_max(config);
        if args.whole_file.is_empty() {
            let limit = LineLimit { bytes_max, remedy: TO_RAISE };
            return Ok(Self::Lines(match &args.file {
                Some(path) => Lines::of_file(path, limit)?,
                None => Lines::of_stdin(limit),
            }));
        }
        for path in &args.whole_file {
            let meta = std::fs::metadata(path).map_err(|error| Failure::file(path, &error))?;
            if meta.len() > bytes_max as u64 {
                return Err(Failure::failed(format!(
                    "{}: {} bytes are more than {bytes_max}: {}",
                    path.display(),
                    meta.len(),
                    TO_RAISE
                )));
            }
        }
        Ok(Self::Files(args.whole_file.clone()))
    }
}

/// The largest input of one record. An unset `max.request.size` grows with `message.max.bytes`, as in the client.
fn record_bytes_max(config: &Config) -> usize {
    if config.is_set("max.request.size") {
        config.message_max_bytes.min(config.max_request_size)
    } else {
        config.message_max_bytes
    }
}

/// Splits `NAME=VALUE`. Blanks belong to the name and the value, as in kcat.
fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("`{text}` does not have the form NAME=VALUE")),
    }
}

/// The text between key and value.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Delimiter(Vec<u8>);

impl Delimiter {
    /// Parses a text with kcat's escapes.
    fn parse(text: &str) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => bytes.push(escape(&mut chars)?),
                c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        if bytes.is_empty() {
            return Err("the text between key and value is empty".into());
        }
        Ok(Self(bytes))
    }
}

struct Sending<'a> {
    args: &'a Args,
    producer: Producer,
    topic: TopicProducer,
    headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
    timeout: Duration,
    progress: Arc<Mutex<Progress>>,
    interrupt: Interrupt,
}

/// The records that were sent: those that wait for their acknowledgement, and a count of the others.
struct Progress {
    /// The records that wait, with their bytes.
    window: VecDeque<(Delivery, u64)>,
    summary: Summary,
    /// `true` after the summary was taken.
    is_summarized: bool,
    started: Instant,
}

impl Progress {
    /// With `is_acknowledged`, the broker acknowledges records.
    fn new(is_acknowledged: bool) -> Self {
        let summary = Summary { is_acknowledged, ..Summary::default() };
        Self { window: VecDeque::new(), summary, is_summarized: false, started: Instant::now() }
    }

    /// Counts the completed records at the front of the window.
    fn take_done(&mut self) {
        while let Some((delivery, bytes)) = self.window.front() {
            match delivery.try_get() {
                None => return,
                Some(Ok(_)) => self.summary.bytes += bytes,
                Some(Err(error)) => self.summary.fail(error),
            }
            self.window.pop_front();
        }
    }

    /// Returns the summary to the first caller, which prints it. Pending records count as not acknowledged.
    fn summary(&mut self) -> Option<Summary> {
        if std::mem::replace(&mut self.is_summarized, true) {
            return None;
        }
        for (delivery, bytes) in std::mem::take(&mut self.window) {
            match delivery.try_get() {
                Some(Ok(_)) => self.summary.bytes += bytes,
                Some(Err(error)) => self.summary.fail(error),
                None => self.summary.failed += 1,
            }
        }
        let mut summary = std::mem::take(&mut self.summary);
        summary.elapsed = self.started.elapsed();
        Some(summary)
    }
}

/// After a signal, waits for the sent records for a short time, prints the summary, and ends the process.
fn end_interrupted(producer: &Producer, progress: &Mutex<Progress>, signal: u8) {
    let _ = producer.flush_blocking(FLUSH_AFTER_SIGNAL);
    // Without it, the command has ended before the signal, and prints it itself.
    let Some(summary) = lock(progress).summary() else { return };
    note(&summary.to_string());
    let unknown = summary.not_acknowledged().map_or_else(String::new, |failed| format!("; {failed}"));
    let interrupted = Failure::Interrupted(signal);
    note(&format!("ottla: {interrupted}{unknown}"));
    std::process::exit(i32::from(interrupted.exit_code()));
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Summary {
    /// `false` with `acks=0`: the broker does not answer.
    is_acknowledged: bool,
    sent: u64,
    /// The bytes of the records that have not failed.
    bytes: u64,
    failed: u64,
    first: Option<ProduceError>,
    elapsed: Duration,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let acknowledged = self.sent - self.failed;
        write!(
            f,
            "{} {}, {}, {:.3} s, {:.0} records/s",
            counted(acknowledged, "record"),
            if self.is_acknowledged { "acknowledged" } else { "sent, not acknowledged" },
            counted(self.bytes, "byte"),
            seconds,
            acknowledged as f64 / seconds
        )
    }
}

impl<'a> Sending<'a> {
    fn new(
        args: &'a Args,
        client: &Client,
        producer: Producer,
        progress: Arc<Mutex<Progress>>,
        interrupt: Interrupt,
    ) -> Self {
        Self {
            args,
            topic: producer.topic(args.topic.name()),
            producer,
            headers: args
                .header
                .iter()
                .map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())))
                .collect(),
            // The producer reports a failure at its own timeout; the command waits a little longer for the report.
            timeout: client.config().delivery_timeout + Duration::from_secs(1),
            progress,
            interrupt,
        }
    }

    fn send_all(&mut self, input: Input) -> Result<(), Failure> {
        let fixed = self.args.key.as_ref().map(String::as_bytes);
        match input {
            Input::Lines(mut lines) => {
                let delimiter = self.args.key_delimiter.as_ref().map(|delimiter| &*delimiter.0);
                while let Some(line) = lines.next()? {
                    let (key, value) = match delimiter.and_then(|delimiter| split_at(line, delimiter)) {
                        Some((key, value)) => (Some(key), value),
                        None => (fixed, line),
                    };
                    self.send(key, value);
                }
            }
            Input::Files(paths) => {
                for path in paths {
                    let value = std::fs::read(&path).map_err(|error| Failure::file(&path, &error))?;
                    self.send(fixed, &value);
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, key: Option<&[u8]>, value: &[u8]) {
        let record = Record {
            topic: self.args.topic.name(),
            partition: self.args.partition,
            key,
            value: if value.is_empty() && self.args.tombstone { None } else { Some(value) },
            headers: self.headers.clone(),
            timestamp_ms: None,
            ..Record::default()
        };
        self.stop_after_signal();
        let enqueued = self.topic.enqueue_blocking(&record);
        let mut progress = lock(&self.progress);
        progress.summary.sent += 1;
        match enqueued {
            Ok(delivery) => {
                let bytes = key.map_or(0, <[u8]>::len) + value.len();
                progress.window.push_back((delivery, bytes as u64));
            }
            Err(error) => progress.summary.fail(error),
        }
        if progress.summary.sent.is_multiple_of(LOOK_EVERY as u64) {
            progress.take_done();
        }
    }

    /// Does not return after a signal: its thread prints the summary and ends the process.
    fn stop_after_signal(&self) {
        while self.interrupt.is_set() {
            std::thread::park();
        }
    }

    fn finish(self) -> Summary {
        // Records that are still pending after this count as not acknowledged.
        let _ = self.producer.flush_blocking(self.timeout);
        self.stop_after_signal();
        loop {
            let summary = lock(&self.progress).summary();
            if let Some(summary) = summary {
                return summary;
            }
            // A signal came in this moment.
            std::thread::park();
        }
    }
}

impl Summary {
    /// The number of records that failed, as a sentence.
    fn not_acknowledged(&self) -> Option<String> {
        let done = if self.is_acknowledged { "acknowledged" } else { "sent" };
        match self.failed {
            0 => None,
            1 => Some(format!("1 record was not {done}")),
            failed => Some(format!("{failed} records were not {done}")),
        }
    }

    fn fail(&mut self, error: ProduceError) {
        self.failed += 1;
        self.first.get_or_insert(error);
    }
}

/// The parts before and after the first `delimiter`.
fn split_at<'l>(line: &'l [u8], delimiter: &[u8]) -> Option<(&'l [u8], &'l [u8])> {
    let at = line.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some((&line[..at], &line[at + delimiter.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_delimiter_ends_the_key() {
        assert_eq!(split_at(b"k::v::w", b"::"), Some((&b"k"[..], &b"v::w"[..])));
        assert_eq!(split_at(b"::v", b"::"), Some((&b""[..], &b"v"[..])));
        assert_eq!(split_at(b"kv", b":"), None);
        assert_eq!(split_at(b"", b":"), None);
    }

    #[test]
    fn a_delimiter_has_the_escapes_of_kcat() {
        let parsed = |text| Delimiter::parse(text).map(|delimiter| delimiter.0);
        for (text, bytes) in [
            (r"\t", &b"\t"[..]),
            (r"a\nb", b"a\nb"),
            (r"\\t", br"\t"),
            (r"\0\x7c\xfF", b"\0|\xff"),
            ("::", b"::"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(bytes), "{text}");
        }
        for text in ["", r"\", r"\q", r"\x7", r"\x+7"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    /// After a signal during the last flush, a second line reported that 0 records were acknowledged, and the exit code could be 0.
    #[test]
    fn one_thread_gets_the_summary() {
        let mut progress = Progress::new(true);
        progress.summary.sent = 3;
        let summary = progress.summary().expect("the first call");
        assert_eq!((summary.sent, summary.is_acknowledged), (3, true));
        assert!(progress.summary().is_none());
    }

    #[test]
    fn a_summary_promises_no_acknowledgement_that_is_not_sent() {
        let sent = |is_acknowledged| Summary { is_acknowledged, sent: 1, ..Summary::default() }.to_string();
        assert!(sent(true).starts_with("1 record acknowledged, "));
        assert!(sent(false).starts_with("1 record sent, not acknowledged, "));
    }
}
