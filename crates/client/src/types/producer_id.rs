//! The identity of an idempotent producer (KIP-98).

/// A producer id and its epoch, from the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProducerId {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}
