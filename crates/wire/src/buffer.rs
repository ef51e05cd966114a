//! The memory that a batch is written into, and the way it comes back for the next one.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Takes buffers back once nobody holds their bytes any more; called from whichever thread was the last to hold them.
pub trait BufferHome: Send + Sync + fmt::Debug {
    /// The buffer is free again; its content means nothing.
    fn take_back(&self, bytes: Vec<u8>);
}

/// A buffer of a fixed size, initialised throughout, that goes home when it is dropped, frozen or not.
#[derive(Debug, Default)]
pub struct Buffer {
    pub(crate) bytes: Vec<u8>,
    home: Option<Arc<dyn BufferHome>>,
}

impl Buffer {
    /// A fresh buffer that is simply freed.
    pub fn of_bytes(len: usize) -> Self {
        Self { bytes: vec![0; len], home: None }
    }

    /// All of `bytes` as a buffer that goes back to `home`.
    pub fn with_home(bytes: Vec<u8>, home: Arc<dyn BufferHome>) -> Self {
        Self { bytes, home: Some(home) }
    }

    /// Bytes it has room for.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has room for nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it, to be written in.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The first `len` bytes, refcounted; the last to drop them sends the buffer home.
    ///
    /// # Panics
    /// When they are looked at, if the buffer is shorter.
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
    fn a_buffer_comes_home_when_the_last_holder_of_its_bytes_is_gone() {
        let shelf = Arc::new(Shelf::default());
        let mut batch = BatchBuilder::in_buffer(Buffer::with_home(vec![0; 4096], shelf.clone()));
        batch.push(1, None, Some(&[1; 1000]), &[]);
        let sealed = batch.seal(&Seal::default()).expect("sealed");
        let in_flight = sealed.chain().clone();
        drop(sealed);
        assert!(shelf.0.lock().expect("not poisoned").is_empty(), "somebody still holds the bytes");
        drop(in_flight);
        assert_eq!(shelf.0.lock().expect("not poisoned").pop().map(|bytes| bytes.len()), Some(4096));
    }

    #[test]
    fn a_batch_that_outgrows_its_buffer_sends_it_home() {
        let shelf = Arc::new(Shelf::default());
        let mut batch = BatchBuilder::in_buffer(Buffer::with_home(vec![0; 256], shelf.clone()));
        batch.push(1, None, Some(&[1; 100]), &[]);
        batch.push(1, None, Some(&[2; 1000]), &[]);
        assert_eq!(shelf.0.lock().expect("not poisoned").len(), 1);
        assert_eq!(batch.seal(&Seal::default()).expect("sealed").header.record_count, 2);
    }
}
