//! Workers: threads that call handlers, for records one by one or in batches, and say how each piece of work ended.

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt;
use ottla_client::CorruptBatch;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::core::work::{Offsets, Outcome, Size, Work};
use crate::error::{BatchFailure, Error, Failure};
use crate::exchange::{Ended, Exchange};
use crate::message::{Found, Message, Messages, Pick, Picks, Piece, Pieces, PiecesIter};
use crate::outputs::Outputs;
use crate::retry::GIVEN_UP;

/// How workers are started, with a handler each.
pub(crate) type Spawn<H> = fn(&Arc<Exchange>, How, Vec<H>) -> Result<Vec<JoinHandle<()>>, Error>;

/// What workers of all kinds do with a piece of work.
pub(crate) trait Handle: Sized {
    async fn handle(&mut self, work: Work<Pieces>, how: &How, begun: Instant) -> Ended;
}

/// How records are handled, beside the handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// A failed record holds its lane.
    pub(crate) holds: bool,
    /// After so many failures in a row the rest of a piece of work is left for later.
    pub(crate) failures_max: u32,
}

/// A handler of single records that blocks.
pub(crate) struct Each<H>(pub(crate) H);
/// A handler of single records that waits.
pub(crate) struct EachAsync<H>(pub(crate) H);
/// A handler of batches that blocks.
pub(crate) struct Batches<H>(pub(crate) H);
/// A handler of batches that waits.
pub(crate) struct BatchesAsync<H>(pub(crate) H);

impl<H: FnMut(&Message<'_>) -> Result<(), Failure>> Handle for Each<H> {
    async fn handle(&mut self, work: Work<Pieces>, how: &How, begun: Instant) -> Ended {
        each(work, how, begun, async |message| (self.0)(message)).await
    }
}

impl<H: AsyncFnMut(&Message<'_>) -> Result<(), Failure>> Handle for EachAsync<H> {
    async fn handle(&mut self, work: Work<Pieces>, how: &How, begun: Instant) -> Ended {
        each(work, how, begun, async |message| (self.0)(message).await).await
    }
}

impl<H: FnMut(&Messages<'_>) -> Result<(), BatchFailure>> Handle for Batches<H> {
    async fn handle(&mut self, work: Work<Pieces>, how: &How, begun: Instant) -> Ended {
        batch(work, how, begun, async |messages| (self.0)(messages)).await
    }
}

impl<H: AsyncFnMut(&Messages<'_>) -> Result<(), BatchFailure>> Handle for BatchesAsync<H> {
    async fn handle(&mut self, work: Work<Pieces>, how: &How, begun: Instant) -> Ended {
        batch(work, how, begun, async |messages| (self.0)(messages).await).await
    }
}

/// Starts a thread for each handler.
pub(crate) fn spawn_blocking<H: Handle + Send + 'static>(
    exchange: &Arc<Exchange>,
    how: How,
    handlers: Vec<H>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let start = |(index, mut handler): (usize, H)| {
        let exchange = exchange.clone();
        spawn(format!("ottla-worker-{index}"), move |runtime| {
            runtime.block_on(async { work(&exchange, &how, &mut handler).await });
        })
    };
    handlers.into_iter().enumerate().map(start).collect()
}

/// Shares handlers that wait out among a few threads, on each of which they take turns.
pub(crate) fn spawn_async<H: Handle + Send + 'static>(
    exchange: &Arc<Exchange>,
    how: How,
    handlers: Vec<H>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, Into::into).min(handlers.len());
    let mut shares: Vec<Vec<H>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, handler) in handlers.into_iter().enumerate() {
        shares[index % threads].push(handler);
    }
    let start = |(index, share): (usize, Vec<H>)| {
        let exchange = exchange.clone();
        spawn(format!("ottla-worker-{index}"), move |runtime| {
            let local = LocalSet::new();
            for mut handler in share {
                let exchange = exchange.clone();
                local.spawn_local(async move { work(&exchange, &how, &mut handler).await });
            }
            runtime.block_on(local);
        })
    };
    shares.into_iter().enumerate().map(start).collect()
}

fn spawn(name: String, run: impl FnOnce(Runtime) + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let refused = |error: std::io::Error| Error::Config(format!("no thread for a worker: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(refused)?;
    std::thread::Builder::new().name(name).spawn(move || run(runtime)).map_err(refused)
}

async fn work(exchange: &Exchange, how: &How, handler: &mut impl Handle) {
    let mut ended = None;
    while let Some((work, begun)) = exchange.next(ended.take()).await {
        ended = Some(handler.handle(work, how, begun).await);
    }
}

/// Where the rest of a piece of work begins.
enum Stop<'a> {
    /// It is all handled.
    Nowhere,
    /// At this record, which was not handled.
    At(Found<'a>),
    /// At this record, which holds its lane.
    Held(Found<'a>, Failure),
}

async fn each(
    work: Work<Pieces>,
    how: &How,
    begun: Instant,
    mut handler: impl AsyncFnMut(&Message<'_>) -> Result<(), Failure>,
) -> Ended {
    let outputs = RefCell::new(Outputs::default());
    // Everything before `reached` was looked at.
    let (mut done, mut in_a_row, mut reached) = (0, 0, i64::MIN);
    let mut failures = work.failures;
    let mut failed: Vec<Work<Pieces>> = Vec::new();
    let holds = how.holds && work.lane.is_some();
    let mut records = work.payload.iter();
    let stop = loop {
        let found = match records.next() {
            Some(Ok(found)) => found,
            Some(Err(corrupt)) => {
                // The record behind the last one of the piece is read to see that it is.
                let corrupt = corrupt.behind(reached);
                if corrupt.first_offset() < corrupt.next_offset() {
                    failed.push(lost(&work, corrupt));
                }
                continue;
            }
            None => break Stop::Nowhere,
        };
        if in_a_row >= how.failures_max || work.payload.stopped.load(Ordering::Acquire) {
            break Stop::At(found);
        }
        reached = found.record.offset() + 1;
        let message = Message { record: found.record, failures, outputs: &outputs };
        let mark = outputs.borrow().mark();
        let handled = AssertUnwindSafe(handler(&message)).catch_unwind().await;
        let Some(failure) = failure(handled) else {
            (done, in_a_row, failures) = (done + 1, 0, 0);
            continue;
        };
        outputs.borrow_mut().truncate(mark);
        in_a_row += 1;
        if holds {
            break Stop::Held(found, failure);
        }
        let pick = vec![(found.batch, Pick { position: found.position, offset: found.record.offset() })];
        failed.push(part(&work, pick, failures, Some(failure)));
        failures = 0;
    };
    // What cannot be read behind the place where it stopped.
    let mut behind: Vec<Work<Pieces>> = Vec::new();
    let (held, rest, until) = match stop {
        Stop::Nowhere => (None, None, i64::MAX),
        Stop::At(found) => {
            let until = found.record.offset();
            let (rest, corrupt) = picks(Some(found), records);
            behind.extend(corrupt.into_iter().map(|corrupt| lost(&work, corrupt)));
            (None, Some(part(&work, rest, failures, None)), until)
        }
        Stop::Held(found, failure) => {
            let until = found.record.offset();
            let (rest, corrupt) = picks(None, records);
            behind.extend(corrupt.into_iter().map(|corrupt| lost(&work, corrupt.behind(until + 1))));
            let rest = (!rest.is_empty()).then(|| part(&work, rest, 0, None));
            let pick = vec![(found.batch, Pick { position: found.position, offset: until })];
            (Some(part(&work, pick, failures, Some(failure))), rest, until)
        }
    };
    let open = failed.iter().flat_map(|failed| offsets_of(&failed.offsets)).collect();
    failed.extend(behind);
    let Work { of, lane, ref offsets, size, .. } = work;
    let bytes = if done == size.records { size.bytes } else { size.bytes / size.records.max(1) * done };
    let done = Size { records: done, bytes };
    let (offsets, took) = (offsets.clone(), Duration::ZERO);
    let outcome = Outcome { of, lane, offsets, until, open, done, deferred: false, failed, held, rest, took };
    Ended { outcome, outputs: outputs.into_inner(), begun }
}

async fn batch(
    work: Work<Pieces>,
    how: &How,
    begun: Instant,
    mut handler: impl AsyncFnMut(&Messages<'_>) -> Result<(), BatchFailure>,
) -> Ended {
    let outputs = RefCell::new(Outputs::default());
    let mut open = Vec::new();
    let (mut failed, mut held, mut rest) = (Vec::new(), None, None);
    let (mut done, mut until) = (work.size, i64::MAX);
    if work.payload.stopped.load(Ordering::Acquire) {
        (done, until) = (Size::default(), i64::MIN);
        (rest, failed) = all_of(&work);
    } else {
        let at = work.payload.list[0].batch.at();
        let (count, failures) = (work.size.records, work.failures);
        let messages = Messages {
            at,
            pieces: &work.payload,
            count,
            failures,
            outputs: &outputs,
            corrupt: Cell::new(false),
        };
        let handled = AssertUnwindSafe(handler(&messages)).catch_unwind().await;
        let failure = match handled {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(panic) => Some(Failure::panicked(&*panic).into()),
        };
        if messages.corrupt.get() {
            outputs.take();
            (done, until) = (Size::default(), i64::MIN);
            (rest, failed) = all_of(&work);
        } else if let Some(failure) = failure {
            outputs.take();
            let mut lost = losses(&work, failure);
            open = lost.iter().flat_map(|work| offsets_of(&work.offsets)).collect::<Vec<_>>();
            open.sort_unstable();
            let records = lost.iter().map(|work| work.size.records).sum();
            done -= Size { records, bytes: size_of(&work.size, records) };
            // Failed records keep their order among themselves: they come back as one batch.
            if how.holds && work.lane.is_some() && lost.len() == 1 {
                held = lost.pop();
            }
            failed = lost;
        }
    }
    let Work { of, lane, ref offsets, .. } = work;
    let (offsets, took) = (offsets.clone(), Duration::ZERO);
    let outcome = Outcome { of, lane, offsets, until, open, done, deferred: false, failed, held, rest, took };
    Ended { outcome, outputs: outputs.into_inner(), begun }
}

/// What of a batch failed, as work of its own.
fn losses(work: &Work<Pieces>, failure: BatchFailure) -> Vec<Work<Pieces>> {
    let all = || picks(None, work.payload.iter()).0;
    if let Some(failure) = failure.whole {
        return vec![part(work, all(), work.failures, Some(failure))];
    }
    let all = all();
    // One work for all that can be tried again, and one for each that cannot.
    let (refused, failed): (Vec<_>, Vec<_>) =
        failure.records.into_iter().filter(|(index, _)| *index < all.len()).partition(|(_, f)| f.is_final());
    let mut losses = Vec::new();
    if let Some((_, first)) = failed.first() {
        let picks = failed.iter().map(|(index, _)| all[*index]).collect();
        losses.push(part(work, picks, work.failures, Some(first.clone())));
    }
    for (index, failure) in refused {
        losses.push(part(work, vec![all[index]], work.failures, Some(failure)));
    }
    losses
}

fn failure(handled: Result<Result<(), Failure>, Box<dyn std::any::Any + Send>>) -> Option<Failure> {
    match handled {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(Failure::panicked(&*panic)),
    }
}

type PickOf<'a> = (&'a Arc<ottla_client::Batch>, Pick);

/// The records from here on, and what cannot be read among them.
fn picks<'a>(first: Option<Found<'a>>, rest: PiecesIter<'a>) -> (Vec<PickOf<'a>>, Vec<CorruptBatch>) {
    let (mut picks, mut corrupt) = (Vec::new(), Vec::new());
    let mut reached = i64::MIN;
    for found in first.map(Ok).into_iter().chain(rest) {
        match found {
            Ok(found) => {
                let offset = found.record.offset();
                reached = offset + 1;
                picks.push((found.batch, Pick { position: found.position, offset }));
            }
            Err(broken) => corrupt.push(broken.behind(reached)),
        }
    }
    corrupt.retain(|corrupt| corrupt.first_offset() < corrupt.next_offset());
    (picks, corrupt)
}

/// All of a piece of work, to be handled again, and what of it cannot be.
fn all_of(work: &Work<Pieces>) -> (Option<Work<Pieces>>, Vec<Work<Pieces>>) {
    let (picks, corrupt) = picks(None, work.payload.iter());
    let rest = (!picks.is_empty()).then(|| part(work, picks, work.failures, None));
    (rest, corrupt.into_iter().map(|corrupt| lost(work, corrupt)).collect())
}

/// What of a piece of work cannot be read, as work of its own: to be given up.
fn lost(work: &Work<Pieces>, corrupt: CorruptBatch) -> Work<Pieces> {
    let (from, next) = (corrupt.first_offset(), corrupt.next_offset());
    let offsets: Vec<i64> =
        offsets_of(&work.offsets).into_iter().filter(|offset| (from..next).contains(offset)).collect();
    let size = Size { records: offsets.len(), bytes: size_of(&work.size, offsets.len()) };
    let payload = Pieces::corrupt(corrupt, work.payload.stopped.clone());
    let offsets = Offsets::Each(offsets);
    Work { of: work.of, age: work.age, lane: None, offsets, size, failures: GIVEN_UP, payload }
}

/// A part of a piece of work, as work of its own.
fn part(
    work: &Work<Pieces>,
    picks: Vec<(&Arc<ottla_client::Batch>, Pick)>,
    failures: u32,
    failure: Option<Failure>,
) -> Work<Pieces> {
    let failures = match &failure {
        Some(failure) if failure.is_final() => GIVEN_UP,
        Some(_) => failures + 1,
        None => failures,
    };
    let offsets = Offsets::Each(picks.iter().map(|(_, pick)| pick.offset).collect());
    let size = Size { records: picks.len(), bytes: size_of(&work.size, picks.len()) };
    let mut list: Vec<Piece> = Vec::new();
    for (batch, pick) in picks {
        match list.last_mut() {
            Some(Piece { batch: last, picks: Picks::At(picks) }) if Arc::ptr_eq(last, batch) => {
                picks.push(pick);
            }
            _ => list.push(Piece { batch: batch.clone(), picks: Picks::At(vec![pick]) }),
        }
    }
    let attempts = work.payload.attempts + u32::from(failure.is_some());
    let payload = Pieces { list, stopped: work.payload.stopped.clone(), failure, attempts, corrupt: None };
    Work { of: work.of, age: work.age, lane: work.lane, offsets, size, failures, payload }
}

/// The memory of a part, as if all records were equally large.
fn size_of(size: &Size, records: usize) -> usize {
    size.bytes / size.records.max(1) * records
}

fn offsets_of(offsets: &Offsets) -> Vec<i64> {
    match offsets {
        Offsets::Each(offsets) => offsets.clone(),
        Offsets::Range(from, next) => (*from..*next).collect(),
    }
}
