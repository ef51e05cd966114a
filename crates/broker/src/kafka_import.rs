//! `ottla log import`: topics, records, committed offsets, share groups and transactions of a stopped Apache Kafka.
//!
//! The directories of Apache Kafka are only read. A crash at any point leaves either all topics or none.

mod configs;
mod copy;
mod error;
mod metadata_log;
mod segments;
mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::fs::{FsStorage, lock};

use self::configs::{Defaults, is_tiered};
use self::copy::copy_partition;
pub use self::error::ImportError;
use self::error::io_failed;
use self::metadata_log::{Image, TopicImage};
use self::segments::{Segment, segments_of};
use self::source::{Source, SourcePartition};
use crate::clock::Clock;
use crate::cluster::{Cluster, IdFloors, Refusal, Seams};
use crate::config::BrokerConfig;
use crate::lifecycle::import::ImportedTopic;
use crate::partition::Syncer;
use crate::topics::partition_dir;

/// Problems that an error lists.
const REASONS_MAX: usize = 20;

/// The options of [`import_kafka`].
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Only these topics; all of them without any.
    pub topics: Vec<String>,
    /// Checks the metadata and the directories, and writes nothing.
    pub dry_run: bool,
}

/// The result of [`import_kafka`].
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// The topics, in the order of their names.
    pub topics: Vec<ImportedTopicReport>,
    /// Remarks on data and settings that are left out.
    pub notes: Vec<String>,
}

/// A topic of an [`ImportReport`].
#[derive(Clone, Debug, Default)]
pub struct ImportedTopicReport {
    /// Its name.
    pub name: String,
    /// The number of its partitions.
    pub partitions: i32,
    /// The bytes of its segments.
    pub bytes: u64,
}

/// A topic with the directories of its partitions.
struct Planned {
    topic: ImportedTopic,
    partitions: Vec<SourcePartition>,
    bytes: u64,
}

/// Imports the topics of a stopped Apache Kafka into a data directory that no broker uses, which is created if it is missing.
///
/// `sources` are the log directories of one node in KRaft mode. `on_progress` receives the number of bytes copied and of all bytes.
pub fn import_kafka(
    sources: &[PathBuf],
    data: &Path,
    options: &ImportOptions,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<ImportReport, ImportError> {
    let source = Source::open(sources)?;
    let image = metadata_log::load(&source.metadata)?;
    let mut notes = source.notes.clone();
    let planned = plan(&source, &image, &options.topics, &mut notes)?;
    let report = ImportReport { topics: planned.iter().map(Planned::report).collect(), notes };
    if options.dry_run {
        refuse_existing(data, &planned)?;
        return Ok(report);
    }
    let _lock = lock(data)?;
    let storage = FsStorage::new(data).map_err(|source| io_failed(data, source))?;
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let seams = Seams {
        storage: storage.clone(),
        clock: Clock::System,
        syncer: Syncer::Thread,
        seed: image.next_producer_id as u64,
    };
    let cluster = Cluster::open(BrokerConfig::default(), 1, seams)
        .map_err(|source| ImportError::Open { dir: data.to_path_buf(), source })?;
    let floors = IdFloors { producer_id: image.next_producer_id, leader_epoch: image.next_leader_epoch() };
    let copied = copy_all(&cluster, &planned, floors, on_progress);
    if copied.is_err() {
        cluster.finish_pending();
    }
    cluster.close();
    copied.map(|()| report)
}

impl Planned {
    fn report(&self) -> ImportedTopicReport {
        let ImportedTopic { name, partitions, .. } = &self.topic;
        ImportedTopicReport { name: name.clone(), partitions: *partitions, bytes: self.bytes }
    }
}

/// The topics to import, with the directories of all their partitions.
fn plan(
    source: &Source,
    image: &Image,
    wanted: &[String],
    notes: &mut Vec<String>,
) -> Result<Vec<Planned>, ImportError> {
    let (mut planned, mut reasons) = (Vec::new(), Vec::new());
    for name in wanted {
        if !image.topics.values().any(|topic| topic.name == *name) {
            reasons.push(format!("Apache Kafka has no topic `{name}`"));
        }
    }
    let defaults = Defaults::of(image, source.node_id, notes);
    for (id, topic) in &image.topics {
        if !(wanted.is_empty() || wanted.contains(&topic.name)) {
            continue;
        }
        let (mut partitions, mut bytes) = (Vec::new(), 0);
        for index in 0..topic.partitions.len() as i32 {
            match partition_of(source, topic, *id, index) {
                Ok(partition) => {
                    let segments = segments_of(&partition.path)?;
                    bytes += segments.iter().map(|segment| segment.bytes).sum::<u64>();
                    if is_tiered(image, &topic.name) {
                        reasons.extend(missing_records(&topic.name, index, partition, &segments));
                    }
                    partitions.push(partition.clone());
                }
                Err(reason) => reasons.push(reason),
            }
        }
        let topic = ImportedTopic {
            name: topic.name.clone(),
            id: *id,
            partitions: topic.partitions.len() as i32,
            config: defaults.config_of(image, &topic.name, notes, &mut reasons),
        };
        planned.push(Planned { topic, partitions, bytes });
    }
    if planned.is_empty() && reasons.is_empty() {
        reasons.push("Apache Kafka has no topic".to_owned());
    }
    if !reasons.is_empty() {
        return Err(refused(reasons));
    }
    planned.sort_unstable_by(|left, right| left.topic.name.cmp(&right.topic.name));
    Ok(planned)
}

/// The directory of a partition, if this node has the partition with all its records.
fn partition_of<'s>(
    source: &'s Source,
    topic: &TopicImage,
    id: ottla_protocol::Uuid,
    index: i32,
) -> Result<&'s SourcePartition, String> {
    let (name, node) = (&topic.name, source.node_id);
    let Some(image) = topic.partitions.get(&index) else {
        return Err(format!("the metadata log has no partition {index} of topic `{name}`"));
    };
    if !image.replicas.contains(&node) {
        return Err(format!(
            "partition {index} of topic `{name}` is on the nodes {:?} and not on node {node}",
            image.replicas
        ));
    }
    // No other node has more of a partition with one replica.
    let is_alone = image.replicas == [node];
    if !is_alone && !image.isr.contains(&node) && !image.eligible.contains(&node) {
        return Err(format!(
            "partition {index} of topic `{name}`: node {node} is not in sync, its last records may be missing; the nodes {:?} \
             have them",
            image.isr
        ));
    }
    let Some(found) = source.partitions.get(&(name.clone(), index)) else {
        return Err(format!(
            "partition {index} of topic `{name}` has no directory here: name all directories of log.dirs"
        ));
    };
    match found.topic_id {
        Some(found_id) if found_id != id => Err(format!(
            "{}: partition.metadata names the topic id {found_id}, the metadata log {id}",
            found.path.display()
        )),
        _ => Ok(found),
    }
}

/// Returns the reason against a partition of a tiered topic whose first records are in remote storage only.
fn missing_records(
    topic: &str,
    index: i32,
    partition: &SourcePartition,
    segments: &[Segment],
) -> Option<String> {
    let (start, local) = (partition.start_offset, segments.first()?.base_offset);
    (local > start).then(|| {
        format!(
            "partition {index} of topic `{topic}`: the records from offset {start} to {local} are in remote storage only, \
             which this program does not read: copy the topic with a mirroring tool, or import the others with --topic"
        )
    })
}

/// Refuses topics of which the data directory has a partition, without opening the directory.
fn refuse_existing(data: &Path, planned: &[Planned]) -> Result<(), ImportError> {
    let exists = |planned: &&Planned| {
        let topic = &planned.topic;
        (0..topic.partitions).any(|index| data.join(partition_dir(&topic.name, index)).exists())
    };
    let reasons: Vec<String> = planned
        .iter()
        .filter(exists)
        .map(|planned| format!("topic `{}` already exists in {}", planned.topic.name, data.display()))
        .collect();
    if reasons.is_empty() { Ok(()) } else { Err(refused(reasons)) }
}

fn copy_all(
    cluster: &Cluster,
    planned: &[Planned],
    floors: IdFloors,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<(), ImportError> {
    let failed = |(_, reason): Refusal| ImportError::Topics { reasons: vec![reason] };
    let topics: Vec<ImportedTopic> = planned.iter().map(|planned| planned.topic.clone()).collect();
    let reasons: Vec<String> = cluster.check_import(&topics).into_iter().map(|(_, reason)| reason).collect();
    if !reasons.is_empty() {
        return Err(refused(reasons));
    }
    cluster.begin_import(&topics).map_err(failed)?;
    let all = planned.iter().map(|planned| planned.bytes).sum();
    let mut copied = 0;
    on_progress(copied, all);
    for Planned { topic, partitions, .. } in planned {
        for (index, partition) in partitions.iter().enumerate() {
            let dir = partition_dir(&topic.name, index as i32);
            let config = cluster.log_config(&topic.name, &topic.config);
            let now_ms = cluster.clock.now_ms();
            copy_partition(partition, &cluster.storage, &dir, topic.id, config, now_ms, &mut |bytes| {
                copied += bytes;
                on_progress(copied, all);
            })?;
        }
    }
    cluster.end_import(&topics, floors).map_err(failed)
}

fn refused(mut reasons: Vec<String>) -> ImportError {
    let more = reasons.len().saturating_sub(REASONS_MAX);
    reasons.truncate(REASONS_MAX);
    if more > 0 {
        reasons.push(format!("{more} more"));
    }
    ImportError::Topics { reasons }
}
