//! `cargo xtask compat`: generates documents from the tables of the client and the broker, and from the C interface's sources.
//!
//! The tests that compare them do the writing, so that this command depends on no client.

use std::process::ExitCode;
use std::time::Duration;

use crate::shell::{self, cargo};

const WITHIN: Duration = Duration::from_secs(30 * 60);

pub(crate) fn run() -> ExitCode {
    // Client properties, the broker, then the C interface's functions.
    for package in ["ottla-client", "ottla-broker", "ottla-capi"] {
        let mut write = cargo(&["test", "--quiet", "--package", package, "--test", "all", "_md_"]);
        match shell::run(write.env("OTTLA_WRITE_DOCUMENTS", "1"), WITHIN) {
            Ok(done) if done.status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(why) => {
                eprintln!("cargo xtask compat: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
