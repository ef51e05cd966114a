//! The data directories of a stopped Apache Kafka, which are only read.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use ottla_protocol::Uuid;
use rustix::fs::{FlockOperation, fcntl_lock};

use super::error::{ImportError, io_failed};
use super::metadata_log::METADATA_DIR;
use crate::topics::check_name;

const PROPERTIES_FILE: &str = "meta.properties";
const LOCK_FILE: &str = ".lock";
/// Apache Kafka writes it at the end of a clean stop, and removes it at the start.
const CLEAN_FILE: &str = ".kafka_cleanshutdown";
const START_OFFSETS_FILE: &str = "log-start-offset-checkpoint";
const PARTITION_FILE: &str = "partition.metadata";
/// The version of `meta.properties` in KRaft mode.
const KRAFT_VERSION: &str = "1";
/// The suffixes of directories that are no partition's: to be deleted, unknown to the controller, being moved to another disk.
const OTHER_SUFFIXES: [(&str, &str); 3] = [
    ("-delete", "its deletion was not finished"),
    ("-stray", "Apache Kafka knows no partition for it"),
    ("-future", "it is an unfinished copy for another log directory"),
];

/// A partition's directory.
#[derive(Clone, Debug)]
pub(super) struct SourcePartition {
    pub(super) path: PathBuf,
    pub(super) topic_id: Option<Uuid>,
    /// Records below it were deleted.
    pub(super) start_offset: i64,
}

/// The log directories of one node.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) node_id: i32,
    /// The directory of the metadata log.
    pub(super) metadata: PathBuf,
    pub(super) partitions: BTreeMap<(String, i32), SourcePartition>,
    /// Directories that are left out.
    pub(super) notes: Vec<String>,
    /// Apache Kafka does not start while these are held.
    _locks: Vec<File>,
}

impl Source {
    /// Opens the log directories of one node.
    pub(super) fn open(dirs: &[PathBuf]) -> Result<Self, ImportError> {
        let mut owner: Option<(i32, String)> = None;
        let mut metadata = None;
        let (mut partitions, mut notes, mut locks) = (BTreeMap::new(), Vec::new(), Vec::new());
        for dir in dirs {
            let refuse = |reason: String| Err(ImportError::Source { dir: dir.clone(), reason });
            let found = read_properties(dir)?;
            if owner.as_ref().is_some_and(|owner| *owner != found) {
                let reason =
                    "it belongs to another node than the directories before it; import one node at a time";
                return refuse(reason.to_owned());
            }
            owner = Some(found);
            locks.extend(lock_source(dir)?);
            if dir.join(METADATA_DIR).is_dir() {
                metadata = Some(dir.join(METADATA_DIR));
            }
            let before = partitions.len();
            add_partitions(dir, &mut partitions, &mut notes)?;
            if partitions.len() > before && !dir.join(CLEAN_FILE).exists() {
                return refuse(
                    "Apache Kafka was not stopped cleanly: its last records may be incomplete; start it, stop it with SIGTERM, \
                     and import then"
                        .to_owned(),
                );
            }
        }
        let first = dirs.first().cloned().unwrap_or_default();
        let missing = |reason: &str| ImportError::Source { dir: first.clone(), reason: reason.to_owned() };
        let (node_id, _) = owner.ok_or_else(|| missing("no directory was named"))?;
        let metadata = metadata.ok_or_else(|| {
            missing(
                "there is no __cluster_metadata-0: name all directories of log.dirs, and that of metadata.log.dir if it is \
                 another one",
            )
        })?;
        Ok(Self { node_id, metadata, partitions, notes, _locks: locks })
    }
}

/// The node's id and the cluster's id.
fn read_properties(dir: &Path) -> Result<(i32, String), ImportError> {
    let refuse = |reason: &str| ImportError::Source { dir: dir.to_path_buf(), reason: reason.to_owned() };
    let path = dir.join(PROPERTIES_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(refuse(
                "it has no meta.properties: this is no data directory of Apache Kafka; name a directory of its log.dirs",
            ));
        }
        Err(error) => return Err(io_failed(&path, error)),
    };
    let value = |key: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == key)
    };
    let value = |key: &str| value(key).map(|(_, value)| value.trim());
    match value("version") {
        Some(KRAFT_VERSION) => {}
        Some("0") => {
            return Err(refuse(
                "its Apache Kafka runs with ZooKeeper, which has the topics and their settings; migrate it to KRaft first",
            ));
        }
        Some(other) => {
            return Err(refuse(&format!(
                "meta.properties has version {other}; this program knows version 1"
            )));
        }
        None => return Err(refuse("meta.properties has no version")),
    }
    let node_id = value("node.id").and_then(|id| id.parse().ok());
    let node_id = node_id.ok_or_else(|| refuse("meta.properties has no node.id"))?;
    Ok((node_id, value("cluster.id").unwrap_or_default().to_owned()))
}

/// Takes a shared lock on the file that a running Apache Kafka has locked. It locks as Java does, with `fcntl`.
fn lock_source(dir: &Path) -> Result<Option<File>, ImportError> {
    let path = dir.join(LOCK_FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_failed(&path, error)),
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
            let reason = "Apache Kafka is running on it; stop it first".to_owned();
            Err(ImportError::Source { dir: dir.to_path_buf(), reason })
        }
        Err(errno) => Err(io_failed(&path, errno.into())),
    }
}

fn add_partitions(
    dir: &Path,
    partitions: &mut BTreeMap<(String, i32), SourcePartition>,
    notes: &mut Vec<String>,
) -> Result<(), ImportError> {
    let start_offsets = start_offsets(&dir.join(START_OFFSETS_FILE))?;
    for entry in std::fs::read_dir(dir).map_err(|source| io_failed(dir, source))? {
        let entry = entry.map_err(|source| io_failed(dir, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == METADATA_DIR || !entry.path().is_dir() {
            continue;
        }
        if let Some((_, why)) = OTHER_SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix)) {
            notes.push(format!("{} is left out: {why}", entry.path().display()));
            continue;
        }
        let parts = name.rsplit_once('-').and_then(|(topic, index)| Some((topic, index.parse().ok()?)));
        let Some((topic, index)) = parts.filter(|(topic, index)| check_name(topic).is_ok() && *index >= 0)
        else {
            notes.push(format!("{} is left out: it is no partition's directory", entry.path().display()));
            continue;
        };
        let start_offset = start_offsets.get(&(topic.to_owned(), index)).copied().unwrap_or(0);
        let topic_id = topic_id_of(&entry.path().join(PARTITION_FILE))?;
        let partition = SourcePartition { path: entry.path(), topic_id, start_offset };
        if let Some(other) = partitions.insert((topic.to_owned(), index), partition) {
            let reason = format!("the partition is in {} as well", other.path.display());
            return Err(ImportError::Source { dir: entry.path(), reason });
        }
    }
    Ok(())
}

/// The topic's id in `partition.metadata`; `None` without the file.
fn topic_id_of(path: &Path) -> Result<Option<Uuid>, ImportError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_failed(path, error)),
    };
    let id = text.lines().find_map(|line| line.strip_prefix("topic_id:")?.trim().parse().ok());
    id.map(Some).ok_or_else(|| ImportError::Source {
        dir: path.to_path_buf(),
        reason: format!("it has no topic id: {text:?}"),
    })
}

/// Lines `topic partition offset` after a line with the version and one with their number.
fn start_offsets(path: &Path) -> Result<BTreeMap<(String, i32), i64>, ImportError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(io_failed(path, error)),
    };
    let line = |line: &str| {
        let mut words = line.split(' ');
        let topic = words.next()?.to_owned();
        Some(((topic, words.next()?.parse().ok()?), words.next()?.parse().ok()?))
    };
    let damaged = || ImportError::Source { dir: path.to_path_buf(), reason: "it is damaged".to_owned() };
    text.lines().skip(2).map(|text| line(text).ok_or_else(damaged)).collect()
}
