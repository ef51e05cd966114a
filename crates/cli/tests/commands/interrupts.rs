//! SIGINT and SIGTERM: commands remove their temporary files and print their partial results.

use std::io::Write;
use std::time::Duration;

use ottla_broker::{ApiKey, ErrorCode, Fault, FaultRule};
use rustix::process::Signal;

use crate::support::{PATIENCE, Running, at, broker, command, fill, ottla};

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

/// The input is a pipe without a writer, so the read does not end.
#[test]
fn a_demo_that_waits_for_input_removes_its_directory_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shell = std::process::Command::new("sh");
    // `exec` replaces the shell's process with the demo.
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

/// Earlier, an interrupted benchmark printed nothing.
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
    // The consumer reads the produced records and waits for more.
    let args =
        ["bench", "consume", "-t", "orders", "-b", &servers, "-c", "100", "--any-size", "--warmup", "0"];
    Running::start(&mut command(&args), "").wait().succeeded();
}

/// The write to the pipe did not return, and the signal was never looked at.
#[test]
fn a_reader_whose_pipe_is_full_ends_on_a_signal() {
    /// The capacity of a pipe on Linux.
    const PIPE_BYTES: u64 = 64 << 10;
    let broker = broker(1);
    fill(&broker, &"a line of some length, again and again\n".repeat(20_000));
    let servers = broker.bootstrap_servers();
    let dir = tempfile::tempdir().expect("a directory");
    let (log, lines) = (dir.path().join("log"), dir.path().join("lines"));
    std::fs::write(&lines, "a line of some length, again and again\n".repeat(20_000)).expect("written");
    let (log, lines) = (log.to_str().expect("UTF-8"), lines.to_str().expect("UTF-8"));
    ottla(&["log", "append", log, "-l", lines], "").succeeded();
    let signals = [(Signal::INT, 130), (Signal::TERM, 143)].into_iter().cycle();
    for (args, (signal, code)) in [
        &["consume", "orders", "--brokers", &servers][..],
        &["consume", "orders", "-e", "--brokers", &servers],
        &["consume", "orders", "-G", "readers", "--brokers", &servers],
        &["log", "tail", log],
        &["log", "tail", "-F", log],
    ]
    .into_iter()
    .zip(signals)
    {
        let (mut reader, _stdin, stdout) = Running::start_with_pipes(&mut command(args));
        let is_full = || rustix::io::ioctl_fionread(&stdout).expect("a pipe") >= PIPE_BYTES;
        reader.until("stuck", PATIENCE, |_| is_full());
        reader.signal(signal);
        let ended = reader.wait();
        assert_eq!(ended.status.code(), Some(code), "{args:?}: {ended:?}");
    }
}

/// It was ignored while the last commit had no answer, for ten seconds.
#[test]
fn a_second_signal_ends_a_member_that_cannot_commit() {
    let broker = broker(1);
    fill(&broker, "1\n2\n");
    broker.cluster().intercept(ApiKey::OffsetCommit, None, 1000, Fault::Hang);
    let servers = broker.bootstrap_servers();
    let mut member =
        Running::start(&mut command(&["consume", "orders", "-G", "readers", "-b", &servers]), "");
    member.until("reading", PATIENCE, |it| it.stdout() == "1\n2\n");
    // Two signals that are sent fast may arrive as one.
    member.until("ended", PATIENCE, |it| {
        let has_ended = it.has_ended();
        if !has_ended {
            it.signal(Signal::INT);
        }
        has_ended
    });
    member.wait().failed(130, &["interrupted"]);
}

/// After the last record, the first signal ended the command without the commit, and the records were read again.
#[test]
fn the_first_signal_during_the_last_commit_does_not_end_it() {
    const COUNT: u32 = 1000;
    for more in [&["-e"][..], &["-c", "2"]] {
        let broker = broker(1);
        fill(&broker, "1\n2\n");
        let late = Fault::Delay(Duration::from_secs(2));
        let rule = FaultRule::new(ApiKey::OffsetCommit, late).node(1).times(COUNT);
        broker.cluster().add_fault(rule).expect("requests have this fault");
        let servers = broker.bootstrap_servers();
        let args = ["consume", "orders", "-G", "readers", "-b", &servers];
        let mut member = Running::start(&mut command(&[&args[..], more].concat()), "");
        member.until("committing", PATIENCE, |_| {
            broker.cluster().intercepts_left(ApiKey::OffsetCommit, 1) < COUNT as usize
        });
        member.signal(Signal::INT);
        let ended = member.wait().succeeded();
        assert_eq!(ended.stdout, "1\n2\n");
        assert_eq!(broker.cluster().committed_offset("readers", "orders", 0), Some(2), "{more:?}: {ended:?}");
    }
}

/// Earlier, the process ended without reporting the acknowledged records.
#[test]
fn an_interrupted_producer_prints_what_was_acknowledged() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (_, before) = broker.cluster().offsets_of("orders", 0).expect("a topic");
        let args = ["produce", "orders", "--brokers", &servers];
        let (mut producer, mut stdin, _stdout) = Running::start_with_pipes(&mut command(&args));
        stdin.write_all(b"one\ntwo\nthree\n").expect("written");
        producer.until("acknowledged", PATIENCE, |_| {
            broker.cluster().offsets_of("orders", 0).is_some_and(|(_, end)| end == before + 3)
        });
        producer.signal(signal);
        producer.wait().failed(code, &["3 records acknowledged", "interrupted"]);
    }
}

/// The process ended without a word, and the log was not synced.
#[test]
fn an_interrupted_append_prints_what_it_appended_and_closes_the_log() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        let path = log.to_str().expect("UTF-8");
        let (mut appending, mut stdin, _stdout) =
            Running::start_with_pipes(&mut command(&["log", "append", path]));
        stdin.write_all(b"one\ntwo\n").expect("written");
        appending.until("appended", PATIENCE, |_| {
            log.exists() && ottla(&["log", "tail", path], "").stdout == "one\ntwo\n"
        });
        appending.signal(signal);
        appending.wait().failed(code, &["2 records appended, the log ends at 2, on disk", "interrupted"]);
        assert!(log.join("clean-shutdown").exists());
    }
}

/// Earlier, nothing was printed for 20 seconds, with or without `-e`.
#[test]
fn a_partition_without_a_leader_is_reported_at_once() {
    let broker = broker(2);
    let servers = broker.bootstrap_servers();
    for partition in ["0", "1"] {
        at(&broker, &["produce", "orders", "-p", partition], "a line\n").succeeded();
    }
    assert!(broker.cluster().set_leader("orders", 1, -1));
    let words = ["topic `orders` partition 1", "LEADER_NOT_AVAILABLE"];
    for more in [&["-e"][..], &["-e", "-o", "-5"], &["-e", "-G", "readers"], &["-e", "-o", "@0"]] {
        let ended = at(&broker, &[&["consume", "orders"], more].concat(), "");
        let ended = ended.failed(1, &words);
        assert_eq!(ended.stdout, "a line\n", "{more:?}: {ended:?}");
    }
    let args = ["consume", "orders", "-p", "1", "--brokers", &servers];
    let mut reader = Running::start(&mut command(&args), "");
    // Far less than the client tries again for.
    reader.until("warned", Duration::from_secs(5), |it| words.iter().all(|word| it.stderr().contains(word)));
    reader.signal(Signal::INT);
    reader.wait().succeeded();
}

/// The partition was left out, and its records did not come as long as the command ran.
#[test]
fn the_last_records_of_a_partition_are_read_once_it_has_a_leader() {
    let broker = broker(2);
    let servers = broker.bootstrap_servers();
    for (partition, lines) in [("0", "first\n"), ("1", "second\nthird\n")] {
        at(&broker, &["produce", "orders", "-p", partition], lines).succeeded();
    }
    assert!(broker.cluster().set_leader("orders", 1, -1));
    let args = ["consume", "orders", "-o", "-1", "--brokers", &servers];
    let mut reader = Running::start(&mut command(&args), "");
    reader.until("reading", PATIENCE, |it| it.stdout() == "first\n");
    assert!(broker.cluster().set_leader("orders", 1, 1));
    reader.until("complete", PATIENCE, |it| it.stdout() == "first\nthird\n");
    reader.signal(Signal::INT);
    reader.wait().succeeded();
}

/// The lookups of a rebalance, and the first one of a share group, did not end: signals had handlers and no effect.
#[test]
fn a_reader_that_looks_up_offsets_or_its_topic_ends_on_a_signal() {
    const COUNT: u32 = 1_000_000;
    let again = Fault::Fail(ErrorCode::LeaderNotAvailable);
    for (api, fault, more) in
        [(ApiKey::ListOffsets, again, "--exit-at-end"), (ApiKey::Metadata, Fault::Hang, "--share")]
    {
        let broker = broker(1);
        let rule = FaultRule::new(api, fault).topic("orders").node(1).times(COUNT);
        broker.cluster().add_fault(rule).expect("requests have this fault");
        let servers = broker.bootstrap_servers();
        let args = ["consume", "orders", "-G", "readers", more, "--brokers", &servers];
        let mut reader = Running::start(&mut command(&args), "");
        reader.until("asked", PATIENCE, |_| broker.cluster().intercepts_left(api, 1) < COUNT as usize);
        reader.signal(Signal::INT);
        // Far less than the lookup tries again for.
        reader.until("ended", Duration::from_secs(30), Running::has_ended);
        reader.wait().succeeded();
    }
}

/// The signal had no effect before the wait for the topic ended, and then the command reported that wait.
#[test]
fn a_command_that_waits_for_its_dead_letter_topic_ends_on_a_signal() {
    const COUNT: u32 = 1_000_000;
    let broker = broker(1);
    let rule = FaultRule::new(ApiKey::Metadata, Fault::Hang).topic("letters").node(1).times(COUNT);
    broker.cluster().add_fault(rule).expect("requests have this fault");
    let servers = broker.bootstrap_servers();
    let args =
        ["run", "-t", "orders", "-G", "readers", "--dead-letters", "letters", "-b", &servers, "--", "cat"];
    let mut run = Running::start(&mut command(&args), "");
    run.until("asked", PATIENCE, |_| broker.cluster().intercepts_left(ApiKey::Metadata, 1) < COUNT as usize);
    run.signal(Signal::INT);
    run.wait().succeeded();
}
