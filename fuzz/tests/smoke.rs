//! Every target with every file of its corpus and with mutations of them, on stable Rust.
//!
//! `OTTLA_FUZZ_TARGET` chooses a target, and `OTTLA_FUZZ_MUTATIONS` the number of mutations of each file.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it measures real time")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;
use ottla_broker::fuzzing;
use ottla_fuzz::memory::{CountingAllocator, peak_of};
use ottla_fuzz::mutate::mutate;
use ottla_fuzz::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CORPUS_FILE_BYTES_MAX: usize = 4096;
const CORPUS_FILES_MAX: usize = 48;
/// Inputs take microseconds to milliseconds.
const INPUT_TIMEOUT: Duration = Duration::from_secs(60);
/// Targets with fewer mutations are slow.
const SLOW_MUTATIONS: u32 = 400;

fn corpus_dir(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The files of a corpus, sorted by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = corpus_dir(target);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("listed").path();
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("read"))
        })
        .collect();
    files.sort();
    files
}

/// The target that runs, and since when.
static RUNNING: Mutex<Option<(&str, Instant)>> = Mutex::new(None);

/// Ends the test if an input takes longer than any should, which no deadline can interrupt.
fn watch(done: &Receiver<()>) {
    while done.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let running = *RUNNING.lock().expect("not poisoned");
        if let Some((target, since)) = running.filter(|(_, since)| since.elapsed() > INPUT_TIMEOUT) {
            let saved = saved_path(target);
            eprintln!(
                "{target} takes longer than {:?}; its input is in {}",
                since.elapsed(),
                saved.display()
            );
            std::process::abort();
        }
    }
}

fn saved_path(target: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-input"))
}

/// Runs the target. `what` names the input if the target fails.
fn check(target: &Target, input: &[u8], what: &str) {
    *RUNNING.lock().expect("not poisoned") = Some((target.name, Instant::now()));
    let saved = saved_path(target.name);
    if target.mutations < SLOW_MUTATIONS {
        // A file per input takes longer than most targets.
        fs::write(&saved, input).expect("written");
    }
    if catch_unwind(AssertUnwindSafe(|| target.check(input))).is_err() {
        let _ = fs::write(&saved, input);
        panic!("{} fails with {what}; the input is in {}", target.name, saved.display());
    }
}

#[test]
fn every_target_passes_with_its_corpus_and_with_mutations() {
    let (_running, done) = channel();
    std::thread::spawn(move || watch(&done));
    let only = std::env::var("OTTLA_FUZZ_TARGET").ok();
    let mutations: Option<u32> =
        std::env::var("OTTLA_FUZZ_MUTATIONS").ok().and_then(|count| count.parse().ok());
    for target in TARGETS.iter().filter(|target| only.as_ref().is_none_or(|only| only == target.name)) {
        let started = Instant::now();
        let files = corpus(target);
        assert!(!files.is_empty(), "{} has no corpus", target.name);
        let mut runs = 0;
        for (at, (name, input)) in files.iter().enumerate() {
            check(target, input, name);
            // The same mutations in every run, and others for each file.
            let mut rng = Rng::with_seed(at as u64);
            for number in 0..mutations.unwrap_or(target.mutations) {
                let other = &files[rng.usize(..files.len())].1;
                let mut mutated = input.clone();
                mutate(&mut mutated, other, &mut rng);
                check(target, &mutated, &format!("mutation {number} of {name}"));
                runs += 1;
            }
        }
        println!("{:24} {:2} files, {runs:5} mutations, {:?}", target.name, files.len(), started.elapsed());
    }
}

/// A fuzzer that starts from refused logins and unreadable metrics finds little.
#[test]
fn the_first_seeds_of_logins_and_metrics_are_accepted() {
    let seeds = |name: &str| (Target::find(name).expect("a target").seeds)();
    let first = b"n,,n=alice,r=abc";
    let proofs = fuzzing::scram_proofs(first);
    assert!(proofs.iter().all(|proof| fuzzing::scram(first, proof.as_bytes())));
    assert!(!fuzzing::scram(b"n,,n=alice,r=abd", proofs[0].as_bytes()));
    let (jwks, messages) = (&seeds("jwks")[0], seeds("oauth_token"));
    let accepted: Vec<bool> = messages.iter().map(|message| fuzzing::oauth_token(jwks, message)).collect();
    assert_eq!(accepted, [true, true, false, false, false, false]);
    for seed in &seeds("pushed_metrics")[..5] {
        assert_eq!(fuzzing::pushed_metrics(seed[0] as i8, &seed[1..]), Some(2));
    }
}

#[test]
fn the_corpora_are_small_and_belong_to_targets() {
    let dirs = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")).expect("a corpus");
    for dir in dirs {
        let name = dir.expect("listed").file_name().to_string_lossy().into_owned();
        let target = Target::find(&name).unwrap_or_else(|| panic!("no target {name}"));
        let files = corpus(target);
        assert!(files.len() <= CORPUS_FILES_MAX, "{name}: {} files", files.len());
        for (file, bytes) in files {
            assert!(bytes.len() <= CORPUS_FILE_BYTES_MAX, "{name}/{file}: {} bytes", bytes.len());
        }
    }
}

#[test]
fn memory_is_counted_and_too_much_of_it_fails() {
    assert!((1 << 20..2 << 20).contains(&peak_of(|| drop(vec![0_u8; 1 << 20]))));
    let greedy = Target { run: |_| drop(vec![0_u8; 3 << 20]), ..*TARGETS.first().expect("a target") };
    let failure = catch_unwind(|| greedy.check(&[])).expect_err("above its limit");
    let message = failure.downcast_ref::<String>().expect("a message");
    assert!(message.contains("bytes of memory"), "{message}");
}

#[test]
fn the_fuzzers_programs_are_the_targets() {
    let manifest = include_str!("../libfuzzer/Cargo.toml");
    let programs: Vec<&str> = manifest
        .split("[[bin]]\n")
        .skip(1)
        .filter_map(|program| program.lines().next()?.strip_prefix("name = "))
        .map(|name| name.trim_matches('"'))
        .collect();
    assert_eq!(programs, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
}
