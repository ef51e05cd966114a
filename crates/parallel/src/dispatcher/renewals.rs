//! The state of a group's renewals of acquisition locks, as far as its answers tell.

use std::time::Duration;

use ottla_client::{Error, ErrorCode};
use tokio::time::Instant;

/// Refusals in a row that end the renewals of a group that has renewed locks before: one lost leader refuses several.
const REFUSALS_MAX: u32 = 3;
/// The time without renewals after such refusals, in durations of a lock.
const PAUSE_LOCKS: u32 = 10;

/// The renewals of a processor's member.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    state: State,
    has_renewed: bool,
    refusals: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    On,
    PausedUntil(Instant),
    /// The broker or the group does not renew locks.
    Off,
}

impl Renewals {
    pub(super) fn are_on(&self, now: Instant) -> bool {
        match self.state {
            State::On => true,
            State::PausedUntil(until) => until <= now,
            State::Off => false,
        }
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self { state: State::On, has_renewed: true, refusals: 0 };
    }

    /// A renewal was refused, of a lock that lasts for `lock`.
    ///
    /// Apache Kafka has one code, INVALID_RECORD_STATE, for a group that does not allow renewals
    /// (`share.renew.acknowledge.enable`) and for a lock that was lost.
    /// Each refusal ends a delivery, and a record has few: a first renewal that is refused counts as not allowed.
    pub(super) fn refused(&mut self, error: &Error, now: Instant, lock: Duration) {
        let code = error.broker_code();
        if matches!(error, Error::Unsupported { .. }) || code == Some(ErrorCode::InvalidRequest) {
            self.state = State::Off;
        } else if code == Some(ErrorCode::InvalidRecordState) {
            self.refusals += 1;
            if !self.has_renewed || self.refusals >= REFUSALS_MAX {
                self.state = State::PausedUntil(now + lock * PAUSE_LOCKS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Duration = Duration::from_secs(30);

    fn refusal(code: ErrorCode) -> Error {
        Error::Broker { code, what: "an acknowledgement".into() }
    }

    #[test]
    fn a_first_renewal_that_is_refused_pauses_renewals_for_some_locks() {
        let (mut renewals, now) = (Renewals::default(), Instant::now());
        assert!(renewals.are_on(now));
        renewals.refused(&refusal(ErrorCode::InvalidRecordState), now, LOCK);
        assert!(!renewals.are_on(now + LOCK * 9) && renewals.are_on(now + LOCK * 10));
        renewals.refused(&refusal(ErrorCode::InvalidRecordState), now + LOCK * 10, LOCK);
        assert!(!renewals.are_on(now + LOCK * 11), "it was a trial");
        renewals.succeeded();
        assert!(renewals.are_on(now + LOCK * 11));
    }

    #[test]
    fn a_lock_that_is_lost_ends_no_renewals_of_a_group_that_allows_them() {
        let (mut renewals, now) = (Renewals::default(), Instant::now());
        for _ in 0..2 {
            renewals.succeeded();
            renewals.refused(&refusal(ErrorCode::InvalidRecordState), now, LOCK);
            renewals.refused(&refusal(ErrorCode::InvalidRecordState), now, LOCK);
            assert!(renewals.are_on(now));
        }
        renewals.refused(&refusal(ErrorCode::InvalidRecordState), now, LOCK);
        assert!(!renewals.are_on(now), "the group has changed its mind");
    }

    #[test]
    fn a_broker_that_does_not_know_renewals_is_not_asked_again() {
        let (mut renewals, now) = (Renewals::default(), Instant::now());
        renewals.refused(&refusal(ErrorCode::NotLeaderOrFollower), now, LOCK);
        assert!(renewals.are_on(now));
        renewals.refused(&refusal(ErrorCode::InvalidRequest), now, LOCK);
        assert!(!renewals.are_on(now + LOCK * 1000));
    }
}
