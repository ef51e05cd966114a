//! `cargo xtask compat`: the documents that are made of the table of properties, written anew.
//!
//! The test that compares them does the writing, so that this command depends on no client.

use std::process::ExitCode;
use std::time::Duration;

use crate::shell::{self, cargo};

const WITHIN: Duration = Duration::from_secs(30 * 60);

pub(crate) fn run() -> ExitCode {
    let mut write = cargo(&["test", "--quiet", "--package", "ottla-client", "--test", "documents", "_md_"]);
    match shell::run(write.env("OTTLA_WRITE_DOCUMENTS", "1"), WITHIN) {
        Ok(done) if done.status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cargo xtask compat: {why}");
            ExitCode::FAILURE
        }
    }
}
