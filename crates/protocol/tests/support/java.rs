//! Runs the Java client: its jars come from Maven, our program is compiled with javac.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The class path of the Java client and of our program, compiled into `directory`; the error is the reason for a
/// failure.
pub(crate) fn classpath(directory: &Path) -> Result<String, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java");
    let jars = jars(&sources)?;
    run(Command::new("javac")
        .arg("-cp")
        .arg(jars.join("*"))
        .arg("-d")
        .arg(directory)
        .arg(sources.join("Conformance.java")))?;
    Ok(format!("{}/*:{}", jars.display(), directory.display()))
}

/// The directory of the jars, which later runs reuse.
fn jars(sources: &Path) -> Result<PathBuf, String> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let jars = cache.join("kafka-clients-4.3.1");
    if jars.exists() {
        return Ok(jars);
    }
    // Downloaded to a temporary directory and moved, so that an interrupted run leaves no partial directory.
    let aside = tempfile::tempdir_in(cache).map_err(|error| error.to_string())?;
    let fetched = aside.path().join("jars");
    run(Command::new("mvn")
        .args(["-q", "-B", "-f"])
        .arg(sources.join("pom.xml"))
        .arg("dependency:copy-dependencies")
        .arg(format!("-DoutputDirectory={}", fetched.display())))?;
    match fs::rename(&fetched, &jars) {
        // Another run was faster.
        Err(_) if jars.exists() => Ok(jars),
        Err(error) => Err(format!("cannot move {} to {}: {error}", fetched.display(), jars.display())),
        Ok(()) => Ok(jars),
    }
}

/// Runs the program in `directory`; the error is the reason for a failure.
pub(crate) fn run_conformance(classpath: &str, directory: &Path, seed: u64) -> Result<(), String> {
    run(Command::new("java").args(["-cp", classpath, "Conformance"]).arg(directory).arg(seed.to_string()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{}: {}\n{}", command.get_program().display(), output.status, String::from_utf8_lossy(&text)))
}

/// Skips a test without its peer with a message, except in CI, where it fails.
pub(crate) fn skip(why: &str) {
    assert!(env::var("CI").is_err(), "no peer kafka-clients 4.3.1: {why}");
    eprintln!("skipped: no peer kafka-clients 4.3.1: {why}");
}
