//! Workers: threads that call handlers with single records or batches and report the outcome of each work item.

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::FutureExt;
use ottla_client::CorruptBatch;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::core::breaker::FailureRuns;
use crate::core::work::{Offsets, Outcome, Work};
use crate::error::{BatchFailure, Error, Failure, FailureKind, panic_text};
use crate::exchange::{CompletedWork, Exchange};
use crate::message::{Found, Message, Messages, Piece, Pieces, PiecesIter, RecordPosition, Selection};
use crate::outputs::Outputs;
use crate::retry::{FATAL, GIVEN_UP};

/// Work items that a worker handles before the other workers of its thread get their turn. Most last for
/// [`PIECE`](crate::exchange::PIECE).
pub(crate) const TURN_ITEMS: usize = 8;

/// A function that starts the workers, one handler each.
pub(crate) type Spawn<H> = fn(&Arc<Exchange>, HandlerSettings, Vec<H>) -> Result<Vec<JoinHandle<()>>, Error>;

/// The handling of a work item, by one kind of handler.
pub(crate) trait Handle: Sized {
    async fn handle(
        &mut self,
        work: Work<Pieces>,
        settings: &HandlerSettings,
        begun: Instant,
    ) -> CompletedWork;
}

/// Settings of all handlers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandlerSettings {
    /// `true` if a failed record blocks its lane until its retry.
    pub(crate) holds: bool,
    /// Number of consecutive failures after which the rest of a work item returns to the queue.
    pub(crate) failures_max: u32,
}

/// A blocking handler of single records.
pub(crate) struct Each<H>(pub(crate) H);
/// An async handler of single records.
pub(crate) struct EachAsync<H>(pub(crate) H);
/// A blocking handler of batches.
pub(crate) struct Batches<H>(pub(crate) H);
/// An async handler of batches.
pub(crate) struct BatchesAsync<H>(pub(crate) H);

impl<H: FnMut(&Message<'_>) -> Result<(), Failure>> Handle for Each<H> {
    async fn handle(
        &mut self,
        work: Work<Pieces>,
        settings: &HandlerSettings,
        begun: Instant,
    ) -> CompletedWork {
        each(work, settings, begun, async |message| (self.0)(message)).await
    }
}

impl<H: AsyncFnMut(&Message<'_>) -> Result<(), Failure>> Handle for EachAsync<H> {
    async fn handle(
        &mut self,
        work: Work<Pieces>,
        settings: &HandlerSettings,
        begun: Instant,
    ) -> CompletedWork {
        each(work, settings, begun, async |message| (self.0)(message).await).await
    }
}

impl<H: FnMut(&Messages<'_>) -> Result<(), BatchFailure>> Handle for Batches<H> {
    async fn handle(
        &mut self,
        work: Work<Pieces>,
        settings: &HandlerSettings,
        begun: Instant,
    ) -> CompletedWork {
        batch(work, settings, begun, async |messages| (self.0)(messages)).await
    }
}

impl<H: AsyncFnMut(&Messages<'_>) -> Result<(), BatchFailure>> Handle for BatchesAsync<H> {
    async fn handle(
        &mut self,
        work: Work<Pieces>,
        settings: &HandlerSettings,
        begun: Instant,
    ) -> CompletedWork {
        batch(work, settings, begun, async |messages| (self.0)(messages).await).await
    }
}

/// Starts one thread per handler.
pub(crate) fn spawn_blocking<H: Handle + Send + 'static>(
    exchange: &Arc<Exchange>,
    settings: HandlerSettings,
    handlers: Vec<H>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let start = |(index, mut handler): (usize, H)| {
        let exchange = exchange.clone();
        spawn(format!("ottla-worker-{index}"), move |runtime| {
            // No other worker of this thread waits for its turn.
            runtime.block_on(async { work_to_end(&exchange, &settings, &mut handler, usize::MAX).await });
        })
    };
    handlers.into_iter().enumerate().map(start).collect()
}

/// Distributes async handlers over a few threads, each with a `LocalSet`.
pub(crate) fn spawn_async<H: Handle + Send + 'static>(
    exchange: &Arc<Exchange>,
    settings: HandlerSettings,
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
                local.spawn_local(async move {
                    work_to_end(&exchange, &settings, &mut handler, TURN_ITEMS).await;
                });
            }
            runtime.block_on(local);
        })
    };
    shares.into_iter().enumerate().map(start).collect()
}

fn spawn(name: String, run: impl FnOnce(Runtime) + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let refused = |error: std::io::Error| Error::Config(format!("cannot start a worker thread: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(refused)?;
    std::thread::Builder::new().name(name).spawn(move || run(runtime)).map_err(refused)
}

/// [`work`], on a thread of its own or of a few workers. It reports a panic outside of a handler: no other task joins the
/// thread.
async fn work_to_end(
    exchange: &Exchange,
    settings: &HandlerSettings,
    handler: &mut impl Handle,
    turn_items: usize,
) {
    let worked = AssertUnwindSafe(work(exchange, settings, handler, turn_items)).catch_unwind().await;
    if let Err(panic) = worked {
        exchange.report_panic(panic_text(&*panic).unwrap_or("the panic has no text").to_owned());
    }
}

/// Handles work items until the exchange is closed. After so many, the other workers of the thread get their turn.
pub(crate) async fn work(
    exchange: &Exchange,
    settings: &HandlerSettings,
    handler: &mut impl Handle,
    turn_items: usize,
) {
    let (mut completed, mut items) = (None, 0);
    while let Some((work, begun)) = exchange.next(completed.take()).await {
        let outcome = handler.handle(work, settings, begun).await;
        items += 1;
        if items < turn_items {
            completed = Some(outcome);
            continue;
        }
        // A handler that never waits gives the others of its thread their turn, and its outcome does not wait for them.
        items = 0;
        exchange.report(outcome);
        tokio::task::yield_now().await;
    }
}

/// The position at which a worker stopped a work item.
enum StoppedAt<'a> {
    /// All records were handled.
    End,
    /// Before this record, which was not handled.
    Before(Found<'a>),
    /// At this failed record, which holds its lane or stops the processor.
    Held(Found<'a>, Failure),
}

async fn each(
    work: Work<Pieces>,
    settings: &HandlerSettings,
    begun: Instant,
    mut handler: impl AsyncFnMut(&Message<'_>) -> Result<(), Failure>,
) -> CompletedWork {
    let outputs = RefCell::new(Outputs::default());
    // All offsets before `reached` were visited.
    let (mut done, mut runs, mut reached) = (0, FailureRuns::default(), i64::MIN);
    let mut failures = work.failures;
    let mut failed: Vec<Work<Pieces>> = Vec::new();
    let holds = settings.holds && work.lane.is_some();
    let failures_max = if work.payload.is_trial { 1 } else { settings.failures_max };
    let mut records = work.payload.iter();
    let stop = loop {
        let found = match records.next() {
            Some(Ok(found)) => found,
            Some(Err(corrupt)) => {
                // The corrupt range may overlap records that were handled: cut it off there.
                let corrupt = corrupt.behind(reached);
                if corrupt.first_offset() < corrupt.next_offset() {
                    failed.push(undecodable(&work, corrupt));
                }
                continue;
            }
            None => break StoppedAt::End,
        };
        if runs.in_a_row() >= failures_max || work.payload.stopped.stops(found.record.offset()) {
            break StoppedAt::Before(found);
        }
        reached = found.record.offset() + 1;
        let message = Message { record: found.record, batch: found.batch, failures, outputs: &outputs };
        let mark = outputs.borrow().mark();
        let handled = AssertUnwindSafe(handler(&message)).catch_unwind().await;
        let Some(failure) = failure(handled) else {
            (done, failures) = (done + 1, 0);
            runs.succeed();
            continue;
        };
        outputs.borrow_mut().truncate(mark);
        if !failure.is_final() {
            runs.fail();
        }
        if holds || failure.kind == FailureKind::Fatal {
            break StoppedAt::Held(found, failure);
        }
        let record =
            vec![(found.batch, RecordPosition { position: found.position, offset: found.record.offset() })];
        failed.push(part(&work, record, failures, Some(failure)));
        failures = 0;
    };
    // Undecodable records after the position where the worker stopped.
    let mut behind: Vec<Work<Pieces>> = Vec::new();
    let (held, rest, until) = match stop {
        StoppedAt::End => (None, None, i64::MAX),
        StoppedAt::Before(found) => {
            let until = found.record.offset();
            let (rest, corrupt) = selection(Some(found), records);
            behind.extend(corrupt.into_iter().map(|corrupt| undecodable(&work, corrupt)));
            (None, Some(part(&work, rest, failures, None)), until)
        }
        StoppedAt::Held(found, failure) => {
            let until = found.record.offset();
            let (rest, corrupt) = selection(None, records);
            behind.extend(corrupt.into_iter().map(|corrupt| undecodable(&work, corrupt.behind(until + 1))));
            let rest = (!rest.is_empty()).then(|| part(&work, rest, 0, None));
            let record = vec![(found.batch, RecordPosition { position: found.position, offset: until })];
            (Some(part(&work, record, failures, Some(failure))), rest, until)
        }
    };
    failed.extend(behind);
    let parts = Parts { runs, done, until, failed, held, rest };
    completed(work, parts, outputs.into_inner(), begun)
}

async fn batch(
    work: Work<Pieces>,
    settings: &HandlerSettings,
    begun: Instant,
    mut handler: impl AsyncFnMut(&Messages<'_>) -> Result<(), BatchFailure>,
) -> CompletedWork {
    let outputs = RefCell::new(Outputs::default());
    let (mut failed, mut held, mut rest) = (Vec::new(), None, None);
    let (mut done, mut until) = (work.size.records, i64::MAX);
    let mut runs = FailureRuns::default();
    if work.payload.stopped.stops(work.offsets.first()) {
        (done, until) = (0, i64::MIN);
        (rest, failed) = split_undecodable(&work);
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
        // A handler that fails may not have come to a record that cannot be decoded, which must not count as done.
        let is_corrupt = messages.corrupt.get()
            || (failure.is_some() && !selection(None, work.payload.iter()).1.is_empty());
        if is_corrupt {
            outputs.take();
            (done, until) = (0, i64::MIN);
            (rest, failed) = split_undecodable(&work);
        } else if let Some(failure) = failure {
            let mut failed_work = failed_parts(&work, failure);
            let failed_records = failed_work.iter().map(|work| work.size.records).sum::<usize>();
            done = done.saturating_sub(failed_records);
            if done == 0 {
                // The outputs of the records that are done are written with them; here none is done.
                outputs.take();
            }
            // A held lane retries the failed records of a batch together, so they stay in order. Records that are given up do not
            // hold it beside them.
            let is_retried = failed_work.first().is_some_and(|part| part.failures < GIVEN_UP);
            if settings.holds && work.lane.is_some() && (is_retried || failed_work.len() == 1) {
                held = Some(failed_work.remove(0));
            }
            failed = failed_work;
            if done > 0 {
                runs.succeed();
            }
            // One call of the handler is one failure.
            if is_retried {
                runs.fail();
            }
        } else {
            runs.succeed();
        }
    }
    let parts = Parts { runs, done, until, failed, held, rest };
    completed(work, parts, outputs.into_inner(), begun)
}

/// The parts of a handled work item.
struct Parts {
    runs: FailureRuns,
    /// The number of records that are done.
    done: usize,
    /// The records from this offset were not handled.
    until: i64,
    failed: Vec<Work<Pieces>>,
    held: Option<Work<Pieces>>,
    rest: Option<Work<Pieces>>,
}

/// The report of a work item.
fn completed(work: Work<Pieces>, parts: Parts, outputs: Outputs, begun: Instant) -> CompletedWork {
    let Parts { runs, done, until, mut failed, mut held, mut rest } = parts;
    let open = open_offsets(failed.iter().chain(&held).chain(&rest));
    // The size of undecodable records is a guess, so the records that are handled again get theirs first.
    let done = work.size.without(done, held.iter_mut().chain(&mut rest).chain(&mut failed));
    let Work { assignment, age, lane, offsets, .. } = work;
    let outcome = Outcome {
        assignment,
        age,
        lane,
        offsets,
        until,
        open,
        done,
        runs,
        deferred: false,
        failed,
        held,
        rest,
        took: Duration::ZERO,
    };
    CompletedWork { outcome, outputs, begun }
}

/// The failed parts of a batch, as work items.
fn failed_parts(work: &Work<Pieces>, failure: BatchFailure) -> Vec<Work<Pieces>> {
    let all = || selection(None, work.payload.iter()).0;
    if let Some(failure) = failure.whole {
        return vec![part(work, all(), work.failures, Some(failure))];
    }
    let all = all();
    // One work item for all retriable records, and one for each of the others.
    let (refused, failed): (Vec<_>, Vec<_>) =
        failure.records.into_iter().filter(|(index, _)| *index < all.len()).partition(|(_, f)| f.is_final());
    let mut failed_parts = Vec::new();
    if let Some((_, first)) = failed.first() {
        let selection = failed.iter().map(|(index, _)| all[*index]).collect();
        failed_parts.push(part(work, selection, work.failures, Some(first.clone())));
    }
    for (index, failure) in refused {
        failed_parts.push(part(work, vec![all[index]], work.failures, Some(failure)));
    }
    failed_parts
}

fn failure(handled: Result<Result<(), Failure>, Box<dyn std::any::Any + Send>>) -> Option<Failure> {
    match handled {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(panic) => Some(Failure::panicked(&*panic)),
    }
}

type BatchRecord<'a> = (&'a Arc<ottla_client::Batch>, RecordPosition);

/// The remaining records, and the undecodable ones among them.
fn selection<'a>(
    first: Option<Found<'a>>,
    rest: PiecesIter<'a>,
) -> (Vec<BatchRecord<'a>>, Vec<CorruptBatch>) {
    let (mut selection, mut corrupt) = (Vec::new(), Vec::new());
    let mut reached = i64::MIN;
    for found in first.map(Ok).into_iter().chain(rest) {
        match found {
            Ok(found) => {
                let offset = found.record.offset();
                reached = offset + 1;
                selection.push((found.batch, RecordPosition { position: found.position, offset }));
            }
            Err(broken) => corrupt.push(broken.behind(reached)),
        }
    }
    corrupt.retain(|corrupt| corrupt.first_offset() < corrupt.next_offset());
    (selection, corrupt)
}

/// A work item split into its records, to be handled again, and its undecodable records.
fn split_undecodable(work: &Work<Pieces>) -> (Option<Work<Pieces>>, Vec<Work<Pieces>>) {
    let (selection, corrupt) = selection(None, work.payload.iter());
    let rest = (!selection.is_empty()).then(|| part(work, selection, work.failures, None));
    (rest, corrupt.into_iter().map(|corrupt| undecodable(work, corrupt)).collect())
}

/// A work item for the undecodable records of another, to be given up.
fn undecodable(work: &Work<Pieces>, corrupt: CorruptBatch) -> Work<Pieces> {
    let (from, next) = (corrupt.first_offset(), corrupt.next_offset());
    let offsets: Vec<i64> = work.offsets.each().filter(|offset| (from..next).contains(offset)).collect();
    let size = work.size.part(offsets.len());
    let payload = Pieces::corrupt(corrupt, work.payload.stopped.clone());
    let offsets = Offsets::Each(offsets);
    Work {
        assignment: work.assignment,
        age: work.age,
        lane: None,
        offsets,
        size,
        failures: GIVEN_UP,
        payload,
    }
}

/// A work item of some of another's records.
fn part(
    work: &Work<Pieces>,
    selection: Vec<(&Arc<ottla_client::Batch>, RecordPosition)>,
    failures: u32,
    failure: Option<Failure>,
) -> Work<Pieces> {
    let failures = match &failure {
        Some(failure) if failure.kind == FailureKind::Fatal => FATAL,
        Some(failure) if failure.is_final() => GIVEN_UP,
        Some(_) => failures + 1,
        None => failures,
    };
    let offsets = Offsets::Each(selection.iter().map(|(_, record)| record.offset).collect());
    let size = work.size.part(selection.len());
    let mut list: Vec<Piece> = Vec::new();
    for (batch, record) in selection {
        match list.last_mut() {
            Some(Piece { batch: last, selection: Selection::At(selection) }) if Arc::ptr_eq(last, batch) => {
                selection.push(record);
            }
            _ => list.push(Piece { batch: batch.clone(), selection: Selection::At(vec![record]) }),
        }
    }
    let attempts = work.payload.attempts + u32::from(failure.is_some());
    let payload = Pieces { failure, attempts, ..Pieces::new(list, work.payload.stopped.clone()) };
    Work { assignment: work.assignment, age: work.age, lane: work.lane, offsets, size, failures, payload }
}

/// The offsets of the parts that are not done, in increasing order.
fn open_offsets<'a>(parts: impl Iterator<Item = &'a Work<Pieces>>) -> Vec<i64> {
    let mut open: Vec<i64> = parts.flat_map(|part| part.offsets.each()).collect();
    open.sort_unstable();
    open.dedup();
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::work::{AssignmentId, Size, StopOffset};

    fn item(offsets: Offsets, records: usize) -> Work<Pieces> {
        let stopped = Arc::new(StopOffset::unlimited());
        let payload = Pieces::new(Vec::new(), stopped);
        let (assignment, size) = (AssignmentId { slot: 0, generation: 0 }, Size { records, bytes: records });
        Work { assignment, age: 1, lane: None, offsets, size, failures: 0, payload }
    }

    /// The undecodable offsets, most of which had no record, took the size of the others. [`Messages::len`] was 0 for these, and
    /// fewer than none of them were done when some failed.
    #[test]
    fn records_behind_undecodable_offsets_keep_their_number() {
        let failed = vec![item(Offsets::Range(10, 120), 110)];
        let rest = Some(item(Offsets::Range(120, 140), 20));
        let parts = Parts { runs: FailureRuns::default(), done: 10, until: 120, failed, held: None, rest };
        let work = item(Offsets::Range(0, 140), 30);
        let outcome = completed(work, parts, Outputs::default(), Instant::now()).outcome;
        assert_eq!(outcome.rest.map(|rest| rest.size.records), Some(20));
        assert_eq!((outcome.failed[0].size.records, outcome.done.records), (0, 10));
    }
}
