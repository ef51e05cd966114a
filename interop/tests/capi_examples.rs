//! A C and a C++ program for each example of librdkafka's introductions. Each is compiled once, against Debian's
//! headers and libraries, and runs on the original and on ours with the same output.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Cluster, Debian, Failure, KafkaCluster, Librdkafka, OttlaBroker, Peer, compile, require, run,
    workspace_root,
};

macro_rules! examples {
    ($($test:ident $file:literal)+) => {
        mod on_ottla {
            $(#[test]
            fn $test() -> Result<(), super::Failure> {
                super::require!(super::Peer::Librdkafka);
                super::agrees($file, &super::OttlaBroker::start(&[])?)
            })+
        }

        mod on_kafka {
            $(#[test]
            fn $test() -> Result<(), super::Failure> {
                super::require!(super::Peer::Librdkafka);
                super::require!(super::Peer::Java);
                super::agrees($file, &*super::KafkaCluster::shared()?)
            })+
        }
    };
}

examples! {
    configuration "configuration.c"
    configuration_in_cxx "configuration.cpp"
    producer "producer.c"
    producer_in_cxx "producer.cpp"
    simple_consumer "simple_consumer.c"
    simple_consumer_in_cxx "simple_consumer.cpp"
    group_consumer "group_consumer.c"
    group_consumer_in_cxx "group_consumer.cpp"
}

/// Every program exits by itself within seconds; longer on a loaded machine.
const RUN_WITHIN: Duration = Duration::from_secs(120);

/// Runs the program on every library; all outputs must equal the original's.
fn agrees(file: &str, cluster: &dyn Cluster) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("example");
    let source = workspace_root().join("interop/c/introduction").join(file);
    let debian = Debian::unpacked()?;
    compile(&source, &debian.include(), &[&debian.lib()?], &program, &["-Werror"])?;

    let (reference, ours) = (Librdkafka::reference()?, Librdkafka::ours()?);
    let classes = [
        ("Debian's classes", classes_of(&debian.lib()?, scratch.path(), "debian")?),
        ("our classes", { classes_of(ours.lib(), scratch.path(), "ours")? }),
    ];
    let mut said: Option<String> = None;
    for (run_number, (library_name, library, (classes_name, classes))) in
        [("the original", &reference), ("ours", &ours)]
            .into_iter()
            .flat_map(|(name, library)| classes.iter().map(move |classes| (name, library, classes)))
            .enumerate()
    {
        // C programs do not load the C++ library: one run per library is enough.
        if is_c(file) && *classes_name != "our classes" {
            continue;
        }
        let topic = format!("{}-{run_number}", file.replace(['.', '_'], "-"));
        // The program sends to two partitions.
        cluster.create_topic_quickly(&topic, if file == "group_consumer.c" { 2 } else { 1 })?;
        let mut command = Command::new(&program);
        command.args([&topic, &cluster.bootstrap()]);
        let name = format!("{file} on {library_name} with {classes_name}");
        let output = run(&name, library.load_with(classes, &mut command), b"", RUN_WITHIN)?.succeeded()?;
        let text = output.stdout_text().replace(&topic, "TOPIC");
        match &said {
            None => said = Some(text),
            Some(expected) => assert_eq!(&text, expected, "{name}"),
        }
    }
    Ok(())
}

/// A directory with only a `librdkafka++.so.1`; the C library is selected separately.
fn classes_of(lib: &Path, scratch: &Path, name: &str) -> Result<PathBuf, Failure> {
    let dir = scratch.join(name);
    let from = lib.join("librdkafka++.so.1");
    let copied =
        std::fs::create_dir_all(&dir).and_then(|()| std::fs::copy(&from, dir.join("librdkafka++.so.1")));
    copied.map_err(|error| Failure::new(format!("{}: {error}", from.display())))?;
    Ok(dir)
}

/// Our `librdkafka++` exports every symbol that programs compiled against Debian's header may need.
#[test]
fn our_classes_export_what_debians_do() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let exported = |lib: &Path| {
        let mut nm = Command::new("nm");
        nm.args(["-D", "--defined-only", "--format=posix"]).arg(lib.join("librdkafka++.so.1"));
        let symbols = run("nm", &mut nm, b"", RUN_WITHIN)?.succeeded()?.lines();
        // Symbols of `RdKafka` only; implementation classes, helpers and the standard library do not count.
        let public = |name: &&str| {
            let inner = ["Impl", "trampoline", "_c_parts", "_ZNSt"];
            name.contains("7RdKafka") && !inner.iter().any(|part| name.contains(part))
        };
        Ok::<Vec<String>, Failure>(
            symbols
                .iter()
                .filter_map(|line| line.split(' ').next())
                .filter(public)
                .map(str::to_owned)
                .collect(),
        )
    };
    let (debian, ours) = (exported(&Debian::unpacked()?.lib()?)?, exported(Librdkafka::ours()?.lib())?);
    let missing: Vec<_> = debian.iter().filter(|name| !ours.contains(name)).collect();
    assert!(debian.len() > 50 && missing.is_empty(), "{} names, missing: {missing:?}", debian.len());
    Ok(())
}

fn is_c(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "c")
}
