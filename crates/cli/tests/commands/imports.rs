//! `ottla log import`, from directories as Apache Kafka leaves them. `interop/tests/import.rs` takes those of a real one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ottla_broker::Broker;
use ottla_wire::{BatchBuilder, Seal};
use rustix::process::Signal;

use crate::support::{Ended, PATIENCE, Running, at, command, ottla};

/// The stopped Apache Kafka with the node id 1 and two log directories. The first has the metadata log.
struct StoppedKafka {
    root: tempfile::TempDir,
    /// The records of the metadata log.
    records: Vec<Vec<u8>>,
}

/// The two bytes at the end of a record of the metadata log or a field without value.
const NO_TAGS: u8 = 0;

impl StoppedKafka {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for dir in ["first", "second"] {
            let dir = root.path().join(dir);
            fs::create_dir(&dir).expect("created");
            fs::write(dir.join("meta.properties"), "version=1\nnode.id=1\ncluster.id=c\n").expect("written");
            fs::write(dir.join(".kafka_cleanshutdown"), "{}").expect("written");
        }
        Self { root, records: Vec::new() }
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Adds a topic to the metadata. Its partition `n` has a directory in the `n`th of `dirs`.
    fn add_topic(&mut self, name: &str, id: u8, dirs: &[&str]) {
        let length = name.len() as u8 + 1;
        self.records.push([&[1, 2, 0, length][..], name.as_bytes(), &[id; 16], &[NO_TAGS]].concat());
        for (index, dir) in dirs.iter().enumerate() {
            let node = [2, 0, 0, 0, 1];
            let leader_and_epochs = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            let (none, directories) = ([1, 1], [1]);
            self.records.push(
                [
                    &[1, 3, 1][..],
                    &(index as i32).to_be_bytes(),
                    &[id; 16],
                    &node,
                    &node,
                    &none,
                    &leader_and_epochs,
                    &directories,
                    &[NO_TAGS],
                ]
                .concat(),
            );
            let partition = self.dir(dir).join(format!("{name}-{index}"));
            fs::create_dir(&partition).expect("created");
            fs::write(partition.join("00000000000000000000.log"), b"").expect("written");
        }
    }

    /// Adds a setting to the metadata, of a topic (2) or of brokers (4).
    fn add_config(&mut self, kind: u8, name: &str, key: &str, value: &str) {
        let text = |text: &str| [&[text.len() as u8 + 1], text.as_bytes()].concat();
        self.records.push([&[1, 4, 0, kind][..], &text(name), &text(key), &text(value), &[NO_TAGS]].concat());
    }

    /// Appends a batch to the first segment of a partition.
    fn append(&self, dir: &str, partition: &str, first: i64, values: &[String]) {
        let segment = self.dir(dir).join(partition).join("00000000000000000000.log");
        let mut bytes = fs::read(&segment).expect("read");
        bytes.extend(batch(first, values.iter().map(String::as_bytes)));
        fs::write(segment, bytes).expect("written");
    }

    /// Writes the metadata log. Nothing is added afterwards.
    fn finish(self) -> Self {
        let metadata = self.dir("first").join("__cluster_metadata-0");
        fs::create_dir(&metadata).expect("created");
        let records = batch(0, self.records.iter().map(Vec::as_slice));
        fs::write(metadata.join("00000000000000000000.log"), records).expect("written");
        self
    }

    fn import(&self, data: &Path, more: &[&str]) -> Ended {
        let (first, second) = (self.dir("first"), self.dir("second"));
        let args = ["log", "import", text(&first), text(&second), "--data", text(data)];
        ottla(&[&args[..], more].concat(), "")
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A batch at this offset, with the leader epoch 0.
fn batch<'v>(first: i64, values: impl Iterator<Item = &'v [u8]>) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(1_700_000_000_000, None, Some(value), &[]);
    }
    let sealed = builder.seal(&Seal::default()).expect("a batch");
    let mut bytes = sealed.to_bytes().to_vec();
    // Neither the offset nor the epoch is part of the checksum.
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[12..16].copy_from_slice(&[0; 4]);
    bytes
}

/// The values of a topic, in the order of partitions and offsets.
fn values_of(data: &Path, topic: &str) -> Vec<String> {
    let broker = Broker::builder().data_dir(data).spawn().expect("a broker");
    let read = at(&broker, &["consume", topic, "-o", "beginning", "-e"], "").succeeded();
    let mut values: Vec<String> = read.stdout.lines().map(ToOwned::to_owned).collect();
    values.sort();
    values
}

#[test]
fn partitions_of_one_topic_in_two_directories_are_imported() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first", "second"]);
    kafka.append("first", "orders-0", 0, &["a".into(), "b".into()]);
    kafka.append("second", "orders-1", 0, &["c".into()]);
    let kafka = kafka.finish();
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    let one = kafka.dir("first");
    let half = ottla(&["log", "import", text(&one), "--data", text(&target)], "");
    half.failed(
        1,
        &["partition 1 of topic `orders` has no directory here", "name all directories of log.dirs"],
    );
    assert!(!target.exists(), "nothing was written");
    kafka.import(&target, &[]).succeeded();
    assert_eq!(values_of(&target, "orders"), ["a", "b", "c"]);
}

/// The share groups in `__consumer_offsets` were imported without the states of their partitions, and could never fetch.
#[test]
fn the_states_of_share_groups_are_imported() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 0, &["a".into()]);
    kafka.add_topic("__share_group_state", 9, &["second"]);
    let kafka = kafka.finish();
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    kafka.import(&target, &[]).succeeded();
    assert!(target.join("__share_group_state-0").exists());
    assert_eq!(values_of(&target, "orders"), ["a"]);
}

/// The segments of the copy were as old as the import. Records without timestamps were kept for longer than `retention.ms`.
#[test]
fn segments_keep_their_modification_times() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 0, &["a".into()]);
    let kafka = kafka.finish();
    let name = "orders-0/00000000000000000000.log";
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let original = fs::File::options().write(true).open(kafka.dir("first").join(name)).expect("opened");
    original.set_modified(written).expect("set");
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    kafka.import(&target, &[]).succeeded();
    let copy = fs::metadata(target.join(name)).expect("there");
    assert_eq!(copy.modified().expect("a time"), written);
}

/// A directory with the imported topic `orders`. The record that completed the import is damaged.
fn damaged_import() -> (tempfile::TempDir, PathBuf) {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 0, &["a".into(), "b".into()]);
    let kafka = kafka.finish();
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    kafka.import(&target, &[]).succeeded();
    let journal = target.join("__ottla-meta/00000000000000000000.log");
    let mut bytes = fs::read(&journal).expect("read");
    let at = bytes.windows(12).position(|window| window == b"topic/orders").expect("the completion");
    bytes[at] ^= 1;
    fs::write(&journal, bytes).expect("written");
    (data, target)
}

/// The record that completed the import was lost, and the start after the repair deleted all imported topics.
#[test]
fn a_repair_of_the_journal_keeps_imported_topics() {
    let (_data, target) = damaged_import();
    let repaired = ottla(&["log", "repair", text(&target), "--accept-loss"], "");
    let said = repaired.stdout.clone() + &repaired.stderr;
    assert!(said.contains("its import may not be complete"), "{said}");
    for _ in 0..2 {
        assert_eq!(values_of(&target, "orders"), ["a", "b"]);
    }
}

/// The journal was saved with the record that the import had begun: the next start deleted all imported topics.
#[test]
fn a_damaged_journal_is_not_repaired_without_its_data_directory() {
    let (_data, target) = damaged_import();
    let journal = target.join("__ottla-meta");
    let before = fs::read(journal.join("00000000000000000000.log")).expect("read");
    let checked = ottla(&["log", "repair", text(&journal)], "").failed(1, &["is damaged"]);
    assert!(checked.stdout.contains("with the data directory"), "{checked:?}");
    let words = ["with its data directory only", "ottla log repair --accept-loss"];
    ottla(&["log", "repair", text(&journal), "--accept-loss"], "").failed(1, &words);
    let after = fs::read(journal.join("00000000000000000000.log")).expect("read");
    assert!(after == before, "the refused repair has changed the journal");
    ottla(&["log", "repair", text(&target), "--accept-loss"], "").succeeded();
    assert_eq!(values_of(&target, "orders"), ["a", "b"]);
}

/// The topic got the broker's 7 days, and its records were deleted.
#[test]
fn topics_keep_the_dynamic_defaults_of_the_brokers() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 0, &["a".into()]);
    kafka.add_config(4, "", "log.retention.ms", "-1");
    kafka.add_config(4, "1", "log.segment.bytes", "2097152");
    kafka.add_config(4, "1", "background.threads", "9");
    kafka.add_config(2, "orders", "segment.bytes", "1048576");
    let kafka = kafka.finish();
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    let imported = kafka.import(&target, &[]).succeeded();
    let note = "dynamic settings of brokers are left out: background.threads";
    assert!(imported.stdout.contains(note), "{}", imported.stdout);
    let broker = Broker::builder().data_dir(&target).spawn().expect("a broker");
    let configs = at(&broker, &["topics", "configs", "orders"], "").succeeded().stdout;
    let rows: Vec<Vec<&str>> =
        configs.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let rows: Vec<(&str, &str)> = rows.iter().map(|row| (row[1], row[2])).collect();
    assert_eq!(rows, [("retention.ms", "-1"), ("segment.bytes", "1048576")], "{configs}");
}

/// The records that only remote storage had were missing after the import, which succeeded.
#[test]
fn a_tiered_topic_is_imported_with_all_its_records_only() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 5, &["a".into()]);
    kafka.add_config(2, "orders", "remote.storage.enable", "true");
    kafka.add_topic("other", 8, &["second"]);
    let kafka = kafka.finish();
    let partition = kafka.dir("first").join("orders-0");
    let segment = |offset: &str| partition.join(format!("000000000000000000{offset}.log"));
    fs::rename(segment("00"), segment("05")).expect("renamed");
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    let words = ["partition 0 of topic `orders`", "from offset 0 to 5 are in remote storage only", "--topic"];
    for more in [&[][..], &["--dry-run"]] {
        kafka.import(&target, more).failed(1, &words);
    }
    kafka.import(&target, &["--topic", "other"]).succeeded();
    // The log starts where its segments do: nothing is missing.
    fs::write(kafka.dir("first").join("log-start-offset-checkpoint"), "0\n1\norders 0 5\n").expect("written");
    let imported = kafka.import(&target, &["--topic", "orders"]).succeeded();
    assert!(imported.stdout.contains("remote.storage.enable is left out"), "{}", imported.stdout);
    assert_eq!(values_of(&target, "orders"), ["a"]);
}

#[test]
fn directories_that_are_no_partitions_are_named_and_left_out() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 0, &["a".into()]);
    let kafka = kafka.finish();
    for (dir, name) in [
        ("second", "orders-0.7f3c0a-future"),
        ("second", "lost-0.7f3c0a-stray"),
        ("first", "gone-0.7f3c0a-delete"),
        ("first", "notes"),
    ] {
        let dir = kafka.dir(dir).join(name);
        fs::create_dir(&dir).expect("created");
        fs::write(dir.join("00000000000000000000.log"), b"no batch").expect("written");
    }
    let data = tempfile::tempdir().expect("a directory");
    let done = kafka.import(&data.path().join("ottla"), &[]).succeeded();
    let said = done.stdout + &done.stderr;
    for (name, why) in [
        ("orders-0.7f3c0a-future", "an unfinished copy"),
        ("lost-0.7f3c0a-stray", "knows no partition"),
        ("gone-0.7f3c0a-delete", "deletion was not finished"),
        ("notes", "no partition's directory"),
    ] {
        let line = said.lines().find(|line| line.contains(name)).unwrap_or_default();
        assert!(line.contains("is left out") && line.contains(why), "{name}: {said}");
    }
    assert_eq!(values_of(&data.path().join("ottla"), "orders"), ["a"]);
}

#[test]
fn a_partition_that_is_in_both_directories_is_refused() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    let kafka = kafka.finish();
    fs::create_dir(kafka.dir("second").join("orders-0")).expect("created");
    let data = tempfile::tempdir().expect("a directory");
    kafka.import(&data.path().join("ottla"), &[]).failed(1, &["orders-0", "the partition is in", "as well"]);
}

#[test]
fn a_message_of_an_old_format_stops_the_import_and_nothing_stays() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first"]);
    kafka.append("first", "orders-0", 0, &["a".into()]);
    kafka.add_topic("old", 8, &["second"]);
    let kafka = kafka.finish();
    let segment = kafka.dir("second").join("old-0/00000000000000000000.log");
    for magic in [0, 1] {
        // Offset, size, checksum and format, as before Kafka 0.11.
        let mut message = [0; 100];
        message[11] = 88;
        message[16] = magic;
        fs::write(&segment, message).expect("written");
        let data = tempfile::tempdir().expect("a directory");
        let target = data.path().join("ottla");
        let words = format!("in the format {magic}, from before Kafka 0.11");
        kafka.import(&target, &[]).failed(1, &["old-0", &words, "--topic"]);
        assert!(!target.join("orders-0").exists() && !target.join("old-0").exists(), "all or none");
        kafka.import(&target, &["--topic", "orders"]).succeeded();
        assert_eq!(values_of(&target, "orders"), ["a"]);
    }
}

#[test]
fn a_damaged_batch_stops_the_import_and_nothing_stays() {
    let mut kafka = StoppedKafka::new();
    kafka.add_topic("orders", 7, &["first", "second"]);
    kafka.append("first", "orders-0", 0, &["a".into()]);
    kafka.append("second", "orders-1", 0, &["b".into()]);
    let kafka = kafka.finish();
    let segment = kafka.dir("second").join("orders-1/00000000000000000000.log");
    let mut bytes = fs::read(&segment).expect("read");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&segment, bytes).expect("written");
    let data = tempfile::tempdir().expect("a directory");
    let target = data.path().join("ottla");
    kafka.import(&target, &[]).failed(1, &["orders-1", "at byte 0", "nothing was imported"]);
    assert!(!target.join("orders-0").exists() && !target.join("orders-1").exists());
}

#[test]
fn a_kill_in_the_middle_leaves_all_topics_or_none() {
    const BATCHES: i64 = 200;
    let mut kafka = StoppedKafka::new();
    let topics = ["one", "two", "three"];
    for (id, topic) in topics.iter().enumerate() {
        kafka.add_topic(topic, id as u8 + 1, &["first", "second"]);
        for (index, dir) in ["first", "second"].iter().enumerate() {
            let partition = format!("{topic}-{index}");
            let values: Vec<Vec<u8>> = (0..BATCHES)
                .map(|number| {
                    let value = format!("{partition} {number} {}", "x".repeat(20_000));
                    batch(number, std::iter::once(value.as_bytes()))
                })
                .collect();
            let segment = kafka.dir(dir).join(&partition).join("00000000000000000000.log");
            fs::write(segment, values.concat()).expect("written");
        }
    }
    let kafka = kafka.finish();
    let (first, second) = (kafka.dir("first"), kafka.dir("second"));
    let (mut none, mut kills) = (0, 0);
    // Each kill comes a bit later, until an import ends before it.
    loop {
        let data = tempfile::tempdir().expect("a directory");
        let target = data.path().join("ottla");
        let args = ["log", "import", text(&first), text(&second), "--data", text(&target)];
        let import = Running::start(&mut command(&args), "");
        std::thread::sleep(Duration::from_millis(10 * kills));
        import.signal(Signal::KILL);
        let is_done = import.wait().status.success();
        kills += 1;
        if target.exists() {
            // Some directories of a killed import remain until the broker starts.
            let broker = Broker::builder().data_dir(&target).spawn().expect("a broker");
            let listed = at(&broker, &["topics", "list"], "").succeeded().stdout;
            drop(broker);
            let found = topics.iter().filter(|topic| listed.contains(*topic)).count();
            assert!(found == 0 || found == topics.len(), "{listed}");
            let left = fs::read_dir(&target).expect("a directory").flatten();
            let left = left.filter(|entry| entry.file_name().to_string_lossy().ends_with("-0")).count();
            assert_eq!(left, found, "no directory without its topic");
            assert!(!is_done || found == topics.len());
            if found == 0 {
                none += 1;
                kafka.import(&target, &[]).succeeded();
            }
            assert_eq!(values_of(&target, "three").len(), 2 * BATCHES as usize);
        }
        if is_done {
            break;
        }
        assert!(Duration::from_millis(10 * kills) < PATIENCE, "the import does not end");
    }
    assert!(none > 0, "{kills} kills, and none in the middle");
}
