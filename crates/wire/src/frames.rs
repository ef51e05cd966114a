//! Splits a byte stream into frames: a 4-byte length, then that many bytes.
//!
//! Small frames share the buffer they were read into. A large frame gets a buffer of its own size, which grows with
//! the bytes that have arrived. A declared length alone therefore costs no memory.

use bytes::{Buf, Bytes, BytesMut};

/// Size of a read while no large frame is being received.
const READ_BYTES: usize = 16 << 10;
/// Maximum growth of a large frame's buffer beyond the bytes that have arrived.
const GROWTH_BYTES: usize = 1 << 20;

/// A frame length that is negative or above the maximum.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a frame declares {claimed} bytes; the allowed range is 0 to {max}")]
pub struct FrameTooLarge {
    /// The declared length.
    pub claimed: i32,
    /// The maximum length.
    pub max: usize,
}

/// Collects bytes and returns whole frames.
#[derive(Debug)]
pub struct FrameBuffer {
    buf: BytesMut,
    max: usize,
}

impl FrameBuffer {
    /// A buffer for frames of at most `max` bytes. It allocates at the first read.
    pub fn new(max: usize) -> Self {
        Self { buf: BytesMut::new(), max }
    }

    /// Sets the maximum length for the following frames.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// The next whole frame without its length, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// A negative or too large length. The stream cannot be parsed any further.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLarge> {
        let Some(size) = self.claimed()? else { return Ok(None) };
        if self.buf.len() < 4 + size {
            return Ok(None);
        }
        self.buf.advance(4);
        if self.buf.len() == size {
            // The frame shares no memory, so its owner may modify it: a broker sets offsets in place.
            return Ok(Some(std::mem::take(&mut self.buf).freeze()));
        }
        Ok(Some(self.buf.split_to(size).freeze()))
    }

    /// The buffer to read into, with spare capacity after the bytes that have arrived. For a large frame the capacity
    /// never exceeds what the frame needs.
    pub fn spare(&mut self) -> &mut BytesMut {
        let have = self.buf.len();
        match self.claimed() {
            Ok(Some(size)) if 4 + size > READ_BYTES => {
                let missing = (4 + size).saturating_sub(have);
                if self.buf.capacity() == have {
                    // The length alone must not cost more than a small frame.
                    let growth = if have < READ_BYTES / 4 { READ_BYTES } else { GROWTH_BYTES.max(have) };
                    self.buf.reserve(missing.min(growth));
                }
            }
            _ => {
                if self.buf.capacity() - have < READ_BYTES / 4 {
                    self.buf.reserve(READ_BYTES);
                }
            }
        }
        &mut self.buf
    }

    /// Frees memory that the received bytes do not need, for the time until more arrive. The buffer of a large frame stays.
    pub fn shrink(&mut self) {
        if self.buf.is_empty() {
            self.buf = BytesMut::new();
        } else if self.buf.capacity() >= READ_BYTES / 2 && self.buf.len() < READ_BYTES / 4 {
            self.buf = BytesMut::from(&self.buf[..]);
        }
    }

    /// Takes the length and the received beginning of a large frame, for a caller that reads the rest into its own
    /// buffer. The bytes after the rest start a new frame.
    ///
    /// # Errors
    /// A negative or too large length.
    pub fn take_started(&mut self) -> Result<Option<(usize, BytesMut)>, FrameTooLarge> {
        let Some(size) = self.claimed()? else { return Ok(None) };
        if 4 + size <= READ_BYTES || self.buf.len() >= 4 + size {
            return Ok(None);
        }
        self.buf.advance(4);
        Ok(Some((size, self.buf.split())))
    }

    /// `true` if a whole frame, or a frame with an invalid length, has arrived.
    pub fn has_frame(&self) -> bool {
        self.claimed().map_or(true, |size| size.is_some_and(|size| self.buf.len() >= 4 + size))
    }

    /// The first `n` bytes of the next frame, if they have arrived.
    pub fn peek(&self, n: usize) -> Option<&[u8]> {
        self.buf.get(4..4 + n)
    }

    /// `true` if part of a frame has arrived, and not all of it.
    pub fn is_mid_frame(&self) -> bool {
        !self.buf.is_empty() && !self.has_frame()
    }

    /// The number of bytes that have arrived and are in no frame that was returned.
    pub fn arrived(&self) -> usize {
        self.buf.len()
    }

    /// The size of the next frame, if its length has arrived, whether the frame has arrived or not.
    pub fn next_size(&self) -> Option<usize> {
        self.claimed().ok().flatten()
    }

    /// The size of the frame of which a part has arrived, if its length has.
    pub fn awaited(&self) -> Option<usize> {
        let size = self.claimed().ok().flatten()?;
        (self.buf.len() < 4 + size).then_some(size)
    }

    fn claimed(&self) -> Result<Option<usize>, FrameTooLarge> {
        let Some(head) = self.buf.first_chunk::<4>() else { return Ok(None) };
        let claimed = i32::from_be_bytes(*head);
        match usize::try_from(claimed) {
            Ok(size) if size <= self.max => Ok(Some(size)),
            _ => Err(FrameTooLarge { claimed, max: self.max }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut;

    #[test]
    fn a_shrunk_buffer_keeps_the_received_bytes_and_no_other_memory() {
        let mut frames = FrameBuffer::new(100);
        frames.spare().put_slice(b"\0\0\0\x03ab");
        frames.shrink();
        assert!(frames.buf.capacity() < 100, "{} bytes", frames.buf.capacity());
        frames.spare().put_slice(b"c");
        assert_eq!(frames.next_frame(), Ok(Some(Bytes::from_static(b"abc"))));
        frames.spare();
        frames.shrink();
        assert_eq!(frames.buf.capacity(), 0);
    }

    /// Reads `stream` in steps of at most `step` bytes, as a socket would deliver it.
    fn cut(stream: &[u8], step: usize, max: usize) -> Result<Vec<Bytes>, FrameTooLarge> {
        let mut frames = FrameBuffer::new(max);
        let mut out = Vec::new();
        let mut rest = stream;
        loop {
            while let Some(frame) = frames.next_frame()? {
                out.push(frame);
            }
            if rest.is_empty() {
                return Ok(out);
            }
            let spare = frames.spare();
            let n = step.min(rest.len()).min(spare.capacity() - spare.len());
            assert!(n > 0, "there is always room to read into");
            spare.put_slice(&rest[..n]);
            rest = &rest[n..];
        }
    }

    #[test]
    fn frames_of_every_size_are_found_for_any_read_size() {
        let sizes = [0, 1, 100, READ_BYTES - 4, READ_BYTES, 3_000_000, 7];
        let mut stream = Vec::new();
        for size in sizes {
            stream.put_i32(size as i32);
            stream.resize(stream.len() + size, size as u8);
        }
        for step in [1000, 4096, usize::MAX] {
            let frames = cut(&stream, step, 4 << 20).expect("all within the limit");
            assert_eq!(frames.iter().map(Bytes::len).collect::<Vec<_>>(), sizes);
            assert!(frames.iter().all(|frame| frame.iter().all(|byte| *byte == frame.len() as u8)));
        }
    }

    #[test]
    fn a_started_large_frame_can_be_read_into_another_buffer() {
        let mut frames = FrameBuffer::new(1 << 20);
        frames.spare().put_slice(&[0, 0]);
        assert_eq!(frames.take_started().expect("sound"), None);
        frames.spare().put_slice(&[0x80, 0, 7, 8]);
        let (size, head) = frames.take_started().expect("sound").expect("large");
        assert_eq!((size, &head[..]), (0x8000, &[7, 8][..]));
        frames.spare().put_slice(&[0, 0, 0, 1, 9]);
        assert_eq!(frames.next_frame().expect("sound").as_deref(), Some(&[9][..]));
    }

    #[test]
    fn a_declared_length_alone_allocates_little() {
        let mut frames = FrameBuffer::new(100 << 20);
        frames.spare().put_i32(100 << 20);
        assert_eq!(frames.next_frame(), Ok(None));
        assert!(frames.spare().capacity() <= 2 << 20);
    }

    #[test]
    fn a_frame_that_has_arrived_is_no_longer_awaited() {
        let mut frames = FrameBuffer::new(100);
        assert!(!frames.is_mid_frame());
        frames.spare().put_slice(&[0, 0]);
        assert!(frames.is_mid_frame() && frames.awaited().is_none(), "its length is not known");
        frames.spare().put_slice(&[0, 2, 7]);
        assert_eq!((frames.is_mid_frame(), frames.awaited()), (true, Some(2)));
        frames.spare().put_slice(&[8]);
        assert_eq!((frames.is_mid_frame(), frames.awaited(), frames.has_frame()), (false, None, true));
    }

    #[test]
    fn negative_and_too_large_lengths_are_rejected() {
        assert_eq!(cut(&(-1_i32).to_be_bytes(), 4, 100), Err(FrameTooLarge { claimed: -1, max: 100 }));
        assert_eq!(cut(&i32::MAX.to_be_bytes(), 4, 100), Err(FrameTooLarge { claimed: i32::MAX, max: 100 }));
    }
}
