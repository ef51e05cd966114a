//! Reads choices from the front of an input.

/// The rest of an input. At its end every choice is 0.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    /// The next `n` bytes, or fewer at the end.
    pub(crate) fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        head
    }

    /// A two-byte length and that many bytes, or fewer at the end.
    pub(crate) fn part(&mut self) -> &'a [u8] {
        let len = u16::from_be_bytes(self.array());
        self.take(usize::from(len))
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let head = self.take(N);
        array[..head.len()].copy_from_slice(head);
        array
    }
}

/// The encoding of [`Input::part`].
pub(crate) fn push_part(out: &mut Vec<u8>, part: &[u8]) {
    out.extend((part.len() as u16).to_be_bytes());
    out.extend(part);
}
