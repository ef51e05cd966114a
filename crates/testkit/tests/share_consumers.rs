//! Members of share groups on virtual time.

use std::sync::Arc;
use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{AlterOptions, Config, ConfigChange, ConfigResource, Error, Record};
use ottla_testkit::{NetworkFaults, run};
use tokio::sync::Notify;
use tokio::time::timeout;

const HOUR: Duration = Duration::from_secs(3600);

/// The member waited for a poll that begins after it has left the group, and the poll waited for its records.
#[test]
fn a_poll_that_begins_while_a_late_member_leaves_brings_it_back() {
    run(4, async |time| {
        let broker = time.start_broker(Broker::builder().topic("orders", 1)).await.expect("a new broker");
        let mut config = Config::new(broker.bootstrap_servers());
        config.group_id = Some("billing".into());
        config.max_poll_interval = Duration::from_secs(60);
        let client = time.client(config).expect("a valid configuration");
        let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
        let changes = [(ConfigResource::group("billing"), vec![earliest])];
        let altered = client.admin().incremental_alter_configs(&changes, AlterOptions::default()).await;
        altered.expect("an answer").into_iter().for_each(|(_, result)| result.expect("altered"));
        let producer = client.producer();
        let write = async || {
            let delivery = producer.enqueue(Record::to("orders").value("paid")).await;
            delivery.expect("a queue with room").await.expect("a broker that works");
        };

        let mut consumer = client.share_consumer().expect("a group");
        consumer.subscribe(&["orders"]).await.expect("subscribed");
        write().await;
        let batch = consumer.poll(HOUR).await.expect("no error").expect("a record");
        assert_eq!(batch.len(), 1);
        // The answer to the request to leave takes longer than the application's next calls.
        time.network().set_faults(NetworkFaults::none(Duration::from_millis(100)));
        let filled = Arc::new(Notify::new());
        let notified = filled.clone();
        consumer.on_filled(move || notified.notify_one());
        // The application does not poll until it is late.
        let late = loop {
            timeout(HOUR, filled.notified()).await.expect("the member notices that it is late");
            if let Err(late) = consumer.poll(Duration::ZERO).await {
                break late;
            }
        };
        assert!(matches!(late, Error::PollIntervalExceeded { max_ms: 60_000 }), "{late}");
        let begun = time.elapsed();
        let next = async { tokio::join!(consumer.poll(HOUR), write()).0 };
        let next = timeout(Duration::from_secs(300), next).await;
        let next = next.unwrap_or_else(|_| {
            panic!("no record {:?} after the poll", time.elapsed().saturating_sub(begun))
        });
        // The first record may come again with it.
        assert!(next.expect("no error").is_some_and(|batch| !batch.is_empty()));
        broker.stop().await;
    });
}
