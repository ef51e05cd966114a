//! `ottla bench patterns --waits`: measures which share of the possible rate is reached with more and more concurrent
//! handlers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::Config;
use ottla_parallel::{Mode, Processor};
use serde_json::{Value, json};

use super::totals::{HandlerCost, Totals, WorkerTotals, start};
use super::{Args, CHECK_INTERVAL, SILENCE_MAX};
use crate::bench::measure::{Phase, rounded};
use crate::bench::new_group;
use crate::failure::Failure;
use crate::output::print;
use crate::table::Table;

/// Wait and concurrency of async handlers, then of blocking handlers.
const ASYNC: (Duration, &[usize]) = (Duration::from_millis(1), &[1, 3, 10, 30, 100, 300, 1000]);
const BLOCKING: (Duration, &[usize]) = (Duration::from_millis(10), &[1, 2, 5, 10, 20, 50, 100, 200]);

/// Duration of each measurement, if the topic has enough messages.
const MEASURED_FOR: Duration = Duration::from_secs(3);

/// Required share of the possible rate, which is workers divided by wait,
const SHARE_MIN: f64 = 0.8;
/// unless this share of all cores is in use. The CPU time of the broker and the kernel is not counted.
const CORES_FULL: f64 = 0.8;

pub(super) fn run(args: &Args, config: &Config) -> Result<(), Failure> {
    let mut table =
        Table::new(["HANDLER", "AT ONCE", "WAITED MS", "MSGS/S", "POSSIBLE", "SHARE", "CORES", "80 %"]);
    let available = std::thread::available_parallelism().map_or(1, Into::into);
    let mut rows: Vec<Value> = Vec::new();
    for (kind, (wait, counts)) in [("async", ASYNC), ("blocking", BLOCKING)] {
        for at_once in counts {
            let Waits { rate, cores, waited } =
                measure(args, config.clone(), kind == "async", wait, *at_once)?;
            let possible = *at_once as f64 / wait.as_secs_f64();
            let share = rate / possible;
            let verdict = if share >= SHARE_MIN {
                "met"
            } else if cores >= available as f64 * CORES_FULL {
                "cores are full"
            } else {
                "not met"
            };
            table.row([
                format!("{kind}, {} ms", wait.as_millis()),
                at_once.to_string(),
                format!("{:.2}", waited.as_secs_f64() * 1e3),
                format!("{rate:.0}"),
                format!("{possible:.0}"),
                format!("{share:.2}"),
                format!("{cores:.2}"),
                verdict.to_owned(),
            ]);
            rows.push(json!({
                "handler": kind,
                "at_once": at_once,
                "waited_ms": rounded(waited.as_secs_f64() * 1e3, 3),
                "msgs_per_s": rate.round(),
                "possible_per_s": possible.round(),
                "share": rounded(share, 3),
                "cores": rounded(cores, 2),
                "verdict": verdict,
            }));
        }
    }
    let mut text = format!(
        "waiting handlers on {available} cores; the possible rate is their number divided by the requested wait;\ntimers fire late: WAITED MS is the actual wait\n{}",
        table.render()
    );
    if args.common.json {
        text += &format!("{}\n", json!({ "available_cores": available, "waits": rows }));
    }
    print(&text)
}

/// The result, measured from the first message.
struct Waits {
    rate: f64,
    cores: f64,
    /// Average wait of a handler.
    waited: Duration,
}

fn measure(
    args: &Args,
    mut config: Config,
    is_async: bool,
    wait: Duration,
    at_once: usize,
) -> Result<Waits, Failure> {
    let kind = if is_async { "async" } else { "blocking" };
    let possible = at_once as f64 * MEASURED_FOR.as_secs_f64() / wait.as_secs_f64();
    // The first messages are not measured.
    let count = (possible as u64).clamp(1, (args.common.count * 9 / 10).max(1));
    config.set_all([("group.id", &*new_group(kind)), ("auto.offset.reset", "earliest")])?;
    let builder = Processor::builder(config, Mode::MultiAsync).topics([&*args.common.topic]).workers(at_once);
    let (wait, block) = if is_async { (wait, Duration::ZERO) } else { (Duration::ZERO, wait) };
    let cost = HandlerCost { wait, block };
    let totals: Arc<Totals> = Arc::default();
    let processor = start(Mode::MultiAsync, builder, WorkerTotals::of(&totals), cost)?;
    let (mut phase, mut first, mut handled, mut moved) = (Phase::start(), 0, 0, Instant::now());
    while first == 0 || handled < first + count {
        std::thread::park_timeout(CHECK_INTERVAL);
        let now = processor.metrics().handled;
        if first == 0 && now > 0 {
            (phase, first) = (Phase::start(), now);
        }
        if now > handled {
            (handled, moved) = (now, Instant::now());
        } else if moved.elapsed() > SILENCE_MAX || processor.is_stopped() {
            processor.stop();
            processor.join()?;
            let why =
                format!("{at_once} concurrent {kind} handlers: received only {handled} of {count} messages");
            return Err(Failure::failed(why));
        }
        if handled >= args.common.count {
            break;
        }
    }
    let measured = phase.end(handled - first, 0);
    processor.stop();
    processor.join()?;
    totals.await_all();
    let seconds = measured.wall.as_secs_f64().max(1e-9);
    let (rate, cores) = ((handled - first) as f64 / seconds, measured.cpu.as_secs_f64() / seconds);
    Ok(Waits { rate, cores, waited: totals.mean_wait() })
}
