//! rust-rdkafka with `dynamic-linking`, on the original and on our library.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use ottla_interop::{Failure, Librdkafka, build_stories, stories_of_a_binding, target_dir, workspace_root};

stories_of_a_binding! { Rust;
    everywhere: produce_and_consume streams groups statistics_and_logs admin mock failures transactions;
    on_kafka: next_generation
}

fn stories(_: &Librdkafka) -> Result<Command, Failure> {
    static PROGRAM: OnceLock<Result<PathBuf, Failure>> = OnceLock::new();
    let build = || {
        let target = target_dir().join("interop/rust");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--quiet"]).env("CARGO_TARGET_DIR", &target);
        cargo.current_dir(workspace_root().join("interop/rust"));
        build_stories("cargo", &mut cargo).map(|()| target.join("debug/stories"))
    };
    PROGRAM.get_or_init(build).clone().map(Command::new)
}
