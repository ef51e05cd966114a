//! One program per target: the program's name chooses the target.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_fuzz::Target;
use ottla_fuzz::memory::CountingAllocator;
use std::sync::LazyLock;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static TARGET: LazyLock<&Target> =
    LazyLock::new(|| Target::find(env!("CARGO_BIN_NAME")).expect("a program of each target"));

fuzz_target!(|input: &[u8]| TARGET.check(input));
