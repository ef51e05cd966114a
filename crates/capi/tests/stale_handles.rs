//! Handles after their end: a C program uses each kind of handle after its destruction, at once and after many others.
//! Each call returns its error, and the library writes one line that names the function and the type.

use std::path::{Path, PathBuf};
use std::process::Command;

const LINE: &str = "librdkafka (Ottla): ";

#[test]
fn a_client_is_stale_after_its_destruction() {
    each_misuse_is_reported("clients");
}

#[test]
fn a_topic_is_stale_after_its_client_is_destroyed() {
    each_misuse_is_reported("topics");
}

#[test]
fn a_queue_is_stale_after_its_destruction() {
    each_misuse_is_reported("queues");
}

#[test]
fn a_configuration_is_stale_after_its_destruction_and_after_rd_kafka_new() {
    each_misuse_is_reported("confs");
}

#[test]
fn a_configuration_of_topics_is_stale_after_its_destruction_and_after_rd_kafka_topic_new() {
    each_misuse_is_reported("topic_confs");
}

#[test]
fn a_message_is_destroyed_once() {
    each_misuse_is_reported("messages");
}

#[test]
fn a_share_consumer_is_stale_after_its_destruction() {
    each_misuse_is_reported("shares");
}

#[test]
fn an_event_is_destroyed_once() {
    each_misuse_is_reported("events");
}

#[test]
fn a_processor_and_its_settings_are_stale_after_their_destruction() {
    each_misuse_is_reported("processors");
}

#[test]
fn handles_are_destroyed_while_other_threads_use_them() {
    let (_, err) = run("threads");
    assert!(err.lines().all(|line| line.starts_with(LINE)), "{err}");
}

#[test]
fn the_number_of_lines_is_limited() {
    let (_, err) = run("many");
    let lines: Vec<&str> = err.lines().filter(|line| line.starts_with(LINE)).collect();
    assert_eq!(lines.len(), 101, "{err}");
    assert_eq!(lines[100], "librdkafka (Ottla): 100 lines about misuse were written: more are left out");
}

/// The program prints the misuses that it makes. The lines on stderr are about the same, in the same order.
fn each_misuse_is_reported(case: &str) {
    let (out, err) = run(case);
    let made: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("misuse ")).collect();
    let reported: Vec<&str> = err.lines().filter_map(|line| line.strip_prefix(LINE)).collect();
    assert!(!made.is_empty(), "{out}");
    for (at, misuse) in made.iter().enumerate() {
        let (function, kind) = misuse.split_once(' ').expect("a function and a type");
        let line = reported.get(at).copied().unwrap_or_default();
        assert!(line.starts_with(&format!("{function}(): the {kind} 0x")), "{misuse}: {line:?}\n{out}{err}");
        assert_eq!(line.split(": ").count(), 3, "the function, the problem and the advice: {line}");
    }
    assert_eq!(reported.len(), made.len(), "{out}{err}");
}

/// Runs a case of the program, which checks the results of its calls; stdout and stderr.
fn run(case: &str) -> (String, String) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compiled(scratch.path());
    let output = Command::new(program).arg(case).output().expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{case}: {}: {out}{err}", output.status);
    (out.into_owned(), err.into_owned())
}

/// Compiles the program against the shared library that cargo built next to this test.
fn compiled(scratch: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in deps");
    // Programs look for it by its soname.
    std::os::unix::fs::symlink(deps.join("librdkafka.so"), scratch.join("librdkafka.so.1")).expect("a link");
    let program = scratch.join("stale_handles");
    let output = Command::new("cc")
        .args(["-g", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(root.join("tests/stale_handles/stale_handles.c"))
        .arg("-I")
        .arg(root.join("include"))
        .arg(scratch.join("librdkafka.so.1"))
        .arg(format!("-Wl,-rpath,{}", scratch.display()))
        .arg("-pthread")
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}
