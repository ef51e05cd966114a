//! Parallel processors: their dispatcher and their workers run as tasks, in virtual time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ottla_parallel::{Failure, Message, Mode, Order, Processor, Retry};
use tokio::task::JoinSet;

use crate::checker::Reader;
use crate::options::ms;
use crate::reader;
use crate::world::World;

/// The probability that a handler fails: one in so many.
const FAILS_ONE_IN: u32 = 20;
/// Pause before the next incarnation, so that one that fails at once does not stop the clock.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Runs processors one after the other until the run ends. `current` is the current incarnation.
pub(crate) async fn process(
    world: World,
    base: Reader,
    current: Rc<Cell<Option<Reader>>>,
    mut rng: fastrand::Rng,
) {
    let mut incarnation = 0;
    loop {
        let reader = Reader { id: base.id * 100 + incarnation, ..base };
        current.set(Some(reader));
        run_incarnation(&world, reader, &mut rng).await;
        tokio::time::sleep(RESTART_PAUSE).await;
        incarnation += 1;
    }
}

/// The end of an incarnation while there are faults.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Crash,
    Stop,
    Never,
}

async fn run_incarnation(world: &World, reader: Reader, rng: &mut fastrand::Rng) {
    let config = reader::config(world, reader, rng);
    let order = [Order::None, Order::Partition, Order::Key][rng.usize(0..3)];
    let handler_rng = Rc::new(Cell::new(rng.u64(..)));
    let handler_world = world.clone();
    let handler =
        async move |message: &Message<'_>| handle(&handler_world, reader, &handler_rng, message).await;
    let mut client_tasks = JoinSet::new();
    let seed = rng.u64(..);
    let started = Processor::builder(config, Mode::MultiAsync)
        .topics(world.options.topic_names())
        .order(order)
        .workers(world.options.workers as usize)
        .records_in_flight(200)
        .commit_interval(Duration::from_millis(200))
        .drain(Duration::from_secs(1))
        .retry(Retry::forever().delay(Duration::from_millis(10)).delay_max(Duration::from_millis(200)))
        .local_each_async(
            rng.u64(..),
            &mut |config| {
                let (client, tasks) = world.client(config, seed)?;
                client_tasks = tasks;
                Ok(client)
            },
            handler,
        );
    let (stop, running) = started.expect("sound settings");
    let end = [End::Crash, End::Stop, End::Never][rng.usize(0..3)];
    let lasts = ms(rng.i64(200..6_000));
    let mut running = std::pin::pin!(running);
    let ended = tokio::select! {
        biased;
        ended = &mut running => Some(ended),
        () = tokio::time::sleep(lasts), if end != End::Never => None,
    };
    let result = match (ended, end) {
        (Some(ended), _) => ended,
        (None, End::Stop) => {
            stop.stop();
            running.await
        }
        (None, _) if world.faults.get() => Ok(()),
        (None, _) => running.await,
    };
    world.trace.note(format_args!("processor {}: {end:?}, {result:?}", reader.id));
    client_tasks.shutdown().await;
}

async fn handle(
    world: &World,
    reader: Reader,
    seeds: &Cell<u64>,
    message: &Message<'_>,
) -> Result<(), Failure> {
    let mut rng = fastrand::Rng::with_seed(seeds.get());
    seeds.set(rng.u64(..));
    let slot = world.options.slot(message.topic(), message.partition());
    let offset = message.offset();
    world.history.borrow_mut().read(reader, slot, offset, message.value().unwrap_or_default());
    if world.options.handling_max > 0 && rng.u8(0..10) == 0 {
        let within = ms(world.options.handling_max).as_micros() as u64;
        tokio::time::sleep(Duration::from_micros(rng.u64(0..=within))).await;
    }
    if rng.u32(0..FAILS_ONE_IN) == 0 {
        return Err(Failure::new("not this time"));
    }
    world.history.borrow_mut().handled(reader, slot, offset);
    world.trace.note(format_args!("processor {}: {slot}-{offset}", reader.id));
    Ok(())
}
