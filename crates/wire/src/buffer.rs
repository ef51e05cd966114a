//! The memory that a batch is written into, and its return for reuse.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Pool to which buffers return after the last reference to their bytes is gone.
/// | The thread that drops the last reference calls it.
pub trait BufferHome: Send + Sync + fmt::Debug {
    /// Takes a free buffer back. Its content is meaningless.
    fn take_back(&self, bytes: Vec<u8>);
}

/// A buffer of a fixed, initialised size. When it is dropped, frozen or not, its memory returns to its
/// [`BufferHome`].
#[derive(Debug, Default)]
pub struct Buffer {
    pub(crate) bytes: Vec<u8>,
    home: Option<Arc<dyn BufferHome>>,
}

impl Buffer {
    /// Allocates a buffer of `len` bytes that is freed when dropped.
    pub fn of_bytes(len: usize) -> Self {
        Self { bytes: vec![0; len], home: None }
    }

    /// A buffer over all of `bytes`, which returns to `home`.
    pub fn with_home(bytes: Vec<u8>, home: Arc<dyn BufferHome>) -> Self {
        Self { bytes, home: Some(home) }
    }

    /// The capacity in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// `true` if the capacity is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The whole buffer, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The first `len` bytes, reference-counted. The buffer returns to its home after the last reference is dropped.
    ///
    /// # Panics
    /// When the bytes are accessed, if the buffer is shorter than `len`.
    pub fn freeze(self, len: usize) -> Bytes {
        Bytes::from_owner(Frozen { buffer: self, len })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.take_back(std::mem::take(&mut self.bytes));
        }
    }
}

struct Frozen {
    buffer: Buffer,
    len: usize,
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{BatchBuilder, Seal};

    #[derive(Debug, Default)]
    struct Shelf(Mutex<Vec<Vec<u8>>>);

    impl BufferHome for Shelf {
        fn take_back(&self, bytes: Vec<u8>) {
            self.0.lock().expect("not poisoned").push(bytes);
        }
    }

    #[test]
    fn a_buffer_returns_home_after_the_last_reference_is_dropped() {
        let shelf = Arc::new(Shelf::default());
        let mut batch = BatchBuilder::in_buffer(Buffer::with_home(vec![0; 4096], shelf.clone()));
        batch.push(1, None, Some(&[1; 1000]), &[]);
        let sealed = batch.seal(&Seal::default()).expect("sealed");
        let in_flight = sealed.chain().clone();
        drop(sealed);
        assert!(shelf.0.lock().expect("not poisoned").is_empty(), "the bytes are still referenced");
        drop(in_flight);
        assert_eq!(shelf.0.lock().expect("not poisoned").pop().map(|bytes| bytes.len()), Some(4096));
    }

    #[test]
    fn a_batch_that_outgrows_its_buffer_returns_it() {
        let shelf = Arc::new(Shelf::default());
        let mut batch = BatchBuilder::in_buffer(Buffer::with_home(vec![0; 256], shelf.clone()));
        batch.push(1, None, Some(&[1; 100]), &[]);
        batch.push(1, None, Some(&[2; 1000]), &[]);
        assert_eq!(shelf.0.lock().expect("not poisoned").len(), 1);
        assert_eq!(batch.seal(&Seal::default()).expect("sealed").header.record_count, 2);
    }
}
