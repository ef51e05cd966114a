//! One program, two libraries: `bench/compare/librdkafka.c` on librdkafka and, without a change, on ours.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use ottla_interop::{Failure, run, target_dir};
use serde_json::json;

use super::super::BUILD_WITHIN;
use super::super::machine::Touched;
use super::super::ottla::Report;
use super::super::table::{Samples, markdown, ratio};
use super::brokers::{Brokers, Kind};
use super::measured::{RECORD_BYTES, medians_ratio, met, of, take};
use super::payload::SIZES;
use super::peers::{Job, RUN_WITHIN};
use super::{Compare, Options, watch};
use crate::shell::{self, cargo};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Library {
    Ottla,
    Librdkafka,
}

const LIBRARIES: [Library; 2] = [Library::Ottla, Library::Librdkafka];

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ottla => "Ottla's librdkafka.so",
            Self::Librdkafka => "librdkafka",
        })
    }
}

/// The program's mode, and the share of librdkafka's CPU per message that is our target.
const FAST: [(&str, f64); 5] = [
    ("produce", 1.0 / 3.0),
    ("consume-one", 1.0 / 3.0),
    ("consume", 0.25),
    ("consume-legacy", 0.25),
    ("consume-callback", 0.25),
];
/// Where times count, and under which name the program gives them.
const TIMED: [(&str, &str); 3] = [("latency", "ack_us"), ("e2e", "e2e_us"), ("pingpong", "ack_us")];
/// Brokers in the metadata of a producer that does nothing.
const CLUSTERS: [usize; 3] = [1, 10, 100];

const RATE: u64 = 1000;

pub(super) fn wanted(kind: Kind, nodes: usize, options: &Options) -> bool {
    nodes == 1 && options.wants(&format!("{kind}-{nodes}/abi"))
}

/// Ours is built beside the program's own, under the name that the program was linked with.
fn ours() -> Result<PathBuf, Failure> {
    if let Some(library) = std::env::var_os("OTTLA_LIB") {
        return Ok(library.into());
    }
    let build = shell::run(&mut cargo(&["build", "--release", "--package", "ottla-capi"]), BUILD_WITHIN);
    if !build.is_ok_and(|build| build.status.success()) {
        return Err(Failure::new("no release build of ottla-capi"));
    }
    Ok(target_dir().join("release/librdkafka.so"))
}

impl Compare<'_> {
    pub(super) fn abi(&mut self, brokers: &Brokers, kind: Kind) -> Result<(), Failure> {
        let (Some(program), Some(original)) =
            (self.peers.librdkafka_program(), self.peers.librdkafka_library())
        else {
            return Ok(());
        };
        let program = program.to_owned();
        let dir = self.scratch.join("abi");
        std::fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
        let name = original.file_name().ok_or_else(|| Failure::new("the wheel's library has no name"))?;
        std::fs::copy(ours()?, dir.join(name))
            .map_err(|error| Failure::new(format!("ottla's librdkafka.so: {error}")))?;
        let on = |library: Library| {
            let mut command = Command::new(&program);
            if library == Library::Ottla {
                command.env("LD_LIBRARY_PATH", &dir);
            }
            command
        };
        self.abi_fast(brokers, &on)?;
        self.abi_timed(brokers, &on);
        if kind == Kind::Ottla {
            self.abi_idle(&on)?;
        }
        Ok(())
    }

    fn abi_fast(&mut self, brokers: &Brokers, on: &dyn Fn(Library) -> Command) -> Result<(), Failure> {
        let count = if self.options.quick { 1_000_000 } else { 5_000_000 };
        let size = SIZES[0];
        let full = self.topic();
        brokers.create_topic(&self.peers.ottla, &full, 1)?;
        self.abi_run(brokers, Library::Librdkafka, on, "produce", &full, count)?;
        let mut rows: Vec<_> =
            FAST.iter().map(|row| (row, LIBRARIES.map(|library| (library, Samples::default())))).collect();
        for pass in 0..=self.options.repeats(3, 1) {
            for ((mode, _), libraries) in &mut rows {
                for (library, samples) in libraries {
                    let written = self.topic();
                    let mut unused = Samples::default();
                    let samples = if pass == 0 { &mut unused } else { samples };
                    let mut measure = |topic: &str| -> Result<(), Failure> {
                        let bytes = count * (size as u64 + RECORD_BYTES);
                        let touched = Touched::new(self.scratch, bytes)?;
                        let run = || self.abi_run(brokers, *library, on, mode, topic, count);
                        let (report, looks) =
                            watch::during(&brokers.process_ids(), || touched.during(brokers.data(), run));
                        take(&format!("{}/abi/{mode}", brokers.name), *library, &report?, &looks, samples)
                    };
                    let measured = if *mode == "produce" {
                        brokers.with_topic(&self.peers.ottla, &written, 1, || measure(&written))
                    } else {
                        measure(&full)
                    };
                    if let Err(failure) = measured {
                        self.outcome.failed(format!("{}/abi/{mode} {library}: {failure}", brokers.name));
                    }
                }
            }
        }
        brokers.delete_topic(&self.peers.ottla, &full)?;
        let mut lines = Vec::new();
        for ((mode, target), libraries) in &rows {
            let mut line = vec![(*mode).to_owned()];
            for field in ["client_ns", "million_per_s"] {
                line.extend(
                    LIBRARIES
                        .map(|of_one| of(libraries, of_one).map_or_else(String::new, |s| s.spread(field))),
                );
            }
            let found = medians_ratio(libraries, Library::Ottla, Library::Librdkafka, "client_ns");
            line.push(ratio(found, Some(1.0)));
            line.push(found.map_or_else(String::new, |found| {
                format!("{} (at most {target:.2})", met(found <= *target))
            }));
            lines.push(line);
            let by_library = libraries.iter().map(|(library, samples)| (library.to_string(), samples.json()));
            self.outcome.json.push(json!({
                "name": format!("{}/abi/{mode}", brokers.name), "count": count,
                "libraries": serde_json::Value::Object(by_library.collect()),
            }));
        }
        let header = [
            "mode",
            "ns, Ottla's",
            "ns, librdkafka",
            "M/s, Ottla's",
            "M/s, librdkafka",
            "Ottla / librdkafka",
            "",
        ];
        let title = format!("{}: the same C program on both libraries, 100 B", brokers.name);
        self.outcome.tables += &markdown(&title, &header, &lines);
        Ok(())
    }

    fn abi_timed(&mut self, brokers: &Brokers, on: &dyn Fn(Library) -> Command) {
        let count = if self.options.quick { 3_000 } else { 10_000 };
        let mut rows: Vec<_> =
            TIMED.iter().map(|row| (row, LIBRARIES.map(|library| (library, Samples::default())))).collect();
        for _ in 0..self.options.repeats(5, 2) {
            for ((mode, field), libraries) in &mut rows {
                for (library, samples) in libraries {
                    let topic = self.topic();
                    let measured = brokers.with_topic(&self.peers.ottla, &topic, 1, || {
                        let report = self.abi_run(brokers, *library, on, mode, &topic, count)?;
                        samples.add("p50", report.number(&format!("/{field}/p50"))?);
                        samples.add("p99", report.number(&format!("/{field}/p99"))?);
                        samples.add("rate", report.number("/msgs_per_s")?);
                        Ok(())
                    });
                    if let Err(failure) = measured {
                        self.outcome.failed(format!("{}/abi/{mode} {library}: {failure}", brokers.name));
                    }
                }
            }
        }
        let mut lines = Vec::new();
        for ((mode, _), libraries) in &rows {
            let mut line = vec![(*mode).to_owned()];
            for field in ["p50", "p99", "rate"] {
                line.extend(
                    LIBRARIES
                        .map(|of_one| of(libraries, of_one).map_or_else(String::new, |s| s.spread(field))),
                );
            }
            lines.push(line);
        }
        let header = [
            "mode",
            "p50 us, Ottla's",
            "p50 us, librdkafka",
            "p99 us, Ottla's",
            "p99 us, librdkafka",
            "per s, Ottla's",
            "per s, librdkafka",
        ];
        let title =
            format!("{}: times of the same C program, {RATE} messages/s, default settings", brokers.name);
        self.outcome.tables += &markdown(&title, &header, &lines);
    }

    /// Threads and memory, by the number of brokers that the metadata names.
    fn abi_idle(&mut self, on: &dyn Fn(Library) -> Command) -> Result<(), Failure> {
        let mut lines = Vec::new();
        for nodes in CLUSTERS {
            let data = self.scratch.join(format!("idle-{nodes}"));
            let nodes = nodes.to_string();
            let broker = self.peers.ottla.broker_with(&data, "memory", &["--nodes", &nodes])?;
            let mut line = vec![nodes];
            let mut memory = Vec::new();
            for library in LIBRARIES {
                let mut command = on(library);
                command.args(["idle", "--brokers", &broker.bootstrap(), "--topic", "none"]);
                command.arg("--payload").arg(self.payloads.of_size(SIZES[0]));
                let output = run(&library.to_string(), &mut command, b"", RUN_WITHIN)?.succeeded()?;
                let report = Report::parse(&library.to_string(), output.stdout_text())?;
                line.push(format!("{:.0}", report.number("/threads")?));
                memory.push(format!("{:.1}", report.number("/rss_kb")? / 1024.0));
            }
            line.extend(memory);
            lines.push(line);
            broker.stop()?;
        }
        let header = [
            "brokers",
            "threads, Ottla's",
            "threads, librdkafka",
            "MiB resident, Ottla's",
            "MiB resident, librdkafka",
        ];
        self.outcome.tables += &markdown("A producer with nothing to do, the whole process", &header, &lines);
        Ok(())
    }

    fn abi_run(
        &self,
        brokers: &Brokers,
        library: Library,
        on: &dyn Fn(Library) -> Command,
        mode: &str,
        topic: &str,
        count: u64,
    ) -> Result<Report, Failure> {
        let job = Job {
            mode,
            topic,
            payload: self.payloads.of_size(SIZES[0]),
            count,
            warmup: count / 10,
            rate: RATE,
            partitions: 1,
            properties: &[],
        };
        let (count, warmup, rate) = (job.count.to_string(), job.warmup.to_string(), job.rate.to_string());
        let mut command = on(library);
        command.args([
            job.mode,
            "--brokers",
            &brokers.bootstrap(),
            "--topic",
            job.topic,
            "--partitions",
            "1",
        ]);
        command.args(["--count", &count, "--warmup", &warmup]);
        if !mode.starts_with("consume") {
            command.arg("--payload").arg(job.payload);
        }
        if matches!(mode, "latency" | "e2e") {
            command.args(["--rate", &rate]);
        }
        let output = run(&library.to_string(), &mut command, b"", RUN_WITHIN)?.succeeded()?;
        Report::parse(&library.to_string(), output.stdout_text())
    }
}
