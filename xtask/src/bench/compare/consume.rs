//! Reading a topic that is full already: one message at a time and in batches, from one partition and from many, plain
//! and compressed.

use std::collections::BTreeMap;
use std::fmt;

use ottla_interop::Failure;
use serde_json::{Value, json};

use super::super::machine::Touched;
use super::super::partition_name;
use super::super::table::{Samples, markdown, ratio};
use super::brokers::{Brokers, Kind};
use super::measured::{
    BATCH_BYTES, Floors, RECORD_BYTES, broker_bound, how_busy, medians_ratio, met, of, take,
};
use super::peers::{Job, Peer};
use super::{Compare, Options, watch};

/// Our targets: shares of the others' CPU per message.
const ONE_RATIO: f64 = 0.2;
const BATCH_RATIO: f64 = 0.25;
/// The target for the cost of a message from many partitions, compared with one.
const PARTITIONS_RATIO: f64 = 1.2;

/// The contents of a topic; rows that read the same contents share one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Content {
    size: usize,
    codec: &'static str,
    partitions: u32,
}

/// The unit that a call returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unit {
    One,
    Batch,
}

struct Test {
    name: &'static str,
    unit: Unit,
    content: Content,
}

const fn test(name: &'static str, unit: Unit, size: usize, codec: &'static str, partitions: u32) -> Test {
    Test { name, unit, content: Content { size, codec, partitions } }
}

const TESTS: [Test; 10] = [
    test("one", Unit::One, 100, "none", 1),
    test("batch", Unit::Batch, 100, "none", 1),
    test("p100", Unit::Batch, 100, "none", 100),
    test("p1000", Unit::Batch, 100, "none", 1000),
    test("gzip", Unit::Batch, 100, "gzip", 1),
    test("snappy", Unit::Batch, 100, "snappy", 1),
    test("lz4", Unit::Batch, 100, "lz4", 1),
    test("zstd", Unit::Batch, 100, "zstd", 1),
    test("one", Unit::One, 1024, "none", 1),
    test("batch", Unit::Batch, 1024, "none", 1),
];

/// A client's way to read, a column of the tables.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Reader {
    Ottla,
    Librdkafka,
    /// librdkafka's simple consumer: a callback for each message, or its own batches.
    LibrdkafkaSimple,
    FranzGo,
}

const READERS: [Reader; 4] = [Reader::Ottla, Reader::Librdkafka, Reader::LibrdkafkaSimple, Reader::FranzGo];

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LibrdkafkaSimple => f.write_str("librdkafka, simple"),
            Self::Ottla | Self::Librdkafka | Self::FranzGo => self.peer().fmt(f),
        }
    }
}

impl Reader {
    fn peer(self) -> Peer {
        match self {
            Self::Ottla => Peer::Ottla,
            Self::Librdkafka | Self::LibrdkafkaSimple => Peer::Librdkafka,
            Self::FranzGo => Peer::FranzGo,
        }
    }

    /// Its program's mode; `None` where it has nothing of its own to show.
    fn mode(self, test: &Test) -> Option<&'static str> {
        match (self, test.unit) {
            (Self::LibrdkafkaSimple, _) if test.content.codec != "none" || test.content.partitions > 1 => {
                None
            }
            (Self::LibrdkafkaSimple, Unit::One) => Some("consume-callback"),
            (Self::LibrdkafkaSimple, Unit::Batch) => Some("consume-legacy"),
            (_, Unit::One) => Some("consume-one"),
            (_, Unit::Batch) => Some("consume"),
        }
    }
}

/// A test against one cluster.
pub(super) struct Row {
    /// The name that `--only` selects by.
    name: String,
    test: &'static Test,
    count: u64,
}

/// The rows that are wanted of a cluster. With one node: it is the client's work that is looked at, and on a small
/// machine a second broker would only take its processor away.
pub(super) fn rows(kind: Kind, nodes: usize, options: &Options) -> Vec<Row> {
    let row = |test: &'static Test| {
        let Content { size, .. } = test.content;
        let full = if size <= 100 { 5_000_000 } else { 2_000_000 };
        let count = if options.quick { full / 10 } else { full };
        Row { name: format!("{kind}-{nodes}/consume/{}/{size}", test.name), test, count }
    };
    let tests = if nodes == 1 { &TESTS[..] } else { &[] };
    tests.iter().map(row).filter(|row| options.wants(&row.name)).collect()
}

type Measured<'a> = (&'a Row, Vec<(Reader, Samples)>);

impl Compare<'_> {
    /// All topics are filled before anything is read, and all rows read in turn: what is compared was measured in the
    /// same minutes.
    pub(super) fn consume(&mut self, brokers: &Brokers, rows: &[Row]) -> Result<(), Failure> {
        let mut topics = BTreeMap::new();
        for row in rows {
            if let std::collections::btree_map::Entry::Vacant(topic) = topics.entry(row.test.content) {
                topic.insert(self.filled(brokers, row)?);
            }
        }
        let readers = |row: &Row| -> Vec<_> {
            let has = |reader: &Reader| self.peers.has(reader.peer()) && reader.mode(row.test).is_some();
            READERS.into_iter().filter(has).map(|reader| (reader, Samples::default())).collect()
        };
        let mut measured: Vec<Measured> = rows.iter().map(|row| (row, readers(row))).collect();
        let mut floors = Floors::default();
        for pass in 0..=self.options.repeats(3, 1) {
            self.reading_pass(brokers, pass, &topics, &mut measured, &mut floors);
        }
        for topic in topics.values() {
            brokers.delete_topic(&self.peers.ottla, topic)?;
        }
        if !rows.is_empty() {
            self.outcome.tables += &tables(&brokers.name, &measured, &floors);
            self.outcome.json.extend(measured.iter().map(|(row, readers)| json(row, readers)));
        }
        Ok(())
    }

    /// A topic with a row's content, written by our producer.
    fn filled(&mut self, brokers: &Brokers, row: &Row) -> Result<String, Failure> {
        let topic = self.topic();
        let Content { size, codec, partitions } = row.test.content;
        println!("{}: filling {topic}: {size} B, {codec}, {}", brokers.name, partition_name(partitions));
        let warmup = warmup(row);
        let produce = Job {
            mode: "produce",
            topic: &topic,
            payload: self.payloads.of_size(size),
            count: row.count,
            warmup,
            rate: 0,
            partitions,
            properties: &[("acks", "all"), ("compression.codec", codec), ("batch.size", BATCH_BYTES)],
        };
        brokers.create_topic(&self.peers.ottla, &topic, partitions)?;
        let bytes = (row.count + warmup) * (size as u64 + RECORD_BYTES);
        let touched = Touched::new(self.scratch, bytes)?;
        touched.during(brokers.data(), || self.peers.run(Peer::Ottla, &brokers.bootstrap(), &produce))?;
        Ok(topic)
    }

    fn reading_pass(
        &mut self,
        brokers: &Brokers,
        pass: usize,
        topics: &BTreeMap<Content, String>,
        measured: &mut [Measured],
        floors: &mut Floors,
    ) {
        for (row, readers) in measured {
            // In turn, so that no peer always follows the same one.
            let first = pass % readers.len();
            readers.rotate_left(first);
            for (reader, samples) in &mut *readers {
                // Everybody reads once before it counts: a JVM compiles what it has seen often.
                let mut unused = Samples::default();
                let samples = if pass == 0 { &mut unused } else { samples };
                if let Err(failure) = self.read(brokers, row, *reader, &topics[&row.test.content], samples) {
                    self.outcome.failed(format!("{} {reader}: {failure}", row.name));
                }
            }
            readers.sort_by_key(|(reader, _)| *reader);
            let Content { size, codec, .. } = row.test.content;
            if pass > 0
                && codec == "none"
                && let Err(failure) = self.floor(&row.name, row.count, size, "consume_ns", floors)
            {
                self.outcome.failed(failure);
            }
        }
    }

    fn read(
        &self,
        brokers: &Brokers,
        row: &Row,
        reader: Reader,
        topic: &str,
        samples: &mut Samples,
    ) -> Result<(), Failure> {
        let Some(mode) = reader.mode(row.test) else { return Ok(()) };
        let consume = Job {
            mode,
            topic,
            payload: self.payloads.of_size(row.test.content.size),
            count: row.count,
            warmup: warmup(row),
            rate: 0,
            partitions: row.test.content.partitions,
            properties: &[],
        };
        let bootstrap = brokers.bootstrap();
        let read = || self.peers.run(reader.peer(), &bootstrap, &consume);
        let (report, looks) = watch::during(&brokers.process_ids(), read);
        take(&row.name, reader, &report?, &looks, samples)
    }
}

fn warmup(row: &Row) -> u64 {
    row.count / 10
}

impl Row {
    fn label(&self) -> String {
        let Content { size, codec, partitions } = self.test.content;
        let unit = match self.test.unit {
            Unit::One => "one by one",
            Unit::Batch => "batches",
        };
        format!("{unit}, {codec}, {} {size} B", partition_name(partitions))
    }
}

fn tables(name: &str, rows: &[Measured], floors: &Floors) -> String {
    let line = |(row, readers): &Measured, field: &str| {
        let spread = |reader| of(readers, reader).map_or_else(String::new, |samples| samples.spread(field));
        let mut line = vec![row.label()];
        line.extend(READERS.map(spread));
        line
    };
    let header: Vec<String> = std::iter::once("test".into()).chain(READERS.map(|r| r.to_string())).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();

    let cpu = |measured: &Measured| {
        let (row, readers) = measured;
        let floor = floors.get(&row.name);
        let ours = of(readers, Reader::Ottla).and_then(|samples| samples.median("client_ns"));
        let mut line = line(measured, "client_ns");
        line.push(floor.map_or_else(String::new, |floor| floor.spread("client_ns")));
        line.push(ratio(ours, floor.and_then(|floor| floor.median("client_ns"))));
        line.push(cpu_verdict(measured, rows));
        line
    };
    let cpu: Vec<_> = rows.iter().map(cpu).collect();
    let cpu_header = [&header[..], &["floor in C", "Ottla / floor", ""]].concat();
    let mut text = markdown(&format!("{name}: reading, client CPU per message, ns"), &cpu_header, &cpu);

    let rate = |measured: &Measured| {
        let mut line = line(measured, "million_per_s");
        line.push(rate_verdict(&measured.1));
        line
    };
    let rates: Vec<_> = rows.iter().map(rate).collect();
    let rate_header = [&header[..], &[""]].concat();
    text += &markdown(&format!("{name}: reading, million messages per second"), &rate_header, &rates);

    let broker: Vec<_> = rows.iter().map(|measured| line(measured, "broker_ns")).collect();
    text += &markdown(&format!("{name}: reading, broker CPU per message, ns"), &header, &broker);

    let busy = |(row, readers): &Measured| {
        let all = READERS.map(|reader| how_busy(of(readers, reader)));
        std::iter::once(row.label()).chain(all).collect()
    };
    let busy: Vec<Vec<String>> = rows.iter().map(busy).collect();
    text + &markdown(&format!("{name}: reading, busiest broker thread / machine, %"), &header, &busy)
}

fn cpu_verdict((row, readers): &Measured, rows: &[Measured]) -> String {
    let of_theirs = |other: Reader| medians_ratio(readers, Reader::Ottla, other, "client_ns");
    let at_most = |other: Reader, most: f64| {
        of_theirs(other)
            .map(|ratio| format!("{ratio:.2}: {} (at most {most:.2} of {other}'s)", met(ratio <= most)))
    };
    let Content { codec, partitions, .. } = row.test.content;
    let parts = if partitions > 1 {
        vec![growth(row, readers, rows)]
    } else if codec != "none" {
        let ratio =
            of_theirs(Reader::Librdkafka).into_iter().chain(of_theirs(Reader::FranzGo)).reduce(f64::max);
        vec![ratio.map(|ratio| format!("{ratio:.2}: {} (below the better of the two)", met(ratio < 1.0)))]
    } else if row.test.unit == Unit::One {
        vec![at_most(Reader::Librdkafka, ONE_RATIO)]
    } else {
        vec![at_most(Reader::Librdkafka, BATCH_RATIO), at_most(Reader::FranzGo, BATCH_RATIO)]
    };
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Our cost out of many partitions, next to ours out of one.
fn growth(row: &Row, readers: &[(Reader, Samples)], rows: &[Measured]) -> Option<String> {
    let one = Content { partitions: 1, ..row.test.content };
    let (_, from_one) =
        rows.iter().find(|(other, _)| other.test.content == one && other.test.unit == row.test.unit)?;
    let ours = |readers| of(readers, Reader::Ottla)?.median("client_ns");
    let ratio = ours(readers)? / ours(from_one)?;
    let is_met = met(ratio <= PARTITIONS_RATIO);
    Some(format!("{ratio:.2}: {is_met} (at most {PARTITIONS_RATIO:.2} of ours from 1 partition)"))
}

fn rate_verdict(readers: &[(Reader, Samples)]) -> String {
    let mut parts: Vec<_> = broker_bound(readers).into_iter().collect();
    for other in [Reader::Librdkafka, Reader::FranzGo] {
        if let Some(ratio) = medians_ratio(readers, Reader::Ottla, other, "million_per_s") {
            parts.push(format!("{ratio:.2}: {} (above {other}'s)", met(ratio > 1.0)));
        }
    }
    parts.join(", ")
}

fn json(row: &Row, readers: &[(Reader, Samples)]) -> Value {
    let by_reader = readers.iter().map(|(reader, samples)| (reader.to_string(), samples.json()));
    let Content { size, codec, partitions } = row.test.content;
    json!({
        "name": row.name, "size": size, "count": row.count, "partitions": partitions, "codec": codec,
        "peers": Value::Object(by_reader.collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ns: f64, rate: f64) -> Samples {
        let mut samples = Samples::default();
        samples.add("client_ns", ns);
        samples.add("million_per_s", rate);
        samples
    }

    #[test]
    fn each_cluster_of_one_node_is_read_in_every_way() {
        let options = Options::parse(&[]).unwrap();
        let kafka: Vec<_> = rows(Kind::Kafka, 1, &options).into_iter().map(|row| row.name).collect();
        assert_eq!(kafka.len(), TESTS.len());
        assert_eq!(kafka[..2], ["kafka-1/consume/one/100", "kafka-1/consume/batch/100"]);
        assert!(rows(Kind::Kafka, 2, &options).is_empty());
        let few = Options::parse(&["--only", "ottla-1/consume/p"]).unwrap();
        assert_eq!(rows(Kind::Ottla, 1, &few).len(), 2, "100 and 1000 partitions");
    }

    #[test]
    fn librdkafkas_simple_consumer_reads_plain_topics_of_one_partition() {
        let modes = TESTS.iter().filter_map(|test| Reader::LibrdkafkaSimple.mode(test));
        assert_eq!(
            modes.collect::<Vec<_>>(),
            ["consume-callback", "consume-legacy", "consume-callback", "consume-legacy"]
        );
    }

    #[test]
    fn each_row_is_judged_by_its_own_target() {
        let options = Options::parse(&["--only", "ottla-1/consume"]).unwrap();
        let rows = rows(Kind::Ottla, 1, &options);
        let by_name = |ours: f64, theirs: f64| {
            let of_peers =
                [(Reader::Librdkafka, samples(theirs, 2.0)), (Reader::FranzGo, samples(300.0, 4.0))];
            std::iter::once((Reader::Ottla, samples(ours, 3.0))).chain(of_peers).collect::<Vec<_>>()
        };
        let figures = |row: &Row| match row.test.name {
            "one" => by_name(100.0, 655.0),
            "p100" => by_name(90.0, 400.0),
            "p1000" => by_name(99.0, 400.0),
            "gzip" => by_name(310.0, 400.0),
            _ => by_name(80.0, 349.0),
        };
        let measured: Vec<Measured> = rows.iter().map(|row| (row, figures(row))).collect();
        let verdict = |name: &str| {
            let row = measured.iter().find(|(row, _)| row.test.name == name).unwrap();
            cpu_verdict(row, &measured)
        };
        assert_eq!(verdict("one"), "0.15: met (at most 0.20 of librdkafka's)");
        assert_eq!(
            verdict("batch"),
            "0.23: met (at most 0.25 of librdkafka's), 0.27: NOT met (at most 0.25 of franz-go's)"
        );
        assert_eq!(verdict("gzip"), "1.03: NOT met (below the better of the two)");
        assert_eq!(verdict("p100"), "1.12: met (at most 1.20 of ours from 1 partition)");
        assert!(verdict("p1000").starts_with("1.24: NOT met"), "{}", verdict("p1000"));
        let rates = rate_verdict(&measured[0].1);
        assert_eq!(rates, "1.50: met (above librdkafka's), 0.75: NOT met (above franz-go's)");
    }
}
