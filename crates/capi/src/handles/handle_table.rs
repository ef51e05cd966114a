//! The handles of one kind of object, as C's pointers.

use std::ptr::without_provenance_mut;
use std::sync::Arc;

use crate::handles::misuse_report::report;
use crate::handles::slot_table::{InUse, SlotTable, kind_of};

/// The kinds of handles. A handle contains its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HandleKind {
    Client = 1,
    Topic = 2,
    Queue = 3,
    Conf = 4,
    TopicConf = 5,
    Processor = 6,
    ProcessorSettings = 7,
    Broker = 8,
    Share = 9,
    MessageBatch = 10,
    PartitionOffsets = 11,
}

pub(crate) struct HandleTable<T: 'static> {
    kind: HandleKind,
    slots: SlotTable<T>,
}

/// A handle without an object. Dropping it makes its slot free.
pub(crate) struct Reserved<T: 'static> {
    table: &'static HandleTable<T>,
    handle: u64,
}

impl HandleKind {
    const ALL: [Self; 11] = [
        Self::Client,
        Self::Topic,
        Self::Queue,
        Self::Conf,
        Self::TopicConf,
        Self::Processor,
        Self::ProcessorSettings,
        Self::Broker,
        Self::Share,
        Self::MessageBatch,
        Self::PartitionOffsets,
    ];

    /// The type's name in C.
    fn name(self) -> &'static str {
        match self {
            Self::Client => "rd_kafka_t",
            Self::Topic => "rd_kafka_topic_t",
            Self::Queue => "rd_kafka_queue_t",
            Self::Conf => "rd_kafka_conf_t",
            Self::TopicConf => "rd_kafka_topic_conf_t",
            Self::Processor => "ottla_processor_t",
            Self::ProcessorSettings => "ottla_processor_settings_t",
            Self::Broker => "ottla_broker_t",
            Self::Share => "rd_kafka_share_t",
            Self::MessageBatch => "rd_kafka_messages_t",
            Self::PartitionOffsets => "rd_kafka_share_partition_offsets_list_t",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Client => "do not use a client after rd_kafka_destroy()",
            Self::Topic => "destroy a topic once, and do not use it after its client is destroyed",
            Self::Queue => "do not use a queue after rd_kafka_queue_destroy()",
            Self::Conf => "give each client its own, because rd_kafka_new() takes it over",
            Self::TopicConf => "give each topic its own, because rd_kafka_topic_new() takes it over",
            Self::Processor => "do not use a processor after ottla_processor_destroy()",
            Self::ProcessorSettings => {
                "give each processor its own, because ottla_processor_start() takes them over"
            }
            Self::Broker => "do not use a broker after ottla_broker_destroy()",
            Self::Share => "do not use a share consumer after rd_kafka_share_destroy()",
            Self::MessageBatch => "do not use a batch after rd_kafka_messages_destroy()",
            Self::PartitionOffsets => "do not use the list after the callback that got it",
        }
    }
}

impl<T> HandleTable<T> {
    pub(crate) const fn new(kind: HandleKind) -> Self {
        Self { kind, slots: SlotTable::new(kind as u64) }
    }

    /// Returns a handle for an object that needs to know it. `None` if there are too many objects of the kind.
    pub(crate) fn reserve(&'static self) -> Option<Reserved<T>> {
        Some(Reserved { table: self, handle: self.slots.reserve()? })
    }

    /// Returns the handle of a new object; `None` if there are too many objects of the kind.
    pub(crate) fn insert(&'static self, object: Arc<T>) -> Option<u64> {
        self.reserve().map(|reserved| reserved.publish(object))
    }

    /// Returns the object of C's pointer. Reports a stale handle, but not NULL.
    #[expect(clippy::inline_always, reason = "rd_kafka_produce: the use is three registers")]
    #[inline(always)]
    pub(crate) fn find<C>(&'static self, raw: *const C, function: &str) -> Option<InUse<T>> {
        let handle = raw.addr() as u64;
        // A handle contains its kind, so one of another kind finds nothing.
        let found = self.slots.find(handle);
        if found.is_none() {
            self.report_stale(handle, function);
        }
        found
    }

    /// As [`find`](Self::find), with the handle that belongs to C's pointer.
    pub(crate) fn find_handle<C>(
        &'static self,
        handle: u64,
        raw: *const C,
        function: &str,
    ) -> Option<InUse<T>> {
        let found = self.slots.find(handle);
        if found.is_none() {
            self.report_ended(raw.addr() as u64, function);
        }
        found
    }

    /// Ends a handle. The object is dropped when no call uses it. Returns `false` for a handle that was stale before.
    pub(crate) fn retire(&'static self, handle: u64) -> bool {
        self.slots.retire(handle)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn report_stale(&self, handle: u64, function: &str) {
        if handle == 0 {
            return;
        }
        let name = self.kind.name();
        match HandleKind::ALL.into_iter().find(|kind| *kind as u64 == kind_of(handle)) {
            Some(other) if other != self.kind => {
                let problem = format!("the {name} {handle:#x} is a {}", other.name());
                report(function, &problem, "pass the handle that the function's parameter names");
            }
            Some(_) => self.report_ended(handle, function),
            None => {
                let problem = format!("the {name} {handle:#x} is not a handle of this library");
                report(function, &problem, "pass a handle that the library returned");
            }
        }
    }
}

impl<T> HandleTable<T> {
    #[cold]
    fn report_ended(&self, value: u64, function: &str) {
        let problem = format!("the {} {value:#x} is destroyed or was taken over", self.kind.name());
        report(function, &problem, self.kind.advice());
    }
}

impl<T> Reserved<T> {
    pub(crate) fn handle(&self) -> u64 {
        self.handle
    }

    /// Adds the object. Calls find it from now on.
    pub(crate) fn publish(self, object: Arc<T>) -> u64 {
        let handle = self.handle;
        self.table.slots.publish(handle, object);
        std::mem::forget(self);
        handle
    }
}

impl<T> Drop for Reserved<T> {
    fn drop(&mut self) {
        self.table.slots.cancel(self.handle);
    }
}

/// The handle as C's pointer.
#[inline]
pub(crate) fn as_pointer<C>(handle: u64) -> *mut C {
    without_provenance_mut(handle as usize)
}
