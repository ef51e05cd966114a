//! Fuzz targets: functions that pass any bytes to code that reads them from a peer, a disk or a user.
//!
//! ```text
//!   corpus/TARGET/*  --->  tests/smoke.rs  stable Rust, with mutations    --+
//!                                                                           +-->  Target::check  -->  Target::run
//!   corpus/TARGET/*  --->  libfuzzer/      nightly Rust, guided by coverage +
//! ```
//!
//! A target fails if it panics, if one of its assertions fails, or if it takes more memory than its limit.
//! `cargo xtask test` runs the smoke test, and `cargo xtask soak fuzz` runs libFuzzer. `cargo run -p ottla-fuzz --bin
//! seeds` writes the seeds of the corpus again.

pub mod memory;
pub mod mutate;

mod input;
mod journal;
mod wire;

/// A function under test, with its limits.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target, of its corpus and of its program.
    pub name: &'static str,
    /// Passes the input to the code under test. It panics if a property does not hold.
    pub run: fn(&[u8]),
    /// Returns valid inputs, from which a fuzzer starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The limit of the memory that one run may take.
    pub memory: MemoryLimit,
    /// The number of mutations of each file of the corpus in the smoke test. Slow targets have fewer.
    pub mutations: u32,
}

/// The memory that a run may take: a fixed part, and a part that grows with the input.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimit {
    /// The fixed part in bytes.
    pub bytes: usize,
    /// The bytes for each byte of the input.
    pub per_input_byte: usize,
}

impl Target {
    /// The target of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Runs the target and compares the memory that it took with the limit.
    pub fn check(&self, input: &[u8]) {
        let taken = memory::peak_of(|| (self.run)(input));
        let max = self.memory.bytes + self.memory.per_input_byte * input.len();
        assert!(
            taken <= max,
            "{}: {taken} bytes of memory for {} of input; at most {max}",
            self.name,
            input.len()
        );
    }

    const fn new(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Self {
        Self { name, run, seeds, memory: MemoryLimit { bytes: 1 << 20, per_input_byte: 64 }, mutations: 100 }
    }

    const fn memory(mut self, bytes: usize, per_input_byte: usize) -> Self {
        self.memory = MemoryLimit { bytes, per_input_byte };
        self
    }

    const fn mutations(mut self, mutations: u32) -> Self {
        self.mutations = mutations;
        self
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target::new("frames", wire::frames, wire::frames_seeds),
    Target::new("batch", wire::batch, wire::batch_seeds).memory(4 << 20, 64),
    Target::new("journal", journal::run, journal::seeds).memory(8 << 20, 64).mutations(40),
];
