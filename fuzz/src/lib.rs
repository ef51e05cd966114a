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

mod broker;
mod client;
mod codecs;
mod disk;
mod input;
mod journal;
mod log;
mod messages;
mod security;
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
        Self { name, run, seeds, memory: MemoryLimit { bytes: 1 << 20, per_input_byte: 64 }, mutations: 400 }
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
    Target::new("records_request", messages::records_request, messages::records_request_seeds),
    Target::new("records_response", messages::records_response, messages::records_response_seeds),
    Target::new("cluster_request", messages::cluster_request, messages::cluster_request_seeds),
    Target::new("cluster_response", messages::cluster_response, messages::cluster_response_seeds),
    Target::new("groups_request", messages::groups_request, messages::groups_request_seeds),
    Target::new("groups_response", messages::groups_response, messages::groups_response_seeds),
    Target::new("shares_request", messages::shares_request, messages::shares_request_seeds),
    Target::new("shares_response", messages::shares_response, messages::shares_response_seeds),
    Target::new("offsets_request", messages::offsets_request, messages::offsets_request_seeds),
    Target::new("offsets_response", messages::offsets_response, messages::offsets_response_seeds),
    Target::new("topics_request", messages::topics_request, messages::topics_request_seeds),
    Target::new("topics_response", messages::topics_response, messages::topics_response_seeds),
    Target::new("settings_request", messages::settings_request, messages::settings_request_seeds),
    Target::new("settings_response", messages::settings_response, messages::settings_response_seeds),
    Target::new("request_header", messages::header, messages::header_seeds),
    Target::new("subscription", messages::subscription, messages::subscription_seeds),
    Target::new("assignment", messages::assignment, messages::assignment_seeds),
    Target::new("frames", wire::frames, wire::frames_seeds),
    // An lz4 frame may declare blocks of 4 MiB, of which its decoder needs several.
    Target::new("batch", wire::batch, wire::batch_seeds).memory(20 << 20, 64),
    Target::new("legacy_messages", codecs::legacy, codecs::legacy_seeds).memory(20 << 20, 64),
    Target::new("gzip", codecs::gzip, codecs::gzip_seeds).memory(4 << 20, 64),
    Target::new("snappy", codecs::snappy, codecs::snappy_seeds).memory(4 << 20, 64),
    Target::new("lz4", codecs::lz4, codecs::lz4_seeds).memory(20 << 20, 64),
    Target::new("zstd", codecs::zstd, codecs::zstd_seeds).memory(4 << 20, 64),
    Target::new("batch_check", log::batch_check, log::batch_check_seeds).memory(20 << 20, 64),
    Target::new("log_files", log::segment, log::segment_seeds).memory(8 << 20, 64).mutations(40),
    Target::new("offset_index", log::offset_index, log::offset_index_seeds),
    Target::new("time_index", log::time_index, log::time_index_seeds),
    Target::new("transaction_index", log::transaction_index, log::transaction_index_seeds),
    Target::new("producer_snapshot", log::producer_snapshot, log::producer_snapshot_seeds),
    Target::new("checkpoints", log::checkpoints, log::checkpoints_seeds),
    Target::new("leader_epochs", log::leader_epochs, log::leader_epochs_seeds),
    Target::new("synced", log::synced, log::synced_seeds),
    Target::new("journal", journal::run, journal::seeds).memory(8 << 20, 64).mutations(40),
    Target::new("scram", client::scram, client::scram_seeds),
    Target::new("properties", client::properties, client::properties_seeds),
    // A compiled expression may have 10 MiB, and its vectors double as they grow.
    Target::new("patterns", client::patterns, client::patterns_seeds).memory(40 << 20, 64).mutations(40),
    Target::new("token_response", client::token_response, client::token_response_seeds),
    Target::new("security_texts", client::security_texts, client::security_texts_seeds),
    Target::new("certificates", client::certificates, client::certificates_seeds),
    Target::new("statistics", client::statistics, client::statistics_seeds),
    Target::new("assignors", client::assignors, client::assignors_seeds),
    Target::new("cleaner_points", broker::cleaner_points, broker::cleaner_points_seeds),
    Target::new("server_scram", security::scram, security::scram_seeds),
    Target::new("oauth_token", security::oauth_token, security::oauth_token_seeds),
    Target::new("oauth_claims", security::oauth_claims, security::oauth_claims_seeds),
    Target::new("jwks", security::jwks, security::jwks_seeds),
    // The broker reserves 60 MiB for a compressed push, which may have 1 MiB. The decoder takes more.
    Target::new("pushed_metrics", security::pushed_metrics, security::pushed_metrics_seeds)
        .memory(80 << 20, 64)
        .mutations(100),
    Target::new("broker_requests", broker::requests, broker::seeds).memory(32 << 20, 64).mutations(20),
];
