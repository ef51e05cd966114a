//! Outputs that are closed or full: records that they did not accept are not committed, and changes are made nevertheless.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread};
use rustix::process::Signal;

use crate::support::{PATIENCE, Running, at, binary, broker, command, fill};

/// The capacity of a pipe on Linux.
const PIPE_BYTES: u64 = 64 << 10;
const RECORDS: usize = 10_000;
/// The size of a line.
const LINE_BYTES: u64 = 100;
/// The size of a fetch, where each one is to return some records only.
const FETCH_BYTES: u64 = 10_000;

fn fill_with_lines(broker: &BrokerThread, more: &[&str]) {
    let lines: Vec<String> = (0..RECORDS).map(|number| format!("{number:099}\n")).collect();
    at(broker, &[&["produce", "orders"], more].concat(), &lines.concat()).succeeded();
}

/// The committed offset of partition 0; 0 without one, where the group begins.
fn committed(broker: &BrokerThread) -> u64 {
    let described = at(broker, &["groups", "describe", "readers", "--output", "json"], "");
    if !described.status.success() {
        // A group that has not committed ends with its last member.
        described.failed(1, &["group `readers` does not exist"]);
        return 0;
    }
    let group: serde_json::Value = serde_json::from_str(&described.stdout).expect("JSON");
    let Some(partition) = group["partitions"].get(0) else { return 0 };
    assert_eq!(partition["partition"], 0, "{group}");
    match &partition["committed"] {
        serde_json::Value::Null => 0,
        committed => committed.as_u64().unwrap_or_else(|| panic!("no offset: {group}")),
    }
}

/// A command whose standard output is a device that is full.
fn on_full_device(args: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" > /dev/full"]).arg(binary()).args(args);
    shell.env_remove("OTTLA_BROKERS").env_remove("OTTLA_LOG");
    shell
}

/// All 10,000 records were committed.
#[test]
fn records_that_head_did_not_read_are_not_committed() {
    let broker = broker(1);
    fill_with_lines(&broker, &[]);
    let servers = broker.bootstrap_servers();
    for more in [&[][..], &["-c", "9000"], &["-e"]] {
        let args = [&["consume", "orders", "-G", "readers", "-b", &servers], more].concat();
        let (reader, _stdin, stdout) = Running::start_with_pipes(&mut command(&args));
        let mut head = BufReader::new(stdout);
        let mut lines = String::new();
        for _ in 0..5 {
            head.read_line(&mut lines).expect("readable");
        }
        assert!(lines.ends_with('\n'), "{lines}");
        drop(head);
        reader.wait().succeeded();
    }
    // Each reader accepted what its pipe and its own buffer hold.
    let accepted = 3 * 2 * PIPE_BYTES / LINE_BYTES;
    let committed = committed(&broker);
    assert!((15..=accepted).contains(&committed), "committed {committed} of {RECORDS}");
}

/// All of them were committed, and the failure was reported afterwards.
#[test]
fn records_for_a_full_disk_are_not_committed() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    fill(&broker, "1\n2\n3\n");
    for more in [&[][..], &["-c", "2"], &["-e"]] {
        let args = [&["consume", "orders", "-G", "readers", "-b", &servers], more].concat();
        let ended = Running::start(&mut on_full_device(&args), "").wait();
        ended.failed(1, &["standard output: no space left on device"]);
        assert_eq!(committed(&broker), 0, "{more:?}");
    }
    let read = at(&broker, &["consume", "orders", "-G", "readers", "-e"], "").succeeded();
    assert_eq!(read.stdout, "1\n2\n3\n");
}

/// The whole batch was committed, with the records after the malformed one.
#[test]
fn records_from_a_malformed_one_on_are_not_committed() {
    let data = tempfile::tempdir().expect("a directory");
    let start = || Broker::builder().data_dir(data.path()).topic("orders", 1).spawn().expect("a broker");
    fill(&start(), "1\n2\n3\n");
    let segment = data.path().join("orders-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).expect("read");
    // The batch of the three records: its size is at byte 8, its checksum at byte 17 covers what follows.
    let end = 12 + u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
    assert_eq!(&bytes[end - 4..end], [1, 2, b'3', 0], "no key, the size of the value, the value, no headers");
    bytes[end - 3] = 0x7e;
    let checksum = ottla_wire::crc::crc32c(&bytes[21..end]);
    bytes[17..21].copy_from_slice(&checksum.to_be_bytes());
    std::fs::write(&segment, bytes).expect("written");
    let broker = start();
    let ended = at(&broker, &["consume", "orders", "-G", "readers", "-e"], "").failed(1, &["orders"]);
    assert_eq!(ended.stdout, "1\n2\n", "{ended:?}");
    assert_eq!(committed(&broker), 2);
}

/// The records in the buffer of the command were committed while the write before them waited.
#[test]
fn records_of_a_blocked_output_are_not_committed() {
    let broker = broker(1);
    // Small batches and fetches: each poll returns some records.
    fill_with_lines(&broker, &["-X", "batch.size=5000"]);
    let servers = broker.bootstrap_servers();
    let args = ["consume", "orders", "-G", "readers", "-b", &servers];
    let fetched = format!("fetch.message.max.bytes={FETCH_BYTES}");
    let small = ["-X", "auto.commit.interval.ms=50", "-X", &fetched];
    let (mut reader, _stdin, stdout) = Running::start_with_pipes(&mut command(&[&args[..], &small].concat()));
    // Unread bytes fill all pages of the pipe, the last ones in part.
    let is_full = || rustix::io::ioctl_fionread(&stdout).expect("a pipe") >= PIPE_BYTES / 2;
    reader.until("stuck", PATIENCE, |_| is_full());
    // Some commits later.
    std::thread::sleep(Duration::from_millis(500));
    reader.signal(Signal::INT);
    reader.wait().failed(130, &["interrupted"]);
    let accepted = rustix::io::ioctl_fionread(&stdout).expect("a pipe") / LINE_BYTES;
    let committed = committed(&broker);
    assert!(committed <= accepted, "committed {committed}, of which the pipe has {accepted}");
    // Of the records before the blocked fetch, all are.
    let at_least = accepted - FETCH_BYTES / LINE_BYTES;
    assert!(committed >= at_least, "committed {committed}, of which the pipe has {accepted}");
}

/// They were accepted for the whole group.
#[test]
fn records_of_a_share_group_for_a_full_disk_stay_for_other_members() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    fill(&broker, "1\n2\n3\n");
    let create =
        ["groups", "reset-offsets", "sharers", "-t", "orders", "--to-earliest", "--create", "--share"];
    at(&broker, &[&create[..], &["--execute"]].concat(), "").succeeded();
    for more in [&[][..], &["-c", "2"]] {
        let args = [&["consume", "orders", "-G", "sharers", "--share", "-b", &servers], more].concat();
        let ended = Running::start(&mut on_full_device(&args), "").wait();
        ended.failed(1, &["standard output: no space left on device"]);
    }
    let args = ["consume", "orders", "-G", "sharers", "--share", "-c", "3"];
    assert_eq!(at(&broker, &args, "").succeeded().stdout, "1\n2\n3\n");
}

/// The topic stayed, with its records.
#[test]
fn a_doctor_without_a_reader_deletes_its_topic() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    let topics = || at(&broker, &["topics", "list"], "").succeeded().stdout;
    let args = ["doctor", "--write", "-b", &servers];
    let (doctor, _stdin, stdout) = Running::start_with_pipes(&mut command(&args));
    let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("readable"));
    lines.find(|line| line.contains(" create-topic ")).expect("a step");
    drop(lines);
    let ended = doctor.wait();
    assert_eq!(topics(), "orders\n", "{ended:?}");
    // A signal ends it after the deletion, or comes after the end.
    let mut doctor = Running::start(&mut command(&args), "");
    doctor.until("writing", PATIENCE, |it| it.stdout().contains(" create-topic "));
    doctor.signal(Signal::INT);
    let ended = doctor.wait();
    assert_eq!(topics(), "orders\n", "{ended:?}");
}

/// The first line that was not printed ended the command, with success: the other changes were not made.
#[test]
fn changes_are_made_although_the_output_is_closed() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    let unread = |args: &[&str]| {
        let (command, _stdin, stdout) =
            Running::start_with_pipes(&mut command(&[args, &["-b", &servers]].concat()));
        drop(stdout);
        command.wait()
    };
    let topics = || at(&broker, &["topics", "list"], "").succeeded().stdout;
    unread(&["topics", "create", "a", "b", "c"]).succeeded();
    assert_eq!(topics(), "a\nb\nc\norders\n");
    // A failure of one of them is no success.
    unread(&["topics", "delete", "a", "none", "b"]).failed(1, &["topic `none` does not exist"]);
    assert_eq!(topics(), "c\norders\n");
    fill(&broker, "1\n2\n");
    for group in ["readers", "writers"] {
        at(&broker, &["consume", "orders", "-G", group, "-e"], "").succeeded();
    }
    unread(&["groups", "reset-offsets", "readers", "--to", "beginning", "--execute"]).succeeded();
    assert_eq!(committed(&broker), 0);
    unread(&["groups", "delete", "readers", "writers"]).succeeded();
    assert_eq!(at(&broker, &["groups", "list", "--output", "json"], "").succeeded().stdout, "");
}
