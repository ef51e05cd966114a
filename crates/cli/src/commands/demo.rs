//! `ottla demo`: produces and consumes a text through an embedded broker and verifies the result.

mod input;
mod run;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ottla_broker::{Broker, BrokerThread, Durability};
use ottla_client::{Client, Config};

use self::input::Input;
use self::run::{Outcome, Run};
use super::broker::{start_failed, stores_nothing};
use crate::choices::{DURABILITIES, completed};
use crate::failure::Failure;
use crate::output::{note, print};
use crate::signals::Interrupt;
use crate::time;

const PARTITIONS: i32 = 3;
/// Refresh interval of the rates.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the demo to end by itself after a signal.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Number of attempts to remove the temporary directory.
const REMOVALS_MAX: u32 = 20;

/// The temporary directory, while it exists.
type Scratch = Mutex<Option<tempfile::TempDir>>;

/// Sends a text through an embedded broker and verifies the output
///
/// Starts a broker, creates a topic, produces each line of the input and consumes it in a group at the same time.
/// Then verifies the count, the order and a checksum.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The input file, or - for standard input [default: the source files under the current directory]
    file: Option<PathBuf>,
    /// Keeps the data in this directory [default: a temporary directory, which is removed]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// When a record is acknowledged: on disk, in the system's page cache, or in memory
    #[arg(long, default_value = "disk", value_name = "disk|os|memory", value_parser = completed(str::parse::<Durability>, DURABILITIES), hide_possible_values = true)]
    durability: Durability,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let (Some(dir), Durability::Memory) = (&args.data, args.durability) {
        return Err(stores_nothing(dir));
    }
    let input = Input::open(args.file.as_deref())?;
    let scratch = Arc::new(Mutex::new(None));
    let at_end = scratch.clone();
    // Before the directory is created, so that a signal at any time removes it.
    let interrupt = Interrupt::watch_and(move |signal| {
        std::thread::sleep(END_WITHIN);
        // A thread is blocked, for example in a read from a terminal.
        remove(&at_end);
        note("ottla: interrupted");
        std::process::exit(i32::from(128 + signal));
    })?;
    let ended = run_in(args, input, &scratch, &interrupt);
    remove(&scratch);
    ended
}

/// Removes the temporary directory. Repeats, because the broker may still create files in it. Returns after the directory is removed,
/// also by another thread: the caller may end the process.
fn remove(scratch: &Scratch) {
    let mut scratch = scratch.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(directory) = scratch.take().map(tempfile::TempDir::keep) else { return };
    for _ in 0..REMOVALS_MAX {
        match std::fs::remove_dir_all(&directory) {
            Ok(()) => return,
            Err(_) if !directory.exists() => return,
            Err(_) => std::thread::sleep(REFRESH_INTERVAL),
        }
    }
    note(&format!("ottla: {} could not be removed", directory.display()));
}

fn run_in(args: &Args, input: Input, scratch: &Scratch, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut temporary = None;
    if args.data.is_none() {
        let made = tempfile::Builder::new().prefix("ottla-demo-").tempdir().map_err(|error| {
            Failure::failed(format!(
                "cannot create a temporary directory: {}",
                crate::failure::sentence(&error)
            ))
        })?;
        temporary = Some(made.path().to_owned());
        *scratch.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }
    let data = args.data.clone().or(temporary);
    let data = data.ok_or_else(|| Failure::failed("no data directory"))?;
    // A kept directory may contain the topic of an earlier run.
    let topic = if args.data.is_some() { format!("demo-{}", time::now_ms()) } else { "demo".to_owned() };
    let started = Instant::now();
    let broker = Broker::builder()
        .data_dir(&data)
        .configure(|config| config.durability = args.durability)
        .topic(&topic, PARTITIONS)
        .spawn()
        .map_err(start_failed)?;
    print(&format!(
        "An embedded broker listens on {}, ready after {:.1} ms, with its data in {} (acknowledged: {}).\n\
         Topic `{topic}` has {PARTITIONS} partitions. Input: {}.\n",
        broker.bootstrap_servers(),
        started.elapsed().as_secs_f64() * 1e3,
        place(&data, args.durability),
        acknowledged(args.durability),
        input.description(),
    ))?;

    let outcome = run_demo(&broker, &topic, input, interrupt);
    broker.stop();
    interrupt.check()?;
    let outcome = outcome?;
    print(&report(&outcome))?;
    outcome.verify()?;
    print(&next_steps(args))
}

/// The place of the records.
fn place(data: &Path, durability: Durability) -> String {
    match durability {
        Durability::Disk | Durability::Os => data.display().to_string(),
        Durability::Memory => "memory".to_owned(),
    }
}

const fn acknowledged(durability: Durability) -> &'static str {
    match durability {
        Durability::Disk => "when on disk",
        Durability::Os => "when in the system's page cache",
        Durability::Memory => "when in memory",
    }
}

fn run_demo(
    broker: &BrokerThread,
    topic: &str,
    input: Input,
    interrupt: &Interrupt,
) -> Result<Outcome, Failure> {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("group.id", "demo")?;
    config.set("auto.offset.reset", "earliest")?;
    let lines = input.lines_known();
    let run = Run::new(Client::new(config)?, topic, interrupt.clone());
    let bar = bar(lines);
    let outcome = std::thread::scope(|scope| {
        let working = scope.spawn(|| run.run(input));
        let mut seen = run.progress();
        while !working.is_finished() {
            std::thread::sleep(REFRESH_INTERVAL);
            let now = run.progress();
            let rate = |now: u64, before: u64| (now - before) as f64 / REFRESH_INTERVAL.as_secs_f64();
            bar.set_position(now.consumed);
            bar.set_message(format!(
                "produced {:>9.0}/s  consumed {:>9.0}/s",
                rate(now.produced, seen.produced),
                rate(now.consumed, seen.consumed)
            ));
            seen = now;
        }
        working.join().unwrap_or_else(|_| Err(Failure::failed("a thread of the demo panicked")))
    });
    bar.finish_and_clear();
    outcome
}

/// A progress bar on a terminal; hidden elsewhere.
fn bar(lines: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = lines.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = match lines {
        Some(_) => "{bar:32} {pos}/{len} lines  {msg}",
        None => "{spinner} {pos} lines  {msg}",
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn report(outcome: &Outcome) -> String {
    let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64().max(1e-9);
    let us = |quantile: f64| outcome.latencies.value_at_quantile(quantile) as f64 / 1e3;
    let mut text = format!(
        "Produced {} lines ({} bytes) in {:.1} ms: {:.0} lines/s, each acknowledged.\n\
         Consumed {} lines in a group in {:.1} ms: {:.0} lines/s, from the first send to the last line read.\n",
        outcome.produced.lines,
        outcome.produced.bytes,
        outcome.produced_in.as_secs_f64() * 1e3,
        rate(outcome.produced.lines, outcome.produced_in),
        outcome.consumed.lines,
        outcome.consumed_in.as_secs_f64() * 1e3,
        rate(outcome.consumed.lines, outcome.consumed_in),
    );
    if outcome.consumed.lines > 0 {
        text += &format!(
            "From send to read, as fast as it goes and so mostly spent in queues: p50 {:.0} us, p90 {:.0} us, p99 {:.0} us, \
             p99.9 {:.0} us, max {:.0} us.\n",
            us(0.5),
            us(0.9),
            us(0.99),
            us(0.999),
            outcome.latencies.max() as f64 / 1e3,
        );
    }
    if outcome.verify().is_ok() {
        text += &format!(
            "Verified: the count, the order in each partition, no duplicates, and equal checksums {:016x}.\n",
            outcome.produced.checksum
        );
    }
    text
}

fn next_steps(args: &Args) -> String {
    let data = args.data.as_ref().map_or("data".to_owned(), |data| data.display().to_string());
    format!(
        "\nWhat to try next: start a broker that stays with `ottla broker --data {data} --topic orders:3`, and leave it \
         running on 127.0.0.1:9092. Then, in another terminal, list it with `kcat -b 127.0.0.1:9092 -L`, produce with \
         `echo hello | kcat -b 127.0.0.1:9092 -t orders -P` and consume with `kcat -b 127.0.0.1:9092 -t orders -C`; or with \
         Java: `kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic orders` and \
         `kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic orders --group g --from-beginning`; or with \
         `ottla produce orders`, `ottla consume orders`, `ottla groups describe g`, and `ottla bench produce` for numbers.\n"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// After a signal, one thread ended the process while the other one removed the directory, and a part of it stayed.
    #[test]
    fn a_thread_that_ends_the_process_waits_for_the_removal_by_another() {
        let made = tempfile::tempdir().expect("a directory");
        for number in 0..2000 {
            std::fs::write(made.path().join(number.to_string()), "").expect("written");
        }
        let path = made.path().to_owned();
        let scratch: Scratch = Mutex::new(Some(made));
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    remove(&scratch);
                    assert!(!path.exists());
                });
            }
        });
    }
}
