//! The data directory as a whole: whose format it has, which topic a partition directory belongs to, and which
//! directories may be removed.

use std::fmt::Write as _;
use std::io;

use ottla_log::LogError;
use ottla_log::storage::{Storage, read_file, replace_file};
use ottla_protocol::Uuid;

/// Our own mark: what is in the directory, and in which version of the format.
pub(crate) const FORMAT_FILE: &str = "ottla-format";
/// Apache Kafka's mark.
const KAFKA_FILE: &str = "meta.properties";
/// Directory of the journal of topics, producer ids and the cluster's own id. No topic can have this name: the double
/// underscore is ours, and names are checked before they become paths.
pub(crate) const META_DIR: &str = "__ottla-meta";
/// Directory of the journal of committed offsets, in the first version of the format.
const OLD_OFFSETS_DIR: &str = "__ottla-offsets";
/// The format written now. In the first version, committed offsets had a journal of their own.
const FORMAT_VERSION: u32 = 2;
const FORMAT_PREFIX: &str = "version: ";
/// Kafka's name for the file that says which topic a partition directory belongs to.
pub(crate) const METADATA_FILE: &str = "partition.metadata";
const PARTITION_PREFIX: &str = "partition: ";
const SMALL_FILE_BYTES_MAX: u64 = 4096;
const LOG_SUFFIX: &str = ".log";

/// The format of a data directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// Nothing yet.
    New,
    /// Our files from before there was a mark.
    Unmarked,
    /// Our files.
    Marked,
}

/// The reasons why a data directory is not ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Apache Kafka's data.
    #[error(
        "it has a file `{KAFKA_FILE}`: it is in Apache Kafka's format and not in Ottla's (`{FORMAT_FILE}`, version \
         {FORMAT_VERSION}); choose another directory, and import the topics of a stopped Apache Kafka with `ottla log import`"
    )]
    Kafka,
    /// A later program's data.
    #[error(
        "`{FORMAT_FILE}` has version {found}; this program knows version {FORMAT_VERSION}: run a newer one"
    )]
    Newer {
        /// The version found.
        found: u32,
    },
    /// An earlier program's data.
    #[error(
        "it was written by a build from before the first release, which kept committed offsets in \
         `{OLD_OFFSETS_DIR}`; this program keeps them in `__consumer_offsets` and cannot read it: choose another \
         directory, and copy topics with a mirroring tool that runs on the older build"
    )]
    Older,
    /// The mark cannot be read.
    #[error(
        "`{FORMAT_FILE}` is damaged: {found:?} instead of \"{FORMAT_PREFIX}{FORMAT_VERSION}\"; restore that line"
    )]
    Damaged {
        /// The content of the file.
        found: String,
    },
    /// The storage failed.
    #[error("`{FORMAT_FILE}`: {0}")]
    Io(#[from] io::Error),
}

/// Finds out whose data is in the storage.
pub(crate) fn check_format(storage: &dyn Storage) -> Result<Format, FormatError> {
    let entries = storage.list("")?;
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    if has(FORMAT_FILE) {
        let bytes = read_file(storage, FORMAT_FILE, SMALL_FILE_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let number = text.strip_prefix(FORMAT_PREFIX).and_then(|rest| rest.strip_suffix('\n'));
        return match number.and_then(|number| number.parse().ok()) {
            Some(FORMAT_VERSION) => Ok(Format::Marked),
            Some(found) if found > 0 && found < FORMAT_VERSION => Err(FormatError::Older),
            Some(found) if found > FORMAT_VERSION => Err(FormatError::Newer { found }),
            _ => Err(FormatError::Damaged { found: text }),
        };
    }
    if has(META_DIR) {
        if has(OLD_OFFSETS_DIR) {
            return Err(FormatError::Older);
        }
        return Ok(Format::Unmarked);
    }
    if has(KAFKA_FILE) { Err(FormatError::Kafka) } else { Ok(Format::New) }
}

/// Marks the data as ours, durably.
pub(crate) fn write_format(storage: &dyn Storage) -> Result<(), FormatError> {
    let line = format!("{FORMAT_PREFIX}{FORMAT_VERSION}\n");
    Ok(replace_file(storage, "", FORMAT_FILE, line.as_bytes())?)
}

/// The content of `partition.metadata`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Metadata {
    /// There is no such directory.
    NoDirectory,
    /// There is no such file.
    Missing,
    /// The topic's id, and this partition.
    Id(Uuid),
    /// The topic's id alone: Apache Kafka and our earlier versions wrote no more.
    IdOnly(Uuid),
    /// The topic's id, and another partition than the directory's name.
    OtherPartition {
        /// The topic's id.
        id: Uuid,
        /// The partition that the files were written for.
        index: i32,
    },
    /// Something else.
    Damaged(String),
    /// A file in place of a directory, or a directory in place of a file; the text is a predicate.
    WrongKind(&'static str),
}

pub(crate) fn read_metadata(storage: &dyn Storage, dir: &str) -> Result<Metadata, LogError> {
    let failed =
        |source| LogError::Io { dir: dir.to_owned(), doing: format!("read {METADATA_FILE}"), source };
    let bytes = match read_file(storage, &format!("{dir}/{METADATA_FILE}"), SMALL_FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            return Ok(Metadata::Damaged(error.to_string()));
        }
        Err(error) => return without_metadata(storage, dir, error.kind()).ok_or_else(|| failed(error)),
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(parse_metadata(dir, &text).unwrap_or(Metadata::Damaged(text)))
}

/// The reason why the file could not be read, if that is not a failure of the storage.
fn without_metadata(storage: &dyn Storage, dir: &str, error: io::ErrorKind) -> Option<Metadata> {
    match storage.list(dir) {
        Ok(entries) if entries.iter().any(|entry| entry.is_dir && entry.name == METADATA_FILE) => {
            Some(Metadata::WrongKind("contains a directory named partition.metadata"))
        }
        Ok(_) => (error == io::ErrorKind::NotFound).then_some(Metadata::Missing),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Metadata::NoDirectory),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Some(Metadata::WrongKind("is a file and not a directory"))
        }
        Err(_) => None,
    }
}

fn parse_metadata(dir: &str, text: &str) -> Option<Metadata> {
    let (id, rest) = text.strip_prefix("version: 0\ntopic_id: ")?.split_once('\n')?;
    let id = id.trim_end().parse().ok()?;
    // Apache Kafka's file, and that of our earlier builds, ends here.
    if rest.trim_end().is_empty() {
        return Some(Metadata::IdOnly(id));
    }
    let index: i32 = rest.strip_prefix(PARTITION_PREFIX)?.trim_end().parse().ok()?;
    let is_this = partition_index(dir) == Some(index);
    Some(if is_this { Metadata::Id(id) } else { Metadata::OtherPartition { id, index } })
}

/// The partition in the name of a directory.
pub(crate) fn partition_index(dir: &str) -> Option<i32> {
    dir.rsplit_once('-')?.1.parse().ok()
}

/// Writes `partition.metadata` as Apache Kafka does, and the partition in a third line, which Kafka does not read: two
/// partitions of one topic have the same id. Durable when this returns.
pub(crate) fn write_metadata(storage: &dyn Storage, dir: &str, id: Uuid) -> Result<(), LogError> {
    let mut text = format!("version: 0\ntopic_id: {id}\n");
    if let Some(index) = partition_index(dir) {
        let _ = writeln!(text, "{PARTITION_PREFIX}{index}");
    }
    replace_file(storage, dir, METADATA_FILE, text.as_bytes()).map_err(|source| LogError::Io {
        dir: dir.to_owned(),
        doing: format!("write {METADATA_FILE}"),
        source,
    })
}

/// Returns whether a directory of that name exists.
pub(crate) fn exists(storage: &dyn Storage, dir: &str) -> Result<bool, LogError> {
    Ok(read_metadata(storage, dir)? != Metadata::NoDirectory)
}

/// Removes the directory of a partition whose deletion, or half-made creation, is recorded for the topic `id`.
///
/// Leaves it alone, with `false`, if it belongs to another topic; one that was `only_begun` also if it has records.
pub(crate) fn remove_partition(
    storage: &dyn Storage,
    dir: &str,
    id: Uuid,
    only_begun: bool,
) -> Result<bool, LogError> {
    let failed = |source| LogError::Io { dir: dir.to_owned(), doing: "remove its files".into(), source };
    let metadata = read_metadata(storage, dir)?;
    if metadata == Metadata::NoDirectory {
        return Ok(true);
    }
    if matches!(metadata, Metadata::WrongKind(_)) {
        return Ok(false);
    }
    let entries = storage.list(dir).map_err(failed)?;
    if entries.iter().any(|entry| entry.is_dir) {
        return Ok(false);
    }
    let segments = entries.iter().filter(|entry| entry.name.ends_with(LOG_SUFFIX));
    let mut has_records = false;
    for segment in segments {
        match storage.file_len(&format!("{dir}/{}", segment.name)) {
            Ok(bytes) => has_records |= bytes > 0,
            // Retention has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let is_ours = match metadata {
        Metadata::Id(found) | Metadata::IdOnly(found) | Metadata::OtherPartition { id: found, .. } => {
            found == id && !(only_begun && has_records)
        }
        Metadata::Missing => !(only_begun && has_records),
        Metadata::NoDirectory | Metadata::Damaged(_) | Metadata::WrongKind(_) => false,
    };
    if !is_ours {
        return Ok(false);
    }
    // Retention may remove a segment at the same time.
    let remove = |name: &str| match storage.remove(&format!("{dir}/{name}")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    };
    // The file that says whose the others are goes last.
    for entry in entries.iter().filter(|entry| entry.name != METADATA_FILE) {
        remove(&entry.name)?;
    }
    storage.sync_dir(dir).map_err(failed)?;
    remove(METADATA_FILE)?;
    storage.remove_dir(dir).map_err(failed)?;
    Ok(true)
}

/// Directories that could be a partition's, in order of name.
pub(crate) fn partition_dirs(storage: &dyn Storage) -> io::Result<Vec<String>> {
    let is_partition = |name: &str| {
        let parts = name.rsplit_once('-');
        parts.is_some_and(|(topic, index)| {
            crate::topics::check_name(topic).is_ok()
                && !index.is_empty()
                && index.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let entries = storage.list("")?.into_iter();
    Ok(entries.filter(|entry| entry.is_dir && is_partition(&entry.name)).map(|entry| entry.name).collect())
}
