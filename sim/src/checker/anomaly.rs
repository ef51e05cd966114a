//! The anomalies.

use super::{Reader, Value};

/// An anomaly.
#[expect(missing_docs, reason = "the fields are what the sentence above each variant names")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Anomaly {
    /// One offset had two values.
    InconsistentOffsets { slot: i32, offset: i64, values: [Value; 2] },
    /// One value had two offsets.
    Duplicate { value: Value, offsets: [i64; 2] },
    /// An acknowledged value was never read, although later values were.
    LostWrite { value: Value, offset: i64 },
    /// A reader or a group that read to the end did not see an acknowledged value.
    Unseen { value: Value, offset: i64, by: String },
    /// A value was read that was reported as not written.
    FailedRead { value: Value },
    /// A reader went back.
    NonmonotonicPoll { reader: Reader, slot: i32, from: i64, to: i64 },
    /// A reader skipped offsets.
    PollSkip { reader: Reader, slot: i32, from: i64, to: i64 },
    /// A producer's records are not in the order in which they were sent.
    NonmonotonicSend { earlier: Value, later: Value, offsets: [i64; 2] },
    /// Bytes that no producer sent, or that were sent to another partition.
    Stranger { what: String },
    /// A committed offset is behind a record that the group has not handled.
    CommitPastUnhandled { group: u8, slot: i32, committed: i64, handled: i64 },
    /// A committed offset went back while the broker ran.
    CommitWentBack { group: u8, slot: i32, from: i64, to: i64 },
    /// An acknowledged commit is gone after a restart.
    LostCommit { group: u8, slot: i32, acknowledged: i64, found: i64 },
    /// A member started before an acknowledged commit.
    CommitIgnored { reader: Reader, slot: i32, acknowledged: i64, started: i64 },
    /// A `read_committed` reader saw an entry of a transaction whose commit was not requested.
    PrecommittedRead { what: String },
    /// A `read_committed` reader saw an entry of an aborted transaction.
    AbortedRead { what: String },
    /// A part of a committed transaction was read, or a part of one whose outcome its writer does not know.
    TornTransaction { what: String },
    /// A committed entry is in a topic twice.
    CommittedTwice { what: String },
    /// One offset of a transactional topic had two entries.
    TwoEntries { what: String },
    /// The entries of one transaction are not in the order in which they were sent.
    EntriesOutOfOrder { what: String },
    /// A `read_committed` reader went back.
    WentBack { what: String },
    /// A producer committed a transaction after its successor was initialized.
    ZombieCommit { what: String },
    /// A share group was given a record again after a confirmed acceptance or rejection.
    DeliveredAgain { what: String },
    /// Two members had a lock on one record.
    LockedTwice { what: String },
    /// A delivery count of a share group went back, or is outside of its limits.
    DeliveryCount { what: String },
    /// A share group passed a record that no member has completed.
    ShareSkip { what: String },
    /// A damaged disk changed what clients see, without a report.
    SilentDamage { what: String },
    /// Clients and broker exchanged messages without end while no time passed.
    Livelock { what: String },
    /// A client sent requests faster than its backoff allows.
    Busy { what: String },
    /// A task of the broker, of a client or of the load panicked.
    Panicked { what: String },
    /// An operation did not finish in time after the faults ended.
    Stuck { what: String },
}

impl Anomaly {
    /// The name of the variant.
    pub fn name(&self) -> String {
        let text = format!("{self:?}");
        text.split(' ').next().unwrap_or_default().to_owned()
    }
}
