//! Async calls need no Tokio runtime: in these tests, a parked thread is the executor.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, Fault};
use ottla_client::{
    Client, Config, NewTopic, OffsetReset, Polled, Record, StartAt, TopicConfig, TopicPartition,
};

const WAIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    assert!(tokio::runtime::Handle::try_current().is_err(), "no runtime is around");
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(WAIT);
    }
}

fn client(broker: &ottla_broker::BrokerThread, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new(broker.bootstrap_servers());
    config.auto_offset_reset = OffsetReset::Earliest;
    change(&mut config);
    Client::new(config).expect("a client")
}

#[test]
fn producer_consumer_and_admin_work_on_an_executor_without_tokio() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    let producing = client(&broker, |_| {});
    block_on(producing.admin().create_topics(&[NewTopic::new("orders").partitions(1)])).expect("created");
    let producer = producing.producer();
    block_on(producer.send(Record::to("orders").value("first"))).expect("acknowledged");
    let delivery = block_on(producer.enqueue(Record::to("orders").value("second"))).expect("room");
    block_on(producer.flush(WAIT)).expect("flushed");
    assert_eq!(block_on(delivery).expect("acknowledged").offset, Some(1));

    let reading = client(&broker, |config| config.group_id = Some("billing".into()));
    let mut consumer = reading.consumer();
    block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    let mut values = Vec::new();
    while values.len() < 2 {
        let polled = block_on(consumer.poll(WAIT)).expect("polled").expect("in time");
        if let Polled::Records(batch) = polled {
            values.extend(batch.iter().map(|it| it.expect("sound").value.map(<[u8]>::to_vec)));
        }
    }
    assert_eq!(values, [Some(b"first".to_vec()), Some(b"second".to_vec())]);
    assert!(block_on(consumer.poll(SHORT)).expect("polled").is_none(), "the deadline of a poll");
    block_on(consumer.commit()).expect("committed");
    block_on(consumer.unsubscribe(WAIT)).expect("left");
    block_on(consumer.assign(&[(TopicPartition::new("orders", 0), StartAt::End)])).expect("assigned");
    assert!(
        block_on(consumer.next_record(SHORT)).expect("polled").is_none(),
        "the deadline of a single record"
    );
    block_on(consumer.close(WAIT)).expect("closed");
}

#[test]
fn a_full_buffer_and_an_unanswered_flush_have_their_deadlines_without_tokio() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("slow", 1).spawn();
    let broker = broker.expect("a broker in memory");
    let full = client(&broker, |config| {
        config.buffer_memory = 64 << 10;
        config.batch_size = 16 << 10;
        config.delivery_timeout = Duration::from_millis(400);
    });
    broker.cluster().intercept(ApiKey::Produce, None, u32::MAX, Fault::Delay(WAIT));
    let producer = full.producer();
    // Records that expire would make room: these stay for longer than the next one waits.
    let mut patient = TopicConfig::default();
    patient.set("message.timeout.ms", "60000").expect("a valid value");
    let slow = producer.topic_with("slow", &patient).expect("a new topic");
    let value = vec![b'x'; 4 << 10];
    let fill = || while slow.try_enqueue(Record::to("slow").value(&value)).is_ok() {};
    broker.cluster().requests(ApiKey::Produce);
    fill();
    let begun = Instant::now();
    while broker.cluster().requests(ApiKey::Produce) == 0 {
        assert!(begun.elapsed() < WAIT, "a request is sent");
        std::thread::yield_now();
    }
    // Records that waited for the topic's metadata are in their partition now, and take less room there.
    fill();
    let refused = block_on(producer.enqueue(Record::to("orders").value(&value)));
    assert!(refused.is_err(), "the buffer is full and stays so");
    assert!(block_on(producer.flush(SHORT)).is_err(), "nothing is acknowledged in time");
}
