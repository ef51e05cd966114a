//! kill -9 of `ottla broker` under load: every acknowledged record is there once and in order, and no start reports a
//! loss. Needs nothing but this binary; `interop/tests/kill9.rs` has the same story with other clients.

#![allow(
    clippy::disallowed_methods,
    reason = "real time: the load is paced, and the moments of the kills are chosen"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Kills in CI; `cargo xtask soak broker-kill9` sets more.
const KILLS: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(60);
const LINES_PER_TICK: u64 = 20;
const TICK: Duration = Duration::from_millis(2);

fn ottla() -> Command {
    Command::new(std::env::var_os("OTTLA_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_ottla").into()))
}

struct BrokerProcess {
    child: Child,
    address: String,
    errors: thread::JoinHandle<String>,
}

impl BrokerProcess {
    fn start(data: &Path, listen: &str) -> Self {
        let mut command = ottla();
        command.arg("broker").arg("--data").arg(data).args(["--listen", listen, "--topic", "kill9:1"]);
        // Small segments, so that kills meet every step of starting and closing one.
        command.args(["-X", "log.segment.bytes=200000", "--durability", "disk"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the broker starts");
        let mut stderr = child.stderr.take().expect("piped");
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let Some(address) = line.trim().strip_prefix("listening on ").map(ToOwned::to_owned) else {
            let _ = child.kill();
            panic!("no listener: {line:?} {}", errors.join().expect("no panic"));
        };
        Self { child, address, errors }
    }

    fn kill(mut self) {
        self.child.kill().expect("a SIGKILL");
        self.child.wait().expect("it ends");
        let errors = self.errors.join().expect("no panic");
        assert!(!errors.contains("ERROR"), "a kill is no loss: {errors}");
    }
}

/// Bytes of the partition's segments.
fn log_bytes(data: &Path) -> u64 {
    let entries = std::fs::read_dir(data.join("kill9-0")).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    logs.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_acknowledged_record_is_there_once_and_in_order_after_each_kill() {
    let kills = std::env::var("OTTLA_SOAK_KILLS").map_or(KILLS, |count| count.parse().expect("a count"));
    let seed = std::env::var("OTTLA_SEED").map_or(0x0771a, |seed| seed.parse().expect("a seed"));
    println!("{kills} kills, OTTLA_SEED={seed}");
    let mut pauses = Pauses(seed);
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let data = tmp.path().join("data");
    let mut broker = BrokerProcess::start(&data, "127.0.0.1:0");
    let address = broker.address.clone();

    let mut command = ottla();
    command.args([
        "produce",
        "kill9",
        "--brokers",
        &address,
        "-X",
        "acks=all",
        "-X",
        "enable.idempotence=true",
        // A batch fits into a segment also if the producer waited for the broker.
        "-X",
        "batch.size=100000",
    ]);
    let mut producer = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the producer starts");
    let mut input = producer.stdin.take().expect("piped");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let load = thread::spawn(move || {
        let mut sent = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..LINES_PER_TICK {
                writeln!(input, "{sent}").expect("the producer reads");
                sent += 1;
            }
            thread::sleep(TICK);
        }
        sent
    });
    for _ in 0..kills {
        // The producer must get through between two kills, or the test would show nothing.
        let before = log_bytes(&data);
        wait_until("progress between two kills", || log_bytes(&data) > before);
        thread::sleep(Duration::from_millis(pauses.next() % 150));
        broker.kill();
        broker = BrokerProcess::start(&data, &address);
    }
    stop.store(true, Ordering::Relaxed);
    let sent = load.join().expect("the load does not panic");
    let done = producer.wait_with_output().expect("the producer ends");
    assert!(done.status.success(), "lost lines: {}", String::from_utf8_lossy(&done.stderr));

    let read =
        ottla().args(["consume", "kill9", "--brokers", &address, "--from", "beginning", "-e"]).output();
    let read = read.expect("the consumer runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = String::from_utf8(read.stdout).expect("numbers");
    let wrong = text.lines().zip(0_u64..).find(|(line, n)| **line != n.to_string());
    assert_eq!(wrong, None, "the first line that is not the one sent (line, its place)");
    assert_eq!(text.lines().count() as u64, sent, "lines read, lines sent and acknowledged");
    broker.kill();
    let repair = ottla().args(["log", "repair"]).arg(&data).output().expect("it runs");
    assert!(repair.status.success(), "{}", String::from_utf8_lossy(&repair.stdout));
    println!("{sent} lines through {kills} kills");
}

/// A small generator: the moments of the kills need be no better.
struct Pauses(u64);

impl Pauses {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}
