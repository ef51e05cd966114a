//! `cargo xtask bench pairs OTHER`: the CPU of this build next to that of another `ottla` binary, as ratios of pairs.
//!
//! Each pair starts a broker of each build on an empty directory, in random order, and writes and reads the same number of messages.
//! The memory that a process gets from the system differs from process to process, so a ratio needs many starts.
//!
//! All processes share a CPU. On two, the kernel wakes a sleeping client with an interrupt to its CPU, or finds it awake: reading costs
//! the same broker 9 or 49 ns per record, and which of both a run gets is chance. On one, the kernel still does the loopback's work in
//! the time of either process, so a broker that is read is compared together with its client.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use ottla_interop::{Failure, target_dir};

use super::ottla::Ottla;
use super::table::{Samples, markdown};
use super::{machine, number, print_tables};

const TOPIC: &str = "pairs";
/// Messages before each measured phase.
const WARMUP: u64 = 100_000;
/// Consumers one after the other, of which the median counts: one in ten finds the records in the processor's cache, at two thirds of the
/// cost.
const READS: usize = 7;
const FIELDS: [&str; 4] =
    ["broker, produce", "broker and its client, consume", "client, produce", "client, consume"];

pub(crate) struct Options {
    other: PathBuf,
    count: u64,
    pairs: usize,
    /// The CPU of all processes.
    cpu: u32,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let (other, args) = args.split_first().ok_or("bench pairs needs the path of another ottla")?;
        let mut options = Self { other: other.into(), count: 4_000_000, pairs: 60, cpu: 0 };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let value = args.next().copied().ok_or_else(|| format!("{arg} needs a value"))?;
            match arg {
                "--count" => options.count = number(arg, value)?,
                "--pairs" => options.pairs = number::<u32>(arg, value)? as usize,
                "--cpu" => {
                    options.cpu = value.parse().map_err(|_| format!("{arg}: {value} is no CPU's number"))?;
                }
                unknown => return Err(format!("bench pairs does not know {unknown}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run_all(options: &Options) -> ExitCode {
    print_tables("pairs", &["--package", "ottla"], || measure(options))
}

fn measure(options: &Options) -> Result<String, Failure> {
    let this = Ottla { binary: target_dir().join("release/ottla") };
    let other = Ottla { binary: options.other.clone() };
    stay_on(options.cpu)?;
    let mut rng = fastrand::Rng::new();
    let (mut of_this, mut of_other) = (Samples::default(), Samples::default());
    for pair in 0..=options.pairs {
        let mut order = [(&this, true), (&other, false)];
        rng.shuffle(&mut order);
        let mut costs = [[0.0; 4]; 2];
        for (ottla, is_this) in order {
            // Only the broker or only the client is the other build: each row compares one of them.
            let [produce, consume, ..] = pass(ottla, &this, options.count)?;
            let [_, _, client_produce, client_consume] = pass(&this, ottla, options.count)?;
            costs[usize::from(!is_this)] = [produce, consume, client_produce, client_consume];
        }
        // The first pair warms the machine up.
        for (at, field) in FIELDS.into_iter().enumerate().filter(|_| pair > 0) {
            of_this.add(field, costs[0][at]);
            of_other.add(field, costs[1][at]);
        }
    }
    let row = |field: &str| {
        let (this, other) = (of_this.of(field), of_other.of(field));
        let Interval { mean, low, high } =
            geometric(this.iter().zip(other).map(|(this, other)| this / other));
        vec![
            field.to_owned(),
            of_this.spread(field),
            of_other.spread(field),
            format!("{mean:.3} ({low:.3}–{high:.3})"),
        ]
    };
    let rows: Vec<_> = FIELDS.into_iter().map(row).collect();
    let title = format!("CPU in ns per message, {} pairs", options.pairs);
    Ok(markdown(&title, &["", "this build", "the other", "ratio, 95 % interval"], &rows))
}

/// Restricts this process, and those that it starts from now on, to one CPU.
fn stay_on(cpu: u32) -> Result<(), Failure> {
    let (cpu, id) = (cpu.to_string(), std::process::id().to_string());
    let done = Command::new("taskset").args(["--pid", "--cpu-list", &cpu, &id]).output();
    let done = done.map_err(|error| Failure::new(format!("taskset (util-linux): {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("taskset: CPU {cpu}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}

/// Produces and consumes with a client at a broker. Returns the broker's CPU for the first and that of both processes for the second,
/// and the client's for each.
fn pass(broker: &Ottla, client: &Ottla, count: u64) -> Result<[f64; 4], Failure> {
    let scratch = tempfile::Builder::new().prefix("ottla-pairs-").tempdir_in(target_dir());
    let scratch = scratch.map_err(|error| Failure::new(format!("a directory to measure in: {error}")))?;
    let running = broker.broker(scratch.path(), "os")?;
    let bootstrap = running.bootstrap();
    let (all, warmup) = (count.to_string(), WARMUP.to_string());
    let phase = |name: &str| {
        let before = machine::cpu(running.process_id())?;
        let args = ["--brokers", &bootstrap, "--topic", TOPIC, "--count", &all, "--warmup", &warmup];
        let report = client.bench(&[&[name], &args[..]].concat())?;
        let used = machine::cpu(running.process_id())?.saturating_sub(before);
        let of_broker = used.as_nanos() as f64 / (count + WARMUP) as f64;
        Ok::<_, Failure>((of_broker, report.number("/cpu_ns_per_msg")?))
    };
    let (broker_produce, client_produce) = phase("produce")?;
    let (mut both_consume, mut client_consume) = (Vec::new(), Vec::new());
    for _ in 0..READS {
        let (broker, client) = phase("consume")?;
        both_consume.push(broker + client);
        client_consume.push(client);
    }
    running.stop()?;
    Ok([broker_produce, median(both_consume), client_produce, median(client_consume)])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A geometric mean and its 95 % interval.
struct Interval {
    mean: f64,
    low: f64,
    high: f64,
}

fn geometric(ratios: impl Iterator<Item = f64>) -> Interval {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    // The normal distribution's: with less than 30 pairs the interval is a little too narrow.
    let margin = 1.96 * (variance / count).sqrt();
    Interval { mean: mean.exp(), low: (mean - margin).exp(), high: (mean + margin).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_equal_ratios_is_a_point_and_of_others_wider() {
        let Interval { mean, low, high } = geometric([1.5; 4].into_iter());
        assert!([mean, low, high].iter().all(|bound| (bound - 1.5).abs() < 1e-9));
        let Interval { mean, low, high } = geometric([0.5, 2.0].into_iter());
        assert!((mean - 1.0).abs() < 1e-9 && low < 0.5 && high > 2.0);
    }

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        let options = Options::parse(&["/old/ottla", "--pairs", "7"]).expect("options");
        assert_eq!((options.pairs, options.count, options.cpu), (7, 4_000_000, 0));
        for wrong in
            [&[][..], &["/old/ottla", "--pairs"], &["/old/ottla", "--pairs", "0"], &["/old/ottla", "--no"]]
        {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
