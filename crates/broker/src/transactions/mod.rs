//! The transaction coordinator: who may use a transactional id, and how its transactions end.
//!
//! ```text
//!   api/add_partitions_to_txn, end_txn, ..          __transaction_state
//!            |                                              ^
//!            v                                              |
//!     coordinator (async) --> table, end (decide) --> records (Kafka's bytes)
//!            |
//!            +--> markers --> partitions of the transaction
//! ```

pub(crate) mod coordinator;
pub(crate) mod end;
mod markers;

#[cfg(test)]
mod history_tests;
pub(crate) mod metadata;
pub(crate) mod records;
pub(crate) mod state;
pub(crate) mod table;
#[cfg(test)]
mod table_tests;
mod timers;
