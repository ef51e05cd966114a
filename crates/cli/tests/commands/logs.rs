//! `ottla log append` and `ottla log tail`, side by side.

use std::io::Write;

use crate::support::{PATIENCE, Running, command};

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
