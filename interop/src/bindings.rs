//! Programs that tell stories through a binding of librdkafka, on the original and on our library.

use std::process::Command;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::librdkafka::{Librdkafka, our_prefix};
use crate::process::run;

/// A cold build of a binding, with the download of what it needs.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Each wait inside a story has a deadline of 30 seconds; this one is for what hangs without one.
const STORY_WITHIN: Duration = Duration::from_secs(120);

/// Builds a program of stories, linked with ours: which library it runs on is said when it starts.
pub fn build_stories(tool: &str, build: &mut Command) -> Result<(), Failure> {
    Librdkafka::ours()?;
    build.env("PKG_CONFIG_PATH", our_prefix().join("lib/pkgconfig"));
    run(tool, build, b"", BUILT_WITHIN)?.succeeded().map(|_| ())
}

/// Lets `stories` tell one story: its arguments are the story, where the cluster is, and a name that keeps what it makes
/// there apart from what it makes with another library.
pub fn tell_story(
    mut stories: Command,
    story: &str,
    library: &Librdkafka,
    cluster: &dyn Cluster,
) -> Result<(), Failure> {
    stories.arg(story).arg(cluster.bootstrap()).arg(library.name());
    run(story, library.load(&mut stories), b"", STORY_WITHIN)?.succeeded().map(|_| ())
}

/// Makes test modules from the names of stories, which `super::stories(&Librdkafka) -> Result<Command, Failure>` tells:
/// those in the first list on both libraries against an Ottla broker and against the shared Apache Kafka, those in the
/// second against Apache Kafka alone, for what Ottla's broker does not do. What the original does not pass is no demand
/// on ours.
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
    ($peer:ident; everywhere: $($story:ident)+; on_kafka: $($alone:ident)+) => {
        $crate::stories_of_a_binding! {
            @module ours_on_ottla ours &$crate::OttlaBroker::start(&[])?, [$crate::Peer::$peer]; $($story)+
        }
        $crate::stories_of_a_binding! {
            @module ours_on_kafka ours &*$crate::KafkaCluster::shared()?,
            [$crate::Peer::$peer, $crate::Peer::Java]; $($story)+ $($alone)+
        }
        $crate::stories_of_a_binding! {
            @module reference_on_ottla reference &$crate::OttlaBroker::start(&[])?,
            [$crate::Peer::$peer, $crate::Peer::Librdkafka]; $($story)+
        }
        $crate::stories_of_a_binding! {
            @module reference_on_kafka reference &*$crate::KafkaCluster::shared()?,
            [$crate::Peer::$peer, $crate::Peer::Librdkafka, $crate::Peer::Java]; $($story)+ $($alone)+
        }
    };
}
