//! The public handle of a running processor.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use ottla_client::{Client, Config};
use tokio::sync::watch;
use tokio::task::coop;
use tokio::time::Instant;

use crate::core::Core;
use crate::dispatcher::GroupDispatcher;
use crate::error::{BatchFailure, Error, Failure};
use crate::exchange::Exchange;
use crate::message::{Message, Messages};
use crate::metrics::Metrics;
use crate::settings::{Builder, GiveUp, Mode};
use crate::worker::{self, Batches, BatchesAsync, Each, EachAsync, Handle, HandlerSettings, Spawn};

/// Consumes topics as a member of a consumer group and passes the records to handlers. It never commits past
/// unfinished records.
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
/// let handler_sum = sum.clone();
/// let processor = Processor::builder(config, Mode::MultiAsync)
///     .topics(["orders"])
///     .order(Order::Key)
///     .start_each(move |message| {
///         let amount: u64 = std::str::from_utf8(message.value().unwrap_or_default())?.parse()?;
///         handler_sum.fetch_add(amount, Ordering::Relaxed);
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
/// Dropping the processor stops it without waiting.
#[derive(Debug)]
pub struct Processor {
    exchange: Arc<Exchange>,
    client: Client,
    thread: Option<JoinHandle<()>>,
    ended: watch::Receiver<Option<Result<(), Error>>>,
}

impl Processor {
    /// Configures a processor in one of the four modes. `config` must set `group.id`.
    pub fn builder(config: Config, mode: Mode) -> Builder {
        Builder::new(config, mode)
    }

    /// Requests a stop and returns at once. In a share group, no record is started after that. The processor waits for
    /// running handlers and their outputs up to the drain deadline, commits the finished records and leaves the group. The
    /// commit, or the end of the transaction, takes at most 10 s more, and so does leaving the group.
    /// [`Processor::join`] waits for all of that.
    pub fn stop(&self) {
        self.exchange.request_stop();
    }

    /// Waits until the processor has stopped.
    ///
    /// # Errors
    /// The reason why it stopped, unless [`Processor::stop`] was called.
    pub fn join(mut self) -> Result<(), Error> {
        if let Some(thread) = self.thread.take() {
            // A panic is reported by `outcome`, which finds no result of the thread.
            let _ = thread.join();
        }
        self.outcome().unwrap_or(Err(Error::Panicked))
    }

    /// [`Processor::join`] for async code. Cancel safe: no result is lost.
    pub async fn stopped(&mut self) -> Result<(), Error> {
        match self.ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or(Err(Error::Panicked)),
            Err(_) => Err(Error::Panicked),
        }
    }

    /// Waits up to `within` until the processor has stopped. Returns `None` if it is still running. It blocks: do not
    /// call it in async code. A handler that may block can wait for another processor.
    pub fn wait(&self, within: Duration) -> Option<Result<(), Error>> {
        let mut ended = self.ended.clone();
        let wait = async move { drop(ended.wait_for(Option::is_some).await) };
        park_until(within, wait).then(|| self.outcome().unwrap_or(Err(Error::Panicked)))
    }

    /// `true` if the processor has stopped.
    pub fn is_stopped(&self) -> bool {
        self.outcome().is_some()
    }

    /// The result of [`Processor::join`], if the processor has stopped.
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        let died = || self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        // Check for the end of the thread first: a finished thread has already stored its result.
        let died = died();
        let said = self.ended.borrow().clone();
        said.or_else(|| died.then_some(Err(Error::Panicked)))
    }

    /// A snapshot of the metrics.
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.exchange)
    }

    /// A function that returns [`Processor::metrics`], for an exporter. It may outlive the processor.
    pub fn metrics_source(&self) -> impl Fn() -> Metrics + Send + Sync + use<> {
        let exchange = self.exchange.clone();
        move || Metrics::of(&exchange)
    }

    /// The client that the processor uses.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks the thread until the future has ended, at most for `within`; returns `false` if it has not. The future must not
/// need a runtime: a handler's thread has one already, and another one cannot be entered there.
fn park_until(within: Duration, future: impl Future<Output = ()>) -> bool {
    let began = Instant::now();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // The budget of the handler's task may be used up: the future would never be ready.
    let mut future = pin!(coop::unconstrained(future));
    loop {
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
        let left = within.saturating_sub(began.elapsed());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left);
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Builder {
    /// Starts with a handler of single records. It may block: each worker is a thread with its own clone of the
    /// handler.
    pub fn start_each<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: FnMut(&Message<'_>) -> Result<(), Failure> + Clone + Send + 'static,
    {
        self.start_each_with(move |_| Ok(handler.clone()))
    }

    /// Like [`Builder::start_each`], with a handler that `make` creates for each worker number. Use it for state that
    /// cannot be cloned, such as a connection or a child process.
    pub fn start_each_with<H>(
        self,
        mut make: impl FnMut(usize) -> Result<H, Error>,
    ) -> Result<Processor, Error>
    where
        H: FnMut(&Message<'_>) -> Result<(), Failure> + Send + 'static,
    {
        self.start(false, worker::spawn_blocking, |index| Ok(Each(make(index)?)))
    }

    /// Starts with an async handler of single records. As many handlers run concurrently as there are workers, on a
    /// few threads with a tokio runtime each.
    pub fn start_each_async<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: AsyncFnMut(&Message<'_>) -> Result<(), Failure> + Clone + Send + 'static,
    {
        self.start(false, worker::spawn_async, |_| Ok(EachAsync(handler.clone())))
    }

    /// Starts with a handler of batches. It may block.
    pub fn start_batches<H>(self, handler: H) -> Result<Processor, Error>
    where
        H: FnMut(&Messages<'_>) -> Result<(), BatchFailure> + Clone + Send + 'static,
    {
        self.start_batches_with(move |_| Ok(handler.clone()))
    }

    /// Like [`Builder::start_batches`], with a handler that `make` creates for each worker number.
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
        self.set_properties()?;
        let client = Client::new(self.config.clone())?;
        let mut core = Core::new(self.retry.clone(), self.breaker_settings(), fastrand::Rng::new())
            .stopping(self.gives_up() == GiveUp::Stop);
        if !self.tracked || self.share {
            core = core.untracked();
        }
        let handler_settings =
            HandlerSettings { holds: self.retry.holds, failures_max: core.breaker().failures_max() };
        let handlers = (0..self.workers_count()).map(&mut make).collect::<Result<Vec<_>, _>>()?;
        let exchange = Arc::new(Exchange::new(core, handlers.len(), self.batch, self.share));
        let closes_workers = CloseOnDrop(Some(&exchange));
        // Workers are not joined: a stuck handler must not keep the processor from stopping.
        let _detached = spawn(&exchange, handler_settings, handlers)?;
        let no_thread =
            |error: std::io::Error| Error::Config(format!("cannot start the processor's thread: {error}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (end, ended) = watch::channel(None);
        let dispatcher = {
            let _context = runtime.enter();
            GroupDispatcher::new(self, exchange.clone(), &client)?
        };
        let closed_with = exchange.clone();
        let run = move || run_to_end(&closed_with, &end, || runtime.block_on(dispatcher.run()));
        let thread =
            std::thread::Builder::new().name("ottla-processor".into()).spawn(run).map_err(no_thread)?;
        closes_workers.disarm();
        Ok(Processor { exchange, client, thread: Some(thread), ended })
    }
}

/// Runs the dispatcher. It closes the exchange when it ends; if it panics, this does, so that the workers and their handlers end.
fn run_to_end(
    exchange: &Exchange,
    end: &watch::Sender<Option<Result<(), Error>>>,
    dispatch: impl FnOnce() -> Result<(), Error>,
) {
    let _closes_workers = CloseOnDrop(Some(exchange));
    let _ = end.send(Some(dispatch()));
}

/// Ends the workers if the start of their processor fails, or its dispatcher panics.
struct CloseOnDrop<'a>(Option<&'a Exchange>);

impl CloseOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(exchange) = self.0 {
            exchange.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_client::{Producer, Record};

    use super::*;
    use crate::core::work::Work;
    use crate::dispatcher::Dispatcher;
    use crate::exchange::CompletedWork;
    use crate::message::Pieces;
    use crate::retry::Retry;

    /// A worker that panics before it calls a handler.
    struct Defect;

    impl Handle for Defect {
        async fn handle(
            &mut self,
            _work: Work<Pieces>,
            _settings: &HandlerSettings,
            _begun: Instant,
        ) -> CompletedWork {
            panic!("a defect of the worker");
        }
    }

    /// Its record was never done: without another worker, the processor waited for ever.
    #[test]
    fn a_panic_of_a_worker_ends_the_processor_with_its_text() {
        let spawns: [Spawn<Defect>; 2] = [worker::spawn_blocking, worker::spawn_async];
        let patience = Duration::from_secs(60);
        for spawn in spawns {
            let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn();
            let broker = broker.expect("a broker");
            let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
            producer.send_unobserved_blocking(Record::to("orders").value("1")).expect("taken");
            producer.flush_blocking(patience).expect("written");
            let mut config = Config::new(broker.bootstrap_servers());
            config.set_all([("group.id", "billing"), ("auto.offset.reset", "earliest")]).expect("valid");
            // The end does not wait for the record.
            let builder =
                Processor::builder(config, Mode::MultiAsync).topics(["orders"]).drain(patience * 60);
            let processor = builder.start(false, spawn, |_| Ok(Defect)).expect("started");
            let outcome = processor.wait(patience);
            let Some(Err(Error::WorkerPanicked(text))) = outcome else { panic!("{outcome:?}") };
            assert_eq!(text, "a defect of the worker");
        }
    }

    /// There were none, and no error: a transaction committed its outputs without the offsets of their records.
    #[test]
    fn offsets_of_a_state_that_may_be_wrong_are_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _context = runtime.enter();
        let mut config = Config::new("127.0.0.1:1");
        config.set("group.id", "billing").expect("valid");
        let client = Client::new(config.clone()).expect("a client");
        let core = Core::new(Retry::never(), None, fastrand::Rng::with_seed(1));
        let exchange = Arc::new(Exchange::new(core, 1, 1, false));
        let settings = Processor::builder(config, Mode::MultiAsync).topics(["orders"]);
        let mut dispatcher = Dispatcher::new(settings, exchange.clone(), &client);
        assert!(dispatcher.offsets(None).expect("the state is sound").is_empty());
        let panics = std::panic::AssertUnwindSafe(|| {
            let inner = exchange.lock();
            assert!(inner.is_poisoned, "a defect of the core");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(matches!(dispatcher.offsets(None), Err(Error::WorkerPanicked(_))));
    }

    /// The workers waited for records for ever, with their handlers: `ottla_processor_destroy` never succeeded.
    #[test]
    fn a_panic_of_the_dispatcher_ends_the_workers() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for panics in [true, false] {
            let core = Core::new(Retry::never(), None, fastrand::Rng::with_seed(1));
            let (exchange, (end, ended)) = (Exchange::new(core, 1, 1, false), watch::channel(None));
            runtime.block_on(async {
                let mut next = pin!(exchange.next(None));
                assert!(futures_util::FutureExt::now_or_never(next.as_mut()).is_none(), "the worker waits");
                let dispatch = || {
                    assert!(!panics, "a defect of the dispatcher");
                    exchange.close();
                    Ok(())
                };
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    run_to_end(&exchange, &end, dispatch);
                }));
                assert_eq!(ran.is_err(), panics);
                assert!(next.await.is_none(), "the worker ends");
            });
            assert_eq!(ended.borrow().is_some(), !panics);
        }
    }

    #[test]
    fn a_failed_start_ends_the_workers_that_were_started() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for fails in [true, false] {
            let core = Core::new(Retry::never(), None, fastrand::Rng::with_seed(1));
            let exchange = Exchange::new(core, 1, 1, false);
            let guard = CloseOnDrop(Some(&exchange));
            if fails {
                drop(guard);
            } else {
                guard.disarm();
            }
            let next = runtime.block_on(async {
                let next = std::pin::pin!(exchange.next(None));
                futures_util::FutureExt::now_or_never(next).map(|work| work.is_none())
            });
            assert_eq!(next, fails.then_some(true), "closed: {fails}");
        }
    }
}
