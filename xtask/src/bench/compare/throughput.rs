//! Producing as fast as it goes: the introductions' four tests, lz4 and zstd.

use serde_json::{Value, json};

use ottla_interop::Failure;

use super::super::machine::Touched;
use super::super::partition_name;
use super::super::table::{Samples, markdown, ratio};
use super::brokers::{Brokers, Kind};
use super::measured::{
    BATCH_BYTES, Floors, RECORD_BYTES, broker_bound, how_busy, medians_ratio, met, of, take,
};
use super::payload::SIZES;
use super::peers::{Job, Peer};
use super::{Compare, Options, watch};

/// Our targets per codec: shares of the CPU per message of librdkafka, and of franz-go where there is a target.
const CPU_RATIOS: &[(&str, f64, Option<f64>)] = &[
    ("none", 0.2, Some(1.0 / 3.0)),
    ("snappy", 0.5, None),
    ("lz4", 0.5, None),
    ("zstd", 0.5, None),
    ("gzip", 0.3, None),
];
/// Our messages per second at least, as multiples of librdkafka's and franz-go's, where the broker is not the limit.
const RATE_RATIOS: [(Peer, f64); 2] = [(Peer::Librdkafka, 1.6), (Peer::FranzGo, 1.0)];

struct Test {
    name: &'static str,
    /// Of Apache Kafka; our broker has one.
    nodes: usize,
    partitions: u32,
    acks: &'static str,
    codec: &'static str,
}

const TESTS: [Test; 6] = [
    Test { name: "test1", nodes: 2, partitions: 2, acks: "all", codec: "none" },
    Test { name: "test2", nodes: 1, partitions: 1, acks: "0", codec: "none" },
    Test { name: "test3", nodes: 2, partitions: 2, acks: "all", codec: "snappy" },
    Test { name: "test4", nodes: 2, partitions: 2, acks: "all", codec: "gzip" },
    Test { name: "lz4", nodes: 2, partitions: 2, acks: "all", codec: "lz4" },
    Test { name: "zstd", nodes: 2, partitions: 2, acks: "all", codec: "zstd" },
];

/// One row: a test with a size of message.
pub(super) struct Cell {
    /// The name that `--only` selects by.
    name: String,
    test: &'static Test,
    size: usize,
    count: u64,
}

/// The rows that a cluster is the right one for.
pub(super) fn cells(kind: Kind, nodes: usize, options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for size in SIZES {
        for test in TESTS.iter().filter(|test| kind == Kind::Ottla || test.nodes == nodes) {
            let count = count(test.codec, size, options.quick);
            let name = format!("{kind}-{nodes}/{}/{size}", test.name);
            cells.push(Cell { name, test, size, count });
        }
    }
    cells.retain(|cell| options.wants(&cell.name));
    cells
}

/// Enough for about a second of the fastest.
fn count(codec: &str, size: usize, quick: bool) -> u64 {
    let full = match (codec, size) {
        ("gzip", ..=100) => 1_000_000,
        ("gzip", _) => 120_000,
        (_, ..=100) => 4_000_000,
        _ => 600_000,
    };
    if quick { full / 4 } else { full }
}

impl Compare<'_> {
    pub(super) fn throughput(&mut self, brokers: &Brokers, cells: &[Cell]) {
        if cells.is_empty() {
            return;
        }
        let peers = self.peers.all();
        let new = || peers.iter().map(|peer| (*peer, Samples::default())).collect::<Vec<_>>();
        let mut rows: Vec<_> = cells.iter().map(|cell| (cell, new())).collect();
        let repeats = self.options.repeats(3, 1);
        let mut floors = Floors::default();
        for pass in 0..=repeats {
            match pass {
                // A JVM compiles what it has seen often.
                0 => println!("{}: warm-up, not counted", brokers.name),
                _ => println!("{}: pass {pass} of {repeats}", brokers.name),
            }
            for (cell, peers) in &mut rows {
                // In turn, so that no peer always follows the same one.
                let first = pass % peers.len();
                peers.rotate_left(first);
                for (peer, samples) in &mut *peers {
                    let mut unused = Samples::default();
                    let samples = if pass == 0 { &mut unused } else { samples };
                    if let Err(failure) = self.cell(brokers, cell, *peer, samples) {
                        self.outcome.failed(format!("{} {peer}: {failure}", cell.name));
                    }
                }
                peers.sort_by_key(|(peer, _)| *peer);
                if pass > 0
                    && cell.test.codec == "none"
                    && let Err(failure) =
                        self.floor(&cell.name, cell.count, cell.size, "produce_ns", &mut floors)
                {
                    self.outcome.failed(failure);
                }
            }
        }
        self.outcome.tables += &tables(brokers, &rows, &floors);
        self.outcome.json.extend(rows.iter().map(|(cell, peers)| json(cell, peers)));
    }

    fn cell(
        &mut self,
        brokers: &Brokers,
        cell: &Cell,
        peer: Peer,
        samples: &mut Samples,
    ) -> Result<(), Failure> {
        let topic = self.topic();
        let warmup = cell.count / 10;
        let properties =
            [("acks", cell.test.acks), ("compression.codec", cell.test.codec), ("batch.size", BATCH_BYTES)];
        let produce = Job {
            mode: "produce",
            topic: &topic,
            payload: self.payloads.of_size(cell.size),
            count: cell.count,
            warmup,
            rate: 0,
            partitions: cell.test.partitions,
            properties: &properties,
        };
        let bytes = (cell.count + warmup) * (cell.size as u64 + RECORD_BYTES);
        let bootstrap = brokers.bootstrap();
        brokers.with_topic(&self.peers.ottla, &topic, cell.test.partitions, || {
            let touched = Touched::new(self.scratch, bytes)?;
            let write = || self.peers.run(peer, &bootstrap, &produce);
            let (produced, looks) =
                watch::during(&brokers.process_ids(), || touched.during(brokers.data(), write));
            let values = (cell.count + warmup) * cell.size as u64;
            samples.add("ratio", values as f64 / brokers.topic_bytes(&topic).max(1) as f64);
            take(&cell.name, peer, &produced?, &looks, samples)
        })
    }
}

type Row<'a> = (&'a Cell, Vec<(Peer, Samples)>);

const PEERS: [Peer; 3] = [Peer::Ottla, Peer::Librdkafka, Peer::FranzGo];

fn tables(brokers: &Brokers, rows: &[Row], floors: &Floors) -> String {
    let name = &brokers.name;
    let measure = |field: &str, verdict: &dyn Fn(&Row) -> String| -> Vec<Vec<String>> {
        let row = |row: &Row| {
            let (cell, peers) = row;
            let spread = |peer| of(peers, peer).map_or_else(String::new, |samples| samples.spread(field));
            let middle = |peer| of(peers, peer)?.median(field);
            let mut line = vec![format!("{} {} B", cell.label(), cell.size)];
            line.extend(PEERS.map(spread));
            line.extend(
                [Peer::Librdkafka, Peer::FranzGo].map(|peer| ratio(middle(Peer::Ottla), middle(peer))),
            );
            line.push(verdict(row));
            line
        };
        rows.iter().map(row).collect()
    };
    let header = ["test", "Ottla", "librdkafka", "franz-go", "Ottla / librdkafka", "Ottla / franz-go", ""];
    let mut cpu = measure("client_ns", &|(cell, peers)| cpu_verdict(cell, peers));
    for (line, (cell, peers)) in cpu.iter_mut().zip(rows) {
        let floor = floors.get(&cell.name);
        let ours = of(peers, Peer::Ottla).and_then(|samples| samples.median("client_ns"));
        line.insert(6, ratio(ours, floor.and_then(|floor| floor.median("client_ns"))));
        line.insert(4, floor.map_or_else(String::new, |floor| floor.spread("client_ns")));
    }
    let cpu_header = [
        "test",
        "Ottla",
        "librdkafka",
        "franz-go",
        "floor in C",
        "Ottla / librdkafka",
        "Ottla / franz-go",
        "Ottla / floor",
        "",
    ];
    let mut text = markdown(&format!("{name}: client CPU per message, ns"), &cpu_header, &cpu);
    let rates = measure("million_per_s", &|(_, peers)| rate_verdict(peers));
    text += &markdown(&format!("{name}: million messages per second"), &header, &rates);
    let broker = measure("broker_ns", &|_| String::new());
    text += &markdown(&format!("{name}: broker CPU per message, ns"), &header, &broker);
    text += &markdown(
        &format!("{name}: bytes of the values per byte of log"),
        &header,
        &measure("ratio", &|_| String::new()),
    );
    let busy = |(cell, peers): &Row| {
        let mut line = vec![format!("{} {} B", cell.label(), cell.size)];
        line.extend(PEERS.map(|peer| how_busy(of(peers, peer))));
        line
    };
    let rows: Vec<_> = rows.iter().map(busy).collect();
    let title = format!("{name}: busiest broker thread / machine, %");
    text + &markdown(&title, &["test", "Ottla", "librdkafka", "franz-go"], &rows)
}

impl Cell {
    fn label(&self) -> String {
        let Test { name, partitions, acks, codec, .. } = self.test;
        format!("{name} ({}, acks={acks}, {codec})", partition_name(*partitions))
    }
}

fn cpu_verdict(cell: &Cell, peers: &[(Peer, Samples)]) -> String {
    let target = CPU_RATIOS.iter().find(|(codec, ..)| *codec == cell.test.codec);
    let Some(&(_, librdkafka, franz_go)) = target else { return String::new() };
    let targets = [(Peer::Librdkafka, Some(librdkafka)), (Peer::FranzGo, franz_go)];
    let parts = targets.into_iter().filter_map(|(peer, target)| {
        let ratio = medians_ratio(peers, Peer::Ottla, peer, "client_ns")?;
        let target = target?;
        Some(format!("{} (at most {target:.2} of {peer}'s)", met(ratio <= target)))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn rate_verdict(peers: &[(Peer, Samples)]) -> String {
    let mut parts: Vec<_> = broker_bound(peers).into_iter().collect();
    for (peer, target) in RATE_RATIOS {
        if let Some(ratio) = medians_ratio(peers, Peer::Ottla, peer, "million_per_s") {
            parts.push(format!("{} (at least {target:.1} of {peer}'s)", met(ratio >= target)));
        }
    }
    parts.join(", ")
}

fn json(cell: &Cell, peers: &[(Peer, Samples)]) -> Value {
    let by_peer = peers.iter().map(|(peer, samples)| (peer.to_string(), samples.json()));
    json!({
        "name": cell.name, "size": cell.size, "count": cell.count, "partitions": cell.test.partitions,
        "acks": cell.test.acks, "codec": cell.test.codec, "peers": Value::Object(by_peer.collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_gets_its_tests_and_ours_all_of_them() {
        let options = Options::parse(&[]).unwrap();
        let names = |kind, nodes| cells(kind, nodes, &options).into_iter().map(|cell| cell.name);
        assert_eq!(names(Kind::Kafka, 2).count(), 10, "five tests, two sizes");
        assert_eq!(names(Kind::Kafka, 1).collect::<Vec<_>>(), ["kafka-1/test2/100", "kafka-1/test2/1024"]);
        assert_eq!(names(Kind::Ottla, 1).count(), 12);
    }

    #[test]
    fn a_row_says_whether_its_targets_are_met_and_who_was_bound_by_the_broker() {
        let options = Options::parse(&["--only", "kafka-2/test1/100"]).unwrap();
        let cell = &cells(Kind::Kafka, 2, &options)[0];
        let samples = |ns, rate, bound| {
            let mut samples = Samples::default();
            samples.add("client_ns", ns);
            samples.add("million_per_s", rate);
            samples.add("bound", bound);
            samples
        };
        let peers = [
            (Peer::Ottla, samples(110.0, 5.0, 1.0)),
            (Peer::Librdkafka, samples(600.0, 2.0, 0.0)),
            (Peer::FranzGo, samples(300.0, 6.0, 0.0)),
        ];
        let verdict = cpu_verdict(cell, &peers);
        assert_eq!(verdict, "met (at most 0.20 of librdkafka's), NOT met (at most 0.33 of franz-go's)");
        let verdict = rate_verdict(&peers);
        assert!(
            verdict.starts_with("broker-bound: Ottla, met (at least 1.6 of librdkafka's), NOT"),
            "{verdict}"
        );
    }
}
