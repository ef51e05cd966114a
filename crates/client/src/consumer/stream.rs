//! The consumer as a stream.

use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;

use super::{Consumer, Polled};
use crate::error::Error;

/// The longest single poll of the stream; it polls again without returning an item.
const POLL: Duration = Duration::from_secs(60);

impl Consumer {
    /// Returns the results of [`Consumer::poll`] as an endless stream. Taking the next item marks the previous one as
    /// processed; the stream continues after an error.
    ///
    /// Cancel safe: a dropped stream loses nothing, and the next one continues at its position.
    ///
    /// ```
    /// use std::pin::pin;
    /// use futures_util::StreamExt;
    /// use ottla_client::{Config, Consumer, Polled, Producer, Record, StartAt, TopicPartition};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ottla_client::Error> {
    /// # let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    /// # let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    /// # for value in ["paid", "sent"] { producer.send(Record::to("orders").value(value)).await?; }
    /// let mut consumer = Consumer::new(Config::new(broker.bootstrap_servers()))?;
    /// consumer.assign(&[(TopicPartition::new("orders", 0), StartAt::Beginning)]).await?;
    /// let mut values = Vec::new();
    /// let mut stream = pin!(consumer.stream());
    /// while values.len() < 2
    ///     && let Some(polled) = stream.next().await
    /// {
    ///     if let Polled::Records(batch) = polled? {
    ///         values.extend(batch.to_owned_records()?.into_iter().filter_map(|record| record.value));
    ///     }
    /// }
    /// assert_eq!(values, ["paid", "sent"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&mut self) -> impl Stream<Item = Result<Polled, Error>> {
        unfold(self, |consumer| async move {
            loop {
                if let Some(item) = consumer.poll(POLL).await.transpose() {
                    return Some((item, consumer));
                }
            }
        })
    }
}
