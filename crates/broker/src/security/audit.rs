//! The log of denied operations: one line for a principal, an operation and a resource, and later the number of repetitions.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Principal;
use super::acl::{Operation, ResourceType};
use super::authorizer::Client;

/// Repetitions within this time are counted instead of logged.
const INTERVAL: Duration = Duration::from_secs(60);
/// Different denials of one interval that are logged. The others are counted together.
const DENIALS_MAX: usize = 200;
/// Bytes of a resource's name in the log, above the 249 of a topic. A client can ask for a name of any length.
const NAME_BYTES_MAX: usize = 256;

/// A denied operation, whatever the client's host and request.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Denial {
    pub(super) principal: Principal,
    pub(super) operation: Operation,
    pub(super) resource_type: ResourceType,
    pub(super) name: String,
}

/// The denials of the interval that runs.
#[derive(Debug, Default)]
pub(super) struct Audit {
    interval: Mutex<Interval>,
}

#[derive(Debug, Default)]
struct Interval {
    began: Option<Instant>,
    /// The repetitions of each denial after the first.
    repetitions: BTreeMap<Denial, u64>,
    /// Denials that were not logged because there were too many.
    others: u64,
}

/// The lines to log for a denial.
#[derive(Debug, Default, Eq, PartialEq)]
struct Lines {
    /// Repetitions of the interval that has ended.
    repeated: Vec<(Denial, u64)>,
    others: u64,
    is_new: bool,
}

impl Interval {
    fn denied(&mut self, denial: Denial, now: Instant) -> Lines {
        let mut lines = Lines::default();
        if self.began.is_none_or(|began| now >= began + INTERVAL) {
            let ended = std::mem::take(self);
            lines.repeated = ended.repetitions.into_iter().filter(|(_, count)| *count > 0).collect();
            lines.others = ended.others;
            self.began = Some(now);
        }
        if let Some(count) = self.repetitions.get_mut(&denial) {
            *count += 1;
        } else if self.repetitions.len() < DENIALS_MAX {
            lines.is_new = true;
            self.repetitions.insert(denial, 0);
        } else {
            self.others += 1;
        }
        lines
    }
}

impl Audit {
    /// Logs a denial, unless it was logged in this interval.
    #[cold]
    pub(super) fn denied(&self, mut denial: Denial, client: Client<'_>, now: Instant) {
        denial.name.truncate(denial.name.floor_char_boundary(NAME_BYTES_MAX));
        let Lines { repeated, others, is_new } = {
            let mut interval = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
            interval.denied(denial.clone(), now)
        };
        for (Denial { principal, operation, resource_type, name }, count) in repeated {
            tracing::info!(
                target: "kafka.authorizer.logger",
                %principal, ?operation, ?resource_type, name, count, "denied again"
            );
        }
        if others > 0 {
            tracing::info!(target: "kafka.authorizer.logger", count = others, "other operations denied");
        }
        if is_new {
            let Denial { principal, operation, resource_type, name } = denial;
            let (host, api) = (client.host, client.api);
            tracing::info!(
                target: "kafka.authorizer.logger",
                %principal, ?operation, ?resource_type, name, host, %api, "denied"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(name: &str) -> Denial {
        Denial {
            principal: Principal::user("anna"),
            operation: Operation::Read,
            resource_type: ResourceType::Topic,
            name: name.to_owned(),
        }
    }

    #[test]
    fn repetitions_are_counted_and_logged_with_the_first_denial_of_a_later_interval() {
        let (mut interval, now) = (Interval::default(), Instant::now());
        let new = Lines { is_new: true, ..Lines::default() };
        assert_eq!(interval.denied(denial("orders"), now), new);
        for _ in 0..5 {
            assert_eq!(interval.denied(denial("orders"), now), Lines::default());
        }
        let repeated = vec![(denial("orders"), 5)];
        assert_eq!(
            interval.denied(denial("other"), now + INTERVAL),
            Lines { repeated, others: 0, is_new: true }
        );
        assert_eq!(interval.denied(denial("orders"), now + INTERVAL), new);
    }

    #[test]
    fn a_client_that_tries_everything_does_not_flood_the_log() {
        let (mut interval, now) = (Interval::default(), Instant::now());
        let logged = (0..10_000).filter(|number| interval.denied(denial(&number.to_string()), now).is_new);
        assert_eq!(logged.count(), DENIALS_MAX);
        assert_eq!(interval.denied(denial("x"), now + INTERVAL).others, 10_000 - DENIALS_MAX as u64);
    }
}
