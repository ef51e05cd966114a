//! Kills members of a group in every mode and order: every record is handled, in order, and nothing that was committed is
//! handled again.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and processes")]

mod support;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ottla_parallel::{Mode, Order, Processor};
use support::*;

/// Total number of kills; `OTTLA_SOAK_PROCESSOR_KILLS` overrides it.
const KILLS: usize = 12;

const PARTITIONS: i32 = 6;
const KEYS: usize = 30;

/// Environment variables of a child process.
const SERVERS: &str = "OTTLA_TEST_SERVERS";
const MODE: &str = "OTTLA_TEST_MODE";
const ORDER: &str = "OTTLA_TEST_ORDER";
const LOG: &str = "OTTLA_TEST_LOG";

const ORDERS: [Order; 3] = [Order::None, Order::Partition, Order::Key];

/// Size of a log line. It divides a memory page, so that no kill or read can split a line.
const LINE: usize = 64;

/// Runs a member if the test below started this program as one; otherwise does nothing.
#[test]
fn member_process() {
    let (Ok(servers), Ok(mode), Ok(log)) = (std::env::var(SERVERS), std::env::var(MODE), std::env::var(LOG))
    else {
        return;
    };
    let order = std::env::var(ORDER).expect("an order");
    let order = *ORDERS.iter().find(|known| format!("{known:?}") == order).expect("an order");
    let mode = *Mode::ALL.iter().find(|known| known.name() == mode).expect("a mode");
    let log = OpenOptions::new().append(true).open(log).expect("the log");
    let log = std::sync::Arc::new(log);
    let builder = Processor::builder(member(servers, "workers"), mode)
        .topics(["orders"])
        .order(order)
        .batch(50)
        .batch_wait(Duration::from_millis(5));
    let processor = start(builder, mode, move |record| {
        std::thread::park_timeout(Duration::from_micros(200));
        let text = |part: Option<&[u8]>| String::from_utf8_lossy(part.unwrap_or_default()).into_owned();
        let (key, value) = (text(record.key()), text(record.value()));
        let line = format!("{key} {} {} {value}", record.partition(), record.offset());
        // One append per line: the lines of all processes are in the order of the writes.
        (&*log).write_all(format!("{line:<WIDTH$}\n", WIDTH = LINE - 1).as_bytes())?;
        Ok(())
    });
    // Until the parent closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
    processor.stop();
    processor.join().expect("stopped");
}

struct Member(Child);

impl Member {
    fn start(servers: &str, mode: Mode, order: Order, log: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command
            .args(["--exact", "member_process", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        command.env(SERVERS, servers).env(MODE, mode.name()).env(ORDER, format!("{order:?}")).env(LOG, log);
        Self(command.spawn().expect("a member"))
    }

    fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("dead");
    }

    fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("ended").success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

fn lines(log: &Path) -> Seen {
    let mut text = String::new();
    File::open(log).expect("the log").read_to_string(&mut text).expect("text");
    let seen = Seen::default();
    for line in text.lines() {
        assert_eq!(line.len(), LINE - 1, "a whole line: {line:?}");
        let parts: Vec<&str> = line.split_ascii_whitespace().collect();
        let (partition, offset) = (parts[1].parse().expect("a number"), parts[2].parse().expect("a number"));
        seen.note(Some(parts[0].as_bytes()), partition, offset, Some(parts[3].as_bytes()));
    }
    seen
}

/// The group's committed offsets.
fn committed_each(servers: &str) -> Vec<i64> {
    let config = member(servers.to_owned(), "workers");
    (0..PARTITIONS).map(|partition| committed_of(config.clone(), "orders", partition)).collect()
}

/// The state at a kill: the committed offsets before it, and the number of handled records after it.
struct Kill {
    committed: Vec<i64>,
    handled: usize,
}

/// Asserts that each partition's records were first handled in order.
fn assert_partition_order(seen: &Seen) {
    let mut next = vec![0; PARTITIONS as usize];
    for (_, partition, offset, _) in seen.all() {
        let next = &mut next[partition as usize];
        assert!(offset <= *next, "partition {partition}: offset {offset} before {next}");
        *next = (*next).max(offset + 1);
    }
}

fn kills_lose_nothing(mode: Mode, order: Order, kills: usize, rng: &mut fastrand::Rng) {
    let broker = broker("orders", PARTITIONS);
    let servers = broker.bootstrap_servers();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("handled");
    File::create(&log).expect("the log");
    let mut members: Vec<_> = (0..3).map(|_| Member::start(&servers, mode, order, &log)).collect();
    let (mut written, mut seen_kills) = (0, Vec::new());
    for _ in 0..kills {
        produce_from(servers.clone(), "orders", KEYS, written, 600);
        written += 600;
        let until = lines(&log).distinct() + 200;
        await_that("some of it is handled", || lines(&log).distinct() >= until.min(written));
        let committed = committed_each(&servers);
        members.swap_remove(rng.usize(..members.len())).kill();
        seen_kills.push(Kill { committed, handled: lines(&log).len() });
        members.push(Member::start(&servers, mode, order, &log));
    }
    await_that("all is handled", || lines(&log).distinct() == written);
    // Records that a killed member handled but did not commit are handled again after its session timeout.
    let config = || member(servers.clone(), "workers");
    await_that("all is committed", || committed(config(), "orders", PARTITIONS) == written as i64);
    members.into_iter().for_each(Member::stop);
    let seen = lines(&log);
    if order != Order::None || !matches!(mode, Mode::MultiAsync | Mode::MultiBatch) {
        seen.assert_key_order();
    }
    if order == Order::Partition {
        assert_partition_order(&seen);
    }
    for kill in seen_kills {
        for (_, partition, offset, _) in &seen.all()[kill.handled..] {
            let committed = kill.committed[*partition as usize];
            assert!(
                *offset >= committed,
                "partition {partition}: {offset} again after {committed} was committed"
            );
        }
    }
    println!("{mode:?} {order:?}: {kills} kills, {written} records, {} handled again", seen.len() - written);
}

#[test]
fn every_record_is_handled_in_order_when_members_are_killed_and_committed_ones_once() {
    let kills = std::env::var("OTTLA_SOAK_PROCESSOR_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: usize = kills.unwrap_or(KILLS);
    let mut rng = fastrand::Rng::with_seed(9);
    let all: Vec<_> = Mode::ALL.into_iter().flat_map(|mode| ORDERS.map(|order| (mode, order))).collect();
    for (index, (mode, order)) in all.iter().enumerate() {
        kills_lose_nothing(*mode, *order, (kills + index) / all.len(), &mut rng);
    }
}
