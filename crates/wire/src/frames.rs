//! Cutting a stream of bytes into frames: a 4-byte length, then that many bytes.
//!
//! Small frames share the buffer they were read into; a large one gets a buffer of its own size, which grows with what
//! has really arrived, so that a claimed length alone costs nothing.

use bytes::{Buf, Bytes, BytesMut};

/// What one read asks for while no large frame is under way.
const READ_BYTES: usize = 16 << 10;
/// How far ahead of the bytes that have arrived a large frame's buffer may grow.
const GROWTH_BYTES: usize = 1 << 20;

/// A length that no frame may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a frame claims {claimed} bytes, allowed are 0 to {max}")]
pub struct FrameTooLarge {
    /// The length claimed.
    pub claimed: i32,
    /// The largest allowed.
    pub max: usize,
}

/// Collects bytes as they are read and gives out whole frames.
#[derive(Debug)]
pub struct FrameBuffer {
    buf: BytesMut,
    max: usize,
}

impl FrameBuffer {
    /// A buffer for frames of at most `max` bytes. Allocates when first read into.
    pub fn new(max: usize) -> Self {
        Self { buf: BytesMut::new(), max }
    }

    /// Changes the largest frame allowed from the next one on.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// The next whole frame without its length; `None` when more must be read first.
    ///
    /// # Errors
    /// A negative or too large length. The stream cannot be understood after it.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLarge> {
        let Some(size) = self.claimed()? else { return Ok(None) };
        if self.buf.len() < 4 + size {
            return Ok(None);
        }
        self.buf.advance(4);
        if self.buf.len() == size {
            // Nobody else holds a part of it: whoever takes it may write in it (a broker sets offsets in place).
            return Ok(Some(std::mem::take(&mut self.buf).freeze()));
        }
        Ok(Some(self.buf.split_to(size).freeze()))
    }

    /// Where to read into: spare capacity behind the bytes that have arrived, never more than the frame under way
    /// needs once its length is known to be large.
    pub fn spare(&mut self) -> &mut BytesMut {
        let have = self.buf.len();
        match self.claimed() {
            Ok(Some(size)) if 4 + size > READ_BYTES => {
                let missing = (4 + size).saturating_sub(have);
                if self.buf.capacity() == have {
                    self.buf.reserve(missing.min(GROWTH_BYTES.max(have)));
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

    /// The length of a large frame of which the beginning has arrived, and that beginning, for who has a buffer of
    /// their own for it: the rest is theirs to read, and what comes after it is a new frame.
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

    /// Whether a whole frame, or one with an impossible length, is there.
    pub fn has_frame(&self) -> bool {
        self.claimed().map_or(true, |size| size.is_some_and(|size| self.buf.len() >= 4 + size))
    }

    /// The first `n` bytes of the next frame, if so many have arrived.
    pub fn peek(&self, n: usize) -> Option<&[u8]> {
        self.buf.get(4..4 + n)
    }

    /// Whether part of a frame has arrived.
    pub fn is_mid_frame(&self) -> bool {
        !self.buf.is_empty()
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

    /// Reads `stream` in steps of at most `step` bytes, as a socket would give it.
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
    fn frames_of_every_size_come_out_whatever_the_reads_are() {
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
    fn a_large_frame_can_be_read_elsewhere_once_it_has_begun() {
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
    fn a_claimed_length_alone_allocates_little() {
        let mut frames = FrameBuffer::new(100 << 20);
        frames.spare().put_i32(100 << 20);
        assert_eq!(frames.next_frame(), Ok(None));
        assert!(frames.spare().capacity() <= 2 << 20);
    }

    #[test]
    fn negative_and_too_large_lengths_are_refused() {
        assert_eq!(cut(&(-1_i32).to_be_bytes(), 4, 100), Err(FrameTooLarge { claimed: -1, max: 100 }));
        assert_eq!(cut(&i32::MAX.to_be_bytes(), 4, 100), Err(FrameTooLarge { claimed: i32::MAX, max: 100 }));
    }
}
