//! Offsets in local files, one per topic and partition (`offset.store.method=file`), in librdkafka's format. A file
//! contains the offset of the next record in decimal digits, on one line.
//!
//! A file is replaced by renaming, so a reader finds the old offset or the new one, never a part of one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::error::Error;
use crate::stats::Observer;
use crate::types::TopicPartition;

/// The files of one consumer, or of one of its topics.
#[derive(Debug)]
pub(crate) struct OffsetFiles {
    settings: OffsetFileSettings,
    observer: Arc<Observer>,
    synced_at: RefCell<BTreeMap<TopicPartition, Instant>>,
    /// The partitions whose files were written since their last sync.
    unsynced: RefCell<BTreeSet<TopicPartition>>,
    /// A sync of these files is scheduled.
    will_sync: Cell<bool>,
}

/// The place of offset files.
#[derive(Clone, Debug)]
pub(crate) struct OffsetFileSettings {
    path: PathBuf,
    group: Option<String>,
    /// The interval between two syncs of a file; `None` disables syncs.
    sync: Option<Duration>,
}

impl OffsetFileSettings {
    /// The settings, if the configuration has `offset.store.method=file`.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        config.offset_store_file.then(|| Self {
            path: config.offset_store_path.clone(),
            group: config.group_id.clone(),
            sync: config.offset_store_sync_interval,
        })
    }
}

impl OffsetFiles {
    pub(crate) fn new(settings: OffsetFileSettings, observer: Arc<Observer>) -> Self {
        Self {
            settings,
            observer,
            synced_at: RefCell::default(),
            unsynced: RefCell::default(),
            will_sync: Cell::default(),
        }
    }

    /// The files, if the configuration has `offset.store.method=file`.
    pub(crate) fn of(config: &Config, observer: &Arc<Observer>) -> Option<Self> {
        OffsetFileSettings::of(config).map(|settings| Self::new(settings, observer.clone()))
    }

    /// The offset in a partition's file, if there is one. librdkafka creates the file without text when it starts a partition.
    pub(crate) fn read(&self, at: &TopicPartition) -> Result<Option<i64>, Error> {
        let path = self.file_of(at);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, &error)),
        };
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let offset = text.parse().map_err(|_| {
            let reason = format!("{text:?} is no offset; without one, auto.offset.reset applies");
            Error::OffsetFile { path: path.display().to_string(), reason }
        })?;
        Ok(Some(offset))
    }

    /// Writes a partition's offset. A sync that the interval does not permit yet follows at its end.
    pub(crate) fn write(self: &Rc<Self>, at: &TopicPartition, offset: i64) -> Result<(), Error> {
        let path = self.file_of(at);
        let synced_at = self.synced_at.borrow().get(at).copied();
        let sync =
            self.settings.sync.is_some_and(|every| synced_at.is_none_or(|then| then.elapsed() >= every));
        replace(&path, offset, sync).map_err(|error| failed(&path, &error))?;
        if sync {
            self.unsynced.borrow_mut().remove(at);
            self.synced_at.borrow_mut().insert(at.clone(), Instant::now());
        } else if let Some(every) = self.settings.sync {
            self.unsynced.borrow_mut().insert(at.clone());
            self.sync_after(every);
        }
        Ok(())
    }

    fn sync_after(self: &Rc<Self>, pause: Duration) {
        if self.will_sync.replace(true) {
            return;
        }
        let files = self.clone();
        let syncing = async move {
            tokio::time::sleep(pause).await;
            files.will_sync.set(false);
            if let Err(error) = files.sync() {
                tracing::warn!(%error, "an offset file is not synced");
                // Again, unless the consumer is gone.
                if Rc::strong_count(&files) > 1 {
                    files.sync_after(pause);
                }
            }
        };
        tokio::task::spawn_local(self.observer.clone().watched("offset files", syncing));
    }

    /// Syncs the files that were written since their last sync. Those that fail are synced the next time.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let (mut result, mut synced) = (Ok(()), Vec::new());
        for at in self.unsynced.take() {
            let path = self.file_of(&at);
            match File::open(&path).and_then(|file| file.sync_all()) {
                Ok(()) => synced.push((at, path)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    result = Err(failed(&path, &error));
                    self.unsynced.borrow_mut().insert(at);
                }
            }
        }
        // All files are in one directory.
        if let Some((_, path)) = synced.first()
            && let Err(error) = sync_directory(path)
        {
            result = Err(failed(path, &error));
            self.unsynced.borrow_mut().extend(synced.drain(..).map(|(at, _)| at));
        }
        let now = Instant::now();
        self.synced_at.borrow_mut().extend(synced.into_iter().map(|(at, _)| (at, now)));
        result
    }

    fn file_of(&self, at: &TopicPartition) -> PathBuf {
        let OffsetFileSettings { path, group, .. } = &self.settings;
        if !path.is_dir() {
            return path.clone();
        }
        let TopicPartition { topic, partition } = at;
        let name = match group {
            Some(group) => format!("{topic}-{partition}-{group}.offset"),
            None => format!("{topic}-{partition}.offset"),
        };
        path.join(escaped(&name))
    }
}

fn replace(path: &Path, offset: i64, sync: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = File::create(&beside)?;
    writeln!(file, "{offset}")?;
    if sync {
        file.sync_all()?;
    }
    fs::rename(&beside, path)?;
    if sync { sync_directory(path) } else { Ok(()) }
}

/// Syncs the name of a file.
fn sync_directory(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

/// Escapes the characters that a file name cannot have, as librdkafka does.
fn escaped(name: &str) -> String {
    name.replace('/', "%2F").replace(':', "%3A").replace('\\', "%5C")
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::OffsetFile { path: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &Path, sync: Option<Duration>) -> Rc<OffsetFiles> {
        let mut config = Config::default();
        config.offset_store_file = true;
        config.offset_store_path = path.to_owned();
        config.offset_store_sync_interval = sync;
        Rc::new(OffsetFiles::of(&config, &Observer::new(&config, 1)).expect("configured"))
    }

    #[test]
    fn a_file_holds_one_offset_and_is_replaced_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = TopicPartition::new("orders", 3);
        for sync in [None, Some(Duration::ZERO)] {
            let files = files(directory.path(), sync);
            for offset in [17, 4, 1_000_000] {
                files.write(&at, offset).expect("written");
                assert_eq!(files.read(&at).expect("sound"), Some(offset));
            }
        }
        let names: Vec<_> = fs::read_dir(directory.path()).expect("it is there").collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
        let content =
            fs::read_to_string(directory.path().join("orders-3.offset")).expect("librdkafka's name");
        assert_eq!(content, "1000000\n");
    }

    #[test]
    fn a_missing_file_is_no_offset_and_nonsense_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = files(directory.path(), None);
        let at = TopicPartition::new("orders", 0);
        assert_eq!(files.read(&at).expect("nothing wrong"), None);
        fs::write(directory.path().join("orders-0.offset"), "seven").expect("written");
        let error = files.read(&at).expect_err("no number").to_string();
        assert!(error.contains("orders-0.offset") && error.contains("seven"), "{error}");
        assert_eq!(escaped("a/b:c\\d-0.offset"), "a%2Fb%3Ac%5Cd-0.offset");
    }

    /// The last offsets before a pause were not synced until the next one was written.
    #[tokio::test(start_paused = true)]
    async fn an_offset_that_is_written_between_two_syncs_is_synced_at_the_end_of_the_interval() {
        let directory = tempfile::tempdir().expect("a directory");
        let every = Duration::from_secs(60);
        let (first, second) = (TopicPartition::new("orders", 0), TopicPartition::new("orders", 1));
        let files = files(directory.path(), Some(every));
        let unsynced = || files.unsynced.borrow().iter().cloned().collect::<Vec<_>>();
        let writing = async {
            for offset in 0..3 {
                files.write(&first, offset).expect("written");
                files.write(&second, offset).expect("written");
                assert_eq!(unsynced().is_empty(), offset == 0, "the first write is synced");
            }
            tokio::time::sleep(every * 2).await;
            assert!(unsynced().is_empty());
            let synced_at = files.synced_at.borrow()[&second];
            assert!(synced_at.elapsed() < every * 2, "after its first write");
            // At the latest, the second one is between two syncs.
            files.write(&second, 3).expect("written");
            files.write(&second, 4).expect("written");
            assert!(unsynced() == [second.clone()]);
            files.sync().expect("synced");
            assert!(unsynced().is_empty());
            assert_eq!(files.read(&second).expect("sound"), Some(4));
        };
        tokio::task::LocalSet::new().run_until(writing).await;
    }

    /// A file whose sync had failed was not synced again until its next offset was written.
    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_file_whose_sync_fails_is_synced_again_at_the_end_of_the_next_interval() {
        let directory = tempfile::tempdir().expect("a directory");
        let every = Duration::from_secs(60);
        let (broken, sound) = (TopicPartition::new("orders", 0), TopicPartition::new("orders", 1));
        let files = files(directory.path(), Some(every));
        let unsynced = || files.unsynced.borrow().iter().cloned().collect::<Vec<_>>();
        let path = directory.path().join("orders-0.offset");
        let writing = async {
            for offset in 0..2 {
                files.write(&broken, offset).expect("written");
                files.write(&sound, offset).expect("written");
            }
            // A file that cannot be opened.
            fs::remove_file(&path).expect("it is there");
            std::os::unix::fs::symlink(&path, &path).expect("a link to itself");
            files.sync().expect_err("a link to itself");
            assert!(unsynced() == [broken.clone()]);
            tokio::time::sleep(every + every / 2).await;
            assert!(unsynced() == [broken.clone()], "the next sync has failed, too");
            fs::remove_file(&path).expect("it is there");
            fs::write(&path, "1\n").expect("written");
            tokio::time::sleep(every).await;
            assert!(unsynced().is_empty());
        };
        tokio::task::LocalSet::new().run_until(writing).await;
    }

    /// The panic was dropped, and the files were not synced any more.
    #[tokio::test(start_paused = true)]
    async fn a_panic_of_a_sync_ends_the_client() {
        let directory = tempfile::tempdir().expect("a directory");
        let every = Duration::from_secs(60);
        let at = TopicPartition::new("orders", 0);
        let files = files(directory.path(), Some(every));
        let writing = async {
            files.write(&at, 0).expect("written");
            files.write(&at, 1).expect("written");
            // A defect: the next look at them panics.
            std::mem::forget(files.unsynced.borrow_mut());
            tokio::time::timeout(every * 3, files.observer.failure.wait()).await.expect("it has failed");
        };
        tokio::task::LocalSet::new().run_until(writing).await;
    }

    /// The empty file of librdkafka, of a partition that was never committed, was an error.
    #[test]
    fn an_empty_file_is_no_offset() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = files(directory.path(), None);
        for text in ["", "\n"] {
            fs::write(directory.path().join("orders-0.offset"), text).expect("written");
            assert_eq!(files.read(&TopicPartition::new("orders", 0)).expect("sound"), None);
        }
    }
}
