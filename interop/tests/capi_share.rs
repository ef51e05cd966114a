//! Share consumers of the C interface: one program on the original library and on ours, against the Ottla broker and Apache Kafka 4.3.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ottla_client::{AlterOptions, Client, Config, ConfigChange, ConfigResource};
use ottla_interop::{
    Cluster, Failure, KafkaCluster, KafkaOptions, Librdkafka, OttlaBroker, Peer, compile, python_package,
    require, run, tell_story, workspace_root,
};

/// A story ends by itself; longer on a loaded machine.
const TOLD_WITHIN: Duration = Duration::from_secs(180);

/// Share groups with one node.
const SMALL: &[(&str, &str)] = &[
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

/// Each story of the C program on both libraries, whose output is the same.
macro_rules! stories_in_c {
    ($($story:ident)+) => {
        mod c_on_ottla {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::agree(stringify!($story), &super::OttlaBroker::start(&[])?)
            })+
        }

        mod c_on_kafka {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Java);
                super::agree(stringify!($story), &*super::kafka()?)
            })+
        }
    };
}

/// Each story of confluent-kafka's `ShareConsumer` on one library.
macro_rules! stories_in_python {
    ($($module:ident $library:ident $cluster:expr;)+ => $stories:tt) => {
        $(stories_in_python! { @module $module $library $cluster; $stories })+
    };
    (@module $module:ident $library:ident $cluster:expr; [$($story:ident)+]) => {
        mod $module {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Python);
                super::require!(super::Peer::Librdkafka);
                let library = super::Librdkafka::$library()?;
                let mut python = super::Command::new("python3");
                python.arg(super::workspace_root().join("interop/python/share.py"));
                python.env("PYTHONPATH", super::python_package(&library)?).env("PYTHONDONTWRITEBYTECODE", "1");
                super::tell_story(python, stringify!($story), &library, $cluster)
            })+
        }
    };
}

stories_in_c! { implicit explicit errors two threads }

stories_in_python! {
    python_ours_on_ottla ours &super::OttlaBroker::start(&[])?;
    python_reference_on_ottla reference &super::OttlaBroker::start(&[])?;
    python_ours_on_kafka ours &*super::kafka()?;
    python_reference_on_kafka reference &*super::kafka()?;
    => [share_implicit share_explicit share_release_at_close share_two_members share_misuse
        share_deserializers_and_statistics]
}

/// The C++ classes on our library; the original has none.
#[test]
fn the_classes_of_cpp_do_the_same() -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("share");
    let ours = Librdkafka::ours()?;
    let source = workspace_root().join("interop/c/share.cpp");
    compile(&source, ours.include(), &[ours.lib()], &program, &["-Werror"])?;
    let broker = OttlaBroker::start(&[])?;
    broker.create_topic_quickly("classes", 1)?;
    read_from_the_beginning(&broker.bootstrap(), "classes");
    let mut command = Command::new(&program);
    command.args([&broker.bootstrap(), "classes"]).env("LD_LIBRARY_PATH", ours.lib());
    run("share.cpp", &mut command, b"", TOLD_WITHIN)?.succeeded().map(|_| ())
}

/// Apache Kafka 4.3, shared by the tests that run at the same time.
fn kafka() -> Result<Arc<KafkaCluster>, Failure> {
    static SHARED: Mutex<Weak<KafkaCluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kafka) = shared.upgrade() {
        return Ok(kafka);
    }
    let options = KafkaOptions { properties: SMALL, newest: true, ..KafkaOptions::default() };
    let kafka = Arc::new(KafkaCluster::start_with(1, &options)?);
    *shared = Arc::downgrade(&kafka);
    Ok(kafka)
}

/// Runs a story on both libraries. The lines of the outputs are the same; a callback may run earlier or later.
fn agree(story: &str, cluster: &dyn Cluster) -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let program = scratch.path().join("share");
    let (reference, ours) = (Librdkafka::reference()?, Librdkafka::ours()?);
    let source = workspace_root().join("interop/c/share.c");
    compile(&source, ours.include(), &[ours.lib()], &program, &["-Werror", "-pthread"])?;
    let mut outputs = Vec::new();
    for library in [&reference, &ours] {
        let topic = format!("share-{story}-{}", library.name());
        cluster.create_topic_quickly(&topic, 1)?;
        read_from_the_beginning(&cluster.bootstrap(), &topic);
        let mut command = Command::new(&program);
        command.args([story, &cluster.bootstrap(), &topic]);
        let name = format!("{story} on {}", library.name());
        let output = run(&name, library.load(&mut command), b"", TOLD_WITHIN)?.succeeded()?;
        let mut lines = output.lines();
        lines.sort();
        outputs.push(lines);
    }
    assert_eq!(outputs[1], outputs[0], "ours, the original's");
    Ok(())
}

/// Lets a group begin at the beginning of its topics.
fn read_from_the_beginning(bootstrap: &str, group: &str) {
    let client = Client::new(Config::new(bootstrap)).expect("a client");
    let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
    let changes = [(ConfigResource::group(group), vec![earliest])];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let altering =
        async { client.admin().incremental_alter_configs(&changes, AlterOptions::default()).await };
    for (_, result) in runtime.block_on(altering).expect("an answer") {
        result.expect("changed");
    }
}
