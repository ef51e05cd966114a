//! The neighbours of a producer's memory.

use std::sync::Arc;

/// In place of the queue's type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Push {
    /// Within the budget.
    Normal,
    /// The same, for a caller that waits for room.
    Patient,
    /// Beyond the budget if necessary.
    Forced,
}

/// In place of the queue's type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PushRefused {
    /// The budget is used up.
    Full,
}

/// The home of free buffers.
pub trait BufferHome {
    /// Takes a free buffer.
    fn take_back(&self, bytes: Vec<u8>);
}

/// The model books bytes without buffers.
#[derive(Debug)]
pub struct Buffer;

impl Buffer {
    /// A buffer without a home.
    pub fn of_bytes(_: usize) -> Self {
        Self
    }

    /// A buffer with a home.
    pub fn with_home<H: BufferHome>(_: Vec<u8>, _: Arc<H>) -> Self {
        Self
    }
}
