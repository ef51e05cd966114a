//! `cargo xtask soak fuzz`: every fuzz target with libFuzzer, in slices that continue where the last one ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ottla_interop::{target_dir, workspace_root};

use crate::shell::{self, cargo};

/// The time for each target if the command names none.
const MINUTES_PER_TARGET: u64 = 10;
/// The time of one call. Machines that end commands after ten minutes let it finish.
const SLICE_MINUTES: u64 = 9;
/// The shortest run that is worth the start of a program.
const RUN_MIN: Duration = Duration::from_secs(5);
/// All programs, from nothing, on two cores.
const BUILD_WITHIN: Duration = Duration::from_secs(40 * 60);
/// A program that has not ended so long after its time is ended.
const GRACE: Duration = Duration::from_secs(60);

/// One input may take so long.
const INPUT_TIMEOUT_S: u32 = 10;
/// The resident memory of a program, with that of the address sanitizer.
const RSS_MAX_MB: u32 = 2048;
/// The largest single allocation.
const ALLOCATION_MAX_MB: u32 = 256;
const INPUT_BYTES_MAX: u32 = 4096;

const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    minutes: u64,
    slice_minutes: u64,
    /// So many programs run at a time.
    jobs: usize,
    /// All targets if it is empty.
    targets: Vec<String>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            minutes: MINUTES_PER_TARGET,
            slice_minutes: SLICE_MINUTES,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            targets: Vec::new(),
        };
        let minutes =
            |text: &str| text.parse().map_err(|_| format!("soak fuzz: {text} is no number of minutes"));
        let jobs = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(format!("soak fuzz: {text} is no number of programs")),
            Ok(jobs) => Ok(jobs),
        };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("soak fuzz: {arg} needs a value"));
            match arg {
                "--target" => options.targets.push(value()?.to_owned()),
                "--slice" => options.slice_minutes = minutes(value()?)?,
                "--jobs" => options.jobs = jobs(value()?)?,
                _ => options.minutes = minutes(arg)?,
            }
        }
        Ok(options)
    }
}

/// Builds the programs, runs those with the least time so far, and prints the totals.
pub(crate) fn run(options: &Options) -> ExitCode {
    let started = Instant::now();
    match soak(options, started) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(findings) => {
            println!("soak fuzz: FAILED ({findings} findings in {})", dir().join("findings").display());
            ExitCode::FAILURE
        }
        Err(why) => {
            println!("soak fuzz: FAILED ({why})");
            ExitCode::FAILURE
        }
    }
}

fn soak(options: &Options, started: Instant) -> Result<usize, String> {
    let mut targets = targets()?;
    if let Some(unknown) = options.targets.iter().find(|only| !targets.contains(only)) {
        return Err(format!("no target {unknown}; fuzz/libfuzzer/Cargo.toml lists them"));
    }
    if !options.targets.is_empty() {
        targets.retain(|target| options.targets.contains(target));
    }
    build(if let [only] = targets.as_slice() { Some(only) } else { None })?;
    let slice = Slice {
        targets,
        wanted: Duration::from_secs(options.minutes * 60),
        ends: started + Duration::from_secs(options.slice_minutes * 60),
        progress: Mutex::new(Progress { totals: Totals::load(), running: Vec::new() }),
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..options.jobs).map(|_| scope.spawn(|| slice.work())).collect();
        let ended = jobs.into_iter().map(|job| job.join().unwrap_or_else(|_| Err("a job panicked".into())));
        ended.fold(Ok(()), Result::and)
    })?;
    if !slice.is_done() {
        println!("soak fuzz: the slice is over; the next call continues");
    }
    println!("\n{}", Run::HEAD);
    let progress = slice.progress();
    let totals = &progress.totals;
    for target in &slice.targets {
        println!("{}", totals.of(target).line(target));
    }
    Ok(slice.targets.iter().map(|target| totals.of(target).findings).sum())
}

/// The work of one call, which several jobs share.
struct Slice {
    targets: Vec<String>,
    /// The time that each target gets, over all slices.
    wanted: Duration,
    ends: Instant,
    progress: Mutex<Progress>,
}

struct Progress {
    totals: Totals,
    running: Vec<String>,
}

impl Progress {
    /// The time that `target` still needs. A target with a finding waits for its fix.
    fn left(&self, target: &str, wanted: Duration) -> Duration {
        let total = self.totals.of(target);
        if total.findings > 0 { Duration::ZERO } else { wanted.saturating_sub(total.time) }
    }
}

impl Slice {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self) -> bool {
        let progress = self.progress();
        self.targets.iter().all(|target| progress.left(target, self.wanted) < RUN_MIN)
    }

    /// Runs targets, the one with the least time first, until the slice is over or nothing is left.
    fn work(&self) -> Result<(), String> {
        while let Some((target, time)) = self.take() {
            let ended = run_target(&target, time);
            let mut progress = self.progress();
            progress.running.retain(|running| *running != target);
            let run = ended?;
            println!("{}", run.line(&target));
            progress.totals.add(&target, &run);
            progress.totals.store()?;
        }
        Ok(())
    }

    /// The target that no other job runs and that has had the least time, and the time for its next run.
    fn take(&self) -> Option<(String, Duration)> {
        let mut progress = self.progress();
        let free = self.targets.iter().filter(|target| !progress.running.contains(target));
        let (target, left) = free
            .map(|target| (target.clone(), progress.left(target, self.wanted)))
            .filter(|(_, left)| *left >= RUN_MIN)
            .max_by_key(|(_, left)| *left)?;
        let time = left.min(self.ends.saturating_duration_since(Instant::now()));
        if time < RUN_MIN {
            return None;
        }
        progress.running.push(target.clone());
        Some((target, time))
    }
}

/// The programs, in the order of the manifest.
fn targets() -> Result<Vec<String>, String> {
    let path = workspace_root().join("fuzz/libfuzzer/Cargo.toml");
    let manifest = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(programs(&manifest))
}

fn programs(manifest: &str) -> Vec<String> {
    let names = manifest.split("[[bin]]\n").skip(1).filter_map(|program| program.lines().next());
    names.filter_map(|line| Some(line.strip_prefix("name = ")?.trim_matches('"').to_owned())).collect()
}

fn dir() -> PathBuf {
    target_dir().join("fuzz")
}

/// Builds with the address sanitizer, debug assertions and checks of overflows, as cargo-fuzz does by default.
fn build(target: Option<&str>) -> Result<(), String> {
    let mut build = cargo_of_rustup(&["+nightly", "fuzz", "build", "--fuzz-dir", "fuzz/libfuzzer"]);
    build.arg("--target-dir").arg(dir()).args(target);
    require_tools()?;
    let done = shell::run(&mut build, BUILD_WITHIN)?;
    if done.status.success() { Ok(()) } else { Err(format!("cargo fuzz build ({})", done.status)) }
}

fn require_tools() -> Result<(), String> {
    let works = |args: &[&str]| {
        let mut command = cargo_of_rustup(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !works(&["+nightly", "--version"]) {
        return Err(
            "nightly Rust is not installed: rustup toolchain install nightly --profile minimal".into()
        );
    }
    if !works(&["fuzz", "--version"]) {
        let how = format!("cargo install --locked cargo-fuzz --version {CARGO_FUZZ_VERSION}");
        return Err(format!("cargo-fuzz is not installed: {how} (about 1 minute)"));
    }
    Ok(())
}

/// The cargo that accepts `+nightly`, not the one that runs this program; with the tools below the target directory.
fn cargo_of_rustup(args: &[&str]) -> Command {
    let mut cargo = cargo(&[]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let rustup = std::env::split_paths(&path).map(|dir| dir.join("cargo")).find(|file| {
        // Rustup sets PATH to the toolchain first when it runs cargo.
        file.is_file() && !file.to_string_lossy().contains("toolchains")
    });
    if let Some(rustup) = rustup {
        let root = cargo.get_current_dir().map(Path::to_path_buf);
        cargo = Command::new(rustup);
        cargo.current_dir(root.as_deref().unwrap_or_else(|| workspace_root()));
    }
    let tools = std::iter::once(target_dir().join("tools/bin")).chain(std::env::split_paths(&path));
    if let Ok(path) = std::env::join_paths(tools) {
        cargo.env("PATH", path);
    }
    cargo.args(args).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    cargo
}

/// Runs one program for `time`. Inputs that reach new code are kept in a working corpus below the target directory.
fn run_target(target: &str, time: Duration) -> Result<Run, String> {
    let (work, findings) = (dir().join("corpus").join(target), dir().join("findings").join(target));
    let log = dir().join(format!("{target}.log"));
    for dir in [&work, &findings] {
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let program = dir().join(host()?).join("release").join(target);
    let mut fuzzer = Command::new(&program);
    fuzzer
        .arg(&work)
        .arg(workspace_root().join("fuzz/corpus").join(target))
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-timeout={INPUT_TIMEOUT_S}"))
        .arg(format!("-rss_limit_mb={RSS_MAX_MB}"))
        .arg(format!("-malloc_limit_mb={ALLOCATION_MAX_MB}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-print_final_stats=1", "-reload=0"])
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let started = Instant::now();
    let mut child = fuzzer.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if started.elapsed() > time + GRACE {
            child.kill().map_err(|error| error.to_string())?;
            return Err(format!("{target} did not end; its output is in {}", log.display()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    let (executions, coverage) = read_output(&text);
    let status = child.wait().map_err(|error| error.to_string())?;
    let findings = fs::read_dir(&findings).map_or(0, Iterator::count);
    if !status.success() && findings == 0 {
        return Err(format!("{target} ended with {status}; its output is in {}", log.display()));
    }
    Ok(Run { time: started.elapsed(), executions, coverage, findings })
}

/// The executions and the covered edges in libFuzzer's output.
fn read_output(text: &str) -> (u64, u64) {
    let number = |line: &str, key: &str| -> Option<u64> {
        line.split_once(key)?.1.split_whitespace().next()?.parse().ok()
    };
    let executions = text.lines().rev().find_map(|line| number(line, "stat::number_of_executed_units:"));
    let coverage = text.lines().rev().find_map(|line| number(line, " cov: "));
    (executions.unwrap_or(0), coverage.unwrap_or(0))
}

fn host() -> Result<String, String> {
    let version = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// The figures of one run of a target, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run {
    time: Duration,
    executions: u64,
    coverage: u64,
    findings: usize,
}

impl Run {
    const HEAD: &str = "target                     seconds    executions  per second  edges  findings";

    fn line(&self, target: &str) -> String {
        let (seconds, per_second) = (self.time.as_secs(), self.executions / self.time.as_secs().max(1));
        let Self { executions, coverage, findings, .. } = self;
        format!("{target:24} {seconds:9} {executions:13} {per_second:11} {coverage:6} {findings:9}")
    }
}

/// The totals of all slices, in a file with one line per target.
#[derive(Debug, Default)]
struct Totals {
    runs: BTreeMap<String, Run>,
}

impl Totals {
    fn path() -> PathBuf {
        dir().join("totals.txt")
    }

    fn load() -> Self {
        Self::parse(&fs::read_to_string(Self::path()).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let run = |line: &str| {
            let mut words = line.split_whitespace();
            let target = words.next()?.to_owned();
            let mut number = || words.next()?.parse::<u64>().ok();
            let time = Duration::from_secs(number()?);
            let (executions, coverage) = (number()?, number()?);
            // Findings that were removed, after their fix, let the target run again.
            let findings = fs::read_dir(dir().join("findings").join(&target)).map_or(0, Iterator::count);
            Some((target, Run { time, executions, coverage, findings }))
        };
        Self { runs: text.lines().filter_map(run).collect() }
    }

    fn store(&self) -> Result<(), String> {
        let line = |(target, run): (&String, &Run)| {
            format!("{target} {} {} {}\n", run.time.as_secs(), run.executions, run.coverage)
        };
        let text: String = self.runs.iter().map(line).collect();
        fs::write(Self::path(), text).map_err(|error| format!("{}: {error}", Self::path().display()))
    }

    fn of(&self, target: &str) -> Run {
        self.runs.get(target).cloned().unwrap_or_default()
    }

    fn add(&mut self, target: &str, run: &Run) {
        let total = self.runs.entry(target.to_owned()).or_default();
        total.time += run.time;
        total.executions += run.executions;
        total.coverage = run.coverage;
        total.findings = run.findings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_wrong_ones_named() {
        let args = ["2", "--target", "frames", "--slice", "60", "--jobs", "3", "--target", "batch"];
        let options = Options::parse(&args).unwrap();
        let targets = vec!["frames".to_owned(), "batch".to_owned()];
        assert_eq!(options, Options { minutes: 2, slice_minutes: 60, jobs: 3, targets });
        assert_eq!(Options::parse(&[]).unwrap().minutes, MINUTES_PER_TARGET);
        assert_eq!(Options::parse(&["x"]).unwrap_err(), "soak fuzz: x is no number of minutes");
        assert_eq!(Options::parse(&["--target"]).unwrap_err(), "soak fuzz: --target needs a value");
        assert_eq!(Options::parse(&["--jobs", "0"]).unwrap_err(), "soak fuzz: 0 is no number of programs");
    }

    #[test]
    fn jobs_take_the_targets_with_the_least_time_and_none_twice() {
        let progress =
            Progress { totals: Totals::parse("old-one 50 1 1\nnew-one 30 1 1\n"), running: Vec::new() };
        let slice = Slice {
            targets: vec!["old-one".to_owned(), "new-one".to_owned()],
            wanted: Duration::from_secs(60),
            ends: Instant::now() + Duration::from_secs(3600),
            progress: Mutex::new(progress),
        };
        assert_eq!(slice.take(), Some(("new-one".to_owned(), Duration::from_secs(30))));
        assert_eq!(slice.take(), Some(("old-one".to_owned(), Duration::from_secs(10))));
        assert_eq!(slice.take(), None, "both run");
        assert!(!slice.is_done());
    }

    #[test]
    fn the_programs_are_read_from_the_manifest() {
        let targets = targets().unwrap();
        assert!(targets.contains(&"frames".to_owned()), "{targets:?}");
        assert_eq!(programs("[a]\nname = \"x\"\n[[bin]]\nname = \"b\"\npath = \"c\"\n"), ["b"]);
    }

    #[test]
    fn figures_are_read_from_the_fuzzers_output() {
        let output = "#2\tINITED cov: 90 ft: 91 corp: 1/1b\n#812\tDONE   cov: 118 ft: 164 corp: 3/3b\n\
                      stat::number_of_executed_units: 812\n";
        assert_eq!(read_output(output), (812, 118));
        assert_eq!(read_output("it crashed at once"), (0, 0));
    }

    #[test]
    fn totals_survive_in_a_file_and_add_up() {
        let mut totals = Totals::parse("no-such-target 60 1000 50\n");
        let run = Run { time: Duration::from_secs(30), executions: 500, coverage: 60, findings: 0 };
        totals.add("no-such-target", &run);
        let sum = Run { time: Duration::from_secs(90), executions: 1500, coverage: 60, findings: 0 };
        assert_eq!(totals.of("no-such-target"), sum);
        assert_eq!(totals.of("another"), Run::default());
    }
}
