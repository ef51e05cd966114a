//! `ottla log repair`: what is damaged in the data directory of a stopped broker, and saving what can be saved.

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
use ottla_wire::Records;

use crate::cluster::OpenError;
use crate::coordinator::offsets::Offsets;
use crate::data_dir::{
    self, FORMAT_FILE, Format, FormatError, META_DIR, METADATA_FILE, Metadata, OFFSETS_DIR,
};
use crate::lifecycle::{TOPIC_KEY, topic_record};
use crate::topics::partition_dir;

/// Far above any journal that is kept in memory.
const JOURNAL_FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// What [`repair`] found, and did.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Damaged places, each with what can be saved.
    pub damage: Vec<Damage>,
    /// Other things to know.
    pub notes: Vec<String>,
    /// How many journals and partitions were checked.
    pub checked: usize,
    /// The damage was repaired, and what could not be saved is lost.
    pub repaired: bool,
}

/// One damaged journal, partition or file.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Its directory or file.
    pub place: String,
    /// What is wrong.
    pub what: Vec<String>,
    /// What can be, or was, saved.
    pub saved: String,
}

/// Why a data directory cannot be examined or repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// A broker uses it, or it is not safe to use.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// It has no data of a broker.
    #[error("{}: neither a broker's data directory nor a partition of one", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// It has another format.
    #[error("data directory {}: {source}", dir.display())]
    Format {
        /// The directory.
        dir: PathBuf,
        /// Which.
        source: FormatError,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
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
/// Changes nothing unless `accept_loss` is set. Then it saves what is sound, and the broker starts again.
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
        let mut repair = Repair { storage, accept_loss, now_ms, report: RepairReport::default() };
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
    let mut repair = Repair { storage, accept_loss, now_ms, report: RepairReport::default() };
    if [META_DIR, OFFSETS_DIR].contains(&name) {
        repair.journal(name, true)?;
    } else {
        repair.log(name, 0, Vec::new())?;
    }
    repair.report.repaired = accept_loss && !repair.report.damage.is_empty();
    Ok(repair.report)
}

struct Repair {
    storage: Arc<dyn Storage>,
    accept_loss: bool,
    now_ms: i64,
    report: RepairReport,
}

impl Repair {
    fn everything(&mut self, format: Option<Format>) -> Result<(), RepairError> {
        let must_exist = format != Some(Format::Unmarked);
        let meta = self.journal(META_DIR, must_exist)?;
        let offsets = Offsets::new(self.journal(OFFSETS_DIR, must_exist)?);
        let mut known = Vec::new();
        for (key, value) in meta.iter_prefix(TOPIC_KEY.as_bytes()) {
            let (name, id, record) = topic_record(key, value)?;
            for index in 0..record.partitions {
                let dir = partition_dir(&name, index);
                let wrong = match data_dir::read_metadata(&*self.storage, &dir)? {
                    Metadata::NoDirectory => vec![],
                    Metadata::Id(found) if found == id => vec![],
                    Metadata::Missing if format == Some(Format::Unmarked) => vec![],
                    Metadata::Missing => vec![format!("{METADATA_FILE} is missing")],
                    Metadata::OtherPartition { id: found, index } if found == id => {
                        let was = partition_dir(&name, index);
                        vec![format!(
                            "{METADATA_FILE} says that the directory was {was}; rename it back, or lose what {dir} had"
                        )]
                    }
                    Metadata::Id(found) | Metadata::OtherPartition { id: found, .. } => {
                        vec![format!("{METADATA_FILE} names the topic id {found}, the journal {id}")]
                    }
                    Metadata::Damaged(text) => vec![format!("{METADATA_FILE} is damaged: {text:?}")],
                };
                let restore = !wrong.is_empty() || !data_dir::exists(&*self.storage, &dir)?;
                let start = offsets.highest(&name, index);
                self.log(&dir, start, wrong)?;
                if restore && self.accept_loss {
                    data_dir::write_metadata(&*self.storage, &dir, id)?;
                }
                known.push(dir);
            }
        }
        let strays = data_dir::partition_dirs(&*self.storage)
            .map_err(|source| RepairError::Io { dir: PathBuf::new(), source })?;
        for dir in strays.into_iter().filter(|dir| !known.contains(dir)) {
            self.report.notes.push(format!("{dir}: no topic has this directory; it is left alone"));
        }
        if format.is_none() {
            self.found(FORMAT_FILE, vec!["it is damaged".into()], "it is written again".into());
            if self.accept_loss {
                data_dir::write_format(&*self.storage).map_err(OpenError::from)?;
            }
        }
        self.report.repaired = self.accept_loss && !self.report.damage.is_empty();
        Ok(())
    }

    /// Checks a journal, and gives back its sound entries.
    fn journal(&mut self, dir: &str, must_exist: bool) -> Result<Journal, RepairError> {
        self.report.checked += 1;
        let check = check_journal(&self.storage, dir)?;
        let missing = check.losses == [Loss::Directory];
        let is_damaged = !check.losses.is_empty() && (must_exist || !missing);
        let what: Vec<String> = check.losses.iter().map(|loss| self.described(dir, loss)).collect();
        // What can be saved is shown on a copy.
        let copy: Arc<dyn Storage> = Arc::new(copy_of(&*self.storage, dir)?);
        let open = if is_damaged { Journal::salvage } else { Journal::open };
        let (preview, _) = open(copy, dir, JournalConfig::default(), self.now_ms)?;
        if is_damaged {
            self.found(dir, what, format!("{} entries", preview.len()));
            if self.accept_loss {
                let storage = self.storage.clone();
                let (journal, _) = Journal::salvage(storage, dir, JournalConfig::default(), self.now_ms)?;
                journal.close()?;
            }
        }
        Ok(preview)
    }

    /// Checks a partition; `wrong` is what is known of it already.
    fn log(&mut self, dir: &str, start_offset: i64, mut wrong: Vec<String>) -> Result<(), RepairError> {
        self.report.checked += 1;
        let check = check_log(&self.storage, dir)?;
        wrong.extend(check.losses.iter().map(ToString::to_string));
        for bad in &check.quarantined {
            self.report.notes.push(format!(
                "{dir}: offsets {} to {} are damaged and set aside since an earlier start",
                bad.offset,
                bad.next_offset - 1
            ));
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let saved = saved(&check, start_offset);
        self.found(dir, wrong, saved);
        if self.accept_loss && !check.losses.is_empty() {
            let config = LogConfig::default();
            let (log, _) = Log::salvage(self.storage.clone(), dir, config, self.now_ms, start_offset)?;
            log.close()?;
        }
        Ok(())
    }

    fn found(&mut self, place: &str, what: Vec<String>, saved: String) {
        self.report.damage.push(Damage { place: place.to_owned(), what, saved });
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

fn saved(check: &LogCheck, start_offset: i64) -> String {
    if check.losses == [Loss::Directory] {
        return format!("nothing; the partition starts empty at offset {start_offset}");
    }
    let next = check.synced_offset.unwrap_or(0).max(check.end_offset);
    if check.start_offset == check.end_offset {
        return format!("no records; the next one gets offset {next}");
    }
    format!(
        "offsets {} to {} but for the damage; the next record gets offset {next}",
        check.start_offset,
        check.end_offset - 1
    )
}

/// A journal's files in memory.
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
