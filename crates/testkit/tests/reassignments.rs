//! A reassignment in progress on virtual time: the time of its copy passes at once.

use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{AlterOptions, Config, ConfigChange, ConfigResource, Connector, Record};
use ottla_testkit::{VirtualClient, VirtualTime, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Moves partition 0 of `orders` to node 2, and returns after the answer.
async fn reassign(time: &VirtualTime) {
    let mut request: Vec<u8> = vec![0, 45, 0, 0, 0, 0, 0, 7, 0xff, 0xff, 0];
    // The time limit, a topic with a partition, and its only replica; the zeros between are fields and ends of structures.
    request.extend_from_slice(&[0, 0, 117, 48, 2, 7]);
    request.extend_from_slice(b"orders");
    request.extend_from_slice(&[2, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]);
    let mut connection = time.network().connect("node-1", 9092).await.expect("the host listens");
    let size = i32::try_from(request.len()).expect("few bytes");
    connection.write_all(&size.to_be_bytes()).await.expect("room");
    connection.write_all(&request).await.expect("room");
    let size = connection.read_i32().await.expect("an answer");
    let mut answer = vec![0; usize::try_from(size).expect("a size")];
    connection.read_exact(&mut answer).await.expect("all of it");
    assert_eq!(answer[..4], [0, 0, 0, 7]);
}

/// The leader, the replicas and the replicas in sync.
async fn shown(client: &VirtualClient) -> (i32, Vec<i32>, Vec<i32>) {
    let mut metadata = client.metadata(Some(&["orders"]), HOUR).await.expect("an answer");
    let one = metadata.topics.remove(0).partitions.remove(0);
    (one.leader, one.replicas, one.isr)
}

#[test]
fn a_throttled_reassignment_takes_the_time_of_its_copy() {
    run(23, async |time| {
        let broker = time.start_broker(Broker::builder().nodes(2).topic("orders", 1)).await;
        let broker = broker.expect("a new broker");
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        let value = vec![7_u8; 360_000];
        let record = Record::to("orders").partition(0).value(&value);
        let delivery = client.producer().enqueue(record).await.expect("a queue with room");
        delivery.await.expect("a broker that works");

        let set = |name: &str, value: &str| vec![(name.to_owned(), ConfigChange::Set(value.into()))];
        let changes = [
            (ConfigResource::topic("orders"), set("follower.replication.throttled.replicas", "0:2")),
            (ConfigResource::broker(2), set("follower.replication.throttled.rate", "100")),
        ];
        let changed = client.admin().incremental_alter_configs(&changes, AlterOptions::default()).await;
        assert!(changed.expect("answers").iter().all(|(_, result)| result.is_ok()));
        reassign(&time).await;
        assert_eq!(shown(&client).await, (1, vec![2, 1], vec![1]));
        tokio::time::sleep(SECOND * 59 * 60).await;
        assert_eq!(shown(&client).await, (1, vec![2, 1], vec![1]));
        // The batch has a header.
        tokio::time::sleep(SECOND * 120).await;
        assert_eq!(shown(&client).await, (2, vec![2], vec![2]));
        broker.stop().await;
    });
}
