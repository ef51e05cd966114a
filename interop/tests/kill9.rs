//! Kills the broker with SIGKILL at random times under load: acknowledged records are not lost, duplicated or
//! reordered.
//!
//! Producers with acks=all and idempotence receive lines through a pipe while the broker is killed repeatedly. A
//! producer that exits with 0 has had every line acknowledged, so the topic must contain exactly these lines.

#![allow(
    clippy::disallowed_methods,
    reason = "real time: the load is paced, and the moments of the kills are chosen"
)]

use std::io::Write;
use std::process::ChildStdin;
use std::thread;
use std::time::{Duration, Instant};

use ottla_interop::{
    Failure, OttlaBroker, Peer, Process, console, java_command, kcat, ottla_command, require, wait_until,
};

/// Number of kills in CI; `cargo xtask soak kill9` sets more.
const KILLS: u32 = 10;
const TOPIC: &str = "kill9";

/// Lines per tick: batches are always in flight, and hundreds of kills stay manageable.
const LINES_PER_TICK: u64 = 20;
const TICK: Duration = Duration::from_millis(2);

/// Time limit for a producer to deliver its remaining lines after the last restart.
const DELIVERED_WITHIN: Duration = Duration::from_secs(150);

#[test]
fn nothing_is_lost_or_doubled_by_the_ottla_producer() -> Result<(), Failure> {
    require!(Peer::Kcat);
    survives(|bootstrap| {
        ottla_command(&[
            "produce",
            TOPIC,
            "--brokers",
            bootstrap,
            "-X",
            "acks=all",
            "-X",
            "enable.idempotence=true",
        ])
    })
}

#[test]
fn nothing_is_lost_or_doubled_by_the_java_producer() -> Result<(), Failure> {
    require!(Peer::Kcat);
    require!(Peer::Java);
    survives(|bootstrap| {
        let base = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--request-required-acks", "all"];
        // Fast reconnects without a limit: a killed broker restarts within a second.
        let patience = [
            "--producer-property",
            "enable.idempotence=true",
            "--producer-property",
            "delivery.timeout.ms=120000",
            "--producer-property",
            "reconnect.backoff.max.ms=100",
            "--producer-property",
            "linger.ms=0",
        ];
        java_command(console::PRODUCER, &[&base[..], &patience].concat())
    })
}

fn survives(producer: impl Fn(&str) -> Result<std::process::Command, Failure>) -> Result<(), Failure> {
    let kills =
        std::env::var("OTTLA_SOAK_KILLS").map_or(KILLS, |count| count.parse().expect("a count of kills"));
    let seed =
        std::env::var("OTTLA_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("{kills} kills, OTTLA_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let topic = format!("{TOPIC}:1");
    let mut broker = OttlaBroker::start_on(data.path(), &["--listen", "127.0.0.1:0", "--topic", &topic])?;
    let (bootstrap, address) = (broker.bootstrap(), broker.addresses()[0].to_string());

    let (mut producer, stdin) = Process::spawn_piped("producer", &mut producer(&bootstrap)?)?;
    let load = Load::start(stdin);
    for _ in 0..kills {
        // The producer must make progress between two kills, or the test would be meaningless.
        let before = end_offset(&bootstrap).unwrap_or(0);
        wait_until("progress between two kills", Duration::from_secs(60), || {
            end_offset(&bootstrap).filter(|&now| now > before)
        })
        .map_err(|failure| producer.quoted(&broker.process().quoted(&failure)))?;
        thread::sleep(Duration::from_millis(rng.u64(0..150)));
        broker.kill()?;
        broker = OttlaBroker::start_on(data.path(), &["--listen", &address])?;
    }
    let sent = load.end()?;
    let status = producer.wait(DELIVERED_WITHIN)?;
    let stderr = String::from_utf8_lossy(&producer.stderr()).into_owned();
    // Java's console producer always exits with 0, and logs undelivered lines.
    assert!(
        status.success() && !stderr.contains("Error when sending"),
        "{}",
        producer.quoted(&Failure::new("lost lines"))
    );

    let read =
        kcat(&["-b", &bootstrap, "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q"], b"")?.succeeded()?;
    let read = read.lines();
    let wrong = read.iter().zip(0_u64..).find(|(line, n)| **line != n.to_string());
    assert_eq!(
        wrong,
        None,
        "the first line that is not the one sent (line, its place); {} of {sent}",
        read.len()
    );
    assert_eq!(read.len() as u64, sent, "lines read, lines sent and acknowledged");
    println!("{sent} lines through {kills} kills");
    broker.stop()
}

/// The number of lines visible to consumers.
fn end_offset(bootstrap: &str) -> Option<u64> {
    let answer = kcat(&["-b", bootstrap, "-Q", "-t", &format!("{TOPIC}:0:-1")], b"").ok()?.stdout_text();
    answer.split("offset ").nth(1)?.trim().parse().ok()
}

/// Writes numbered lines at a steady rate, in its own thread, until it is stopped.
struct Load {
    ended: std::sync::mpsc::Sender<()>,
    thread: thread::JoinHandle<std::io::Result<u64>>,
}

impl Load {
    fn start(mut to: ChildStdin) -> Self {
        let (ended, end) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let started = Instant::now();
            let mut sent = 0;
            for tick in 1.. {
                for _ in 0..LINES_PER_TICK {
                    writeln!(to, "{sent}")?;
                    sent += 1;
                }
                let next = (started + TICK * tick).saturating_duration_since(Instant::now());
                if end.recv_timeout(next) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    break;
                }
            }
            Ok(sent)
        });
        Self { ended, thread }
    }

    /// Closes the pipe and returns the number of lines written.
    fn end(self) -> Result<u64, Failure> {
        drop(self.ended);
        let sent = self.thread.join().expect("the load does not panic");
        sent.map_err(|error| Failure::new(format!("the producer closed its input: {error}")))
    }
}
