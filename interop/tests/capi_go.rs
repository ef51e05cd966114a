//! confluent-kafka-go with `-tags dynamic`, built against our headers, on the original and on our library.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use ottla_interop::{
    Failure, Librdkafka, build_stories, our_prefix, stories_of_a_binding, target_dir, workspace_root,
};

stories_of_a_binding! { Go;
    everywhere: produce_and_consume groups admin mock failures transactions;
    on_kafka: next_generation
}

fn stories(_: &Librdkafka) -> Result<Command, Failure> {
    static PROGRAM: OnceLock<Result<PathBuf, Failure>> = OnceLock::new();
    let build = || {
        let program = target_dir().join("interop/go-stories");
        let mut go = Command::new("go");
        go.args(["build", "-tags", "dynamic", "-o"]).arg(&program).arg(".");
        go.current_dir(workspace_root().join("interop/go")).env("GOFLAGS", "-mod=readonly");
        // Go caches pkg-config's output, but not this variable.
        go.env("CGO_LDFLAGS", format!("-L{}", our_prefix().join("lib").display()));
        build_stories("go", &mut go).map(|()| program)
    };
    PROGRAM.get_or_init(build).clone().map(Command::new)
}
