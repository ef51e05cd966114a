//! The records that applications wrote, read with our client.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_client::{Config, Consumer, Isolation, OwnedRecord, Polled, StartAt, TopicPartition};
use ottla_interop::Cluster;

const SOON: Duration = Duration::from_secs(60);

pub(crate) fn in_runtime<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(story)
}

/// The committed records of a topic by partition, once there are `count`, with what else comes within a second.
pub(crate) fn committed(
    broker: &dyn Cluster,
    topic: &str,
    partitions: i32,
    count: usize,
) -> BTreeMap<i32, Vec<OwnedRecord>> {
    in_runtime(async {
        let mut config = Config::new(broker.bootstrap());
        config.isolation_level = Isolation::ReadCommitted;
        let mut consumer = Consumer::new(config).expect("a consumer");
        let all: Vec<_> =
            (0..partitions).map(|index| (TopicPartition::new(topic, index), StartAt::Beginning)).collect();
        consumer.assign(&all).await.expect("assigned");
        let mut found: BTreeMap<i32, Vec<OwnedRecord>> = BTreeMap::new();
        let (mut deadline, mut is_complete) = (Instant::now() + SOON, false);
        while Instant::now() < deadline {
            if !is_complete && found.values().map(Vec::len).sum::<usize>() >= count {
                is_complete = true;
                deadline = Instant::now() + Duration::from_secs(1);
            }
            let polled = consumer.poll(Duration::from_millis(100)).await.expect("a poll");
            if let Some(Polled::Records(batch)) = polled {
                let records = batch.to_owned_records().expect("sound records");
                found.entry(batch.at().partition).or_default().extend(records);
            }
        }
        found
    })
}
