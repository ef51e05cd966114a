//! A processor without threads, for simulations: one future on the caller's runtime, with its clock and its chance.

use std::sync::Arc;

use futures_util::future::join_all;
use ottla_client::{Client, Config};

use crate::core::Core;
use crate::dispatcher::GroupDispatcher;
use crate::error::{Error, Failure};
use crate::exchange::Exchange;
use crate::message::Message;
use crate::settings::{Builder, GiveUp};
use crate::worker::{EachAsync, HandlerSettings, TURN_ITEMS, work};

/// Requests a stop of a local processor.
#[derive(Clone, Debug)]
pub struct LocalStop {
    exchange: Arc<Exchange>,
}

impl LocalStop {
    /// See [`Processor::stop`](crate::Processor::stop).
    pub fn stop(&self) {
        self.exchange.request_stop();
    }
}

impl Builder {
    /// Returns a processor of single records as a future, and its stop. `connect` creates the client with the
    /// processor's properties. Dropping the future ends the processor at once, like a crash.
    #[doc(hidden)]
    pub fn local_each_async<H>(
        mut self,
        seed: u64,
        connect: &mut dyn FnMut(Config) -> Result<Client, Error>,
        handler: H,
    ) -> Result<(LocalStop, impl Future<Output = Result<(), Error>> + use<H>), Error>
    where
        H: AsyncFnMut(&Message<'_>) -> Result<(), Failure> + Clone,
    {
        self.check(false)?;
        self.set_properties()?;
        let client = connect(self.config.clone())?;
        let mut core = Core::new(self.retry.clone(), self.breaker_settings(), fastrand::Rng::with_seed(seed))
            .stopping(self.gives_up() == GiveUp::Stop);
        if self.share {
            core = core.untracked();
        }
        let settings =
            HandlerSettings { holds: self.retry.holds, failures_max: core.breaker().failures_max() };
        let count = self.workers_count();
        let exchange = Arc::new(Exchange::new(core, count, self.batch, self.share));
        let stop = LocalStop { exchange: exchange.clone() };
        let dispatcher = GroupDispatcher::new(self, exchange.clone(), &client)?;
        let running = async move {
            let workers = (0..count).map(|_| {
                let (exchange, mut handler) = (exchange.clone(), EachAsync(handler.clone()));
                async move { work(&exchange, &settings, &mut handler, TURN_ITEMS).await }
            });
            // The dispatcher closes the exchange when it ends, which ends the workers.
            let (result, _) = futures_util::future::join(dispatcher.run(), join_all(workers)).await;
            result
        };
        Ok((stop, running))
    }
}
