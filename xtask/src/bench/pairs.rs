//! `cargo xtask bench pairs OTHER`: the CPU of this build next to that of another `ottla` binary, as ratios of pairs.
//!
//! Each pair starts a broker of each build on an empty directory, in random order, and writes and reads the same number of messages.
//! The memory that a process gets from the system differs from process to process, so a ratio needs many starts.

use std::path::PathBuf;
use std::process::ExitCode;

use ottla_interop::{Failure, target_dir};

use super::ottla::Ottla;
use super::table::{Samples, markdown};
use super::{machine, number, print_tables};

const TOPIC: &str = "pairs";
/// Messages before each measured phase.
const WARMUP: u64 = 100_000;
/// Consumers one after the other: the system counts most of the copies between the processes now for one of them, now for the other.
const READS: u32 = 6;
const FIELDS: [&str; 4] = ["broker, produce", "broker, consume", "client, produce", "client, consume"];

pub(crate) struct Options {
    other: PathBuf,
    count: u64,
    pairs: usize,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let (other, args) = args.split_first().ok_or("bench pairs needs the path of another ottla")?;
        let mut options = Self { other: other.into(), count: 4_000_000, pairs: 60 };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let value = args.next().copied().ok_or_else(|| format!("{arg} needs a value"))?;
            match arg {
                "--count" => options.count = number(arg, value)?,
                "--pairs" => options.pairs = number::<u32>(arg, value)? as usize,
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

/// Produces and consumes with a client at a broker. Returns the broker's CPU for both, and the client's.
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
    let (mut broker_consume, mut client_consume) = (0.0, 0.0);
    for _ in 0..READS {
        let (broker, client) = phase("consume")?;
        broker_consume += broker / f64::from(READS);
        client_consume += client / f64::from(READS);
    }
    running.stop()?;
    Ok([broker_produce, broker_consume, client_produce, client_consume])
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
        assert_eq!((options.pairs, options.count), (7, 4_000_000));
        for wrong in
            [&[][..], &["/old/ottla", "--pairs"], &["/old/ottla", "--pairs", "0"], &["/old/ottla", "--no"]]
        {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
