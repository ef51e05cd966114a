//! Builds test programs with cargo and runs several at a time: most tests wait most of the time.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ottla_interop::workspace_root;
use serde_json::Value;

use crate::shell::{self, cargo};

/// The programs that take longest, longest first. They start first, so that no long one is left for the end.
const LONGEST: &[&str] = &[
    "leaving",
    "groups",
    "capi_share",
    "share_group_tools",
    "foreign",
    "readme",
    "import",
    "java_tools",
    "capi_rust",
    "capi_python",
    "memory_budget",
    "capi_go",
    "kafka43",
    "processor",
    "capi_kcat",
    "bench_patterns",
    "transactions",
    "group_load",
    "commands",
    "kill9",
    "seeds",
    "hostile",
];

/// A test program, or cargo's run of documentation tests.
#[derive(Debug)]
struct Program {
    name: String,
    command: Command,
}

/// The lines of all programs, and the names of those that failed without a failed test: they crashed or hung.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) lines: Vec<String>,
    pub(crate) failed: Vec<String>,
}

/// Test programs to run, with what they share.
///
/// They are built with the features of the whole workspace, whatever is selected: another set would build broker,
/// client and all below them again.
#[derive(Debug, Default)]
pub(crate) struct TestRun<'a> {
    /// The packages whose programs run.
    pub(crate) packages: Packages,
    /// More arguments of cargo's build: programs, features.
    pub(crate) build: Vec<&'a str>,
    /// Runs the documentation tests of all packages, too.
    pub(crate) with_documentation: bool,
    /// Part of the names of the tests to run.
    pub(crate) filter: Option<&'a str>,
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// Packages of the workspace, by their directories.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Packages {
    #[default]
    All,
    Interop,
    AllButInterop,
}

impl Packages {
    fn contain(self, dir: &Path) -> bool {
        let is_interop = dir == workspace_root().join("interop");
        match self {
            Self::All => true,
            Self::Interop => is_interop,
            Self::AllButInterop => !is_interop,
        }
    }
}

impl TestRun<'_> {
    /// Builds the programs, and runs them beside one another.
    ///
    /// # Errors
    /// The build fails, or is not done `build_within`. A program that fails or is not done `run_within` is in [`Ran::failed`].
    pub(crate) fn run(&self, build_within: Duration, run_within: Duration) -> Result<Ran, String> {
        let mut programs = self.build(build_within)?;
        if self.with_documentation {
            let mut command = cargo(&["test", "--doc", "--workspace", "--no-fail-fast"]);
            command.args(self.filter);
            programs.push(Program { name: "documentation".to_owned(), command });
        }
        for program in &mut programs {
            program.command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        }
        Ok(run_beside(programs, run_within))
    }

    fn build(&self, within: Duration) -> Result<Vec<Program>, String> {
        let arguments = ["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
        let built = shell::run_quietly(cargo(&arguments).args(&self.build), within)?;
        let programs: Vec<Program> =
            built.lines.iter().filter_map(|line| program_of(line, self.packages, self.filter)).collect();
        if built.status.success() && !programs.is_empty() {
            return Ok(programs);
        }
        for line in built.lines.iter().filter(|line| !line.starts_with('{')) {
            println!("{line}");
        }
        Err(format!("the tests do not build ({})", built.status))
    }
}

/// The test program that a message of cargo is about, if it is of one of the packages.
fn program_of(message: &str, packages: Packages, filter: Option<&str>) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = message["executable"].as_str()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let dir = manifest.parent().map_or_else(|| workspace_root().to_path_buf(), Path::to_path_buf);
    if !packages.contain(&dir) {
        return None;
    }
    let name = message["target"]["name"].as_str()?;
    let mut command = Command::new(executable);
    // As cargo runs it.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    command.args(filter).env("CARGO", cargo).env("CARGO_MANIFEST_DIR", &dir).current_dir(dir);
    Some(Program { name: name.to_owned(), command })
}

/// Runs programs, one per processor at a time, and prints the output of each when it has ended.
fn run_beside(mut programs: Vec<Program>, within: Duration) -> Ran {
    let rank = |name: &str| LONGEST.iter().position(|long| *long == name).unwrap_or(LONGEST.len());
    programs.sort_by_key(|program| rank(&program.name));
    let deadline = Instant::now() + within;
    let waiting = Mutex::new(VecDeque::from(programs));
    let ran = Mutex::new(Ran::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = lock(&waiting).pop_front();
                    let Some(mut program) = next else { break };
                    let started = Instant::now();
                    let left = deadline.saturating_duration_since(started);
                    let done = shell::run_quietly(&mut program.command, left);
                    lock(&ran).add(&program.name, done, started.elapsed());
                }
            });
        }
    });
    ran.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ran {
    fn add(&mut self, name: &str, done: Result<shell::Done, String>, took: Duration) {
        println!("\n-- {name} ({:.1} s)", took.as_secs_f64());
        match done {
            Ok(done) => {
                for line in &done.lines {
                    println!("{line}");
                }
                let named =
                    done.lines.iter().any(|line| line.starts_with("test ") && line.ends_with(" ... FAILED"));
                if !done.status.success() && !named {
                    self.failed.push(format!("{name} ({})", done.status));
                }
                self.lines.extend(done.lines);
            }
            Err(why) => {
                println!("{why}");
                self.failed.push(format!("{name}: {why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: name.to_owned(), command }
    }

    #[test]
    fn the_lines_of_all_programs_are_kept_and_the_crashed_ones_named() {
        let programs = vec![
            shell("short", "echo test a ... ok"),
            shell("crash", "echo test b ... ok; kill -9 $$"),
            shell("leaving", "echo test c ... FAILED; exit 101"),
        ];
        let mut ran = run_beside(programs, Duration::from_secs(60));
        ran.lines.sort();
        assert_eq!(ran.lines, ["test a ... ok", "test b ... ok", "test c ... FAILED"]);
        assert_eq!(ran.failed.len(), 1, "{:?}", ran.failed);
        assert!(ran.failed[0].starts_with("crash ("), "{:?}", ran.failed);
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_named() {
        let ran = run_beside(vec![shell("hangs", "sleep 60; true")], Duration::from_millis(200));
        assert_eq!(ran.failed.len(), 1);
        assert!(ran.failed[0].starts_with("hangs: "), "{:?}", ran.failed);
    }

    #[test]
    fn only_test_programs_are_taken_from_cargos_messages() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{{"name":"t"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let all = Packages::All;
        assert!(program_of(&message(false, r#""/w/ottla""#), all, None).is_none());
        assert!(program_of(&message(true, "null"), all, None).is_none());
        assert!(program_of("   Compiling a", all, None).is_none());
        let built = message(true, r#""/w/t-1""#);
        assert!(program_of(&built, Packages::Interop, None).is_none());
        assert!(program_of(&built, Packages::AllButInterop, None).is_some());
        let program = program_of(&built, all, Some("word")).expect("a program");
        assert_eq!(program.name, "t");
        assert_eq!(program.command.get_current_dir(), Some(Path::new("/w/crates/a")));
        assert_eq!(program.command.get_args().collect::<Vec<_>>(), ["word"]);
    }

    #[test]
    fn the_interop_tests_are_those_of_the_directory_interop() {
        let manifest = workspace_root().join("interop/Cargo.toml");
        assert!(manifest.is_file(), "{}", manifest.display());
        let message = serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": manifest, "target": {"name": "kafka41"},
            "profile": {"test": true}, "executable": "/w/kafka41-1",
        });
        assert!(program_of(&message.to_string(), Packages::Interop, None).is_some());
        assert!(program_of(&message.to_string(), Packages::AllButInterop, None).is_none());
    }
}
