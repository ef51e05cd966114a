//! The processor, as an application has it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ottla_client::{Client, Config};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::core::Core;
use crate::dispatcher::Dispatcher;
use crate::error::{BatchFailure, Error, Failure};
use crate::exchange::Exchange;
use crate::message::{Message, Messages};
use crate::metrics::Metrics;
use crate::settings::{Builder, Mode};
use crate::worker::{self, Batches, BatchesAsync, Each, EachAsync, Handle, How, Spawn};

/// Consumes topics as a member of a group and has each record handled, with commits that never pass unfinished work.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
/// use ottla_client::{Config, Producer, Record};
/// use ottla_parallel::{Mode, Order, Processor};
///
/// # let broker = ottla_broker::Broker::builder().memory().topic("orders", 4).spawn()?;
/// let mut config = Config::new(broker.bootstrap_servers());
/// config.set_all([("group.id", "billing"), ("auto.offset.reset", "earliest")])?;
/// # let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
/// # for value in ["1", "2", "3"] { producer.enqueue_blocking(Record::to("orders").key("a").value(value))?; }
/// let sum = Arc::new(AtomicU64::new(0));
/// let of_handler = sum.clone();
/// let processor = Processor::builder(config, Mode::MultiAsync)
///     .topics(["orders"])
///     .order(Order::Key)
///     .start_each(move |message| {
///         let amount: u64 = std::str::from_utf8(message.value().unwrap_or_default())?.parse()?;
///         of_handler.fetch_add(amount, Ordering::Relaxed);
///         Ok(())
///     })?;
/// while sum.load(Ordering::Relaxed) < 6 {
///     std::thread::park_timeout(Duration::from_millis(5));
/// }
/// processor.stop();
/// processor.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it stops it, too, without waiting.
#[derive(Debug)]
pub struct Processor {
    exchange: Arc<Exchange>,
    client: Client,
    thread: Option<JoinHandle<()>>,
    ended: watch::Receiver<Option<Result<(), Error>>>,
}

impl Processor {
    /// A processor in one of the four modes; the configuration must name a `group.id`.
    pub fn builder(config: Config, mode: Mode) -> Builder {
        Builder::new(config, mode)
    }

    /// Asks it to stop: what is being handled is waited for, up to the deadline for draining, what is done is committed,
    /// and the group is left. [`Processor::join`] waits for that.
    pub fn stop(&self) {
        self.exchange.lock().stopping = true;
        self.exchange.news.notify_one();
    }

    /// Waits until it has stopped, for whatever reason.
    ///
    /// # Errors
    /// Why it stopped, if it was not told to.
    pub fn join(mut self) -> Result<(), Error> {
        if let Some(thread) = self.thread.take() {
            // Of a panic `outcome` tells, which finds no word of the thread.
            let _ = thread.join();
        }
        self.outcome().unwrap_or(Err(Error::Panicked))
    }

    /// [`Processor::join`] for async code. Cancel safe.
    pub async fn stopped(&mut self) -> Result<(), Error> {
        match self.ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Err(Error::Panicked)),
            Err(_) => Err(Error::Panicked),
        }
    }

    /// Waits so long until it has stopped; `None` if it runs still. Not for async code.
    pub fn wait(&self, within: Duration) -> Option<Result<(), Error>> {
        let mut ended = self.ended.clone();
        let wait = async move { timeout(within, ended.wait_for(Option::is_some)).await.is_ok() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let waited = runtime.is_ok_and(|runtime| runtime.block_on(wait));
        if waited { Some(self.outcome().unwrap_or(Err(Error::Panicked))) } else { None }
    }

    /// Whether it has stopped.
    pub fn is_stopped(&self) -> bool {
        self.outcome().is_some()
    }

    /// What [`Processor::join`] would say, if it has stopped.
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        let died = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        // Whether it died is looked at first: then a word of it is there, or never will be.
        let died = died();
        let said = self.ended.borrow().clone();
        said.or_else(|| died.then_some(Err(Error::Panicked)))
    }

    /// What it has done, and what it waits for.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.exchange)
    }

    /// [`Processor::metrics`] for who looks on from elsewhere, an exporter for one, and may outlive the processor.
    pub fn metrics_source(&self) -> impl Fn() -> Metrics + Send + Sync + use<> {
        let exchange = self.exchange.clone();
        move || Metrics::of(&exchange)
    }

    /// The client it consumes and produces with.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Builder {
    /// Starts with a handler of single records. It may block: each worker is a thread, and has a clone of the handler.
    pub fn start_each<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: FnMut(&Message<'_>) -> Result<(), Failure> + Clone + Send + 'static,
    {
        self.start_each_with(move |_| Ok(handler.clone()))
    }

    /// The same with a handler for each worker, made from its number: for what cannot be shared, a connection or a child
    /// process.
    pub fn start_each_with<H>(
        self,
        mut make: impl FnMut(usize) -> Result<H, Error>,
    ) -> Result<Processor, Error>
    where
        H: FnMut(&Message<'_>) -> Result<(), Failure> + Send + 'static,
    {
        self.start(false, worker::spawn_blocking, |index| Ok(Each(make(index)?)))
    }

    /// Starts with an async handler of single records. So many run at once as there are workers, on a few threads that
    /// have a tokio runtime each; what they wait for costs no thread.
    pub fn start_each_async<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: AsyncFnMut(&Message<'_>) -> Result<(), Failure> + Clone + Send + 'static,
    {
        self.start(false, worker::spawn_async, |_| Ok(EachAsync(handler.clone())))
    }

    /// Starts with a handler of batches, which may block.
    pub fn start_batches<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: FnMut(&Messages<'_>) -> Result<(), BatchFailure> + Clone + Send + 'static,
    {
        self.start_batches_with(move |_| Ok(handler.clone()))
    }

    /// The same with a handler for each worker, made from its number.
    pub fn start_batches_with<H>(
        self,
        mut make: impl FnMut(usize) -> Result<H, Error>,
    ) -> Result<Processor, Error>
    where
        H: FnMut(&Messages<'_>) -> Result<(), BatchFailure> + Send + 'static,
    {
        self.start(true, worker::spawn_blocking, |index| Ok(Batches(make(index)?)))
    }

    /// Starts with an async handler of batches; see [`Builder::start_each_async`].
    pub fn start_batches_async<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: AsyncFnMut(&Messages<'_>) -> Result<(), BatchFailure> + Clone + Send + 'static,
    {
        self.start(true, worker::spawn_async, |_| Ok(BatchesAsync(handler.clone())))
    }

    fn start<H: Handle + Send + 'static>(
        mut self,
        batches: bool,
        spawn: Spawn<H>,
        mut make: impl FnMut(usize) -> Result<H, Error>,
    ) -> Result<Processor, Error> {
        self.check(batches)?;
        self.config.set_all([("enable.auto.commit", "false"), ("enable.auto.offset.store", "false")])?;
        self.config.corrupt_handed_out = true;
        if let Some(id) = self.exactly_once.clone() {
            self.config.set_all([("transactional.id", &*id), ("isolation.level", "read_committed")])?;
        }
        let client = Client::new(self.config.clone())?;
        let mut core = Core::new(self.retry.clone(), self.breaker, fastrand::Rng::new());
        if !self.tracked {
            core = core.untracked();
        }
        let how = How { holds: self.retry.holds, failures_max: core.breaker().failures_max() };
        let handlers = (0..self.workers_count()).map(&mut make).collect::<Result<Vec<_>, _>>()?;
        let exchange = Arc::new(Exchange::new(core, handlers.len(), self.batch));
        // Workers are not joined: one that is stuck in its handler must not keep the processor from ending.
        let _detached = spawn(&exchange, how, handlers)?;
        let no_thread =
            |error: std::io::Error| Error::Config(format!("no thread for the processor: {error}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (end, ended) = watch::channel(None);
        let dispatcher = {
            let _context = runtime.enter();
            Dispatcher::new(self, exchange.clone(), &client)
        };
        let run = move || {
            let result = runtime.block_on(dispatcher.run());
            let _ = end.send(Some(result));
        };
        let thread =
            std::thread::Builder::new().name("ottla-processor".into()).spawn(run).map_err(no_thread)?;
        Ok(Processor { exchange, client, thread: Some(thread), ended })
    }
}
