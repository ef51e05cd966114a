//! A piece of work: records that one worker handles one after the other, or as one batch.

/// Which records of its partition a piece of work is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Offsets {
    /// All from the first to before the second.
    Range(i64, i64),
    /// These, rising.
    Each(Vec<i64>),
}

/// Records under way.
#[derive(Debug)]
pub(crate) struct Work<P> {
    pub(crate) of: Origin,
    /// A number of its own, the smaller the older; see [`Core::age`](super::Core::age).
    pub(crate) age: u64,
    /// Which lane it keeps the order of, if any.
    pub(crate) lane: Option<u32>,
    pub(crate) offsets: Offsets,
    pub(crate) size: Size,
    /// How often its first record (or all of it, where it is a batch) has failed.
    pub(crate) failures: u32,
    pub(crate) payload: P,
}

/// Of which partition, in which of its assignments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Origin {
    pub(crate) slot: u32,
    pub(crate) turn: u32,
}

/// What counts against the limits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for Size {
    fn sub_assign(&mut self, other: Self) {
        self.records = self.records.saturating_sub(other.records);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// How a piece of work ended, told in one go.
#[derive(Debug)]
pub(crate) struct Outcome<P> {
    pub(crate) of: Origin,
    pub(crate) lane: Option<u32>,
    pub(crate) offsets: Offsets,
    /// Records of it from this offset on were not handled.
    pub(crate) until: i64,
    /// These have failed: somebody else tells when they are done.
    pub(crate) open: Vec<i64>,
    /// The records that are done.
    pub(crate) done: Size,
    /// Those count only when their outputs are written: see [`Core::settle`](super::Core::settle).
    pub(crate) deferred: bool,
    /// Failed, each with one more failure; its lane does not wait for it.
    pub(crate) failed: Vec<Work<P>>,
    /// Failed, with one more failure; its lane waits for it.
    pub(crate) held: Option<Work<P>>,
    /// What was not handled, behind all of these.
    pub(crate) rest: Option<Work<P>>,
    /// How long its records took, all together.
    pub(crate) took: std::time::Duration,
}

/// Records whose handlers are through, and which are done when something has been written.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) of: Origin,
    pub(crate) offsets: Offsets,
    pub(crate) until: i64,
    pub(crate) except: Vec<i64>,
    pub(crate) size: Size,
}
