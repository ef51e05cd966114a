//! Stories of single work items. The model covers all others.

use super::*;

const RETRY: Duration = Duration::from_secs(10);

fn core(retry: Retry) -> Core<()> {
    Core::new(retry, None, fastrand::Rng::with_seed(1))
}

/// Puts records into flight, each with a work item of its own.
fn admit(core: &mut Core<()>, assignment: AssignmentId, lane: Option<u32>, offsets: &[i64], now: Instant) {
    for offset in offsets {
        let (offsets, size) = (Offsets::Each(vec![*offset]), Size { records: 1, bytes: 1 });
        core.take_offsets(assignment, &offsets, size, now);
        core.admit(Work { assignment, age: 0, lane, offsets, size, failures: 0, payload: () });
    }
}

/// The report of a work item whose record failed, and holds its lane.
fn held(mut work: Work<()>) -> Outcome<()> {
    work.failures += 1;
    let offset = work.offsets.first();
    let Work { assignment, age, lane, ref offsets, .. } = work;
    let mut outcome =
        Outcome::handled(Work { assignment, age, lane, offsets: offsets.clone(), payload: (), ..work });
    (outcome.until, outcome.open, outcome.done) = (offset, vec![offset], Size::default());
    outcome.held = Some(work);
    outcome
}

/// The report of a work item whose record failed, and for which no lane waits.
fn failed(work: Work<()>) -> Outcome<()> {
    let mut outcome = held(work);
    (outcome.failed, outcome.until) = (outcome.held.take().into_iter().collect(), i64::MAX);
    outcome
}

fn pending(work: &Work<()>) -> PendingRecords {
    PendingRecords {
        assignment: work.assignment,
        offsets: work.offsets.clone(),
        until: i64::MAX,
        except: Vec::new(),
        size: work.size,
        rejected: false,
    }
}

fn first_offset(work: Option<Work<()>>) -> Option<i64> {
    work.map(|work| work.offsets.first())
}

/// The worker that reported the failure took the next record of the same key.
#[test]
fn no_record_is_started_after_one_that_stops_the_processor() {
    let now = Instant::now();
    let mut core = core(Retry::never()).stopping(true);
    let (assignment, _) = core.assign(0, now);
    admit(&mut core, assignment, Some(0), &[0, 1], now);
    let work = core.take(now).expect("ready");
    let given_up = core.finish(held(work), now);
    assert_eq!(given_up.len(), 1);
    assert_eq!(first_offset(core.take(now)), None);
    core.abandon(&pending(&given_up[0]));
    core.drain(assignment);
    assert!(core.finish_gaps(assignment, now));
    assert_eq!(first_offset(core.take(now)), None);
}

/// The drain started the records between the abandoned one and the last finished one. No commit could pass the abandoned one.
#[test]
fn records_after_an_abandoned_one_are_not_started_in_the_drain() {
    let now = Instant::now();
    let mut core = core(Retry::never());
    let (assignment, _) = core.assign(0, now);
    admit(&mut core, assignment, None, &[0, 1, 2, 3, 4], now);
    let works: Vec<_> = (0..5).map(|_| core.take(now).expect("ready")).collect();
    let mut unhandled = Vec::new();
    for work in works {
        match work.offsets.first() {
            // Its output is to be written.
            1 => {
                let pending = pending(&work);
                core.finish(Outcome { deferred: true, ..Outcome::handled(work) }, now);
                core.abandon(&pending);
            }
            4 => drop(core.finish(Outcome::handled(work), now)),
            _ => unhandled.push(work),
        }
    }
    for work in unhandled {
        // The worker has not started these.
        let first = work.offsets.first();
        let (open, done) = (vec![first], Size::default());
        let rest = Work { offsets: work.offsets.clone(), payload: (), ..work };
        core.finish(Outcome { until: first, open, done, rest: Some(rest), ..Outcome::handled(work) }, now);
    }
    core.drain(assignment);
    assert!(!core.finish_gaps(assignment, now));
    let gap = core.take(now).expect("the record before the abandoned one");
    assert_eq!(gap.offsets.first(), 0);
    core.finish(Outcome::handled(gap), now);
    assert!(core.finish_gaps(assignment, now));
    assert_eq!(first_offset(core.take(now)), None);
    assert_eq!(core.progress(assignment).expect("owned").committable.offset, 1);
}

/// It was left to the next owner of the partition, with all records that were finished after it.
#[test]
fn a_record_that_waits_for_its_retry_is_tried_at_once_in_the_drain() {
    let now = Instant::now();
    for (lane, succeeds) in [(None, true), (None, false), (Some(0), true), (Some(0), false)] {
        let fails = if lane.is_some() { held } else { failed };
        let mut core = core(Retry::times(1).delay(RETRY).delay_max(RETRY));
        let (assignment, _) = core.assign(0, now);
        admit(&mut core, assignment, lane, &[0], now);
        admit(&mut core, assignment, None, &[1, 2], now);
        let works: Vec<_> = (0..3).map(|_| core.take(now).expect("ready")).collect();
        for work in works {
            let outcome = if work.offsets.first() == 0 { fails(work) } else { Outcome::handled(work) };
            assert!(core.finish(outcome, now).is_empty());
        }
        assert_eq!(first_offset(core.take(now)), None, "it waits");
        core.drain(assignment);
        assert!(!core.finish_gaps(assignment, now));
        let retried = core.take(now).expect("at once");
        assert_eq!(retried.offsets.first(), 0);
        let outcome = if succeeds { Outcome::handled(retried) } else { fails(retried) };
        assert!(core.finish(outcome, now).is_empty(), "it is not given up before its time");
        assert!(core.finish_gaps(assignment, now));
        let committable = core.progress(assignment).expect("owned").committable.offset;
        assert_eq!(committable, if succeeds { 3 } else { 0 });
    }
}

/// A stop or a rebalance waited for the end of the breaker's pause, up to the whole `drain`.
#[test]
fn a_record_that_waits_for_its_retry_does_not_keep_a_drain_while_the_breaker_is_open() {
    let now = Instant::now();
    let settings = BreakerSettings { failures: 2, pause: RETRY, pause_max: RETRY };
    for opens_in_drain in [false, true] {
        for lane in [None, Some(0)] {
            let fails = if lane.is_some() { held } else { failed };
            let retry = Retry::times(1).delay(RETRY).delay_max(RETRY);
            let mut core = Core::<()>::new(retry, Some(settings), fastrand::Rng::with_seed(1));
            let (assignment, _) = core.assign(0, now);
            admit(&mut core, assignment, None, &[0], now);
            admit(&mut core, assignment, lane, &[1], now);
            admit(&mut core, assignment, None, &[2, 3], now);
            let works: Vec<_> = (0..4).map(|_| core.take(now).expect("ready")).collect();
            for work in works.into_iter().rev() {
                let runs = breaker::FailureRuns { first: 1, last: None };
                let outcome = match work.offsets.first() {
                    0 => Outcome { runs, ..failed(work) },
                    1 if opens_in_drain => fails(work),
                    1 => Outcome { runs, ..fails(work) },
                    _ => Outcome::handled(work),
                };
                assert!(core.finish(outcome, now).is_empty());
            }
            core.drain(assignment);
            if opens_in_drain {
                assert!(!core.finish_gaps(assignment, now));
                let retried = core.take(now).expect("the first is tried at once");
                let runs = breaker::FailureRuns { first: 1, last: None };
                assert!(core.finish(Outcome { runs, ..failed(retried) }, now).is_empty());
            }
            assert!(!core.breaker().lets_through(now));
            assert!(core.finish_gaps(assignment, now), "nothing more is tried");
            assert_eq!(core.progress(assignment).expect("owned").committable.offset, 0);
        }
    }
}

/// The timer of a removed record ended the delay of another partition's record in the same lane.
#[test]
fn the_end_of_a_removed_hold_does_not_release_the_next_hold_of_its_lane() {
    let begin = Instant::now();
    let mut core = core(Retry::times(3).delay(RETRY).delay_max(RETRY).holding());
    let (revoked, _) = core.assign(0, begin);
    admit(&mut core, revoked, Some(0), &[0], begin);
    let work = core.take(begin).expect("ready");
    core.finish(held(work), begin);
    core.remove(revoked);
    let (assignment, _) = core.assign(0, begin);
    let later = begin + RETRY / 2;
    admit(&mut core, assignment, Some(0), &[0], later);
    let work = core.take(later).expect("ready");
    core.finish(held(work), later);
    // The first delay has ended. The second one has at least three quarters of its time, from `later`.
    core.wake(begin + RETRY);
    assert_eq!(first_offset(core.take(begin + RETRY)), None);
    core.wake(later + RETRY);
    assert_eq!(first_offset(core.take(later + RETRY)), Some(0));
}

/// A record of a share group that arrived in a new partition during the stop was started.
#[test]
fn no_record_is_started_after_a_stop_of_all_partitions() {
    let now = Instant::now();
    let mut core = core(Retry::never()).untracked();
    let (before, _) = core.assign(0, now);
    core.stop_all();
    let (assignment, stopped) = core.assign(0, now);
    assert!(stopped.stops(0));
    for assignment in [before, assignment] {
        admit(&mut core, assignment, None, &[0], now);
        assert_eq!(first_offset(core.take(now)), None);
    }
}
