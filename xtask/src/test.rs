//! `cargo xtask test`: every check of the house in one command, with a summary at its end.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ottla_interop::{Peer, QUICK, SKIPPED_FILE, cache_dir, in_ci, target_dir, workspace_root};

use crate::card;
use crate::dist;
use crate::install;
use crate::shell::{self, cargo};
use crate::test_programs::{Packages, TestRun};
use crate::tidy;

/// A cold build of everything on two cores, several times over.
const BUILD_WITHIN: Duration = Duration::from_secs(25 * 60);
/// All tests of a step together: a hanging one must not take CI's whole time.
const TESTS_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The version that reads our deny.toml.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// What to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    quick: bool,
    filter: Option<String>,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        for &arg in args {
            match arg {
                "--quick" => options.quick = true,
                _ if arg.starts_with('-') => return Err(format!("test: no option {arg}")),
                _ if options.filter.is_some() => return Err(format!("test: a second filter {arg}")),
                _ => options.filter = Some(arg.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Runs the steps one after the other; a failing one does not keep the others from running.
pub(crate) fn run(options: &Options) -> ExitCode {
    let _ = fs::remove_file(cache_dir().join(SKIPPED_FILE));
    let started = Instant::now();
    let mut steps = Vec::new();
    for (name, step) in plan(options) {
        println!("\n== {name}");
        let step_started = Instant::now();
        let outcome = step(options);
        steps.push(Step { name, outcome, took: step_started.elapsed() });
    }
    summarise(&steps, started.elapsed())
}

type Run = fn(&Options) -> Outcome;

fn plan(options: &Options) -> Vec<(&'static str, Run)> {
    let tests: [(&str, Run); 5] = [
        ("build ottla", build),
        ("install librdkafka", install_librdkafka),
        ("tests", tests),
        ("deliberate faults", deliberate_faults),
        ("interop tests", interop),
    ];
    if options.filter.is_some() {
        return tests.into();
    }
    let mut plan: Vec<(&str, Run)> = vec![("format", format), ("tidy", tidy), ("lints", lints)];
    if !options.quick {
        plan.push(("documentation", documentation));
    }
    plan.push(("licences and sources", deny));
    plan.extend(tests);
    plan.push(("packages", packages));
    plan.push(("report card", report_card));
    plan
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

/// The result of a step. A step that runs no tests counts as one itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: usize,
    /// The names of the failed tests.
    failed: Vec<String>,
    /// The tests that did not run, with the reason.
    skipped: Vec<(String, String)>,
}

impl Outcome {
    fn check(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self { passed: 1, ..Self::default() },
            Err(why) => Self { failed: vec![why], ..Self::default() },
        }
    }

    fn word(&self) -> &'static str {
        match (self.failed.is_empty(), self.passed) {
            (false, _) => "FAILED",
            (true, 0) if !self.skipped.is_empty() => "skipped",
            (true, _) => "ok",
        }
    }
}

fn format(_: &Options) -> Outcome {
    Outcome::check(succeed(&mut cargo(&["fmt", "--all", "--check"]), BUILD_WITHIN))
}

fn tidy(_: &Options) -> Outcome {
    Outcome::check(match tidy::print() {
        0 => Ok(()),
        count => Err(format!("{count} broken rules")),
    })
}

fn lints(_: &Options) -> Outcome {
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    Outcome::check(succeed(&mut cargo(&clippy), BUILD_WITHIN))
}

fn documentation(_: &Options) -> Outcome {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    Outcome::check(succeed(doc.env("RUSTDOCFLAGS", "-D warnings"), BUILD_WITHIN))
}

/// Without the advisories: their database lives outside the package registries.
fn deny(_: &Options) -> Outcome {
    let Some(program) = cargo_deny() else {
        if !in_ci() {
            let how = format!("cargo install --locked cargo-deny --version {CARGO_DENY_VERSION}");
            let why = format!("cargo-deny is not installed ({how}; about 3 minutes)");
            println!("skipped: {why}");
            return Outcome { skipped: vec![("licences and sources".to_owned(), why)], ..Outcome::default() };
        }
        return Outcome::check(install_cargo_deny().and_then(|()| match cargo_deny() {
            Some(program) => check_licences(&program),
            None => Err("cargo-deny is missing after its installation".to_owned()),
        }));
    };
    Outcome::check(check_licences(&program))
}

fn check_licences(program: &PathBuf) -> Result<(), String> {
    let mut deny = Command::new(program);
    deny.args(["check", "bans", "licenses", "sources"]).current_dir(workspace_root());
    succeed(&mut deny, BUILD_WITHIN)
}

/// Below the target directory, so that a kept target keeps it and nothing of the user's is replaced.
fn install_cargo_deny() -> Result<(), String> {
    let root = tools_dir();
    let root = root.to_string_lossy();
    // Unoptimised: it runs once, and most of its time is its build.
    let install =
        ["install", "--debug", "--locked", "cargo-deny", "--version", CARGO_DENY_VERSION, "--root", &root];
    succeed(&mut cargo(&install), BUILD_WITHIN)
}

fn cargo_deny() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(tools_dir().join("bin")).chain(std::env::split_paths(&path));
    dirs.map(|dir| dir.join("cargo-deny")).find(|program| program.is_file())
}

fn tools_dir() -> PathBuf {
    target_dir().join("tools")
}

/// The dev profile: its codecs are optimised (opt-level 1, dependencies 2). With the features of the whole workspace, so
/// that it shares every artefact with the tests.
fn build(_: &Options) -> Outcome {
    Outcome::check(succeed(&mut cargo(&["build", "--workspace"]), BUILD_WITHIN))
}

/// Where the interop tests look for it, in the profile that shares every artefact with them.
fn install_librdkafka(_: &Options) -> Outcome {
    let installed = install::install(&install::Options::for_tests());
    Outcome::check(installed.map_err(|failure| failure.to_string()))
}

fn tests(options: &Options) -> Outcome {
    let filter = options.filter.as_deref();
    let packages = Packages::AllButInterop;
    run_programs(TestRun { packages, with_documentation: true, filter, ..TestRun::default() })
}

/// The simulation with faults in broker and processor, all of which it must find. They need a build of their own.
fn deliberate_faults(options: &Options) -> Outcome {
    let build = vec!["--features", "ottla-sim/deliberate-faults", "--test", "deliberate_faults"];
    run_programs(TestRun { build, filter: options.filter.as_deref(), ..TestRun::default() })
}

fn interop(options: &Options) -> Outcome {
    let filter = options.filter.as_deref();
    let mut environment = Vec::new();
    if options.quick {
        environment.push((QUICK, "1".to_owned()));
    }
    let packages = Packages::Interop;
    let mut outcome = run_programs(TestRun { packages, filter, environment, ..TestRun::default() });
    // A test without its peer returns early, and counts as passed for its runner.
    outcome.skipped = fs::read_to_string(cache_dir().join(SKIPPED_FILE))
        .unwrap_or_default()
        .lines()
        .map(|line| {
            let mut columns = line.split('\t');
            let test = columns.next().unwrap_or_default().to_owned();
            (test, columns.nth(1).unwrap_or_default().to_owned())
        })
        .collect();
    outcome.passed = outcome.passed.saturating_sub(outcome.skipped.len());
    outcome
}

/// The packages with the binaries that the tests use, each used once. `cargo xtask dist` does it with the shipped ones.
fn packages(options: &Options) -> Outcome {
    let missing = if options.quick {
        Some("left out by --quick".to_owned())
    } else {
        dist::missing_programs().filter(|_| !in_ci())
    };
    if let Some(why) = missing {
        println!("{why}");
        return Outcome { skipped: vec![("packages".to_owned(), why)], ..Outcome::default() };
    }
    match dist::run_with_dev_profile() {
        Ok(stories) => Outcome { passed: stories.len(), ..Outcome::default() },
        Err(failure) => Outcome::check(Err(failure.to_string())),
    }
}

/// The tests of others that passed when docs/REPORT_CARD.md was written.
fn report_card(options: &Options) -> Outcome {
    let required = if options.quick {
        Err("left out by --quick".to_owned())
    } else {
        Peer::NumberedTests.require().map_err(|missing| missing.to_string().replace("skipped: ", ""))
    };
    if let Err(why) = required {
        println!("{why}");
        return Outcome { skipped: vec![("report card".to_owned(), why)], ..Outcome::default() };
    }
    match card::run_quick() {
        Ok(checked) => Outcome { passed: checked.passed, failed: checked.not_passed, ..Outcome::default() },
        Err(failure) => Outcome::check(Err(failure.to_string())),
    }
}

fn run_programs(mut run: TestRun<'_>) -> Outcome {
    run.environment.push(("OTTLA_BIN", target_dir().join("debug/ottla").to_string_lossy().into_owned()));
    match run.run(BUILD_WITHIN, TESTS_WITHIN) {
        Ok(ran) => {
            let mut outcome = read_results(&ran.lines);
            outcome.failed.extend(ran.failed);
            outcome
        }
        Err(why) => Outcome::check(Err(why)),
    }
}

/// Counts from the runner's lines `test NAME ... ok|FAILED|ignored, WHY`.
fn read_results(lines: &[String]) -> Outcome {
    let mut outcome = Outcome::default();
    for line in lines {
        if let Some(result) = line.strip_prefix("test result: ") {
            let passed = result.split("; ").next().and_then(|first| first.strip_suffix(" passed"));
            let passed =
                passed.and_then(|words| words.rsplit(' ').next()).and_then(|count| count.parse().ok());
            outcome.passed += passed.unwrap_or(0);
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"))
        {
            outcome.failed.push(name.to_owned());
        } else if let Some((name, why)) =
            line.strip_prefix("test ").and_then(|test| test.split_once(" ... ignored"))
        {
            let why = why.trim_start_matches(", ");
            outcome.skipped.push((name.to_owned(), if why.is_empty() { "ignored" } else { why }.to_owned()));
        }
    }
    outcome
}

fn succeed(command: &mut Command, within: Duration) -> Result<(), String> {
    let done = shell::run(command, within)?;
    if done.status.success() { Ok(()) } else { Err(format!("{} ({})", words(command), done.status)) }
}

fn words(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    command.get_args().fold(program, |words, arg| words + " " + &arg.to_string_lossy())
}

fn summarise(steps: &[Step], took: Duration) -> ExitCode {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    println!("\n== summary");
    for Step { name, outcome, took } in steps {
        let counts = format!("{} passed, {} failed", outcome.passed, outcome.failed.len());
        println!("{:8} {:>7.1} s  {name:22} {counts}", outcome.word(), took.as_secs_f64());
        passed += outcome.passed;
        failed += outcome.failed.len();
        skipped += outcome.skipped.len();
    }
    println!("{:8} {:>7.1} s", "", took.as_secs_f64());
    let mut by_reason: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, why) in steps.iter().flat_map(|step| &step.outcome.skipped) {
        *by_reason.entry(why).or_default() += 1;
    }
    for (why, count) in by_reason {
        println!("skipped: {count} x {why}");
    }
    for step in steps {
        for name in &step.outcome.failed {
            println!("FAILED: {}: {name}", step.name);
        }
    }
    // Alone on the last line, in the form that scripts read.
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_wrong_ones_named() {
        let options = Options::parse(&["--quick", "kcat"]).unwrap();
        assert_eq!(options, Options { quick: true, filter: Some("kcat".to_owned()) });
        assert_eq!(Options::parse(&["--slow"]).unwrap_err(), "test: no option --slow");
        assert_eq!(Options::parse(&["a", "b"]).unwrap_err(), "test: a second filter b");
    }

    #[test]
    fn results_are_read_from_the_runners_lines() {
        let output = "\
running 3 tests
test a::one ... ok
test a::two ... FAILED
test src/lib.rs - (line 5) ... ignored
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        let outcome = read_results(&output.lines().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(outcome.passed, 13);
        assert_eq!(outcome.failed, ["a::two"]);
        assert_eq!(outcome.skipped, [("src/lib.rs - (line 5)".to_owned(), "ignored".to_owned())]);
    }
}
