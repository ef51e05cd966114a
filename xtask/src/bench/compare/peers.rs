//! The clients: ours, and two that are built here from small programs of ours around their libraries.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{Failure, run, target_dir, workspace_root};

use super::super::BUILD_WITHIN;
use super::super::ottla::{Ottla, Report};
use crate::shell::{self, cargo};

pub(super) const RUN_WITHIN: Duration = Duration::from_secs(10 * 60);

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Peer {
    Ottla,
    Librdkafka,
    FranzGo,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ottla => "Ottla",
            Self::Librdkafka => "librdkafka",
            Self::FranzGo => "franz-go",
        })
    }
}

/// Programs by peer; one that cannot be built here is absent.
pub(super) struct Peers {
    pub(super) ottla: Ottla,
    librdkafka: Option<PathBuf>,
    franz_go: Option<PathBuf>,
    sarama: Option<PathBuf>,
}

/// One measurement of one peer.
pub(super) struct Job<'a> {
    /// One of the peers' programs: `bench/compare/librdkafka.c` lists them.
    pub(super) mode: &'a str,
    pub(super) topic: &'a str,
    pub(super) payload: &'a Path,
    pub(super) count: u64,
    pub(super) warmup: u64,
    /// Messages per second, in the open loop.
    pub(super) rate: u64,
    pub(super) partitions: u32,
    pub(super) properties: &'a [(&'a str, &'a str)],
}

impl Peers {
    /// Builds them below the target directory, and says which one is missing and why.
    pub(super) fn build() -> Result<Self, Failure> {
        let ottla = Ottla { binary: our_binary()? };
        let dir = compare_dir()?;
        let found = |peer: Peer, built: Result<PathBuf, Failure>| match built {
            Ok(program) => Some(program),
            Err(failure) => {
                println!("{peer}: skipped: {failure}");
                None
            }
        };
        let librdkafka = found(Peer::Librdkafka, librdkafka(&dir));
        let franz_go = found(Peer::FranzGo, go_program(&dir, "franzgo"));
        let sarama = go_program(&dir, "sarama");
        if let Err(failure) = &sarama {
            println!("Sarama: skipped: {failure}");
        }
        Ok(Self { ottla, librdkafka, franz_go, sarama: sarama.ok() })
    }

    pub(super) fn has(&self, peer: Peer) -> bool {
        match peer {
            Peer::Ottla => true,
            Peer::Librdkafka => self.librdkafka.is_some(),
            Peer::FranzGo => self.franz_go.is_some(),
        }
    }

    pub(super) fn librdkafka_program(&self) -> Option<&Path> {
        self.librdkafka.as_deref()
    }

    /// The library that the program was linked with.
    pub(super) fn librdkafka_library(&self) -> Option<PathBuf> {
        named(&self.librdkafka.as_ref()?.with_file_name("confluent-kafka/confluent_kafka.libs"), "librdkafka")
    }

    pub(super) fn has_sarama(&self) -> bool {
        self.sarama.is_some()
    }

    /// Runs Sarama's program, which knows the patterns only.
    pub(super) fn sarama(&self, args: &[&str]) -> Result<Report, Failure> {
        let program = self.sarama.as_ref().ok_or_else(|| Failure::new("Sarama is not built"))?;
        let output = run("sarama", Command::new(program).args(args), b"", RUN_WITHIN)?.succeeded()?;
        Report::parse("sarama", output.stdout_text())
    }

    pub(super) fn all(&self) -> Vec<Peer> {
        let all = [Peer::Ottla, Peer::Librdkafka, Peer::FranzGo];
        all.into_iter().filter(|peer| self.has(*peer)).collect()
    }

    pub(super) fn run(&self, peer: Peer, bootstrap: &str, job: &Job) -> Result<Report, Failure> {
        let (count, warmup) = (job.count.to_string(), job.warmup.to_string());
        let (rate, partitions) = (job.rate.to_string(), job.partitions.to_string());
        let payload = job.payload.to_string_lossy();
        let reads = job.mode.starts_with("consume") || job.mode == "subscribe";
        let mode = if peer == Peer::Ottla { our_mode(job.mode)? } else { &[job.mode] };
        let mut args = [mode, &["--brokers", bootstrap, "--topic", job.topic]].concat();
        args.extend(["--count", &count, "--warmup", &warmup]);
        if !reads {
            args.extend(["--payload", &payload]);
        }
        if matches!(job.mode, "latency" | "e2e") {
            args.extend(["--rate", &rate]);
        }
        let properties: Vec<_> =
            job.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for property in &properties {
            args.extend(["-X", property]);
        }
        let program = match peer {
            Peer::Ottla => return self.ottla.bench(&args),
            Peer::Librdkafka => &self.librdkafka,
            Peer::FranzGo => &self.franz_go,
        };
        let program = program.as_ref().ok_or_else(|| Failure::new(format!("{peer} is not built")))?;
        args.extend(["--partitions", &partitions]);
        let mut command = Command::new(program);
        command.args(args);
        let output = run(&peer.to_string(), &mut command, b"", RUN_WITHIN)?.succeeded()?;
        Report::parse(&peer.to_string(), output.stdout_text())
    }
}

/// The mode as arguments of `ottla bench`.
fn our_mode(mode: &str) -> Result<&'static [&'static str], Failure> {
    Ok(match mode {
        "produce" => &["produce"],
        "pingpong" => &["pingpong"],
        // The others have no reader in their process either.
        "latency" => &["latency", "--acks-only"],
        "e2e" => &["latency"],
        "consume" => &["consume", "--any-size"],
        "consume-one" => &["consume", "--any-size", "--one-by-one"],
        "subscribe" => &["subscribe"],
        other => return Err(Failure::new(format!("ottla bench has no mode {other}"))),
    })
}

/// `OTTLA_BIN` names one that is built already.
pub(in super::super) fn our_binary() -> Result<PathBuf, Failure> {
    if let Some(binary) = std::env::var_os("OTTLA_BIN") {
        return Ok(binary.into());
    }
    let built = shell::run(&mut cargo(&["build", "--release", "--package", "ottla"]), BUILD_WITHIN);
    if built.is_ok_and(|build| build.status.success()) {
        return Ok(target_dir().join("release/ottla"));
    }
    Err(Failure::new("no release build of ottla"))
}

/// The library is the one inside the newest wheel of confluent-kafka; an existing wheel is kept.
fn librdkafka(dir: &Path) -> Result<PathBuf, Failure> {
    let wheels = dir.join("wheel");
    if named(&wheels, "confluent_kafka-").is_none() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]);
        pip.arg(&wheels).arg("confluent-kafka");
        run("pip", &mut pip, b"", BUILD_WITHIN)?.succeeded()?;
    }
    let wheel = named(&wheels, "confluent_kafka-")
        .ok_or_else(|| Failure::new(format!("{} has no wheel", wheels.display())))?;
    let unpacked = dir.join("confluent-kafka");
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
    run("unpack", &mut unpack, b"", BUILD_WITHIN)?.succeeded()?;
    let libraries = unpacked.join("confluent_kafka.libs");
    let library = named(&libraries, "librdkafka")
        .ok_or_else(|| Failure::new(format!("{} has no librdkafka", libraries.display())))?;

    let program = dir.join("librdkafka");
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-O2", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&program);
    compile.arg(workspace_root().join("bench/compare/librdkafka.c")).arg(&library);
    compile.arg(format!("-Wl,-rpath,{}", libraries.display()));
    run("cc", &mut compile, b"", BUILD_WITHIN)?.succeeded()?;
    Ok(program)
}

/// A program of ours around a Go library.
fn go_program(dir: &Path, name: &str) -> Result<PathBuf, Failure> {
    let program = dir.join(name);
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".");
    build.current_dir(workspace_root().join("bench/compare").join(name));
    run("go", &mut build, b"", BUILD_WITHIN)?.succeeded()?;
    Ok(program)
}

/// The program around librdkafka, built.
pub(in super::super) fn librdkafka_program() -> Result<PathBuf, Failure> {
    librdkafka(&compare_dir()?)
}

/// The directory of the peers' programs.
fn compare_dir() -> Result<PathBuf, Failure> {
    let dir = target_dir().join("compare");
    fs::create_dir_all(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    Ok(dir)
}

/// Builds the program of a peer that `ottla` can start, and returns its path.
pub(super) fn standalone(name: &str) -> Result<PathBuf, Failure> {
    if name != "sarama" {
        return Err(Failure::new(format!(
            "`{name}` is not a peer of `ottla bench patterns --against`: sarama is"
        )));
    }
    go_program(&compare_dir()?, name)
}

/// The first file in `dir` whose name begins with `prefix`.
fn named(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.into_iter().find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
    })
}
