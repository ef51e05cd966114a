//! The leader of share partitions (KIP-932, with the acquire modes of KIP-1206 and the renewals of KIP-1222).
//!
//! A share partition is a topic partition as one share group reads it. [`window::SharePartition`] decides, without I/O and
//! without a clock: which records a member acquires, what an acknowledgement changes, when a lock ends. [`leader::ShareLeader`]
//! loads share partitions, writes their changes through the share coordinator and wakes the fetches that wait.
//! [`sessions::ShareSessions`] has the partitions that each member fetches.
//!
//! A change has two phases, as in Kafka's `SharePartition`: it is marked, written, and then committed or rolled back. A record
//! with a marked change keeps its lock meanwhile.
//!
//! With a dead-letter queue (KIP-1191, Apache Kafka 4.4), a record that no member has processed is not archived at once: see
//! `archiving` for its states, and `dead_letters` for the task that writes the letters.

mod acknowledge;
mod acquire;
mod archiving;
pub(crate) mod batches;
mod counts;
mod dead_letters;
mod fetch;
pub(crate) mod leader;
mod lock_ends;
mod lock_timer;
mod lost_records;
#[cfg(test)]
mod model_tests;
mod observed;
pub(crate) mod reset;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod window;
#[cfg(test)]
mod window_tests;

pub(crate) use acknowledge::{AckBatch, AckType};
pub(crate) use acquire::{AcquireMode, Acquired, Acquirer};
pub(crate) use fetch::{ShareFetched, ShareRead};
