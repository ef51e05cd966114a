//! One writer, readers at the tail and behind it, threads and tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ottla_log::storage::Storage;
use ottla_log::storage::fs::FsStorage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendOptions, Batch, Journal, Log, LogConfig, ReadError, Reader, SharedLog, Visible};

use crate::common::{DIR, NOW, batch, small};

/// Longer than any test may take: a wait that ends by it has failed.
const LONG: Duration = Duration::from_secs(60);

fn open(disk: &MemStorage, config: LogConfig) -> SharedLog {
    SharedLog::open(Arc::new(disk.clone()), DIR, config, NOW).expect("opened").0
}

fn put(log: &SharedLog, value: &str) -> i64 {
    log.append_record(NOW, None, Some(value.as_bytes())).expect("appended").base_offset
}

fn values(batch: &Batch) -> Vec<String> {
    let block = batch.records(1 << 20).expect("records");
    block
        .iter()
        .map(|record| {
            String::from_utf8_lossy(record.expect("a record").value.unwrap_or_default()).into_owned()
        })
        .collect()
}

fn drain(reader: &mut Reader) -> Vec<String> {
    std::iter::from_fn(|| reader.try_next().expect("readable")).flat_map(|batch| values(&batch)).collect()
}

#[test]
fn readers_catch_up_through_files_and_follow_in_memory() {
    for cache in [0, 500, 1 << 20] {
        let disk = MemStorage::new();
        let log = open(&disk, LogConfig { tail_cache_bytes: cache, ..small() });
        let mut early = log.reader(0);
        let expected: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        for (n, value) in expected.iter().enumerate() {
            assert_eq!(put(&log, value), n as i64);
            if n % 3 == 0 {
                let batch = early.try_next().expect("readable").expect("there");
                assert!(batch.header.base_offset <= n as i64);
            }
        }
        let missed = 200 - drain(&mut early).len();
        assert_eq!(missed, 67, "what it had read before");
        let mut late = log.reader(0);
        assert_eq!(drain(&mut late), expected);
        assert_eq!(late.next_offset(), 200);
        late.seek(150);
        assert_eq!(drain(&mut late), expected[150..]);
        let mut beyond = log.reader(201);
        assert!(beyond.try_next().expect("nothing to see yet").is_none());
    }
}

#[test]
fn a_reader_of_deleted_records_is_told() {
    let log = open(&MemStorage::new(), small());
    for n in 0..100 {
        put(&log, &n.to_string());
    }
    drop(log.with(|log| log.delete_records_before(60)).expect("deleted"));
    let error = log.reader(10).try_next().expect_err("gone");
    assert!(matches!(error, ReadError::OutOfRange { offset: 10, start: 60, end: 100, .. }), "{error}");
}

#[test]
fn a_blocked_reader_sees_every_record_of_a_busy_writer() {
    let log = open(&MemStorage::new(), small());
    let mut reader = log.reader(0);
    let reading = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < 5000 {
            let batch = reader.next_blocking(LONG).expect("readable").expect("in time");
            seen.extend(values(&batch));
        }
        seen
    });
    let expected: Vec<String> = (0..5000).map(|n| n.to_string()).collect();
    for value in &expected {
        put(&log, value);
    }
    assert_eq!(reading.join().expect("no panic"), expected);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_when_there_is_more_and_when_it_is_over() {
    let disk = MemStorage::new();
    let log = open(&disk, LogConfig { visible: Visible::Synced, ..LogConfig::default() });
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let mut reader = log.reader(0);
    assert!(reader.poll_next(&mut cx).is_pending());
    put(&log, "a");
    put(&log, "b");
    assert!(reader.poll_next(&mut cx).is_pending(), "not durable yet");
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    assert_eq!(log.sync().expect("synced"), 2);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "once, not for each record");
    for expected in ["a", "b"] {
        let Poll::Ready(Ok(Some(batch))) = reader.poll_next(&mut cx) else { panic!("ready") };
        assert_eq!(values(&batch), [expected]);
    }
    assert!(reader.poll_next(&mut cx).is_pending());
    let log = log.close().expect_err("a reader is left");
    log.tail().close();
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    assert!(matches!(reader.poll_next(&mut cx), Poll::Ready(Ok(None))));
    drop(reader);
    log.close().expect("the last handle").expect("closed");
    let (_, report) = SharedLog::open(Arc::new(disk), DIR, LogConfig::default(), NOW).expect("opened");
    assert!(report.clean);
}

/// A poll did not return, and occupied its thread, while a part of the next batch was visible.
#[test]
fn a_reader_waits_for_the_whole_of_a_batch() {
    let log = open(&MemStorage::new(), LogConfig { visible: Visible::Manual, ..LogConfig::default() });
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let mut reader = log.reader(0);
    let ten: [&[u8]; 10] = [b"value"; 10];
    log.append(NOW, batch(NOW, &ten), AppendOptions::default()).expect("appended");
    for (turns, visible) in [5, 9].into_iter().enumerate() {
        log.tail().advance_visible(visible);
        assert_eq!(woken.0.load(Ordering::SeqCst), turns);
        assert!(reader.poll_next(&mut cx).is_pending(), "{visible} of 10");
    }
    log.tail().advance_visible(10);
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    let Poll::Ready(Ok(Some(read))) = reader.poll_next(&mut cx) else { panic!("ready") };
    assert_eq!((values(&read).len(), reader.next_offset()), (10, 10));
    assert!(reader.poll_next(&mut cx).is_pending());
    log.tail().close();
    assert!(matches!(reader.poll_next(&mut cx), Poll::Ready(Ok(None))));
}

#[test]
fn logs_can_be_handed_to_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Log>();
    is_send::<Journal>();
    is_send::<Reader>();
    is_sync::<SharedLog>();
    is_send::<ottla_log::PendingSync>();
    is_send::<ottla_log::ColdRead>();
    is_send::<ottla_log::Grown>();
}

#[test]
fn real_files_hold_a_log_and_say_what_is_cached() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(tmp.path()).expect("a storage"));
    let config = LogConfig { tail_cache_bytes: 0, ..small() };
    for round in 0..3 {
        let (log, report) = SharedLog::open(storage.clone(), DIR, config.clone(), NOW).expect("opened");
        assert_eq!((log.tail().end(), report.clean), (round * 50, round != 2));
        for n in 0..50 {
            put(&log, &format!("{}", round * 50 + n));
        }
        log.sync().expect("synced");
        let mut reader = log.reader(0);
        let expected: Vec<String> = (0..(round + 1) * 50).map(|n| n.to_string()).collect();
        assert_eq!(drain(&mut reader), expected);
        let chain = log.with(|log| log.read(0, 20_000, i64::MAX, true)).expect("read").chain;
        let [ottla_wire::Piece::File(slice)] = chain.pieces() else { panic!("a range of a file") };
        assert!(slice.file.fd().is_some() && slice.file.is_cached(slice.offset, slice.len));
        drop((reader, chain));
        if round == 0 {
            log.close().expect("the last handle").expect("closed");
        }
    }
    let (log, _) = Log::open(storage, DIR, config, NOW).expect("opened");
    log.delete().expect("deleted");
    assert!(!tmp.path().join(DIR).exists());
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(tmp.path().join("data")).expect("a storage"));
    for dir in ["..", "../x", "/tmp/x", "a/../../x", "", "a\0b"] {
        let error = Log::open(storage.clone(), dir, LogConfig::default(), NOW).expect_err("refused");
        assert!(error.to_string().contains("plain names"), "{dir:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(tmp.path()).expect("listed").count(), 1);
}
