//! A member of a consumer group dies, and another one takes its partitions after 45 seconds of virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{Config, Consumer, OffsetReset, Polled, Record};
use ottla_testkit::{VirtualTime, run};
use tokio::time::Instant;

/// A record every second, until an hour has passed.
const SECONDS: u64 = 3600;
/// The member `one` dies then.
const DEATH: Duration = Duration::from_secs(600);
/// The default of `session.timeout.ms`.
const SESSION_TIMEOUT_MS: u64 = 45_000;

/// The time from the sending of each order to its first handling.
type Handled = Rc<RefCell<BTreeMap<u64, Duration>>>;

fn main() {
    for line in story(7) {
        println!("{line}");
    }
}

/// Runs the story, checks it, and returns its trace.
pub(crate) fn story(seed: u64) -> Vec<String> {
    run(seed, async |time| {
        let broker = time.start_broker(Broker::builder().topic("orders", 4)).await.expect("a new broker");
        let servers = broker.bootstrap_servers();
        let end = Instant::now() + Duration::from_secs(SECONDS + 5);
        let handled = Handled::default();
        let [one, two] = ["one", "two"].map(|name| {
            let client = time.client(member_config(&servers, name)).expect("a valid configuration");
            let task = consume(time.clone(), client.consumer(), name, handled.clone());
            (client, tokio::task::spawn_local(task))
        });
        tokio::task::spawn_local(produce(time.clone(), servers));

        tokio::time::sleep(DEATH).await;
        time.trace().note(format_args!("one: dies"));
        let (client, task) = one;
        client.crash().await;
        task.abort();
        tokio::time::sleep_until(end).await;

        let longest = check(&handled.borrow());
        time.trace().note(format_args!("end: every order is handled, the last one after {longest:?}"));
        drop(two);
        broker.stop().await;
        time.trace().lines()
    })
}

fn member_config(servers: &str, name: &str) -> Config {
    let mut config = Config::new(servers);
    name.clone_into(&mut config.client_id);
    config.group_id = Some("billing".to_owned());
    config.session_timeout = Duration::from_millis(SESSION_TIMEOUT_MS);
    config.auto_offset_reset = OffsetReset::Earliest;
    config
}

async fn produce(time: VirtualTime, servers: String) {
    let client = time.client(Config::new(servers)).expect("a valid configuration");
    let producer = client.producer();
    let mut each_second = tokio::time::interval(Duration::from_secs(1));
    for second in 0..SECONDS {
        each_second.tick().await;
        let value = second.to_string();
        let record = Record::to("orders").partition((second % 4) as i32).value(&value);
        let delivery = producer.enqueue(record).await.expect("a queue with room");
        delivery.await.expect("a broker that works");
    }
}

async fn consume(time: VirtualTime, mut consumer: Consumer, name: &'static str, handled: Handled) {
    consumer.subscribe(&["orders"]).await.expect("a valid topic");
    loop {
        match consumer.poll(Duration::from_secs(1)).await {
            Ok(Some(Polled::Records(batch))) => {
                for record in batch.to_owned_records().expect("records that are sound") {
                    let value = record.value.expect("an order");
                    let order = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                    let age_ms = (time.now_ms() - record.timestamp_ms) as u64;
                    let order: u64 = order.expect("a number");
                    handled.borrow_mut().entry(order).or_insert(Duration::from_millis(age_ms));
                }
            }
            Ok(Some(Polled::Event(event))) => time.trace().note(format_args!("{name}: {event:?}")),
            Ok(_) => {}
            Err(error) => time.trace().note(format_args!("{name}: {error}")),
        }
    }
}

/// Every order is handled. The orders of the dead member wait for the end of its session. Returns the longest wait.
fn check(handled: &BTreeMap<u64, Duration>) -> Duration {
    assert_eq!(handled.len() as u64, SECONDS, "every order is handled");
    let longest = handled.values().max().copied().unwrap_or_default();
    // A session begins with the last heartbeat, up to 3 seconds before the death. The other member notices the rebalance at its
    // next heartbeat.
    let expected = SESSION_TIMEOUT_MS - 4_000..SESSION_TIMEOUT_MS + 5_000;
    assert!(expected.contains(&(longest.as_millis() as u64)), "{longest:?}");
    longest
}
