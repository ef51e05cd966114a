//! The topics of a KRaft cluster, from its metadata log: the newest snapshot and the records since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ottla_protocol::encode::LengthKind;
use ottla_protocol::{DecodeError, Decoder, Uuid};
use ottla_wire::Records;
use ottla_wire::batch::BatchHeader;

use super::error::{ImportError, io_failed};
use super::segments::{segments_of, walk};

/// The directory of the metadata log.
pub(super) const METADATA_DIR: &str = "__cluster_metadata-0";
const SNAPSHOT_SUFFIX: &str = ".checkpoint";
/// Far above any batch of a metadata log.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// The version of the frame around each record.
const FRAME_VERSION: u32 = 1;
/// The numbers of topics and brokers among the kinds of resources.
const TOPIC_RESOURCE: i8 = 2;
const BROKER_RESOURCE: i8 = 4;

/// The partitions of a topic, by number.
#[derive(Clone, Debug)]
pub(super) struct TopicImage {
    pub(super) name: String,
    pub(super) partitions: BTreeMap<i32, PartitionImage>,
}

/// The nodes of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionImage {
    pub(super) replicas: Vec<i32>,
    pub(super) isr: Vec<i32>,
    /// Replicas that have all committed records and are down (KIP-966).
    pub(super) eligible: Vec<i32>,
    /// It may be above that of the last batch. States of share groups refuse leaders of a lower one.
    pub(super) leader_epoch: i32,
}

/// The state of the cluster, as far as an import needs it.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) topics: BTreeMap<Uuid, TopicImage>,
    /// The settings of topics, by name.
    pub(super) configs: BTreeMap<String, BTreeMap<String, String>>,
    /// The dynamic settings of brokers, by node id; those of all brokers have an empty name.
    pub(super) broker_configs: BTreeMap<String, BTreeMap<String, String>>,
    /// No producer has had this id, or one above it.
    pub(super) next_producer_id: i64,
}

impl Image {
    /// No leader of a partition has had this epoch, or one above it.
    pub(super) fn next_leader_epoch(&self) -> i32 {
        let partitions = self.topics.values().flat_map(|topic| topic.partitions.values());
        partitions.map(|partition| partition.leader_epoch.saturating_add(1)).max().unwrap_or(0)
    }
}

/// Reads the state from the directory of the metadata log.
pub(super) fn load(dir: &Path) -> Result<Image, ImportError> {
    let mut reader = Reader::default();
    if let Some((end, path)) = newest_snapshot(dir)? {
        let bytes = path.metadata().map_err(|source| io_failed(&path, source))?.len();
        walk(&path, bytes, &mut |header, batch| reader.batch(header, batch))?;
        reader.next_offset = end;
    }
    let segments = segments_of(dir)?;
    match segments.first() {
        Some(first) if first.base_offset <= reader.next_offset => {}
        _ => {
            let reason = format!("the records from offset {} on are missing", reader.next_offset);
            return Err(ImportError::Source { dir: dir.to_path_buf(), reason });
        }
    }
    for segment in &segments {
        walk(&segment.path, segment.bytes, &mut |header, batch| reader.batch(header, batch))?;
    }
    Ok(reader.finish())
}

/// The end offset and the path of the newest snapshot: `<end offset>-<epoch>.checkpoint`.
fn newest_snapshot(dir: &Path) -> Result<Option<(i64, PathBuf)>, ImportError> {
    let mut newest: Option<((i64, i32), PathBuf)> = None;
    for entry in std::fs::read_dir(dir).map_err(|source| io_failed(dir, source))? {
        let entry = entry.map_err(|source| io_failed(dir, source))?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.strip_suffix(SNAPSHOT_SUFFIX)?.split_once('-'));
        let Some((Ok(end), Ok(epoch))) = parts.map(|(end, epoch)| (end.parse(), epoch.parse())) else {
            continue;
        };
        if newest.as_ref().is_none_or(|(other, _)| *other < (end, epoch)) {
            newest = Some(((end, epoch), entry.path()));
        }
    }
    Ok(newest.map(|((end, _), path)| (end, path)))
}

#[derive(Debug, Default)]
struct Reader {
    image: Image,
    /// Records below it are in the snapshot.
    next_offset: i64,
    /// The state before the open transaction of the controller (KIP-868).
    before_transaction: Option<Box<Image>>,
}

impl Reader {
    fn batch(&mut self, header: &BatchHeader, batch: &[u8]) -> Result<(), ImportError> {
        if header.is_control() || header.last_offset() < self.next_offset {
            return Ok(());
        }
        let broken = |offset, what: String| ImportError::Metadata { offset, what };
        let records = Records::of_batch(&Bytes::copy_from_slice(batch), BATCH_BYTES_MAX);
        let records = records.map_err(|error| broken(header.base_offset, error.to_string()))?;
        for record in &records {
            let record = record.map_err(|error| broken(header.base_offset, error.to_string()))?;
            let Some(value) = record.value.filter(|_| record.offset >= self.next_offset) else { continue };
            self.record(value).map_err(|what| broken(record.offset, what))?;
        }
        Ok(())
    }

    fn record(&mut self, value: &[u8]) -> Result<(), String> {
        let mut input = Decoder::new(Bytes::copy_from_slice(value));
        let failed = |error: DecodeError| error.to_string();
        let frame = input.unsigned_varint().map_err(failed)?;
        if frame != FRAME_VERSION {
            return Err(format!("a frame of version {frame}; this program knows {FRAME_VERSION}"));
        }
        let kind = input.unsigned_varint().map_err(failed)?;
        let version = input.unsigned_varint().map_err(failed)?;
        // The versions of Apache Kafka 4.3. Other kinds of records concern no topic.
        let version_max = match kind {
            TOPIC | CONFIG | REMOVE_TOPIC | PRODUCER_IDS | BEGIN | END | ABORT | CLEAR_ELIGIBLE => 0,
            PARTITION | PARTITION_CHANGE => 2,
            _ => return Ok(()),
        };
        if version > version_max {
            return Err(format!(
                "a record of kind {kind} and version {version}; this program knows versions up to {version_max}, those of \
                 Apache Kafka 4.3"
            ));
        }
        self.apply(kind, version, &mut input).map_err(failed)
    }

    fn apply(&mut self, kind: u32, version: u32, input: &mut Decoder) -> Result<(), DecodeError> {
        match kind {
            TOPIC => {
                let name = string(input)?.unwrap_or_default();
                let id = Uuid(input.array()?);
                self.image.topics.insert(id, TopicImage { name, partitions: BTreeMap::new() });
            }
            PARTITION => {
                let index = input.i32()?;
                let id = Uuid(input.array()?);
                let (replicas, isr) = (ints(input)?.unwrap_or_default(), ints(input)?.unwrap_or_default());
                let (_removing, _adding) = (ints(input)?, ints(input)?);
                let (_leader, leader_epoch, _epoch) = (input.i32()?, input.i32()?, input.i32()?);
                if version >= DIRECTORIES_FROM {
                    let count = input.array_length(LengthKind::Compact, size_of::<Uuid>())?;
                    input.skip(count.unwrap_or(0) * size_of::<Uuid>())?;
                }
                let mut eligible = None;
                for _ in 0..input.unsigned_varint()? {
                    match input.tag()? {
                        (PARTITION_ELIGIBLE_TAG, _) => eligible = ints(input)?,
                        (_, size) => input.skip(size)?,
                    }
                }
                if let Some(topic) = self.image.topics.get_mut(&id) {
                    let eligible = eligible.unwrap_or_default();
                    let partition = PartitionImage { replicas, isr, eligible, leader_epoch };
                    topic.partitions.insert(index, partition);
                }
            }
            PARTITION_CHANGE => self.change(input)?,
            CONFIG => {
                let resource = input.i8()?;
                let (name, key) = (string(input)?.unwrap_or_default(), string(input)?.unwrap_or_default());
                let value = string(input)?;
                let configs = match resource {
                    TOPIC_RESOURCE => &mut self.image.configs,
                    BROKER_RESOURCE => &mut self.image.broker_configs,
                    _ => return Ok(()),
                };
                let values = configs.entry(name).or_default();
                match value {
                    Some(value) => values.insert(key, value),
                    None => values.remove(&key),
                };
            }
            REMOVE_TOPIC => {
                if let Some(topic) = self.image.topics.remove(&Uuid(input.array()?)) {
                    self.image.configs.remove(&topic.name);
                }
            }
            PRODUCER_IDS => {
                let (_broker, _epoch) = (input.i32()?, input.i64()?);
                self.image.next_producer_id = self.image.next_producer_id.max(input.i64()?);
            }
            CLEAR_ELIGIBLE => self.clear_eligible(&string(input)?.unwrap_or_default()),
            BEGIN => self.before_transaction = Some(Box::new(self.image.clone())),
            END => self.before_transaction = None,
            ABORT => {
                if let Some(before) = self.before_transaction.take() {
                    self.image = *before;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Clears the eligible replicas of a topic; those of all topics without a name.
    fn clear_eligible(&mut self, name: &str) {
        let named = self.image.topics.values_mut().filter(|topic| name.is_empty() || topic.name == name);
        for partition in named.flat_map(|topic| topic.partitions.values_mut()) {
            partition.eligible.clear();
        }
    }

    /// The fields that change are tagged.
    fn change(&mut self, input: &mut Decoder) -> Result<(), DecodeError> {
        let index = input.i32()?;
        let id = Uuid(input.array()?);
        let (mut isr, mut replicas, mut eligible) = (None, None, None);
        let mut leader = NO_LEADER_CHANGE;
        for _ in 0..input.unsigned_varint()? {
            let (tag, size) = input.tag()?;
            match tag {
                ISR_TAG => isr = ints(input)?,
                LEADER_TAG => leader = input.i32()?,
                REPLICAS_TAG => replicas = ints(input)?,
                ELIGIBLE_TAG => eligible = ints(input)?,
                _ => input.skip(size)?,
            }
        }
        let topic = self.image.topics.get_mut(&id);
        if let Some(partition) = topic.and_then(|topic| topic.partitions.get_mut(&index)) {
            // Each leader has its epoch, also if it led before: Kafka's `PartitionRegistration.merge`.
            let has_new_leader = leader != NO_LEADER_CHANGE;
            partition.leader_epoch = partition.leader_epoch.saturating_add(i32::from(has_new_leader));
            partition.isr = isr.unwrap_or_else(|| std::mem::take(&mut partition.isr));
            partition.eligible = eligible.unwrap_or_else(|| std::mem::take(&mut partition.eligible));
            partition.replicas = replicas.unwrap_or_else(|| std::mem::take(&mut partition.replicas));
        }
        Ok(())
    }

    /// A transaction without its end did not happen.
    fn finish(self) -> Image {
        self.before_transaction.map_or(self.image, |before| *before)
    }
}

/// The numbers of the kinds of records.
const TOPIC: u32 = 2;
const PARTITION: u32 = 3;
const CONFIG: u32 = 4;
const PARTITION_CHANGE: u32 = 5;
const REMOVE_TOPIC: u32 = 9;
const PRODUCER_IDS: u32 = 15;
const BEGIN: u32 = 23;
const END: u32 = 24;
const ABORT: u32 = 25;
const CLEAR_ELIGIBLE: u32 = 28;
/// Tags of a `PARTITION_CHANGE`.
const ISR_TAG: u32 = 0;
const LEADER_TAG: u32 = 1;
const REPLICAS_TAG: u32 = 2;
const ELIGIBLE_TAG: u32 = 6;
/// The leader of a `PARTITION_CHANGE` that keeps the leader.
const NO_LEADER_CHANGE: i32 = -2;
/// The tag of the same field in a `PARTITION`.
const PARTITION_ELIGIBLE_TAG: u32 = 1;
/// From this version on, a `PARTITION` has the directories of its replicas.
const DIRECTORIES_FROM: u32 = 1;

fn string(input: &mut Decoder) -> Result<Option<String>, DecodeError> {
    let length = input.length(LengthKind::CompactString)?;
    length.map(|length| input.string(length)).transpose()
}

fn ints(input: &mut Decoder) -> Result<Option<Vec<i32>>, DecodeError> {
    let count = input.array_length(LengthKind::Compact, size_of::<i32>())?;
    count.map(|count| (0..count).map(|_| input.i32()).collect()).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, version: u8, body: &[u8]) -> Vec<u8> {
        [&[1, kind, version][..], body].concat()
    }

    fn topic(name: &str, id: u8) -> Vec<u8> {
        let name_bytes = [&[name.len() as u8 + 1], name.as_bytes()].concat();
        frame(2, 0, &[&name_bytes[..], &[id; 16], &[0]].concat())
    }

    /// Partition 0 on the nodes 1 and 2.
    fn partition(id: u8) -> Vec<u8> {
        let nodes = [3, 0, 0, 0, 1, 0, 0, 0, 2];
        let rest = [&[1, 1][..], &[0; 12], &[1, 0]].concat(); // nodes, epochs, directories, tags
        frame(3, 1, &[&[0; 4][..], &[id; 16], &nodes, &nodes, &rest].concat())
    }

    fn config(topic: &str, key: &str, value: Option<&str>) -> Vec<u8> {
        let text = |text: &str| [&[text.len() as u8 + 1], text.as_bytes()].concat();
        let value = value.map_or_else(|| vec![0], text);
        frame(4, 0, &[&[2][..], &text(topic), &text(key), &value, &[0]].concat())
    }

    fn read(records: &[Vec<u8>]) -> Result<Image, String> {
        let mut reader = Reader::default();
        records.iter().try_for_each(|record| reader.record(record)).map(|()| reader.finish())
    }

    #[test]
    fn topics_partitions_and_settings_are_those_after_all_records() {
        let change =
            frame(5, 2, &[&[0; 4][..], &[7; 16], &[2, 1, 4, 0, 0, 0, 2, 0, 5, 2, 0, 0, 0, 1]].concat());
        let records = [
            topic("orders", 7),
            partition(7),
            config("orders", "retention.ms", Some("5")),
            config("orders", "segment.ms", Some("6")),
            config("orders", "segment.ms", None),
            topic("gone", 8),
            config("gone", "retention.ms", Some("5")),
            frame(9, 0, &[&[8; 16][..], &[0]].concat()),
            frame(15, 0, &[&[0; 12][..], &2000_i64.to_be_bytes(), &[0]].concat()),
            // A kind that concerns no topic, in a version of the future.
            frame(12, 99, b"?"),
        ];
        let image = read(&records).expect("readable");
        assert_eq!(image.topics.len(), 1);
        assert_eq!(image.configs.len(), 1);
        assert_eq!(
            image.configs["orders"].iter().collect::<Vec<_>>(),
            [(&"retention.ms".into(), &"5".into())]
        );
        assert_eq!(image.next_producer_id, 2000);
        let partition = &image.topics[&Uuid([7; 16])].partitions[&0];
        assert_eq!((&partition.replicas[..], &partition.isr[..]), (&[1, 2][..], &[1, 2][..]));
        // The last replica that stops: no replica is in sync, and this one may lead.
        let stopped = frame(5, 2, &[&[0; 4][..], &[7; 16], &[2, 0, 1, 1, 6, 5, 2, 0, 0, 0, 2]].concat());
        let after = read(&[&records[..2], &[stopped]].concat()).expect("readable");
        let partition = &after.topics[&Uuid([7; 16])].partitions[&0];
        assert_eq!((&partition.isr[..], &partition.eligible[..]), (&[][..], &[2][..]));
        let image = read(&[&records[..2], &[change]].concat()).expect("readable");
        assert_eq!(image.topics[&Uuid([7; 16])].partitions[&0].isr, [1]);
    }

    /// The record was ignored: a replica whose last records may be missing was imported.
    #[test]
    fn eligible_replicas_that_are_cleared_may_lead_no_more() {
        let mut records = Vec::new();
        for (name, id) in [("orders", 7), ("stock", 8)] {
            let stopped = [&[0; 4][..], &[id; 16], &[2, 0, 1, 1, 6, 5, 2, 0, 0, 0, 2]].concat();
            records.extend([topic(name, id), partition(id), frame(5, 2, &stopped)]);
        }
        let eligible = |cleared: &str| {
            let name = [&[cleared.len() as u8 + 1], cleared.as_bytes(), &[0]].concat();
            let image = read(&[&records[..], &[frame(28, 0, &name)]].concat()).expect("readable");
            [7, 8].map(|id| image.topics[&Uuid([id; 16])].partitions[&0].eligible.len())
        };
        assert_eq!(eligible("unknown"), [1, 1]);
        assert_eq!(eligible("stock"), [1, 0]);
        assert_eq!(eligible(""), [0, 0]);
    }

    #[test]
    fn leader_epochs_rise_with_each_leader() {
        let records = [topic("orders", 7), partition(7)];
        assert_eq!(read(&records).expect("readable").next_leader_epoch(), 1);
        let led = frame(5, 2, &[&[0; 4][..], &[7; 16], &[1, 1, 4, 0, 0, 0, 2, 0]].concat());
        let in_sync = frame(5, 2, &[&[0; 4][..], &[7; 16], &[1, 0, 5, 2, 0, 0, 0, 1, 0]].concat());
        let image = read(&[&records[..], &[led.clone(), in_sync, led]].concat()).expect("readable");
        assert_eq!(image.next_leader_epoch(), 3);
    }

    #[test]
    fn a_transaction_that_was_aborted_or_not_ended_has_no_effect() {
        let (begin, end, abort) = (frame(23, 0, &[0]), frame(24, 0, &[0]), frame(25, 0, &[0]));
        let names = |records: &[Vec<u8>]| {
            let image = read(records).expect("readable");
            image.topics.values().map(|topic| topic.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[begin.clone(), topic("a", 1), end]), ["a"]);
        assert_eq!(names(&[topic("a", 1), begin.clone(), topic("b", 2), abort]), ["a"]);
        assert_eq!(names(&[topic("a", 1), begin, topic("b", 2)]), ["a"]);
    }

    #[test]
    fn a_newer_version_of_a_record_is_refused_with_its_number() {
        let error = read(&[frame(3, 3, &[0; 40])]).expect_err("unknown");
        assert!(error.contains("kind 3 and version 3") && error.contains("up to 2"), "{error}");
        let error = read(&[vec![2, 2, 0]]).expect_err("unknown");
        assert!(error.contains("frame of version 2"), "{error}");
        assert!(read(&[frame(2, 0, &[40])]).is_err(), "cut off");
    }
}
