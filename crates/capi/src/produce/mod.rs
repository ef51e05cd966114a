//! Producers: records, delivery reports and transactions.

pub(crate) mod delivery_reports;
pub mod flush;
pub mod partitioners;
pub mod producer;
pub(crate) mod report_cursor;
pub(crate) mod transaction_calls;
pub mod transactions;
