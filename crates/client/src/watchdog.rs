//! What should go on and does not: noticed once, said once, and said again when it is over.

pub(crate) mod cause;
pub(crate) mod consumer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::cause::Cause;

/// What is stuck. The list grows with what is watched.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Stall {
    /// Records wait for a partition that has no leader, or whose topic is not known; partition -1 then.
    NoLeader {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// A broker that is needed cannot be connected to.
    NoConnection {
        /// Its address.
        broker: Arc<str>,
    },
    /// A broker does not answer a request.
    NoAnswer {
        /// Its address.
        broker: Arc<str>,
        /// The request's name.
        request: &'static str,
        /// Its number on its connection.
        correlation_id: i32,
    },
    /// The send buffer is full of records whose reports nobody reads.
    ReportsUnread,
    /// A partition is assigned and not paused, there is more in it or nobody knows whether there is, and the consumer gets no
    /// further.
    Consuming {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// Why.
        cause: Cause,
    },
    /// The same of more than ten partitions for one cause, and of one broker where it is one's: said once for all, and the
    /// report has how many and some of their names.
    ConsumingMany {
        /// The broker's number.
        node: Option<i32>,
        /// Why.
        cause: Cause,
    },
    /// A consumer waits for its group: it is a member that has not been given its partitions, or the coordinator does not
    /// serve it.
    Group {
        /// `group.id`.
        group: Arc<str>,
        /// Why.
        cause: Cause,
    },
}

/// A stall has begun, or has ended.
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
    /// What is stuck.
    pub stall: Stall,
    /// Whether it has ended: it goes on again, or is no longer wanted.
    pub over: bool,
    /// How long it has lasted so far.
    pub lasted: Duration,
    /// The numbers, and what is being tried.
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
                f.write_str("the send buffer is full and nobody reads the delivery reports")
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

/// Something that does not go on at this moment.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) stall: Stall,
    /// Since when, if that is known; else since it was first found.
    pub(crate) since: Option<Instant>,
    pub(crate) trying: String,
}

/// Remembers what was found, and what was said.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    known: BTreeMap<Stall, Known>,
}

#[derive(Debug)]
struct Known {
    since: Instant,
    said: bool,
}

impl Watchdog {
    /// What is to be said, given everything that does not go on at this moment.
    pub(crate) fn look(&mut self, now: Instant, after: Duration, findings: Vec<Finding>) -> Vec<StallReport> {
        let mut reports = Vec::new();
        self.known.retain(|stall, known| {
            let goes_on = !findings.iter().any(|finding| finding.stall == *stall);
            if goes_on && known.said {
                let (stall, lasted) = (stall.clone(), now.saturating_duration_since(known.since));
                reports.push(StallReport { stall, over: true, lasted, trying: String::new() });
            }
            !goes_on
        });
        for Finding { stall, since, trying } in findings {
            let since = since.unwrap_or(now);
            let known = self.known.entry(stall.clone()).or_insert(Known { since, said: false });
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

    fn finding(since: Option<Instant>) -> Finding {
        Finding { stall: Stall::ReportsUnread, since, trying: "nothing".into() }
    }

    #[test]
    fn a_stall_is_said_once_when_it_has_lasted_and_once_when_it_is_over() {
        let (start, after) = (Instant::now(), Duration::from_secs(5));
        let mut watchdog = Watchdog::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(watchdog.look(at(0), after, vec![finding(None)]).is_empty());
        assert!(watchdog.look(at(4), after, vec![finding(None)]).is_empty());
        let said = watchdog.look(at(5), after, vec![finding(None)]);
        assert!(matches!(said[..], [StallReport { over: false, .. }]));
        assert!(watchdog.look(at(9), after, vec![finding(None)]).is_empty(), "once is enough");
        let over = watchdog.look(at(10), after, Vec::new());
        assert!(
            matches!(over[..], [StallReport { over: true, lasted, .. }] if lasted == Duration::from_secs(10))
        );
        // What was over in time was never said.
        assert!(watchdog.look(at(11), after, vec![finding(None)]).is_empty());
        assert!(watchdog.look(at(12), after, Vec::new()).is_empty());
        // What has lasted before it was found is said at once.
        assert_eq!(watchdog.look(at(20), after, vec![finding(Some(at(14)))]).len(), 1);
    }
}
