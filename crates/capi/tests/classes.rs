//! The C++ classes: C++ programs with their sources, which check everything themselves.

use std::path::Path;
use std::process::Command;

/// The partitioner of a new Topic was that of the deleted one, and messages had the deleted Topic. A topic's opaque that the
/// program had set was used as an object of the library. The deletion of a Topic waited for partitioners of other Topics.
#[test]
fn a_topic_that_is_created_again_has_its_own_partitioner_and_messages() {
    run("topics");
}

/// The destructor ignored that C refused to destroy a share consumer in use: its callbacks used freed memory.
#[test]
fn a_share_consumer_that_is_deleted_during_a_call_ends_with_the_call() {
    run("shares");
}

/// Compiles a program of the folder `classes`, and runs it.
fn run(name: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("a test has a path");
    // Programs look for the library by its soname.
    let library = scratch.path().join("librdkafka.so.1");
    let built = test.parent().expect("in deps").join("librdkafka.so");
    std::os::unix::fs::symlink(built, &library).expect("a link");
    let sources = std::fs::read_dir(root.join("cpp")).expect("readable");
    let sources = sources.map(|source| source.expect("an entry").path());
    let program = scratch.path().join(name);
    let compiled = Command::new("c++")
        .args(["-std=c++11", "-g", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(root.join("include"))
        .arg(root.join("tests/classes").join(name).with_extension("cpp"))
        .args(sources.filter(|source| source.extension().is_some_and(|extension| extension == "cpp")))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", scratch.path().display()))
        .output()
        .expect("a compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ended = Command::new(&program).output().expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{}: {out}{err}", ended.status);
}
