//! Test programs on bindings of librdkafka, run on the original library and on ours.

use std::process::Command;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::librdkafka::{Librdkafka, our_prefix};
use crate::process::run;

/// A build without a cache, including downloads.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Each wait inside a program has a deadline of 30 seconds; this limit covers hangs outside of them.
const STORY_WITHIN: Duration = Duration::from_secs(120);

/// Builds a program, linked with our library. `LD_LIBRARY_PATH` selects the library at its start.
pub fn build_stories(tool: &str, build: &mut Command) -> Result<(), Failure> {
    Librdkafka::ours()?;
    build.env("PKG_CONFIG_PATH", our_prefix().join("lib/pkgconfig"));
    run(tool, build, b"", BUILT_WITHIN)?.succeeded().map(|_| ())
}

/// Runs one test of `stories`. Its arguments are the test's name, the bootstrap servers, and a prefix for topics and
/// groups, which separates the runs on different libraries.
pub fn tell_story(
    mut stories: Command,
    story: &str,
    library: &Librdkafka,
    cluster: &dyn Cluster,
) -> Result<(), Failure> {
    stories.arg(story).arg(cluster.bootstrap()).arg(library.name());
    run(story, library.load(&mut stories), b"", STORY_WITHIN)?.succeeded().map(|_| ())
}

/// Generates test modules from the names of tests, which `super::stories(&Librdkafka) -> Result<Command, Failure>`
/// runs. Tests of the first list run on both libraries, against an Ottla broker and the shared Apache Kafka. Those of
/// the second list run against Apache Kafka only, because Ottla's broker lacks the feature; the list may be empty. A
/// test that fails on the original is not required of ours.
#[macro_export]
macro_rules! stories_of_a_binding {
    (@module $module:ident $library:ident $cluster:expr, $peers:expr; $($story:ident)+) => {
        mod $module {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                for peer in $peers {
                    $crate::require!(peer);
                }
                let library = $crate::Librdkafka::$library()?;
                $crate::tell_story(super::stories(&library)?, stringify!($story), &library, $cluster)
            })+
        }
    };
    ($peer:ident; everywhere: $($story:ident)+; on_kafka: $($alone:ident)*) => {
        $crate::stories_of_a_binding! {
            @module ours_on_ottla ours &$crate::OttlaBroker::start(&[])?, [$crate::Peer::$peer]; $($story)+
        }
        $crate::stories_of_a_binding! {
            @module ours_on_kafka ours &*$crate::KafkaCluster::shared()?,
            [$crate::Peer::$peer, $crate::Peer::Java]; $($story)+ $($alone)*
        }
        $crate::stories_of_a_binding! {
            @module reference_on_ottla reference &$crate::OttlaBroker::start(&[])?,
            [$crate::Peer::$peer, $crate::Peer::Librdkafka]; $($story)+
        }
        $crate::stories_of_a_binding! {
            @module reference_on_kafka reference &*$crate::KafkaCluster::shared()?,
            [$crate::Peer::$peer, $crate::Peer::Librdkafka, $crate::Peer::Java]; $($story)+ $($alone)*
        }
    };
}
