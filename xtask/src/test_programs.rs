//! Builds test programs with cargo and runs several at a time: most tests wait most of the time.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ottla_interop::workspace_root;
use serde_json::Value;

use crate::shell::{self, cargo};

/// The files and programs that take longest, longest first. They start first, so that no long one is left for the end.
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
    "capi_node",
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

/// The program of a package into which its test files are built.
const MANY_FILES: &str = "all";
/// A program that lists its tests runs none.
const LIST_WITHIN: Duration = Duration::from_secs(60);

/// A run of a test program or of one of its files, or cargo's run of documentation tests.
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
        let mut programs = Vec::new();
        for built in self.build(build_within)? {
            if built.name == MANY_FILES {
                programs.extend(built.by_file(self.filter)?);
            } else {
                programs.push(built.run(self.filter));
            }
        }
        if programs.is_empty() && self.filter.is_none() {
            return Err("no test program was built".to_owned());
        }
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

    fn build(&self, within: Duration) -> Result<Vec<Built>, String> {
        let arguments = ["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
        let built = shell::run_quietly(cargo(&arguments).args(&self.build), within)?;
        if built.status.success() {
            return Ok(built.lines.iter().filter_map(|line| built_by(line, self.packages)).collect());
        }
        for line in built.lines.iter().filter(|line| !line.starts_with('{')) {
            println!("{line}");
        }
        Err(format!("the tests do not build ({})", built.status))
    }
}

/// A test program that cargo built.
#[derive(Debug)]
struct Built {
    name: String,
    executable: String,
    /// Of its package.
    dir: PathBuf,
}

/// The artefact that a message of cargo is about, if that is a test program of one of the packages.
fn built_by(message: &str, packages: Packages) -> Option<Built> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = message["executable"].as_str()?.to_owned();
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let dir = manifest.parent().map_or_else(|| workspace_root().to_path_buf(), Path::to_path_buf);
    let name = message["target"]["name"].as_str()?.to_owned();
    packages.contain(&dir).then_some(Built { name, executable, dir })
}

impl Built {
    /// As cargo runs it.
    fn command(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&self.executable);
        command.env("CARGO", cargo).env("CARGO_MANIFEST_DIR", &self.dir).current_dir(&self.dir);
        command
    }

    /// The tests that have `filter` in their names, or all if the program has this name.
    fn run(self, filter: Option<&str>) -> Program {
        let mut command = self.command();
        command.args(filter.filter(|filter| *filter != self.name));
        Program { name: self.name, command }
    }

    /// A run for each of its files: tests of one file neither share a process with those of another nor wait for them.
    fn by_file(&self, filter: Option<&str>) -> Result<Vec<Program>, String> {
        let listed = shell::run_quietly(self.command().args(["--list", "--format", "terse"]), LIST_WITHIN)?;
        let mut programs = Vec::new();
        for (file, tests) in tests_by_file(&listed.lines, filter) {
            let mut command = self.command();
            command.arg("--exact").args(tests);
            programs.push(Program { name: file, command });
        }
        Ok(programs)
    }
}

/// The full names of the tests that have `filter` in them, by the file they are in.
fn tests_by_file(listed: &[String], filter: Option<&str>) -> BTreeMap<String, Vec<String>> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in listed.iter().filter_map(|line| line.strip_suffix(": test")) {
        if filter.is_none_or(|filter| test.contains(filter)) {
            let file = test.split("::").next().unwrap_or(test);
            files.entry(file.to_owned()).or_default().push(test.to_owned());
        }
    }
    files
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
        assert!(built_by(&message(false, r#""/w/ottla""#), all).is_none());
        assert!(built_by(&message(true, "null"), all).is_none());
        assert!(built_by("   Compiling a", all).is_none());
        let built = message(true, r#""/w/t-1""#);
        assert!(built_by(&built, Packages::Interop).is_none());
        assert!(built_by(&built, Packages::AllButInterop).is_some());
        let program = built_by(&built, all).expect("a program").run(Some("word"));
        assert_eq!(program.name, "t");
        assert_eq!(program.command.get_current_dir(), Some(Path::new("/w/crates/a")));
        assert_eq!(program.command.get_args().collect::<Vec<_>>(), ["word"]);
    }

    #[test]
    fn the_interop_tests_are_those_of_the_directory_interop() {
        let manifest = workspace_root().join("interop/Cargo.toml");
        assert!(manifest.is_file(), "{}", manifest.display());
        let message = serde_json::json!({
            "reason": "compiler-artifact", "manifest_path": manifest, "target": {"name": "all"},
            "profile": {"test": true}, "executable": "/w/all-1",
        });
        assert!(built_by(&message.to_string(), Packages::Interop).is_some());
        assert!(built_by(&message.to_string(), Packages::AllButInterop).is_none());
    }

    #[test]
    fn tests_are_grouped_by_file_and_filtered() {
        let listed =
            ["groups::a: test", "share_groups::a: test", "groups::deep::b: test", "3 tests, 0 benchmarks"];
        let listed = listed.map(str::to_owned);
        let files = tests_by_file(&listed, None);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["groups", "share_groups"]);
        assert_eq!(files["groups"], ["groups::a", "groups::deep::b"]);
        let some = tests_by_file(&listed, Some("deep"));
        assert_eq!(
            some.into_iter().collect::<Vec<_>>(),
            [("groups".to_owned(), vec!["groups::deep::b".to_owned()])]
        );
    }
}
