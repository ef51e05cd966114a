//! The array of an application that a batch call fills, possibly with waits in between.
//!
//! During a wait a partition can be revoked, paused or sought. The array's messages of such a partition are destroyed
//! before the application sees them, and they do not count as processed: the partition's next owner reads them, or this
//! consumer does after it resumes.

use std::ops::Range;
use std::time::Duration;

use ottla_client::{ConsumerControl, HeldRecords, StartAt};

use crate::ffi::rd_kafka_message_t;
use crate::messages::message::OwnedMessage;
use crate::queue::op::Op;

/// Time limit for the engine's answer to the seek of a paused partition.
const REWOUND_WITHIN: Duration = Duration::from_secs(30);

/// The places of an array, and the records behind the messages in it.
pub(crate) struct MessageArray {
    messages: *mut *mut rd_kafka_message_t,
    size: usize,
    len: usize,
    spans: Vec<Span>,
    /// Messages at the end that belong to no span so far.
    unheld: usize,
}

/// Adjacent messages of one partition.
struct Span {
    start: usize,
    len: usize,
    held: HeldRecords,
}

impl MessageArray {
    /// # Safety
    /// `messages` is NULL or points to `size` pointers for the life of the value.
    pub(crate) unsafe fn new(messages: *mut *mut rd_kafka_message_t, size: usize) -> Self {
        let size = if messages.is_null() { 0 } else { size };
        Self { messages, size, len: 0, spans: Vec::new(), unheld: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn room(&self) -> usize {
        self.size - self.len
    }

    pub(crate) fn has_room(&self) -> bool {
        self.len < self.size
    }

    /// Makes the array full.
    pub(crate) fn stop(&mut self) {
        self.size = self.len;
    }

    /// Adds a message without a record. The caller has looked for room; without room the message is destroyed.
    #[inline]
    pub(crate) fn push(&mut self, message: OwnedMessage) {
        if self.has_room() {
            // SAFETY: `messages` points to `size` pointers, and `len` is smaller (the contract of `new`).
            unsafe { self.messages.add(self.len).write(message.into_raw()) };
            self.len += 1;
        }
    }

    /// Adds the message of an operation. Returns an operation that has none.
    pub(crate) fn take(&mut self, op: Op) -> Option<Op> {
        match op {
            Op::Message(message) => {
                self.push(message);
                None
            }
            op => Some(op),
        }
    }

    /// Adds the message of a record; [`MessageArray::hold`] follows.
    #[inline]
    pub(crate) fn push_held(&mut self, message: OwnedMessage) {
        self.push(message);
        self.unheld += 1;
    }

    /// Keeps the records of the last messages.
    pub(crate) fn hold(&mut self, held: HeldRecords) {
        let len = std::mem::take(&mut self.unheld).min(self.len);
        let start = self.len - len;
        if let Some(last) = self.spans.last_mut()
            && last.start + last.len == start
            && last.held.extend(&held)
        {
            last.len += len;
        } else {
            self.spans.push(Span { start, len, held });
        }
    }

    /// Destroys the messages of partitions that were revoked or sought since: others may take their places.
    pub(crate) fn drop_outdated(&mut self) {
        if self.spans.iter().all(|span| span.held.is_current()) {
            return;
        }
        let mut next = 0;
        let mut kept = Vec::new();
        let mut len = 0;
        for mut span in std::mem::take(&mut self.spans) {
            len = self.keep(next..span.start, len);
            next = span.start + span.len;
            if span.held.is_current() {
                let start = len;
                len = self.keep(span.start..next, len);
                span.start = start;
                kept.push(span);
            } else {
                self.destroy(span.start..next);
            }
        }
        self.len = self.keep(next..self.len, len);
        self.spans = kept;
    }

    /// Destroys the messages of partitions that were revoked, paused or sought since, and counts the records of the others
    /// as processed. Paused partitions continue with the first message that was destroyed. Returns the number of messages.
    pub(crate) fn settle(&mut self, control: Option<&ConsumerControl>) -> usize {
        self.drop_outdated();
        let mut rewinds: Vec<HeldRecords> = Vec::new();
        let (mut next, mut len) = (0, 0);
        for span in std::mem::take(&mut self.spans) {
            len = self.keep(next..span.start, len);
            next = span.start + span.len;
            if !span.held.is_paused() {
                len = self.keep(span.start..next, len);
                span.held.finish();
                continue;
            }
            self.destroy(span.start..next);
            if rewinds.iter().all(|earlier| earlier.at() != span.held.at()) {
                rewinds.push(span.held);
            }
        }
        self.len = self.keep(next..self.len, len);
        for held in rewinds {
            let Some(control) = control else { continue };
            // An error means that the partition was revoked meanwhile: its next owner reads the records.
            let rewound = control.seek(held.at(), StartAt::Offset(held.first_offset())).wait(REWOUND_WITHIN);
            drop(rewound);
        }
        self.len
    }

    /// The places that have messages.
    fn filled(&mut self) -> &mut [*mut rd_kafka_message_t] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: the first `len` of the pointers were written by `push`.
        unsafe { std::slice::from_raw_parts_mut(self.messages, self.len) }
    }

    /// Moves messages to `to`, before or at their place. Returns the place after them.
    fn keep(&mut self, which: Range<usize>, to: usize) -> usize {
        let end = to + which.len();
        if which.start != to {
            self.filled().copy_within(which, to);
        }
        end
    }

    fn destroy(&mut self, which: Range<usize>) {
        for message in &self.filled()[which] {
            // SAFETY: a message that `push` has written; the application has not got it.
            drop(unsafe { OwnedMessage::of(*message) });
        }
    }
}
