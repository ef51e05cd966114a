//! `ottla log append` and `ottla log tail`, side by side.

use std::io::Write;
use std::process::Command;

use ottla_broker::Broker;
use serde_json::json;

use crate::administration::open_transaction;
use crate::support::{PATIENCE, Running, at, binary, command, ottla};

/// The rest of the segment was skipped, and the command succeeded.
#[test]
fn a_damaged_end_of_a_segment_before_others_is_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let (path, lines) = (log.to_str().expect("UTF-8"), dir.path().join("lines"));
    std::fs::write(&lines, "1\n2\n3\n").expect("written");
    ottla(&["log", "append", path, "-l", lines.to_str().expect("UTF-8")], "").succeeded();
    let segment = log.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).expect("read");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("a batch") + 1;
    bytes.truncate(end);
    std::fs::write(log.join("00000000000000000003.log"), &bytes).expect("written");
    bytes.resize(end.next_multiple_of(100), 0);
    bytes.extend([7; 100]);
    std::fs::write(&segment, bytes).expect("written");
    let ended =
        ottla(&["log", "tail", path], "").failed(1, &["00000000000000000000.log", "are not a whole batch"]);
    assert_eq!(ended.stdout, "1\n2\n3\n");
}

/// The command panicked, with the exit code 101, after it had appended the records.
#[test]
fn an_append_succeeds_without_a_place_for_its_summary() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" log append \"$1\" 2>/dev/full"]).arg(binary()).arg(&log);
    Running::start(shell.env_remove("OTTLA_LOG"), "1\n").wait().succeeded();
    let tailed = ottla(&["log", "tail", log.to_str().expect("UTF-8")], "").succeeded();
    assert_eq!(tailed.stdout, "1\n");
}

/// The records before the error were appended without a word, and not synced.
#[test]
fn an_append_that_fails_prints_what_it_appended() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let path = log.to_str().expect("UTF-8");
    let lines = format!("1\n2\n{}\n", "x".repeat(2 << 20));
    let failed = ottla(&["log", "append", path], &lines)
        .failed(1, &["2 records appended", "line 3 is longer than 1047552 bytes: ", "split the line"]);
    // The command has no client and no topic.
    assert!(!failed.stderr.contains("max.message.bytes"), "{}", failed.stderr);
    assert_eq!(ottla(&["log", "tail", path], "").succeeded().stdout, "1\n2\n");
}

/// The marker was a line of four bytes, and in JSON the topic was `my-orders-1`, partition 0.
#[test]
fn a_partition_of_a_broker_is_printed_without_markers_and_with_its_name() {
    let data = tempfile::tempdir().expect("a directory");
    let broker = Broker::builder().data_dir(data.path()).topic("orders", 1).topic("my-orders", 2);
    let broker = broker.spawn().expect("a broker");
    let producer = open_transaction(&broker, "billing");
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    // A consumer gets the record after the marker is written.
    assert_eq!(at(&broker, &["consume", "orders", "-c", "1"], "").succeeded().stdout, "1\n");
    at(&broker, &["produce", "my-orders", "-p", "1"], "a\n").succeeded();
    drop((producer, broker));
    let tail = |name: &str, more: &[&str]| {
        let dir = data.path().join(name);
        ottla(&[&["log", "tail", dir.to_str().expect("UTF-8")], more].concat(), "").succeeded().stdout
    };
    assert_eq!(tail("orders-0", &[]), "1\n");
    let json: serde_json::Value = serde_json::from_str(&tail("my-orders-1", &["--json"])).expect("JSON");
    assert_eq!((&json["topic"], &json["partition"]), (&json!("my-orders"), &json!(1)));
}

/// Earlier, lines waited for 64 KiB of them or for the end of the input.
#[test]
fn each_line_is_seen_before_the_next_one_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let path = log.to_str().expect("UTF-8");
    let (mut append, mut input, _output) = Running::start_with_pipes(&mut command(&["log", "append", path]));
    append.until("a log", PATIENCE, |_| {
        std::fs::read_dir(&log).is_ok_and(|mut files| {
            files.any(|file| file.is_ok_and(|file| file.path().extension().is_some_and(|it| it == "log")))
        })
    });
    let mut tail = Running::start(&mut command(&["log", "tail", "-F", path]), "");
    let mut expected = String::new();
    for number in 1..=20 {
        let line = format!("message {number}\n");
        input.write_all(line.as_bytes()).expect("written");
        expected += &line;
        tail.until("the line printed", PATIENCE, |tail| tail.stdout() == expected);
    }
    drop(input);
    append.wait().succeeded();
    tail.signal(rustix::process::Signal::INT);
    assert_eq!(tail.wait().stdout, expected);
}

/// `--from -1` is the last record for `ottla consume`. Here it was the first one.
#[test]
fn a_log_is_printed_from_an_offset_with_the_letters_of_consume() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let log = log.to_str().expect("UTF-8");
    ottla(&["log", "append", log], "one\ntwo\n").succeeded();
    let tail = |args: &[&str]| ottla(&[&["log", "tail", log][..], args].concat(), "");
    assert_eq!(tail(&["-o", "1"]).succeeded().stdout, "two\n");
    let json = tail(&["-J", "-o", "1"]).succeeded().stdout;
    assert!(json.contains("\"value\":\"two\""), "{json}");
    tail(&["--from", "-1"]).failed(2, &["from 0 to 9223372036854775807"]);
}
