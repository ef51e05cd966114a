//! `cargo xtask sanitize`: the memory checkers, which are too slow for `cargo xtask test`.
//!
//! The sanitizers are options of unstable rustc. `RUSTC_BOOTSTRAP=1` allows them with the pinned toolchain, which has their
//! runtimes. The standard library of the toolchain is not instrumented: see docs/RELIABILITY.md for what that hides.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ottla_interop::{target_dir, workspace_root};

use crate::shell::{self, Done, cargo};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const BUILD_WITHIN: Duration = Duration::from_secs(40 * 60);
const RUN_WITHIN: Duration = Duration::from_secs(20 * 60);

/// Cases of `stale_handles.c`.
const STALE_CASES: &[&str] = &[
    "clients",
    "topics",
    "queues",
    "confs",
    "topic_confs",
    "messages",
    "events",
    "processors",
    "threads",
    "many",
];
/// The clients that the first case creates and destroys; valgrind needs 0.1 s for each.
const CLIENTS: &str = "50";

/// The crates whose tests run with AddressSanitizer, with the arguments that select their tests.
const ASAN_TESTS: &[(&str, &[&str])] = &[
    ("ottla-wire", &[]),
    ("ottla-log", &[]),
    ("ottla-broker", &["--lib"]),
    ("ottla-client", &["--lib"]),
    ("ottla-capi", &["--lib"]),
    ("ottla-capi", &["--test", "all", "--", "roundtrip::", "callbacks::", "client::", "processor::"]),
];

/// The same for ThreadSanitizer: the code of our own that shares memory without a lock.
const TSAN_TESTS: &[(&str, &[&str])] =
    &[("ottla-wire", &["--lib"]), ("ottla-log", &["--lib"]), ("ottla-capi", &["--lib", "handles::"])];

/// A checker of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Asan,
    Valgrind,
    Tsan,
}

/// The result of one part.
struct Part {
    name: String,
    outcome: Result<(), String>,
    took: Duration,
}

impl Tool {
    const ALL: [Self; 3] = [Self::Asan, Self::Valgrind, Self::Tsan];

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Asan => "asan",
            Self::Valgrind => "valgrind",
            Self::Tsan => "tsan",
        }
    }

    /// The value of `-Zsanitizer`.
    fn sanitizer(self) -> &'static str {
        match self {
            Self::Asan => "address",
            Self::Tsan => "thread",
            Self::Valgrind => unreachable!("valgrind runs the library as it is"),
        }
    }

    fn target_dir(self) -> PathBuf {
        target_dir().join("sanitize").join(self.name())
    }
}

/// Runs one tool, or all of them. The last lines are one per part.
pub(crate) fn run(only: Option<Tool>) -> ExitCode {
    let mut parts = Vec::new();
    for tool in Tool::ALL.into_iter().filter(|tool| only.is_none_or(|only| only == *tool)) {
        match missing(tool) {
            Some(missing) => {
                parts.push(Part {
                    name: tool.name().to_owned(),
                    outcome: Err(missing),
                    took: Duration::ZERO,
                });
            }
            None => run_tool(tool, &mut parts),
        }
    }
    println!();
    for part in &parts {
        let result = part.outcome.as_ref().err().map_or("ok", String::as_str);
        println!("{:<40} {:>5} s  {result}", part.name, part.took.as_secs());
    }
    if parts.iter().all(|part| part.outcome.is_ok()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_tool(tool: Tool, parts: &mut Vec<Part>) {
    match tool {
        Tool::Asan => {
            for (package, arguments) in ASAN_TESTS {
                measure(parts, format!("asan {package}"), || tests(tool, package, arguments));
            }
            c_programs(tool, parts);
        }
        Tool::Valgrind => c_programs(tool, parts),
        Tool::Tsan => {
            for (package, arguments) in TSAN_TESTS {
                measure(parts, format!("tsan {package}"), || tests(tool, package, arguments));
            }
        }
    }
}

fn measure(parts: &mut Vec<Part>, name: String, part: impl FnOnce() -> Result<(), String>) {
    println!("\n== {name}");
    let started = Instant::now();
    let outcome = part();
    parts.push(Part { name, outcome, took: started.elapsed() });
}

/// Names the component that a tool needs and the machine lacks, and the way to install it.
fn missing(tool: Tool) -> Option<String> {
    match tool {
        Tool::Valgrind => (Command::new("valgrind").arg("--version").output().is_err())
            .then(|| "valgrind is not installed: apt-get install valgrind".to_owned()),
        Tool::Asan | Tool::Tsan => {
            let root = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
            let libraries = Path::new(String::from_utf8_lossy(&root.stdout).trim())
                .join("lib/rustlib")
                .join(TARGET)
                .join("lib");
            let runtime = format!("_rt.{}.a", tool.name());
            let has_runtime = fs::read_dir(&libraries).is_ok_and(|entries| {
                entries.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(&runtime))
            });
            (!has_runtime).then(|| {
                let libraries = libraries.display();
                format!(
                    "{libraries} has no librustc-*{runtime}: install the toolchain for {TARGET} with rustup"
                )
            })
        }
    }
}

/// `cargo COMMAND -p PACKAGE` with instrumentation of everything but the standard library.
fn instrumented(tool: Tool, command: &str, package: &str) -> Command {
    let mut cargo = cargo(&[command, "--target", TARGET, "-p", package]);
    let flags = format!("-Zsanitizer={} -Cunsafe-allow-abi-mismatch=sanitizer", tool.sanitizer());
    cargo
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags)
        // The C code of dependencies is compiled by gcc. Its instrumentation and the runtime of rustc are not made for each
        // other: they report a constant table of zstd as a variable whose scope has ended.
        .env("CFLAGS", "-fno-sanitize=all")
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .env("CARGO_TARGET_DIR", tool.target_dir());
    with_options(tool, &mut cargo);
    cargo
}

/// The options of the runtimes, for the programs that `command` starts.
fn with_options(tool: Tool, command: &mut Command) {
    let suppressions = workspace_root().join("xtask/sanitize");
    let path = |name: &str| suppressions.join(name).display().to_string();
    match tool {
        Tool::Asan => {
            command.env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1");
            command.env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", path("lsan.txt")));
        }
        Tool::Tsan => {
            command.env("TSAN_OPTIONS", format!("suppressions={}", path("tsan.txt")));
        }
        Tool::Valgrind => {}
    }
}

fn tests(tool: Tool, package: &str, arguments: &[&str]) -> Result<(), String> {
    let mut cargo = instrumented(tool, "test", package);
    // Examples in comments are programs of their own, and take longer to build than everything else.
    let selects = arguments.iter().any(|argument| argument.starts_with("--"));
    if !selects {
        cargo.args(["--lib", "--tests"]);
    }
    cargo.args(arguments);
    verdict(&shell::run(&mut cargo, BUILD_WITHIN)?)
}

/// Runs the C programs on the library.
fn c_programs(tool: Tool, parts: &mut Vec<Part>) {
    let mut library = Err("the library was not built".to_owned());
    measure(parts, format!("{} build of the C library", tool.name()), || {
        library = built_library(tool);
        library.as_ref().map(|_| ()).map_err(Clone::clone)
    });
    let Ok(library) = library else { return };
    let programs = match programs(tool, &library) {
        Ok(programs) => programs,
        Err(error) => return measure(parts, format!("{} C programs", tool.name()), || Err(error)),
    };
    let (stale, leaving) = programs;
    for case in STALE_CASES {
        measure(parts, format!("{} stale_handles {case}", tool.name()), || {
            under(tool, &stale, &[case, CLIENTS])
        });
    }
    for function in ["poll", "consumer_poll"] {
        measure(parts, format!("{} produce and consume, {function}", tool.name()), || {
            under(tool, &leaving, &[function, "return", "20"])
        });
    }
}

/// Builds the library as for the tests, and returns the directory of `librdkafka.so.1`. valgrind needs no instrumentation.
/// AddressSanitizer's runtime comes from the C compiler here, which fits no instrumentation of rustc.
fn built_library(tool: Tool) -> Result<PathBuf, String> {
    verdict(&shell::run(&mut cargo(&["build", "-p", "ottla-capi"]), BUILD_WITHIN)?)?;
    let programs = tool.target_dir().join("programs");
    fs::create_dir_all(&programs).map_err(|error| format!("{}: {error}", programs.display()))?;
    let linked = programs.join("librdkafka.so.1");
    let _ = fs::remove_file(&linked);
    std::os::unix::fs::symlink(target_dir().join("debug/librdkafka.so"), &linked)
        .map_err(|error| format!("{}: {error}", linked.display()))?;
    Ok(programs)
}

/// Compiles the C programs: stale handles, and producing and consuming.
fn programs(tool: Tool, library: &Path) -> Result<(PathBuf, PathBuf), String> {
    let capi = workspace_root().join("crates/capi");
    let compiled = |name: &str| {
        let program = library.join(name);
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-Wno-clobbered", "-pthread", "-o"]).arg(&program);
        if tool == Tool::Asan {
            compiler.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
        }
        compiler.arg(capi.join(format!("tests/{name}/{name}.c"))).arg("-I").arg(capi.join("include"));
        compiler.arg(library.join("librdkafka.so.1")).arg(format!("-Wl,-rpath,{}", library.display()));
        verdict(&shell::run(&mut compiler, RUN_WITHIN)?)?;
        Ok::<_, String>(program)
    };
    Ok((compiled("stale_handles")?, compiled("leaving")?))
}

/// Runs a program under a tool. The misuse that it makes is reported by the library, and is no finding.
fn under(tool: Tool, program: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = match tool {
        Tool::Valgrind => {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--fair-sched=yes"]);
            valgrind.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]).arg(program);
            valgrind
        }
        Tool::Asan | Tool::Tsan => Command::new(program),
    };
    command.args(arguments);
    with_options(tool, &mut command);
    verdict(&shell::run(&mut command, RUN_WITHIN)?)
}

fn verdict(done: &Done) -> Result<(), String> {
    let finding = done
        .lines
        .iter()
        .find(|line| line.contains("Sanitizer: ") && (line.contains("ERROR") || line.contains("WARNING")));
    match finding {
        Some(finding) => Err(finding.clone()),
        None if done.status.success() => Ok(()),
        None => Err(done.status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_have_the_names_of_the_usage() {
        for tool in Tool::ALL {
            assert_eq!(Tool::parse(tool.name()), Some(tool));
        }
        assert_eq!(Tool::parse("miri"), None);
    }
}
