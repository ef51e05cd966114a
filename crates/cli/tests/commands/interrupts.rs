//! SIGINT and SIGTERM: nothing stays behind, and what was measured is printed.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{PATIENCE, Running, broker, command};

/// The directory stayed.
#[test]
fn an_interrupted_demo_removes_its_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let lines = dir.path().join("lines");
    std::fs::write(&lines, "a line of some length, again and again\n".repeat(2_000_000)).expect("written");
    let (temporary, lines) = (dir.path().join("tmp"), lines.to_str().expect("UTF-8"));
    std::fs::create_dir(&temporary).expect("made");
    let entries = || std::fs::read_dir(&temporary).expect("readable").count();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        for wait in [0, 300] {
            let mut demo =
                Running::start(command(&["demo", "--durability", "os", lines]).env("TMPDIR", &temporary), "");
            demo.until("started", PATIENCE, |_| entries() == 1);
            std::thread::sleep(Duration::from_millis(wait));
            demo.signal(signal);
            let ended = demo.wait().failed(code, &["interrupted"]);
            assert_eq!(entries(), 0, "{ended:?}");
        }
    }
}

/// Its input is a pipe that nobody writes to: the read does not end.
#[test]
fn a_demo_that_waits_for_input_removes_its_directory_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shell = std::process::Command::new("sh");
    // The shell's own process becomes the demo.
    shell.args(["-c", "mkfifo \"$TMPDIR/../input\"; exec \"$0\" demo - <> \"$TMPDIR/../input\""]);
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).expect("made");
    shell.arg(crate::support::binary()).env("TMPDIR", &temporary);
    let mut demo = Running::start(&mut shell, "");
    demo.until("started", PATIENCE, |it| it.stdout().contains("embedded broker"));
    demo.signal(Signal::INT);
    demo.wait().failed(130, &["interrupted"]);
    assert_eq!(std::fs::read_dir(&temporary).expect("readable").count(), 0);
}

/// Nothing was printed.
#[test]
fn an_interrupted_benchmark_prints_partial_results() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    for (kind, more) in [
        ("produce", &["--rate", "2000", "--warmup", "0"][..]),
        ("latency", &["--rate", "1000", "--warmup", "0"]),
        ("latency", &["--rate", "0", "--warmup", "0", "--acks-only"]),
        ("pingpong", &["--warmup", "0"]),
    ] {
        let args = ["bench", kind, "-t", "orders", "-b", &servers, "-c", "100000000", "--json"];
        let mut bench = Running::start(&mut command(&[&args[..], more].concat()), "");
        let (_, end) = broker.cluster().offsets_of("orders", 0).expect("a topic");
        bench.until("under way", PATIENCE, |_| {
            broker.cluster().offsets_of("orders", 0).is_some_and(|(_, now)| now > end + 500)
        });
        bench.signal(Signal::INT);
        let ended = bench.wait().failed(130, &["interrupted"]);
        let last = ended.stdout.lines().last().unwrap_or_default();
        let json: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{ended:?}"));
        assert_eq!(json["interrupted"], true);
        assert!(json["messages"].as_u64().is_some_and(|it| (1..100_000_000).contains(&it)), "{kind}: {json}");
        assert!(ended.stdout.starts_with("interrupted: partial results of "), "{}", ended.stdout);
    }
    // What was produced is read, and the reader waits for more.
    let args =
        ["bench", "consume", "-t", "orders", "-b", &servers, "-c", "100", "--any-size", "--warmup", "0"];
    Running::start(&mut command(&args), "").wait().succeeded();
}
