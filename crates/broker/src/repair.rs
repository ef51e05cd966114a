//! `ottla log repair`: finds damage in the data directory of a stopped broker and saves the sound data.

mod restore;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ottla_log::storage::fs::{FsStorage, LockError, lock};
use ottla_log::storage::mem::MemStorage;
use ottla_log::storage::{Storage, read_file};
use ottla_log::{
    Journal, JournalConfig, JournalError, Log, LogCheck, LogConfig, LogError, Loss, check_journal, check_log,
};
use ottla_protocol::Uuid;
use ottla_wire::Records;

use crate::cluster::OpenError;
use crate::coordinator::loading::Loaded;
use crate::coordinator::offsets::Offsets;
use crate::data_dir::{self, FORMAT_FILE, Format, FormatError, META_DIR, METADATA_FILE, Metadata};
use crate::internal_topics::{InternalTopic, is_internal, replay};
use crate::lifecycle::topic_record;
use crate::offset_floors::floor_of;
use crate::skip::skip_all;
use crate::topics::{TOPIC_KEY, TopicRecord, partition_dir};

/// Far above any journal that is kept in memory.
const JOURNAL_FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// The result of [`repair`].
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// The damaged places, each with the data that can be saved.
    pub damage: Vec<Damage>,
    /// Additional remarks.
    pub notes: Vec<String>,
    /// The number of journals and partitions that were checked.
    pub checked: usize,
    /// `true` if the damage was repaired. The data that could not be saved is lost.
    pub repaired: bool,
}

/// One damaged journal, partition or file.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Its directory or file.
    pub place: String,
    /// The problem.
    pub what: Vec<String>,
    /// The records or entries that can be, or were, saved.
    pub saved: String,
    /// The step that the operator has to take first: a repair leaves this place alone until then.
    pub next_step: Option<String>,
}

impl RepairReport {
    /// Returns `true` if a repair cannot repair some of the damage: see [`Damage::next_step`].
    pub fn needs_operator(&self) -> bool {
        self.damage.iter().any(|damage| damage.next_step.is_some())
    }
}

/// The reasons why a data directory cannot be examined or repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// A broker uses the directory, or it is not safe to use.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The directory has no data of a broker.
    #[error("{}: neither a broker's data directory nor a partition of one", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory has another format.
    #[error("data directory {}: {source}", dir.display())]
    Format {
        /// The directory.
        dir: PathBuf,
        /// The problem with the format.
        source: FormatError,
    },
    /// A damaged journal is repaired with the whole data directory only.
    #[error(
        "{}: the journal is repaired with its data directory only, which has the topics and offsets that the journal has lost: run \
         `ottla log repair --accept-loss {}`",
        dir.display(),
        data_dir.display()
    )]
    JournalAlone {
        /// The journal's directory.
        dir: PathBuf,
        /// The data directory.
        data_dir: PathBuf,
    },
    /// The log was not closed cleanly.
    #[error(
        "{}: the broker was not stopped cleanly: start and stop it, so that it recovers the partition, or run `ottla log repair`",
        dir.display()
    )]
    NotClosed {
        /// The directory.
        dir: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A journal's entry cannot be understood.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Checks every batch of a stopped broker's data directory, or of one partition or journal in it.
///
/// Changes nothing unless `accept_loss` is set. With `accept_loss` it saves the sound data, and the broker can start. A damaged
/// journal is then refused alone: [`RepairError::JournalAlone`].
pub fn repair(dir: &Path, accept_loss: bool, now_ms: i64) -> Result<RepairReport, RepairError> {
    let io = |source| RepairError::Io { dir: dir.to_path_buf(), source };
    let not_ours = || RepairError::NotOurs { dir: dir.to_path_buf() };
    let has = |name: &str| dir.join(name).exists();
    if has(FORMAT_FILE) || has(META_DIR) || has("meta.properties") {
        let _lock = lock(dir)?;
        let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(dir).map_err(io)?);
        let format = match data_dir::check_format(&*storage) {
            Err(FormatError::Damaged { .. }) => None,
            other => Some(other.map_err(|source| RepairError::Format { dir: dir.to_path_buf(), source })?),
        };
        let mut repair = Repair::new(storage, accept_loss, now_ms);
        repair.everything(format)?;
        return Ok(repair.report);
    }
    let dir = dir.canonicalize().map_err(io)?;
    let (Some(root), Some(name)) = (dir.parent(), dir.file_name().and_then(|name| name.to_str())) else {
        return Err(not_ours());
    };
    let mut names = std::fs::read_dir(&dir).map_err(io)?.flatten().map(|entry| entry.file_name());
    if !names.any(|name| is_log(Path::new(&name)) || name == METADATA_FILE) {
        return Err(not_ours());
    }
    let _lock = lock(root)?;
    let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(root).map_err(io)?);
    refuse_other_formats(&*storage, root)?;
    let mut repair = Repair::new(storage, accept_loss, now_ms);
    if name == META_DIR {
        let (_, is_damaged) = repair.check_journal(name, true)?;
        // Saved alone, it could make the next start delete directories of topics, and no later repair would restore them.
        if is_damaged && accept_loss {
            let data_dir = root.to_path_buf();
            return Err(RepairError::JournalAlone { dir, data_dir });
        }
        if is_damaged {
            let path = root.display();
            let note = format!("{name}: to repair it, run `ottla log repair` with the data directory {path}");
            repair.report.notes.push(note);
        }
    } else {
        repair.one_partition(name)?;
    }
    repair.report.repaired = accept_loss && !repair.report.damage.is_empty();
    Ok(repair.report)
}

/// Refuses a directory of Apache Kafka or of another version: it has rules of its own about the bytes that may be cut off.
///
/// A directory without a mark has logs without a broker. The repair of the whole directory writes a damaged mark again.
pub(crate) fn refuse_other_formats(storage: &dyn Storage, root: &Path) -> Result<(), RepairError> {
    match data_dir::check_format(storage) {
        Ok(_) | Err(FormatError::Damaged { .. }) => Ok(()),
        Err(source) => Err(RepairError::Format { dir: root.to_path_buf(), source }),
    }
}

struct Repair {
    storage: Arc<dyn Storage>,
    accept_loss: bool,
    now_ms: i64,
    /// The journal is damaged: the newest floor of a partition may be lost, and an older one be left.
    floors_may_be_old: bool,
    /// The committed offsets, once they were needed.
    offsets: Option<Offsets>,
    report: RepairReport,
}

/// The owner of a partition directory, by its `partition.metadata`.
enum Ownership {
    /// The file names this partition.
    Confirmed,
    /// The file is missing, damaged or names an owner that the journal does not know: the repair writes it again.
    Unknown(String),
    /// The directory belongs to a partition that the journal knows, or is none: the repair leaves it alone.
    Foreign { what: String, next_step: String },
}

/// A key of the journal with its value; `None` removes it.
type Entry = (Bytes, Option<Bytes>);

/// The topics of the journal, by name.
type Topics = BTreeMap<String, (Uuid, TopicRecord)>;

impl Repair {
    fn new(storage: Arc<dyn Storage>, accept_loss: bool, now_ms: i64) -> Self {
        let report = RepairReport::default();
        Self { storage, accept_loss, now_ms, floors_may_be_old: false, offsets: None, report }
    }

    fn everything(&mut self, format: Option<Format>) -> Result<(), RepairError> {
        let must_exist = format != Some(Format::Unmarked);
        let (mut meta, is_damaged) = self.check_journal(META_DIR, must_exist)?;
        let mut restored = Vec::new();
        if is_damaged {
            // The journal may have lost offset floors and topics. All is read before anything is changed.
            self.floors_may_be_old = true;
            self.offsets = Some(self.committed_offsets()?);
            restored = self.restorable_topics(&mut meta)?;
        }
        let topics = topics_of(&meta)?;
        for (name, (id, record)) in &topics {
            for index in 0..record.partitions {
                self.partition(&meta, &topics, (name, *id, index), format)?;
            }
        }
        let known = |dir: &str| topics.iter().any(|(name, (_, record))| is_partition_of(dir, name, record));
        let strays = data_dir::partition_dirs(&*self.storage).map_err(|source| self.failed(source))?;
        for dir in strays.into_iter().filter(|dir| !known(dir)) {
            self.report.notes.push(format!("{dir}: no topic has this directory; it is left alone"));
        }
        if format.is_none() {
            self.found(FORMAT_FILE, vec!["it is damaged".into()], "it is written again".into());
            if self.accept_loss {
                data_dir::write_format(&*self.storage).map_err(OpenError::from)?;
            }
        }
        // Last: once the journal is sound, a later repair does not know that topics and floors are missing.
        if is_damaged && self.accept_loss {
            self.salvage_journal(META_DIR, &restored)?;
        }
        self.report.repaired = self.accept_loss && !self.report.damage.is_empty();
        Ok(())
    }

    /// Checks the partition whose directory is `dir`. A directory without a topic is a log without a broker.
    fn one_partition(&mut self, dir: &str) -> Result<(), RepairError> {
        let exists = |journal: &str| data_dir::exists(&*self.storage, journal);
        if exists(META_DIR)? {
            let meta = self.preview(META_DIR)?;
            self.floors_may_be_old = !check_journal(&self.storage, META_DIR)?.losses.is_empty();
            let topics = topics_of(&meta)?;
            let owner = topics.iter().find(|(name, (_, record))| is_partition_of(dir, name, record));
            if let (Some((name, (id, _))), Some(index)) = (owner, data_dir::partition_index(dir)) {
                return self.partition(&meta, &topics, (name, *id, index), Some(Format::Marked));
            }
        }
        let check = check_log(&self.storage, dir)?;
        self.log(dir, check, 0, Vec::new())
    }

    /// Checks one partition of a topic: its directory, its owner, its log.
    fn partition(
        &mut self,
        meta: &Journal,
        topics: &Topics,
        (name, id, index): (&str, Uuid, i32),
        format: Option<Format>,
    ) -> Result<(), RepairError> {
        let dir = partition_dir(name, index);
        let wrong = match self.ownership(&dir, id, topics, format)? {
            Ownership::Confirmed => Vec::new(),
            Ownership::Unknown(what) => vec![what],
            Ownership::Foreign { what, next_step } => {
                self.report.checked += 1;
                self.refused(&dir, vec![what], next_step);
                return Ok(());
            }
        };
        let restore = !wrong.is_empty() || !data_dir::exists(&*self.storage, &dir)?;
        let check = check_log(&self.storage, &dir)?;
        let next_offset_min = self.next_offset_min(meta, (name, id, index), &check)?;
        self.log(&dir, check, next_offset_min, wrong)?;
        if restore && self.accept_loss {
            data_dir::write_metadata(&*self.storage, &dir, id)?;
        }
        Ok(())
    }

    /// The offset below which every offset of a partition may have been used.
    fn next_offset_min(
        &mut self,
        meta: &Journal,
        (name, id, index): (&str, Uuid, i32),
        check: &LogCheck,
    ) -> Result<i64, RepairError> {
        let floor = floor_of(meta, id, index);
        // A client can commit any offset: committed offsets count only where nothing better is known.
        if check.synced_offset.is_some() || (floor.is_some() && !self.floors_may_be_old) {
            return Ok(floor.unwrap_or(0));
        }
        // A group reads no further than the partition was written.
        let offsets = match self.offsets.take() {
            Some(offsets) => offsets,
            None => self.committed_offsets()?,
        };
        let highest = offsets.highest(name, index);
        self.offsets = Some(offsets);
        Ok(floor.unwrap_or(0).max(highest))
    }

    /// Compares `partition.metadata` with the journal.
    fn ownership(
        &self,
        dir: &str,
        id: Uuid,
        topics: &Topics,
        format: Option<Format>,
    ) -> Result<Ownership, RepairError> {
        let owner = |id: Uuid| topics.iter().find(|(_, (known, _))| *known == id);
        let path = self.path(dir);
        let foreign = |what: String, owner: String| Ownership::Foreign {
            what,
            next_step: format!(
                "rename {path} to {owner}, or move it to another place; if its records are those of {dir}, remove \
                 {path}/{METADATA_FILE}; then run the repair again"
            ),
        };
        Ok(match data_dir::read_metadata(&*self.storage, dir)? {
            Metadata::NoDirectory => Ownership::Confirmed,
            Metadata::Id(found) | Metadata::IdOnly(found) if found == id => Ownership::Confirmed,
            Metadata::Missing if format == Some(Format::Unmarked) => Ownership::Confirmed,
            Metadata::Missing => Ownership::Unknown(format!("{METADATA_FILE} is missing")),
            Metadata::Damaged(text) => Ownership::Unknown(format!("{METADATA_FILE} is damaged: {text:?}")),
            Metadata::WrongKind(what) => Ownership::Foreign {
                what: format!("the path {what}"),
                next_step: format!("move {path} to another place and run the repair again"),
            },
            Metadata::OtherPartition { id: found, index } => match owner(found) {
                Some((name, (_, record))) if index < record.partitions => {
                    let owner = partition_dir(name, index);
                    foreign(format!("{METADATA_FILE} names the directory {owner}"), owner)
                }
                _ => Ownership::Unknown(format!(
                    "{METADATA_FILE} names partition {index} of the topic id {found}, which the journal does not know"
                )),
            },
            Metadata::Id(found) | Metadata::IdOnly(found) => match owner(found) {
                Some((name, _)) => {
                    let what = format!("{METADATA_FILE} names the topic `{name}` ({found})");
                    let number = data_dir::partition_index(dir).unwrap_or_default();
                    foreign(what, partition_dir(name, number))
                }
                None => Ownership::Unknown(format!(
                    "{METADATA_FILE} names the topic id {found}, the journal {id}"
                )),
            },
        })
    }

    /// Checks a journal. Returns its sound entries, and whether it is damaged.
    fn check_journal(&mut self, dir: &str, must_exist: bool) -> Result<(Journal, bool), RepairError> {
        self.report.checked += 1;
        let check = check_journal(&self.storage, dir)?;
        if check.losses.iter().any(|loss| matches!(loss, Loss::NotAFile { .. })) {
            // Opening it reports the file and the next step.
            Journal::open(self.storage.clone(), dir, JournalConfig::default(), self.now_ms)?;
        }
        let missing = check.losses == [Loss::Directory];
        let is_damaged = !check.losses.is_empty() && (must_exist || !missing);
        let what: Vec<String> = check.losses.iter().map(|loss| self.described(dir, loss)).collect();
        let preview = self.preview(dir)?;
        if is_damaged {
            self.found(dir, what, format!("{} entries", preview.len()));
        }
        Ok((preview, is_damaged))
    }

    /// Saves the sound entries of a damaged journal, and adds others.
    fn salvage_journal(&self, dir: &str, added: &[Entry]) -> Result<(), RepairError> {
        let (storage, config) = (self.storage.clone(), JournalConfig::default());
        let (journal, _) = Journal::salvage_with(storage, dir, config, self.now_ms, added)?;
        Ok(journal.close()?)
    }

    /// The sound entries of a journal. Works on a copy in memory and logs nothing: no file changes.
    fn preview(&self, dir: &str) -> Result<Journal, RepairError> {
        let copy: Arc<dyn Storage> = Arc::new(copy_of(&*self.storage, dir)?);
        let silent = tracing::subscriber::NoSubscriber::default();
        let (preview, _) = tracing::subscriber::with_default(silent, || {
            Journal::salvage(copy, dir, JournalConfig::default(), self.now_ms)
        })?;
        Ok(preview)
    }

    /// The committed offsets that can be read. Works on copies in memory: no file changes.
    fn committed_offsets(&self) -> Result<Offsets, RepairError> {
        let mut loaded = Loaded::default();
        let dirs = data_dir::partition_dirs(&*self.storage).map_err(|source| self.failed(source))?;
        for dir in dirs {
            let index = data_dir::partition_index(&dir).unwrap_or_default();
            if dir != partition_dir(InternalTopic::ConsumerOffsets.name(), index) {
                continue;
            }
            let copy: Arc<dyn Storage> = Arc::new(copy_of(&*self.storage, &dir)?);
            let silent = tracing::subscriber::NoSubscriber::default();
            tracing::subscriber::with_default(silent, || {
                let log = Log::salvage(copy, &dir, LogConfig::default(), self.now_ms, 0);
                // The part behind damage is not needed: this is a lower bound.
                log.map(|(mut log, _)| drop(replay(&mut log, |entry| loaded.apply(index, entry))))
            })?;
        }
        Ok(loaded.offsets)
    }

    /// Reports and repairs the log of a partition; `wrong` is the damage that is known already.
    fn log(
        &mut self,
        dir: &str,
        mut check: LogCheck,
        next_offset_min: i64,
        mut wrong: Vec<String>,
    ) -> Result<(), RepairError> {
        self.report.checked += 1;
        check.require_end(next_offset_min);
        wrong.extend(check.losses.iter().map(ToString::to_string));
        let not_a_file = check.losses.iter().find_map(|loss| match loss {
            Loss::NotAFile { file } => Some(file),
            _ => None,
        });
        if let Some(file) = not_a_file {
            let path = self.path(dir);
            let next_step = format!("move {path}/{file} to another place and run the repair again");
            self.refused(dir, wrong, next_step);
            return Ok(());
        }
        // A coordinator needs every record: its damage is passed by the repair, not later by `ottla log skip`.
        let is_internal = dir.rsplit_once('-').is_some_and(|(topic, _)| is_internal(topic));
        for bad in check.quarantined.iter().filter(|bad| !bad.skipped) {
            if is_internal {
                wrong.push(format!("{bad} are damaged since an earlier start"));
            } else {
                self.report.notes.push(format!("{dir}: {bad} are damaged since an earlier start"));
            }
        }
        match &check.unsynced_damage {
            None => {}
            // No start decides about it: the repair sets it aside.
            Some(bad) if !check.losses.is_empty() => wrong.push(format!("{bad} are damaged")),
            Some(bad) => self.report.notes.push(format!(
                "{dir}: {bad} are damaged and were not synced: a start with --durability disk cuts the log off there, and one with os \
                 keeps the records behind the damage"
            )),
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let saved = saved(&check, next_offset_min);
        self.found(dir, wrong, saved);
        if self.accept_loss && !check.losses.is_empty() {
            let config = LogConfig::default();
            let (log, _) = Log::salvage(self.storage.clone(), dir, config, self.now_ms, next_offset_min)?;
            log.close()?;
        }
        if self.accept_loss && is_internal && data_dir::exists(&*self.storage, dir)? {
            let config = LogConfig::default();
            let (mut log, _) = Log::open_existing(self.storage.clone(), dir, config, self.now_ms, 0)?;
            skip_all(&mut log)?;
            log.close()?;
        }
        Ok(())
    }

    /// The path of a directory, as the operator knows it.
    fn path(&self, dir: &str) -> String {
        let root = self.storage.root().map_or_else(PathBuf::new, Path::to_path_buf);
        root.join(dir).display().to_string()
    }

    fn failed(&self, source: io::Error) -> RepairError {
        RepairError::Io { dir: self.path("").into(), source }
    }

    fn refused(&mut self, place: &str, what: Vec<String>, next_step: String) {
        let next_step = Some(next_step);
        let saved = "nothing: it is left alone".to_owned();
        self.report.damage.push(Damage { place: place.to_owned(), what, saved, next_step });
    }

    fn found(&mut self, place: &str, what: Vec<String>, saved: String) {
        self.report.damage.push(Damage { place: place.to_owned(), what, saved, next_step: None });
    }

    /// The loss, with the keys that a damaged batch seems to have.
    fn described(&self, dir: &str, loss: &Loss) -> String {
        let Loss::Damaged { file, position, bytes, .. } = loss else { return loss.to_string() };
        let read = || -> Option<Vec<String>> {
            let file =
                self.storage.open(&format!("{dir}/{file}"), ottla_log::storage::Open::Existing).ok()?;
            let mut batch = vec![0; usize::try_from(*bytes).ok()?];
            file.read_exact_at(&mut batch, *position).ok()?;
            let records = Records::of_batch(&Bytes::from(batch), 0).ok()?;
            let keys = records.iter().map_while(Result::ok).filter_map(|record| record.key);
            Some(keys.map(|key| String::from_utf8_lossy(key).replace('\0', " ")).collect())
        };
        match read().filter(|keys| !keys.is_empty()) {
            Some(keys) => format!("{loss}; it seems to change {}", keys.join(", ")),
            None => format!("{loss}; which keys it changes is unknown"),
        }
    }
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

/// The topics in a journal's entries.
fn topics_of(meta: &Journal) -> Result<Topics, RepairError> {
    let entries = meta.iter_prefix(TOPIC_KEY.as_bytes());
    let topics = entries.map(|(key, value)| {
        let (name, id, record) = topic_record(key, value)?;
        Ok((name, (id, record)))
    });
    topics.collect()
}

/// Returns whether `dir` is the directory of a partition that the topic has.
fn is_partition_of(dir: &str, name: &str, record: &TopicRecord) -> bool {
    data_dir::partition_index(dir)
        .is_some_and(|index| index < record.partitions && partition_dir(name, index) == dir)
}

fn saved(check: &LogCheck, next_offset_min: i64) -> String {
    if check.losses == [Loss::Directory] {
        return format!("nothing; the partition starts empty at offset {next_offset_min}");
    }
    let next = check.synced_offset.unwrap_or(next_offset_min).max(check.end_offset);
    if check.start_offset == check.end_offset {
        return format!("no records; the next one gets offset {next}");
    }
    format!(
        "offsets {} to {} but for the damage; the next record gets offset {next}",
        check.start_offset,
        check.end_offset - 1
    )
}

/// A log's files in memory.
fn copy_of(storage: &dyn Storage, dir: &str) -> Result<MemStorage, RepairError> {
    let failed = |source| RepairError::Io { dir: PathBuf::from(dir), source };
    let copy = MemStorage::new();
    let entries = match storage.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(copy),
        Err(error) => return Err(failed(error)),
    };
    copy.create_dir(dir).map_err(failed)?;
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        let path = format!("{dir}/{}", entry.name);
        let bytes = read_file(storage, &path, JOURNAL_FILE_BYTES_MAX).map_err(failed)?;
        copy.set_contents(&path, &bytes);
    }
    Ok(copy)
}
