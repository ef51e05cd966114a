//! Callbacks that do not return: C and C++ programs whose delivery reports jump, end the thread, or throw.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_callback_may_jump_back_to_the_caller_of_poll() {
    let output = run("cc", "leaving.c", "longjmp");
    assert!(output.starts_with("reported "), "{output}");
}

#[test]
fn a_callback_may_end_its_thread() {
    assert_eq!(run("cc", "leaving.c", "pthread_exit"), "reported 6 of 6\n");
}

#[test]
fn a_callback_may_throw() {
    assert_eq!(run("c++", "leaving.cpp", "throw"), "reported 6 of 6\nread 6\n");
}

/// Compiles a program and runs it; its output.
fn run(compiler: &str, source: &str, way: &str) -> String {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let output = Command::new(compiled(scratch.path(), compiler, source))
        .arg(way)
        .output()
        .expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    out.into_owned()
}

/// Compiles a program of this directory against the shared library that cargo built next to this test.
fn compiled(scratch: &Path, compiler: &str, source: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in deps");
    // Programs look for it by its soname.
    std::os::unix::fs::symlink(deps.join("librdkafka.so"), scratch.join("librdkafka.so.1")).expect("a link");
    let program = scratch.join("leaving");
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(root.join("tests/leaving").join(source))
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
