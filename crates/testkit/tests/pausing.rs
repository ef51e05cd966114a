//! A paused node on virtual time: hours pass, and no deadline of the broker counts them. A task that did not wait would keep time from
//! passing.

use std::time::Duration;

use ottla_broker::{ApiKey, Broker, Fault};
use ottla_client::{Config, Connector, Io, Record};
use ottla_testkit::{VirtualClient, VirtualTime, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
/// A request of ApiVersions 0 without a client id.
const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];

/// A connection without a client.
struct Raw(Box<dyn Io>);

impl Raw {
    async fn connect(time: &VirtualTime, host: &str) -> Self {
        Self(time.network().connect(host, 9092).await.expect("the host listens"))
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("room");
    }

    /// Reads the answer to [`REQUEST`].
    async fn hear(&mut self) {
        let size = self.0.read_i32().await.expect("an answer");
        let mut answer = vec![0; usize::try_from(size).expect("a size")];
        self.0.read_exact(&mut answer).await.expect("all of it");
        assert_eq!(answer[..4], [0, 0, 0, 7]);
    }

    async fn is_silent(&mut self) -> bool {
        timeout(SECOND, self.0.read_u8()).await.is_err()
    }
}

#[test]
fn a_pause_of_an_hour_closes_no_connection_and_answers_none() {
    run(21, async |time| {
        let broker = time.start_broker(Broker::builder().nodes(2)).await.expect("a new broker");
        let cluster = broker.cluster();
        let connect = async || Raw::connect(&time, "node-1").await;
        let (mut idle, mut slow) = (connect().await, connect().await);
        for connection in [&mut idle, &mut slow] {
            connection.send(&REQUEST).await;
            connection.hear().await;
        }
        slow.send(&REQUEST[..5]).await;
        let mut late = connect().await;
        cluster.intercept(ApiKey::ApiVersions, None, 1, Fault::AnswerAfter(HOUR / 2));
        late.send(&REQUEST).await;
        tokio::time::sleep(SECOND).await;

        assert!(cluster.pause(1));
        // It has sent a part of its first request, which has a deadline of its own.
        let (mut asked, mut new) = (connect().await, connect().await);
        asked.send(&REQUEST).await;
        new.send(&REQUEST[..5]).await;
        tokio::time::sleep(HOUR).await;
        for connection in [&mut idle, &mut slow, &mut late, &mut asked, &mut new] {
            assert!(connection.is_silent().await);
        }
        let mut other = Raw::connect(&time, "node-2").await;
        other.send(&REQUEST).await;
        other.hear().await;

        assert!(cluster.resume(1));
        tokio::time::sleep(SECOND).await;
        idle.send(&REQUEST).await;
        for half in [&mut slow, &mut new] {
            half.send(&REQUEST[5..]).await;
        }
        for connection in [&mut idle, &mut slow, &mut late, &mut asked, &mut new] {
            connection.hear().await;
        }
        broker.stop().await;
    });
}

/// Writes a record and returns its offset, if it is acknowledged.
async fn write(client: &VirtualClient, value: &str) -> Option<i64> {
    let record = Record::to("orders").partition(0).value(value);
    let delivery = client.producer().enqueue(record).await.expect("a queue with room");
    delivery.await.ok().and_then(|written| written.offset)
}

#[test]
fn a_client_runs_into_its_timeout_at_a_paused_node_and_goes_on_after_it() {
    run(22, async |time| {
        let broker = time.start_broker(Broker::builder().topic("orders", 1)).await.expect("a new broker");
        let cluster = broker.cluster();
        let client = time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration");
        assert_eq!(write(&client, "before").await, Some(0));
        assert!(cluster.pause(1));
        let began = tokio::time::Instant::now();
        assert_eq!(write(&client, "meanwhile").await, None);
        // The default of delivery.timeout.ms is 2 minutes.
        assert!((SECOND * 120..SECOND * 130).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(cluster.is_up(1), "it counts as up");
        assert!(cluster.resume(1));
        assert!(write(&client, "after").await > Some(0));
        broker.stop().await;
    });
}
