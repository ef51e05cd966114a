//! Processors on virtual time: locks and deadlines of minutes take no real time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ottla_broker::{ApiKey, Broker, ErrorCode, Fault};
use ottla_client::{
    AlterOptions, Client, Config, ConfigChange, ConfigResource, NewTopic, OffsetReset, Record, TopicPartition,
};
use ottla_parallel::{Builder, Error, Failure, LocalStop, Message, Mode, Processor};
use ottla_testkit::{VirtualBroker, VirtualClient, VirtualTime, run};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3_600);

/// A processor that runs as a task of the test.
struct LocalProcessor {
    stop: LocalStop,
    running: JoinHandle<Result<(), Error>>,
    /// Its client, which ends when this is dropped.
    _client: VirtualClient,
}

fn start<H>(time: &VirtualTime, builder: Builder, handler: H) -> LocalProcessor
where
    H: AsyncFnMut(&Message<'_>) -> Result<(), Failure> + Clone + 'static,
{
    let mut client = None;
    let started = builder.local_each_async(
        1,
        &mut |config| {
            let connected = time.client(config)?;
            let shared = Client::clone(&connected);
            client = Some(connected);
            Ok(shared)
        },
        handler,
    );
    let (stop, running) = started.expect("sound settings");
    let running = tokio::task::spawn_local(running);
    LocalProcessor { stop, running, _client: client.expect("connected") }
}

impl LocalProcessor {
    async fn stop(self) {
        self.stop.stop();
        self.running.await.expect("no panic").expect("stopped");
    }
}

fn member(broker: &VirtualBroker) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config.group_id = Some("workers".into());
    config.auto_offset_reset = OffsetReset::Earliest;
    config
}

/// Writes so many records to each of two partitions.
async fn produce(client: &VirtualClient, each: usize) {
    for _ in 0..each {
        for partition in 0..2 {
            let record = Record::to("orders").partition(partition).value("paid");
            let delivery = client.producer().enqueue(record).await.expect("a queue with room");
            delivery.await.expect("a broker that works");
        }
    }
}

/// Lets the share group begin at the first records.
async fn share_from_the_start(client: &VirtualClient) {
    let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
    let changes = [(ConfigResource::group("workers"), vec![earliest])];
    let altered = client.admin().incremental_alter_configs(&changes, AlterOptions::default()).await;
    altered.expect("an answer").into_iter().for_each(|(_, result)| result.expect("altered"));
}

/// A handled record of a share group: partition, offset and delivery count.
type Delivered = (i32, i64, Option<i16>);

/// The records of the second leader waited in the consumer for idle workers, lost their locks there, and came again, each time with a
/// higher delivery count. The renewals of the first leader's records waited behind them.
#[test]
fn records_of_all_leaders_keep_their_locks_until_a_worker_is_idle() {
    run(3, async |time| {
        let builder = Broker::builder().nodes(2).topic("orders", 2);
        let broker = time.start_broker(builder).await.expect("a new broker");
        assert!(broker.cluster().set_leader("orders", 0, 1) && broker.cluster().set_leader("orders", 1, 2));
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        share_from_the_start(&client).await;
        produce(&client, 20).await;

        let handled: Rc<RefCell<Vec<Delivered>>> = Rc::default();
        let noted = handled.clone();
        let builder =
            Processor::builder(member(&broker), Mode::MultiAsync).topics(["orders"]).workers(2).share_group();
        let processor = start(&time, builder, async move |message: &Message<'_>| {
            let record = (message.partition(), message.offset(), message.delivery_count());
            noted.borrow_mut().push(record);
            // Four locks.
            tokio::time::sleep(Duration::from_secs(120)).await;
            Ok(())
        });
        while handled.borrow().len() < 40 {
            assert!(time.elapsed() < HOUR, "{} records are handled", handled.borrow().len());
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        processor.stop().await;
        let mut handled = handled.borrow().clone();
        handled.sort_unstable();
        let of = |partition| (0..20).map(move |offset| (partition, offset, Some(1)));
        assert_eq!(handled, of(0).chain(of(1)).collect::<Vec<Delivered>>());
        broker.stop().await;
    });
}

/// The deadline of a stop began when the partitions of a rebalance had been given up, up to twice its time after the call.
#[test]
fn a_stop_within_a_rebalance_keeps_to_its_deadline() {
    run(5, async |time| {
        let broker = time.start_broker(Broker::builder().topic("orders", 2)).await.expect("a new broker");
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        produce(&client, 1).await;
        let mut config = member(&broker);
        config.set("partition.assignment.strategy", "cooperative-sticky").expect("a property");

        let drain = Duration::from_secs(60);
        let builder =
            Processor::builder(config.clone(), Mode::MultiAsync).topics(["orders"]).workers(2).drain(drain);
        let stuck = Rc::new(Cell::new(0));
        let counted = stuck.clone();
        let processor = start(&time, builder, async move |_: &Message<'_>| {
            counted.set(counted.get() + 1);
            tokio::time::sleep(HOUR).await;
            Ok(())
        });
        while stuck.get() < 2 {
            assert!(time.elapsed() < HOUR, "both records are being handled");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let second = time.client(config).expect("a valid configuration");
        let mut consumer = second.consumer();
        consumer.subscribe(&["orders"]).await.expect("subscribed");
        // The processor gives one of its partitions up, and waits for its handler.
        tokio::time::sleep(Duration::from_secs(20)).await;

        let stopped_at = Instant::now();
        processor.stop.stop();
        while consumer.control().assignment().len() < 2 {
            assert!(time.elapsed() < HOUR, "the processor has left the group");
            consumer.poll(Duration::from_secs(1)).await.expect("no error");
        }
        let took = stopped_at.elapsed();
        assert!(took > drain && took < drain + Duration::from_secs(25), "{took:?}");
        processor.running.abort();
        broker.stop().await;
    });
}

/// The queue of results keeps the last 1,000, and the renewals of all partitions failed at once. The records of the others waited for
/// their results until the drain deadline.
#[test]
fn a_stop_does_not_wait_for_renewals_that_failed_together() {
    const PARTITIONS: i32 = 1_100;
    run(7, async |time| {
        let broker = Broker::builder().topic("orders", PARTITIONS);
        let broker = time.start_broker(broker).await.expect("a new broker");
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        share_from_the_start(&client).await;
        let mut deliveries = Vec::new();
        for partition in 0..PARTITIONS {
            let record = Record::to("orders").partition(partition).value("paid");
            deliveries.push(client.producer().enqueue(record).await.expect("a queue with room"));
        }
        for delivery in deliveries {
            delivery.await.expect("a broker that works");
        }
        broker.cluster().intercept(ApiKey::ShareAcknowledge, None, u32::MAX, Fault::Hang);

        let mut config = member(&broker);
        config.set("socket.timeout.ms", "20000").expect("a property");
        let builder = Processor::builder(config, Mode::MultiAsync).topics(["orders"]).share_group();
        let builder = builder.workers(1_200).drain(HOUR);
        let (begun, gate) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        let (counted, opened) = (begun.clone(), gate.clone());
        let processor = start(&time, builder, async move |_: &Message<'_>| {
            counted.set(counted.get() + 1);
            opened.notified().await;
            Ok(())
        });
        while begun.get() < PARTITIONS {
            assert!(time.elapsed() < HOUR, "{} records are being handled", begun.get());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Half of a lock later, all are being renewed. The first request with renewals fails 20 s after it was sent, and the others with it.
        tokio::time::sleep(Duration::from_secs(16)).await;
        gate.notify_waiters();
        tokio::time::sleep(Duration::from_secs(1)).await;
        processor.stop.stop();
        let ended = tokio::time::timeout(Duration::from_secs(120), processor.running).await;
        ended.expect("before the drain deadline").expect("no panic").expect("stopped");
        broker.stop().await;
    });
}

/// The consumer returned the refusal and no renewed record: a record that ended later was not accepted, and the stop lasted until the drain
/// deadline. The members of C programs are refused for good.
#[test]
fn records_are_renewed_and_accepted_after_their_group_has_refused_the_member() {
    run(8, async |time| {
        let broker = time.start_broker(Broker::builder().topic("orders", 2)).await.expect("a new broker");
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        share_from_the_start(&client).await;
        produce(&client, 1).await;
        let (mut config, servers) = (Config::librdkafka(), broker.bootstrap_servers());
        config
            .set_all([("bootstrap.servers", servers.as_str()), ("group.id", "workers")])
            .expect("known properties");
        let builder =
            Processor::builder(config, Mode::MultiAsync).topics(["orders"]).workers(2).share_group();
        let begun = Rc::new(Cell::new(0));
        let counted = begun.clone();
        let processor = start(&time, builder.drain(HOUR), async move |_: &Message<'_>| {
            counted.set(counted.get() + 1);
            // Half of a lock is 15 s.
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(())
        });
        while begun.get() < 2 {
            assert!(time.elapsed() < HOUR, "{} records are being handled", begun.get());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let refusal = Fault::Fail(ErrorCode::GroupAuthorizationFailed);
        broker.cluster().intercept(ApiKey::ShareGroupHeartbeat, None, u32::MAX, refusal);
        let ended = tokio::time::timeout(Duration::from_secs(120), processor.running).await;
        ended.expect("before the drain deadline").expect("no panic").expect_err("the refusal");

        // No record comes again.
        broker.cluster().clear_intercepts_of(ApiKey::ShareGroupHeartbeat);
        let second = time.client(member(&broker)).expect("a valid configuration");
        let mut consumer = second.share_consumer().expect("a group");
        consumer.subscribe(&["orders"]).await.expect("subscribed");
        let again = consumer.poll(Duration::from_secs(300)).await.expect("no error");
        assert!(again.is_none(), "{:?}", again.map(|batch| batch.len()));
        broker.stop().await;
    });
}

/// The committed offset of each partition; 0 without one.
async fn committed(time: &VirtualTime, broker: &VirtualBroker) -> [i64; 2] {
    let client = time.client(member(broker)).expect("a valid configuration");
    let consumer = client.consumer();
    let partitions = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    let committed = consumer.committed(&partitions).await.expect("an answer");
    partitions.map(|at| committed.get(&at).copied().unwrap_or_default().max(0))
}

/// The transaction contained the offset behind the old records, which belongs to the new topic by then: its first records were skipped after
/// a restart.
#[test]
fn a_transaction_commits_no_offsets_of_a_topic_that_was_created_again() {
    run(9, async |time| {
        let broker = time.start_broker(Broker::builder().topic("orders", 2)).await.expect("a new broker");
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        produce(&client, 5).await;
        let builder = Processor::builder(member(&broker), Mode::MultiAsync).topics(["orders"]).workers(2);
        let (handled, gate) = (Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        let (counted, opened) = (handled.clone(), gate.clone());
        let processor = start(&time, builder.exactly_once("shop"), async move |message: &Message<'_>| {
            counted.set(counted.get() + 1);
            if (message.partition(), message.offset()) == (0, 4) {
                opened.notified().await;
            }
            Ok(())
        });
        let handle = async |records: i32| {
            while handled.get() < records {
                assert!(time.elapsed() < HOUR, "{} records are handled", handled.get());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        handle(10).await;
        client.admin().delete_topics(&["orders"]).await.expect("deleted");
        client.admin().create_topics(&[NewTopic::new("orders").partitions(2)]).await.expect("created");
        // The client notices it, and the transaction does not reach its maximum age.
        tokio::time::sleep(Duration::from_secs(20)).await;
        gate.notify_waiters();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let [first, _] = committed(&time, &broker).await;
        assert!(first < 5, "{first} of a topic without records");

        produce(&client, 3).await;
        handle(16).await;
        while committed(&time, &broker).await != [3, 3] {
            assert!(time.elapsed() < HOUR, "the new records are committed");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        processor.stop().await;
        broker.stop().await;
    });
}
