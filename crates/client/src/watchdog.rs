//! The watchdog: reports each stall once when it begins and once when it ends.

pub(crate) mod cause;
pub(crate) mod consumer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::cause::Cause;

/// The number of the watchdog's checks within the time after which a stall is reported.
pub(crate) const LOOKS: u32 = 5;

/// A thing that makes no progress.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Stall {
    /// Records wait for a partition without a leader, or for an unknown topic, with partition -1.
    NoLeader {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// The client cannot connect to a broker that it needs.
    NoConnection {
        /// The broker's address.
        broker: Arc<str>,
    },
    /// A broker does not respond to a request.
    NoAnswer {
        /// The broker's address.
        broker: Arc<str>,
        /// The request's name.
        request: &'static str,
        /// The correlation id.
        correlation_id: i32,
    },
    /// The send buffer is full because the application does not read the delivery reports.
    ReportsUnread,
    /// An assigned partition that is not paused makes no progress, although it has records or its end is unknown.
    Consuming {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The cause.
        cause: Cause,
    },
    /// More than ten partitions make no progress for the same cause, at one broker if the cause concerns a broker.
    /// The report contains their number and some of their names.
    ConsumingMany {
        /// The broker's node id.
        node: Option<i32>,
        /// The cause.
        cause: Cause,
    },
    /// A consumer waits for its group: for its assignment, or for the coordinator.
    Group {
        /// `group.id`.
        group: Arc<str>,
        /// The cause.
        cause: Cause,
    },
}

/// A stall that began or ended.
///
/// ```
/// use ottla_client::{Client, Config};
///
/// let client = Client::new(Config::new("127.0.0.1:1"))?;
/// let stalls = client.stalls();
/// while let Some(report) = stalls.try_next() {
///     eprintln!("{report}");
/// }
/// # Ok::<(), ottla_client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StallReport {
    /// The stall.
    pub stall: Stall,
    /// `true` if the stall has ended: by progress, or because nothing waits for it any more.
    pub over: bool,
    /// The duration so far.
    pub lasted: Duration,
    /// The numbers, and the action that the client takes.
    pub trying: String,
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.lasted.as_millis();
        if self.over {
            return write!(f, "{}: over after {ms} ms", self.stall);
        }
        write!(f, "{} for {ms} ms: {}", self.stall, self.trying)
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeader { topic, partition } => {
                write!(f, "topic `{topic}` partition {partition} has no leader")
            }
            Self::NoConnection { broker } => write!(f, "no connection to {broker}"),
            Self::NoAnswer { broker, request, correlation_id } => {
                write!(f, "no answer to {request} (CorrId {correlation_id}) from {broker}")
            }
            Self::ReportsUnread => {
                f.write_str("the send buffer is full and the application does not read the delivery reports")
            }
            Self::Consuming { topic, partition, cause } => {
                write!(f, "consuming topic `{topic}` partition {partition}: {cause}")
            }
            Self::ConsumingMany { node: Some(node), cause } => {
                write!(f, "consuming many partitions of node {node}: {cause}")
            }
            Self::ConsumingMany { node: None, cause } => write!(f, "consuming many partitions: {cause}"),
            Self::Group { group, cause } => write!(f, "consumer group `{group}`: {cause}"),
        }
    }
}

/// A stall that exists now.
#[derive(Clone, Debug)]
pub(crate) struct ActiveStall {
    pub(crate) stall: Stall,
    /// The time when it began, if known; otherwise the time of the first check counts.
    pub(crate) since: Option<Instant>,
    pub(crate) trying: String,
}

/// The known stalls, and whether each was reported.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    known: BTreeMap<Stall, TrackedStall>,
}

#[derive(Debug)]
struct TrackedStall {
    since: Instant,
    said: bool,
}

impl Watchdog {
    /// Returns the reports for the stalls that exist now.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        after: Duration,
        stalls: Vec<ActiveStall>,
    ) -> Vec<StallReport> {
        let mut reports = Vec::new();
        self.known.retain(|stall, known| {
            let goes_on = !stalls.iter().any(|found| found.stall == *stall);
            if goes_on && known.said {
                let (stall, lasted) = (stall.clone(), now.saturating_duration_since(known.since));
                reports.push(StallReport { stall, over: true, lasted, trying: String::new() });
            }
            !goes_on
        });
        for ActiveStall { stall, since, trying } in stalls {
            let since = since.unwrap_or(now);
            let known = self.known.entry(stall.clone()).or_insert(TrackedStall { since, said: false });
            let lasted = now.saturating_duration_since(known.since);
            if !known.said && lasted >= after {
                known.said = true;
                reports.push(StallReport { stall, over: false, lasted, trying });
            }
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(since: Option<Instant>) -> ActiveStall {
        ActiveStall { stall: Stall::ReportsUnread, since, trying: "nothing".into() }
    }

    #[test]
    fn a_stall_is_said_once_when_it_has_lasted_and_once_when_it_is_over() {
        let (start, after) = (Instant::now(), Duration::from_secs(5));
        let mut watchdog = Watchdog::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(watchdog.look(at(0), after, vec![active(None)]).is_empty());
        assert!(watchdog.look(at(4), after, vec![active(None)]).is_empty());
        let said = watchdog.look(at(5), after, vec![active(None)]);
        assert!(matches!(said[..], [StallReport { over: false, .. }]));
        assert!(watchdog.look(at(9), after, vec![active(None)]).is_empty(), "once is enough");
        let over = watchdog.look(at(10), after, Vec::new());
        assert!(
            matches!(over[..], [StallReport { over: true, lasted, .. }] if lasted == Duration::from_secs(10))
        );
        // A stall that ended before the limit was never reported.
        assert!(watchdog.look(at(11), after, vec![active(None)]).is_empty());
        assert!(watchdog.look(at(12), after, Vec::new()).is_empty());
        // A stall that is older than the limit when it is found is reported at once.
        assert_eq!(watchdog.look(at(20), after, vec![active(Some(at(14)))]).len(), 1);
    }
}
