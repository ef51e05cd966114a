//! One default for both: how soon a message is acknowledged at 1,000 per second, and how many pass at full speed, with
//! our default, a grid of our own settings, and the peers' defaults and hand-tuned settings. One message at a time; from
//! the producer to the consumer; and how soon a new group's only member has its first record.

use serde_json::{Value, json};

use ottla_interop::Failure;

use super::super::ottla::Report;
use super::super::table::{Samples, markdown};
use super::Compare;
use super::brokers::{Brokers, Kind};
use super::measured::met;
use super::payload::Random;
use super::peers::{Job, Peer};

const SIZE: usize = 100;
const RATE: u64 = 1000;

/// Our default in one configuration: at least so much of the grid's best throughput, at most so much above its best
/// latencies.
const THROUGHPUT_MIN: f64 = 0.95;
const P50_MAX: f64 = 1.10;
const P99_MAX: f64 = 1.25;

const LINGERS: [Option<&str>; 6] = [None, Some("0"), Some("1"), Some("2"), Some("5"), Some("10")];
const BATCHES: [&str; 3] = ["16384", "131072", "1000000"];
const IN_FLIGHT: [&str; 2] = ["1", "5"];

/// Common settings for librdkafka's lowest latency; the best of them counts.
const LIBRDKAFKA_TUNED: [&[(&str, &str)]; 3] = [
    &[("linger.ms", "0")],
    &[("linger.ms", "0"), ("socket.nagle.disable", "true")],
    &[("linger.ms", "0"), ("socket.nagle.disable", "true"), ("batch.num.messages", "1")],
];
const FRANZ_GO_TUNED: &[(&str, &str)] = &[("linger.ms", "0")];

/// A peer with what is set of its properties.
struct Setting {
    peer: Peer,
    properties: Vec<(&'static str, &'static str)>,
    /// In the table.
    place: usize,
    samples: Samples,
}

impl Setting {
    fn new(peer: Peer, properties: &[(&'static str, &'static str)]) -> Self {
        Self { peer, properties: properties.to_vec(), place: 0, samples: Samples::default() }
    }

    fn name(&self) -> String {
        if self.properties.is_empty() {
            return format!("{}, defaults", self.peer);
        }
        let set: Vec<_> = self.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}, {}", self.peer, set.join(" "))
    }

    fn is_default(&self) -> bool {
        self.properties.is_empty()
    }
}

/// The measurements of a cluster, by the names that `--only` selects.
pub(super) fn names(kind: Kind, nodes: usize) -> Vec<String> {
    let parts = if nodes == 1 { &["latency", "pingpong", "e2e", "subscribe"][..] } else { &[] };
    parts.iter().map(|part| format!("{kind}-{nodes}/{part}")).collect()
}

impl Compare<'_> {
    pub(super) fn latency(&mut self, brokers: &Brokers, name: &str) -> Result<(), Failure> {
        match name.rsplit('/').next() {
            Some("pingpong") => self.ping_pong(brokers, name),
            Some("e2e") => self.end_to_end(brokers, name),
            Some("subscribe") => self.subscribe(brokers, name),
            _ => self.open_loop(brokers, name),
        }
    }

    fn open_loop(&mut self, brokers: &Brokers, name: &str) -> Result<(), Failure> {
        let quick = self.options.quick;
        let (count, full_speed) = if quick { (500, 1_000_000) } else { (2000, 3_000_000) };
        let mut settings = others();
        settings.splice(0..0, grid());
        settings.insert(0, Setting::new(Peer::Ottla, &[]));
        self.interleaved(brokers, name, &mut settings, &[("latency", count), ("produce", full_speed)])?;

        let title = format!("{name}: until acknowledged at {RATE} messages per second, and at full speed");
        let columns = [
            ("median, µs", "p50"),
            ("99 %, µs", "p99"),
            ("largest, µs", "max"),
            ("million messages per second", "million_per_s"),
        ];
        self.show(name, &title, &columns, &settings, &verdicts(&settings));
        Ok(())
    }

    fn ping_pong(&mut self, brokers: &Brokers, name: &str) -> Result<(), Failure> {
        let count = if self.options.quick { 1000 } else { 5000 };
        let mut settings = others();
        settings.insert(0, Setting::new(Peer::Ottla, &[]));
        self.interleaved(brokers, name, &mut settings, &[("pingpong", count)])?;
        let title = format!("{name}: one message produced and flushed, then the next");
        let columns = [("round trips per second", "per_s"), ("median, µs", "p50"), ("99 %, µs", "p99")];
        self.show(name, &title, &columns, &settings, &[]);
        Ok(())
    }

    fn end_to_end(&mut self, brokers: &Brokers, name: &str) -> Result<(), Failure> {
        let count = if self.options.quick { 500 } else { 5000 };
        let mut settings = others();
        settings.insert(0, Setting::new(Peer::Ottla, &[]));
        self.interleaved(brokers, name, &mut settings, &[("e2e", count)])?;
        let title = format!("{name}: from when a message is due to its consumer, {RATE} messages per second");
        let columns = [("median, µs", "p50"), ("99 %, µs", "p99"), ("largest, µs", "max")];
        self.show(name, &title, &columns, &settings, &verdicts(&settings));
        Ok(())
    }

    fn subscribe(&mut self, brokers: &Brokers, name: &str) -> Result<(), Failure> {
        let groups = if self.options.quick { 3 } else { 10 };
        let mut settings =
            [Peer::Ottla, Peer::Librdkafka, Peer::FranzGo].map(|peer| Setting::new(peer, &[])).into();
        self.interleaved(brokers, name, &mut settings, &[("subscribe", groups)])?;
        let title =
            format!("{name}: from before the consumer is made to its first record, in a new group of one");
        let columns = [("median, µs", "p50"), ("largest, µs", "max")];
        self.show(name, &title, &columns, &settings, &first_verdicts(&settings));
        Ok(())
    }

    fn show(
        &mut self,
        name: &str,
        title: &str,
        columns: &[(&str, &'static str)],
        settings: &[Setting],
        verdicts: &[String],
    ) {
        let header: Vec<_> =
            std::iter::once("setting").chain(columns.iter().map(|(head, _)| *head)).collect();
        let row = |setting: &Setting| {
            let fields = columns.iter().map(|(_, field)| setting.samples.spread(field));
            std::iter::once(setting.name()).chain(fields).collect()
        };
        let rows: Vec<Vec<String>> = settings.iter().map(row).collect();
        self.outcome.tables += &markdown(title, &header, &rows);
        if !verdicts.is_empty() {
            self.outcome.tables += &(verdicts.join("\n") + "\n\n");
        }
        self.outcome.json.push(json(name, settings));
    }

    /// All settings one after the other, in another order each time, and that several times. A mode at a time: what
    /// full speed leaves the broker to do would fall upon whoever's latency is measured next.
    fn interleaved(
        &mut self,
        brokers: &Brokers,
        name: &str,
        settings: &mut Vec<Setting>,
        modes: &[(&str, u64)],
    ) -> Result<(), Failure> {
        settings.retain(|setting| self.peers.has(setting.peer));
        settings.iter_mut().zip(0..).for_each(|(setting, place)| setting.place = place);
        let repeats = self.options.repeats(10, 3);
        let mut random = Random::new();
        for pass in 0..=repeats {
            match pass {
                0 => println!("{name}: warm-up, not counted"),
                _ => println!("{name}: pass {pass} of {repeats}, {} settings", settings.len()),
            }
            for &(mode, count) in modes {
                // A topic of its own for each sweep, and for each setting at full speed: what was written goes with it, and
                // the next one's pages are memory that the machine still has.
                if pass > 0 {
                    shuffle(settings, &mut random);
                }
                let mut unset = [Setting::new(Peer::Ottla, &[])];
                // A JVM compiles what it has seen often.
                let all = if pass == 0 { &mut unset[..] } else { &mut settings[..] };
                let at_once = if mode == "produce" { 1 } else { all.len().max(1) };
                for some in all.chunks_mut(at_once) {
                    self.sweep(brokers, name, mode, count, some)?;
                }
            }
        }
        settings.sort_by_key(|setting| setting.place);
        Ok(())
    }

    /// These settings, one after the other, on one topic.
    fn sweep(
        &mut self,
        brokers: &Brokers,
        name: &str,
        mode: &str,
        count: u64,
        settings: &mut [Setting],
    ) -> Result<(), Failure> {
        let topic = self.topic();
        brokers.with_topic(&self.peers.ottla.clone(), &topic, 1, || {
            let at = At { topic: &topic, bootstrap: &brokers.bootstrap(), mode, count };
            if mode == "subscribe" {
                self.peers.run(Peer::Ottla, at.bootstrap, &self.job(&at.filling(), &[]))?;
            }
            for setting in settings {
                self.setting(&at, name, setting);
            }
            Ok(())
        })
    }

    fn setting(&mut self, at: &At, name: &str, setting: &mut Setting) {
        let measured = self.peers.run(setting.peer, at.bootstrap, &self.job(at, &setting.properties));
        let taken = measured.and_then(|report| take(at.mode, &report, &mut setting.samples));
        if let Err(failure) = taken {
            self.outcome.failed(format!("{name} {} {}: {failure}", at.mode, setting.name()));
        }
    }

    fn job<'a>(&'a self, at: &At<'a>, properties: &'a [(&'a str, &'a str)]) -> Job<'a> {
        Job {
            mode: at.mode,
            topic: at.topic,
            payload: self.payloads.of_size(SIZE),
            count: at.count,
            warmup: (at.count / 10).max(1),
            rate: RATE,
            partitions: 1,
            properties,
        }
    }
}

/// The cluster and the part that are measured.
struct At<'a> {
    topic: &'a str,
    bootstrap: &'a str,
    mode: &'a str,
    count: u64,
}

impl<'a> At<'a> {
    /// The program that fills a topic for readers.
    fn filling(&self) -> At<'a> {
        At { topic: self.topic, bootstrap: self.bootstrap, mode: "produce", count: 1000 }
    }
}

fn take(mode: &str, report: &Report, samples: &mut Samples) -> Result<(), Failure> {
    let rate = report.number("/msgs_per_s")?;
    match mode {
        "produce" => {
            samples.add("million_per_s", rate / 1e6);
            return Ok(());
        }
        "pingpong" => samples.add("per_s", rate),
        _ => {}
    }
    let what = match mode {
        "e2e" => "e2e_us",
        "subscribe" => "first_us",
        _ => "ack_us",
    };
    for field in ["p50", "p99", "max"] {
        samples.add(field, report.number(&format!("/{what}/{field}"))?);
    }
    Ok(())
}

fn shuffle(settings: &mut [Setting], random: &mut Random) {
    for last in (1..settings.len()).rev() {
        settings.swap(last, random.below(last as u64 + 1) as usize);
    }
}

fn grid() -> Vec<Setting> {
    let mut grid = Vec::new();
    for linger in LINGERS {
        for batch in BATCHES {
            for in_flight in IN_FLIGHT {
                let mut properties = vec![("batch.size", batch), ("max.in.flight", in_flight)];
                if let Some(linger) = linger {
                    properties.insert(0, ("linger.ms", linger));
                }
                grid.push(Setting::new(Peer::Ottla, &properties));
            }
        }
    }
    grid
}

fn others() -> Vec<Setting> {
    let mut others = vec![Setting::new(Peer::Librdkafka, &[])];
    others.extend(LIBRDKAFKA_TUNED.map(|tuned| Setting::new(Peer::Librdkafka, tuned)));
    others.extend([&[], FRANZ_GO_TUNED].map(|tuned| Setting::new(Peer::FranzGo, tuned)));
    others
}

/// Our default against the best of the grid, each measure by itself, and against librdkafka's best hand-tuned one.
fn verdicts(settings: &[Setting]) -> Vec<String> {
    let Some(default) = settings.iter().find(|own| own.peer == Peer::Ottla && own.is_default()) else {
        return Vec::new();
    };
    let grid = || settings.iter().filter(|own| own.peer == Peer::Ottla && !own.is_default());
    let tuned = || settings.iter().filter(|own| own.peer == Peer::Librdkafka && !own.is_default());
    let mut verdicts = Vec::new();
    let ours = default.samples.median("million_per_s");
    let best = medians(grid(), "million_per_s").max_by(f64::total_cmp);
    if let (Some(ours), Some(best)) = (ours, best) {
        verdicts.push(format!(
            "- throughput: {ours:.2} million/s by default, {best:.2} with the best of the grid, {:.2} of it: {} (at \
             least {THROUGHPUT_MIN:.2})",
            ours / best,
            met(ours >= THROUGHPUT_MIN * best),
        ));
    }
    for (field, name, most) in [("p50", "median", P50_MAX), ("p99", "99 %", P99_MAX)] {
        let Some(ours) = default.samples.median(field) else { continue };
        if let Some(best) = medians(grid(), field).min_by(f64::total_cmp) {
            verdicts.push(format!(
                "- {name}: {ours:.0} µs by default, {best:.0} with the best of the grid, {:.2} of it: {} (at most \
                 {most:.2})",
                ours / best,
                met(ours <= most * best),
            ));
        }
        if let Some(best) = medians(tuned(), field).min_by(f64::total_cmp) {
            verdicts.push(format!(
                "- {name}: {ours:.0} µs by default, {best:.0} with librdkafka's best hand-tuned setting, {:.2} of it: \
                 {} (below)",
                ours / best,
                met(ours < best),
            ));
        }
    }
    verdicts
}

/// A group of one has its first record sooner than the peers' have theirs.
fn first_verdicts(settings: &[Setting]) -> Vec<String> {
    let of = |peer| settings.iter().find(|setting| setting.peer == peer)?.samples.median("p50");
    let verdict = |peer: Peer| {
        let (ours, theirs) = (of(Peer::Ottla)?, of(peer)?);
        Some(format!("- first record: {ours:.0} µs, {theirs:.0} with {peer}: {} (below)", met(ours < theirs)))
    };
    [Peer::Librdkafka, Peer::FranzGo].into_iter().filter_map(verdict).collect()
}

fn medians<'a>(
    settings: impl Iterator<Item = &'a Setting>,
    field: &'static str,
) -> impl Iterator<Item = f64> {
    settings.filter_map(move |setting| setting.samples.median(field))
}

fn json(name: &str, settings: &[Setting]) -> Value {
    let settings: Vec<_> = settings
        .iter()
        .map(|setting| json!({ "setting": setting.name(), "measured": setting.samples.json() }))
        .collect();
    json!({ "name": name, "size": SIZE, "rate": RATE, "settings": settings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mut setting: Setting, rate: f64, p50: f64, p99: f64) -> Setting {
        setting.samples.add("million_per_s", rate);
        setting.samples.add("p50", p50);
        setting.samples.add("p99", p99);
        setting
    }

    #[test]
    fn the_default_is_judged_by_the_best_of_the_grid_in_each_measure() {
        assert!(grid().len() >= 24);
        let settings = [
            measured(Setting::new(Peer::Ottla, &[]), 3.9, 110.0, 300.0),
            measured(Setting::new(Peer::Ottla, &[("linger.ms", "10")]), 4.0, 9000.0, 11000.0),
            measured(Setting::new(Peer::Ottla, &[("linger.ms", "0")]), 1.0, 100.0, 200.0),
            measured(Setting::new(Peer::Librdkafka, &[]), 2.0, 3000.0, 5500.0),
            measured(Setting::new(Peer::Librdkafka, &[("linger.ms", "0")]), 2.0, 145.0, 324.0),
        ];
        let verdicts = verdicts(&settings);
        let met: Vec<_> = verdicts.iter().map(|verdict| !verdict.contains("NOT met")).collect();
        assert_eq!(met, [true, true, true, false, true], "{verdicts:#?}");
        assert!(verdicts[3].contains("300 µs by default, 200 with the best of the grid"), "{}", verdicts[3]);
    }
}
