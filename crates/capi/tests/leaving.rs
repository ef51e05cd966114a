//! Callbacks that do not return: C and C++ programs whose callbacks jump, end the thread, or throw, in each function that
//! runs callbacks. The programs use their clients afterwards and destroy them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions that run callbacks, without `rd_kafka_`. Those of transactions are not among them: the embedded broker has none.
const FUNCTIONS: &[&str] = &[
    "poll",
    "flush",
    "queue_poll_callback",
    "consumer_poll",
    "consume",
    "consume_batch",
    "consume_callback",
    "consume_queue",
    "consume_batch_queue",
    "consume_callback_queue",
    "commit_queue",
    "share_poll",
    "share_commit_sync",
];

/// Functions that end their consumer: there is one round.
const LAST_FUNCTIONS: &[&str] = &["consumer_close", "destroy", "share_consumer_close", "share_destroy"];

/// Functions whose memory is measured: reports, operations of a queue, and messages.
const MEASURED_FUNCTIONS: &[&str] = &["poll", "consumer_poll", "consume_callback"];
const MEASURED_ROUNDS: usize = 400;
/// The embedded broker keeps its records, so the growth is compared with that of callbacks that return. It differs by less than
/// a few of the broker's chunks of memory; a leak of 1 KiB per round would be more.
const MORE_BYTES_MAX: i64 = 256 * 1024;

#[test]
fn a_callback_may_jump_back_to_the_caller() {
    leave_each("cc", "longjmp");
}

#[test]
fn a_callback_may_end_its_thread() {
    leave_each("cc", "pthread_exit");
}

#[test]
fn a_callback_may_throw() {
    leave_each("c++", "throw");
}

#[test]
fn a_background_callback_may_end_the_library_s_thread() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    run(&compiled(scratch.path(), "cc"), "background", "pthread_exit", 1);
}

#[test]
fn callbacks_that_jump_need_a_bounded_amount_of_memory() {
    measure("cc", "longjmp");
}

#[test]
fn callbacks_that_end_their_thread_need_a_bounded_amount_of_memory() {
    measure("cc", "pthread_exit");
}

#[test]
fn callbacks_that_throw_need_a_bounded_amount_of_memory() {
    measure("c++", "throw");
}

fn leave_each(compiler: &str, way: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compiled(scratch.path(), compiler);
    for function in FUNCTIONS {
        run(&program, function, way, 3);
    }
    for function in LAST_FUNCTIONS {
        run(&program, function, way, 1);
    }
}

fn measure(compiler: &str, way: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compiled(scratch.path(), compiler);
    for function in MEASURED_FUNCTIONS {
        let growth = |way| {
            let output = run(&program, function, way, MEASURED_ROUNDS);
            output.trim().parse::<i64>().expect("the program prints a number of bytes")
        };
        let (returned, left) = (growth("return"), growth(way));
        assert!(
            left - returned < MORE_BYTES_MAX,
            "{function}, {way}: {left} bytes, and {returned} without leaving"
        );
    }
}

/// Runs the program, which checks everything itself; its output.
fn run(program: &Path, function: &str, way: &str, rounds: usize) -> String {
    let output = Command::new(program)
        .args([function, way, &rounds.to_string()])
        .output()
        .expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{function}, {way}: {}: {out}{err}", output.status);
    out.into_owned()
}

/// Compiles the program, as C or as C++, against the shared library that cargo built next to this test.
fn compiled(scratch: &Path, compiler: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in deps");
    // Programs look for it by its soname.
    std::os::unix::fs::symlink(deps.join("librdkafka.so"), scratch.join("librdkafka.so.1")).expect("a link");
    let program = scratch.join("leaving");
    let language = if compiler == "cc" { "c" } else { "c++" };
    let output = Command::new(compiler)
        .args(["-g", "-Wall", "-Wextra", "-Wno-clobbered", "-o"])
        .arg(&program)
        .args(["-x", language])
        .arg(root.join("tests/leaving/leaving.c"))
        .args(["-x", "none", "-I"])
        .arg(root.join("include"))
        .arg(scratch.join("librdkafka.so.1"))
        .arg(format!("-Wl,-rpath,{}", scratch.display()))
        .arg("-pthread")
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}
