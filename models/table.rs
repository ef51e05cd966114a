//! The modelled files and their weakened variants.

/// One model: files that are modelled together.
pub(crate) struct Model {
    /// The module of its variants.
    pub(crate) name: &'static str,
    pub(crate) files: &'static [&'static str],
    pub(crate) tool: Tool,
    /// Changes for the model that keep the meaning: file, text, new text. They make sizes small and rename imports.
    pub(crate) edits: &'static [(&'static str, &'static str, &'static str)],
    pub(crate) weakened: &'static [Weakened],
}

/// A defect that the model must find.
pub(crate) struct Weakened {
    pub(crate) name: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// The tool that runs the model.
pub(crate) enum Tool {
    /// Every order of the threads, and every value that a load may return.
    Loom,
    /// Random orders of the threads, sequentially consistent.
    Shuttle,
}

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "ring",
        files: &["crates/log/src/ring.rs"],
        tool: Tool::Loom,
        edits: &[
            ("ring", "const SLOTS: usize = 64;", "const SLOTS: usize = 1;"),
            ("ring", "const WORDS: usize = 32;", "const WORDS: usize = 2;"),
            // loom's atomics are not made in constants.
            ("ring", "[const { AtomicU64::new(0) }; WORDS]", "std::array::from_fn(|_| AtomicU64::new(0))"),
        ],
        weakened: &[
            Weakened { name: "without_the_writers_fence", from: "fence(Ordering::Release);", to: "" },
            Weakened { name: "without_the_readers_fence", from: "fence(Ordering::Acquire);", to: "" },
            Weakened {
                name: "with_a_relaxed_turn",
                from: "slot.turn.store(turn, Ordering::Release);",
                to: "slot.turn.store(turn, Ordering::Relaxed);",
            },
            Weakened {
                name: "with_a_relaxed_look_at_the_turn",
                from: "slot.turn.load(Ordering::Acquire) != turn",
                to: "slot.turn.load(Ordering::Relaxed) != turn",
            },
            Weakened {
                name: "without_the_odd_turn",
                from: "slot.turn.store(turn - 1, Ordering::Relaxed);",
                to: "",
            },
        ],
    },
    Model {
        name: "tail",
        files: &["crates/log/src/tail.rs"],
        tool: Tool::Shuttle,
        edits: &[],
        weakened: &[
            Weakened {
                name: "without_the_second_look",
                from: "if visible > seen || self.tail.shared.closed.load(Ordering::SeqCst) {",
                to: "if false {",
            },
            Weakened {
                name: "with_an_early_look_for_waiters",
                from: "self.shared.visible.fetch_max(offset, Ordering::SeqCst) < offset\n            && self.shared.awaited.load(Ordering::SeqCst)",
                to: "{ let awaited = self.shared.awaited.load(Ordering::SeqCst);\n            self.shared.visible.fetch_max(offset, Ordering::SeqCst) < offset && awaited }",
            },
            Weakened {
                name: "with_a_wake_that_forgets_threads",
                from: "self.shared.awaited.store(waiters.blocked > 0, Ordering::SeqCst);",
                to: "self.shared.awaited.store(false, Ordering::SeqCst);",
            },
            Weakened {
                name: "with_a_thread_that_forgets_tasks",
                from: "self.shared.awaited.store(waiters.blocked > 0 || !waiters.wakers.is_empty(), Ordering::SeqCst);",
                to: "self.shared.awaited.store(waiters.blocked > 0, Ordering::SeqCst);",
            },
            Weakened {
                name: "with_a_task_that_forgets_threads",
                from: "if waiters.wakers.is_empty() && waiters.blocked == 0 {",
                to: "if waiters.wakers.is_empty() {",
            },
        ],
    },
    Model {
        name: "sync_flag",
        files: &["crates/broker/src/sync_flag.rs"],
        tool: Tool::Shuttle,
        edits: &[],
        weakened: &[
            Weakened { name: "without_the_second_look", from: "is_pending() && self.begin()", to: "false" },
            Weakened {
                name: "with_an_early_look",
                from: "self.is_taken.store(false, Ordering::Release);",
                to: "let pending = is_pending(); self.is_taken.store(false, Ordering::Release); let is_pending = || pending;",
            },
            Weakened {
                name: "with_two_steps",
                from: "!self.is_taken.swap(true, Ordering::AcqRel)",
                to: "!self.is_taken.load(Ordering::Acquire) && { self.is_taken.store(true, Ordering::Release); true }",
            },
        ],
    },
    Model {
        name: "memory",
        files: &[
            "crates/broker/src/memory.rs",
            "crates/broker/src/memory/line.rs",
            "crates/broker/src/memory/pool.rs",
            "crates/broker/src/memory/room.rs",
        ],
        tool: Tool::Shuttle,
        edits: &[("memory", "mod line;\nmod pool;\nmod room;\n", "use super::{line, pool, room};\n")],
        weakened: &[
            Weakened {
                name: "with_a_late_look_for_room",
                from: "self.change(|state| ticket = state.line.enter(client, granted));",
                to: "ticket = self.lock().line.enter(client, granted);",
            },
            Weakened {
                name: "with_a_start_that_admits_no_other",
                from: "room.change(|state| state.is_admitting = false);",
                to: "room.lock().is_admitting = false;",
            },
            Weakened {
                name: "with_a_late_look_for_memory",
                from: "self.change(|state| ticket = state.line.enter(client, Waiter { units, granted }));",
                to: "ticket = self.lock().line.enter(client, Waiter { units, granted });",
            },
            Weakened { name: "with_memory_that_is_lent_twice", from: "state.free -= units;", to: "" },
            Weakened {
                name: "with_two_steps",
                from: "self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;",
                to: "let sum = fits(self.0.used.load(Ordering::Relaxed))?; self.0.used.store(sum, Ordering::Relaxed);",
            },
        ],
    },
    Model {
        name: "slot_table",
        files: SLOT_TABLE,
        tool: Tool::Loom,
        edits: &[
            IMPORT_OF_MARKS,
            FEW_SLOTS,
            SMALL_CHUNKS,
            ONE_MARK,
            NO_SYSTEM_CALL,
            // A call has no fence: the system runs one in its thread. In the model the call has it.
            (
                "use_marks",
                "#[cfg(not(target_os = \"linux\"))]\nmod membarrier {",
                "use crate::under_loom::membarrier;\n#[cfg(any())]\nmod membarrier {",
            ),
            (
                "use_marks",
                "static ALL: AtomicPtr<ThreadMarks> = AtomicPtr::new(null_mut());",
                "loom::lazy_static! { static ref ALL: AtomicPtr<ThreadMarks> = AtomicPtr::new(null_mut()); }",
            ),
            ("use_marks", "thread_local! {", "loom::thread_local! {"),
            ("use_marks", "= const { Cell::new(null()) };", "= Cell::new(null());"),
            // loom's thread locals all have destructors.
            ("use_marks", "LIST.get()", "LIST.try_with(Cell::get).unwrap_or(null())"),
            (
                "use_marks",
                "LIST.set(list.map_or(null(), std::ptr::from_ref));",
                "LIST.with(|mine| mine.set(list.map_or(null(), std::ptr::from_ref)));",
            ),
            (
                "use_marks",
                "LIST.set(null());",
                "if std::thread::panicking() { return }\n        let _ = LIST.try_with(|mine| mine.set(null()));",
            ),
            (
                "use_marks",
                "[const { AtomicUsize::new(0) }; MARKS]",
                "std::array::from_fn(|_| AtomicUsize::new(0))",
            ),
            (
                "slot_table",
                "static WAITING: AtomicUsize = AtomicUsize::new(0);",
                "loom::lazy_static! { static ref WAITING: AtomicUsize = AtomicUsize::new(0); }",
            ),
            ("slot_table", "pub const fn new(kind: u64)", "pub fn new(kind: u64)"),
            (
                "slot_table",
                "[const { AtomicPtr::new(null_mut()) }; CHUNKS]",
                "std::array::from_fn(|_| AtomicPtr::new(null_mut()))",
            ),
        ],
        weakened: &[
            Weakened { name: "without_the_barrier", from: "if use_marks::barrier() {", to: "if true {" },
            Weakened {
                name: "without_a_fence_after_the_mark",
                from: "mark.store(slot, Ordering::Relaxed);\n    compiler_fence(Ordering::SeqCst);",
                to: "mark.store(slot, Ordering::Relaxed);",
            },
            Weakened {
                name: "without_a_fence_after_the_use",
                from: "mark.store(0, Ordering::Release);\n    compiler_fence(Ordering::SeqCst);",
                to: "mark.store(0, Ordering::Release);",
            },
            Weakened {
                name: "with_a_relaxed_end_of_use",
                from: "mark.store(0, Ordering::Release);",
                to: "mark.store(0, Ordering::Relaxed);",
            },
            Weakened {
                name: "with_a_relaxed_look_at_marks",
                from: "mark.load(Ordering::Acquire) == slot",
                to: "mark.load(Ordering::Relaxed) == slot",
            },
            Weakened {
                name: "with_one_generation",
                from: "slot.generation.load(Ordering::Relaxed) + 1;",
                to: "1;",
            },
        ],
    },
    Model {
        name: "slot_table_counted",
        files: SLOT_TABLE,
        tool: Tool::Shuttle,
        edits: &[
            IMPORT_OF_MARKS,
            FEW_SLOTS,
            SMALL_CHUNKS,
            ONE_MARK,
            NO_SYSTEM_CALL,
            (
                "use_marks",
                "#[cfg(not(target_os = \"linux\"))]\nmod membarrier {",
                "use crate::under_shuttle::membarrier;\n#[cfg(any())]\nmod membarrier {",
            ),
            (
                "use_marks",
                "static ALL: AtomicPtr<ThreadMarks> = AtomicPtr::new(null_mut());",
                "shuttle::lazy_static! { static ref ALL: AtomicPtr<ThreadMarks> = AtomicPtr::new(null_mut()); }",
            ),
            ("use_marks", "thread_local! {", "shuttle::thread_local! {"),
            ("use_marks", "LIST.get()", "LIST.try_with(Cell::get).unwrap_or(null())"),
            (
                "use_marks",
                "LIST.set(list.map_or(null(), std::ptr::from_ref));",
                "LIST.with(|mine| mine.set(list.map_or(null(), std::ptr::from_ref)));",
            ),
            (
                "use_marks",
                "LIST.set(null());",
                "if std::thread::panicking() { return }\n        let _ = LIST.try_with(|mine| mine.set(null()));",
            ),
            (
                "slot_table",
                "static WAITING: AtomicUsize = AtomicUsize::new(0);",
                "shuttle::lazy_static! { static ref WAITING: AtomicUsize = AtomicUsize::new(0); }",
            ),
        ],
        weakened: &[
            Weakened {
                name: "without_a_look_at_the_count",
                from: "slot.counted.load(Ordering::SeqCst) > 0 || ",
                to: "",
            },
            Weakened {
                name: "without_a_look_at_the_marks",
                from: " || use_marks::is_marked(slot.address())",
                to: "",
            },
            Weakened {
                name: "with_a_late_count",
                from: "if mark.is_none() {\n            slot.counted.fetch_add(1, Ordering::SeqCst);\n        }\n        if slot.handle.load(Ordering::SeqCst) == handle",
                to: "let current = slot.handle.load(Ordering::SeqCst);\n        if mark.is_none() {\n            slot.counted.fetch_add(1, Ordering::SeqCst);\n        }\n        if current == handle",
            },
            Weakened {
                name: "without_the_last_uses_look",
                from: "if WAITING.load(Ordering::SeqCst) > 0 {",
                to: "if false {",
            },
            Weakened {
                name: "without_the_retirers_look",
                from: "self.lock().waiting.push(index_of(handle));\n            self.drop_unused();",
                to: "self.lock().waiting.push(index_of(handle));",
            },
        ],
    },
    Model {
        name: "switch",
        files: &["crates/broker/src/switch.rs"],
        tool: Tool::Shuttle,
        edits: &[],
        weakened: &[
            Weakened {
                name: "with_a_late_waiter",
                from: "let mut turned = pin!(self.flipped.notified());\n            turned.as_mut().enable();\n            if is_so() {\n                return;\n            }",
                to: "if is_so() {\n                return;\n            }\n            let turned = pin!(self.flipped.notified());",
            },
            Weakened {
                name: "with_one_wake_up_for_all",
                from: "self.flipped.notify_waiters();",
                to: "self.flipped.notify_one();",
            },
        ],
    },
    Model {
        name: "blocking",
        files: &["crates/client/src/blocking.rs"],
        tool: Tool::Shuttle,
        edits: &[],
        weakened: &[Weakened {
            name: "with_a_late_waiter",
            from: "notified.as_mut().enable();\n        if done() {\n            return true;\n        }",
            to: "",
        }],
    },
    Model {
        name: "exchange",
        files: &["crates/parallel/src/exchange.rs"],
        tool: Tool::Shuttle,
        edits: &[
            (
                "exchange",
                "use ottla_client::TopicPartition;",
                "use crate::neighbours::exchange::TopicPartition;",
            ),
            ("exchange", "use crate::core::Core;", "use crate::neighbours::exchange::Core;"),
            ("exchange", "use crate::core::work::", "use crate::neighbours::exchange::"),
            ("exchange", "use crate::message::Pieces;", "use crate::neighbours::exchange::Pieces;"),
            ("exchange", "use crate::outputs::Outputs;", "use crate::neighbours::exchange::Outputs;"),
        ],
        weakened: &[
            Weakened { name: "with_a_late_registration", from: "woken.as_mut().enable();", to: "" },
            Weakened { name: "with_a_worker_that_is_not_counted", from: "inner.idle += 1;", to: "" },
            Weakened {
                name: "with_a_condition_that_is_never_true",
                from: "(self.refused.by_queue && now_queued <= queued)",
                to: "(self.refused.by_queue && now_queued < queued)",
            },
            Weakened {
                name: "with_a_condition_that_stays_unread",
                from: "inner.wake_condition = WakeCondition::Never;\n        self.dispatcher_wake.notify_one();",
                to: "inner.wake_condition = WakeCondition::Never;",
            },
            Weakened {
                name: "with_a_close_for_one_worker",
                from: "self.workers_wake.notify_waiters();",
                to: "self.workers_wake.notify_one();",
            },
        ],
    },
    Model {
        name: "slab",
        files: &["crates/capi/src/messages/message_slab.rs", "crates/capi/src/messages/slab_pool.rs"],
        tool: Tool::Loom,
        edits: &[
            ("message_slab", "use bytes::Bytes;", "use crate::neighbours::slab::Bytes;"),
            ("message_slab", "use ottla_client::RecordView;", "use crate::neighbours::slab::RecordView;"),
            (
                "message_slab",
                "use crate::client::topic_handle::Topic;",
                "use crate::neighbours::slab::Topic;",
            ),
            (
                "message_slab",
                "use crate::messages::known_messages;",
                "use crate::neighbours::slab::known_messages;",
            ),
            ("message_slab", "use crate::messages::message::", "use crate::neighbours::slab::"),
            ("message_slab", "use crate::messages::slab_pool::SlabPool;", "use super::slab_pool::SlabPool;"),
            ("message_slab", "const SLOTS: usize = 63;", "const SLOTS: usize = 2;"),
            ("message_slab", "const UNUSED_SLABS: usize = 16;", "const UNUSED_SLABS: usize = 0;"),
            (
                "message_slab",
                "static SLABS: SlabPool<Slab> = SlabPool::new(UNUSED_SLABS);",
                "loom::lazy_static! { static ref SLABS: SlabPool<Slab> = SlabPool::new(UNUSED_SLABS); }",
            ),
            (
                "message_slab",
                "static ERRORS: Mutex<MessageFiller> = Mutex::new(MessageFiller { slab: None });",
                "loom::lazy_static! { static ref ERRORS: Mutex<MessageFiller> = Mutex::new(MessageFiller { slab: None }); }",
            ),
            ("slab_pool", "pub const fn new", "pub fn new"),
        ],
        weakened: &[
            Weakened {
                name: "with_a_relaxed_release",
                from: "live.fetch_and(!bits, Ordering::AcqRel)",
                to: "live.fetch_and(!bits, Ordering::Relaxed)",
            },
            Weakened {
                name: "with_a_second_return",
                from: "before & !bits == 0 && before & bits != 0",
                to: "before & !bits == 0",
            },
        ],
    },
    Model {
        name: "unsettled",
        files: &["crates/client/src/produce/unsettled.rs", "crates/client/src/blocking.rs"],
        tool: Tool::Shuttle,
        edits: &[("unsettled", "use crate::blocking;", "use super::blocking;")],
        weakened: &[
            Weakened {
                name: "with_a_late_waiter",
                from: "let mut settled = pin!(self.settled.notified());\n            settled.as_mut().enable();\n            if self.batches() == 0 {\n                return;\n            }",
                to: "if self.batches() == 0 {\n                return;\n            }\n            let settled = pin!(self.settled.notified());",
            },
            Weakened {
                name: "with_one_wake_up_for_all",
                from: "self.settled.notify_waiters();",
                to: "self.settled.notify_one();",
            },
            Weakened {
                name: "with_a_look_after_the_end",
                from: "let is_last = self.batches.fetch_sub(1, Ordering::AcqRel) == 1;",
                to: "let is_last = self.batches() == 1; self.batches.fetch_sub(1, Ordering::AcqRel);",
            },
        ],
    },
    Model {
        name: "inbox",
        files: &[
            "crates/client/src/fetch/inbox.rs",
            "crates/client/src/fetch/queue.rs",
            "crates/client/src/wake_callback.rs",
            "crates/client/src/blocking.rs",
        ],
        tool: Tool::Shuttle,
        edits: &[
            ("queue", "use crate::wake_callback::WakeCallback;", "use super::wake_callback::WakeCallback;"),
            ("inbox", "mod pauses;\nmod queues;\nmod waiting;\nmod watermarks;\n\n", ""),
            ("inbox", "            state.keep_watermarks(&partition.progress);\n", ""),
            (
                "inbox",
                "use super::aborted::AbortedTransactions;",
                "use crate::neighbours::inbox::AbortedTransactions;",
            ),
            ("inbox", "use super::budget::Budget;", "use crate::neighbours::inbox::Budget;"),
            ("inbox", "use super::cursors::Slot;", "use crate::neighbours::inbox::Slot;"),
            (
                "inbox",
                "use super::progress::PartitionProgress;",
                "use crate::neighbours::inbox::PartitionProgress;",
            ),
            ("inbox", "use crate::error::Error;", "use crate::neighbours::inbox::Error;"),
            (
                "inbox",
                "use crate::types::{Event, TopicPartition, Watermarks};",
                "use crate::neighbours::inbox::{Event, TopicPartition, Watermarks};",
            ),
            (
                "inbox",
                "use crate::watchdog::consumer::QueueFacts;",
                "use crate::neighbours::inbox::QueueFacts;",
            ),
        ],
        weakened: &[
            Weakened {
                name: "with_a_resume_that_wakes_no_poll",
                from: "let signal = state.list(slot);\n        drop(state);\n        notify(signal);\n    }\n\n    /// Adds an event",
                to: "state.list(slot);\n    }\n\n    /// Adds an event",
            },
            Weakened {
                name: "with_an_event_that_wakes_no_poll",
                from: "let signal = target.is_empty().then(|| target.signal.clone());",
                to: "let signal = None;",
            },
            Weakened {
                name: "with_a_pop_that_wakes_no_fetch",
                from: "if drained || empty {\n                self.emptied.notify_one();",
                to: "if false {",
            },
            Weakened {
                name: "with_a_late_notification",
                from: "let first = target.is_empty();\n        target.ready.push_back(slot);",
                to: "target.ready.push_back(slot);\n        let first = target.is_empty();",
            },
        ],
    },
    Model {
        name: "produce_memory",
        files: &["crates/client/src/produce/memory.rs", "crates/client/src/blocking.rs"],
        tool: Tool::Shuttle,
        edits: &[
            (
                "memory",
                "use ottla_wire::{Buffer, BufferHome};",
                "use crate::neighbours::produce_memory::{Buffer, BufferHome};",
            ),
            (
                "memory",
                "use super::queue::{Push, PushRefused};",
                "use crate::neighbours::produce_memory::{Push, PushRefused};",
            ),
            ("memory", "const PACE_BYTES_MIN: usize = 2 << 20;", "const PACE_BYTES_MIN: usize = 4;"),
        ],
        weakened: &[
            Weakened {
                name: "with_two_steps",
                from: "let booked = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {",
                to: "let two_steps = |fits: &dyn Fn(usize) -> Option<usize>| { let used = self.used.load(Ordering::Relaxed); let sum = fits(used).ok_or(used)?; Ok(self.used.fetch_add(sum - used, Ordering::Relaxed)) };\n        let booked: Result<usize, usize> = two_steps(&|used| {",
            },
            Weakened {
                name: "with_one_wake_up_for_all",
                from: "self.freed.notify_waiters();",
                to: "self.freed.notify_one();",
            },
            Weakened {
                name: "with_a_limit_that_is_not_met",
                from: "used <= limit / 4 * 3",
                to: "used < limit / 8",
            },
        ],
    },
    Model {
        name: "op_queue",
        files: &["crates/capi/src/queue/op_queue.rs"],
        tool: Tool::Shuttle,
        edits: &[
            ("op_queue", "use crate::ffi::{", "use crate::neighbours::op_queue::{"),
            (
                "op_queue",
                "use crate::callbacks::call_gate::CallGate;",
                "use crate::neighbours::op_queue::CallGate;",
            ),
            (
                "op_queue",
                "use crate::messages::message::OwnedMessage;",
                "use crate::neighbours::op_queue::OwnedMessage;",
            ),
            (
                "op_queue",
                "use crate::queue::message_array::MessageArray;",
                "use crate::neighbours::op_queue::MessageArray;",
            ),
            ("op_queue", "use crate::queue::op::Op;", "use crate::neighbours::op_queue::Op;"),
            (
                "op_queue",
                "static TOPOLOGY: Mutex<()> = Mutex::new(());",
                "shuttle::lazy_static! { static ref TOPOLOGY: Mutex<()> = Mutex::new(()); }",
            ),
        ],
        weakened: &[
            Weakened {
                name: "with_an_early_ring",
                from: "state.ops.push_back(op);\n                drop(state);\n                return queue.ring();",
                to: "drop(state);\n                queue.ring();\n                queue.lock().ops.push_back(op);\n                return;",
            },
            Weakened {
                name: "without_a_look_at_the_rings",
                from: "if state.rings != rings || state.forward.is_some() {",
                to: "if false {",
            },
            Weakened {
                name: "with_a_forwarding_that_wakes_no_poll",
                from: "drop(self.replaced);\n        self.queue.ring();\n",
                to: "drop(self.replaced);\n",
            },
            Weakened {
                name: "with_a_close_that_wakes_no_poll",
                from: "self.ring();\n        // Threads that wait for this queue are there.",
                to: "// Threads that wait for this queue are there.",
            },
            Weakened {
                name: "with_a_poll_that_stays",
                from: "let end = self.end();\n            if !Arc::ptr_eq(&end, &queue) {\n                queue = end;\n                continue;\n            }",
                to: "",
            },
        ],
    },
    Model {
        name: "delivery",
        files: &["crates/client/src/produce/delivery.rs"],
        tool: Tool::Shuttle,
        edits: &[
            ("delivery", "use crate::error::ProduceError;", "use crate::neighbours::delivery::ProduceError;"),
            (
                "delivery",
                "use crate::record::RecordMetadata;",
                "use crate::neighbours::delivery::RecordMetadata;",
            ),
        ],
        weakened: &[
            Weakened {
                name: "with_an_outcome_after_the_lock",
                from: "if self.outcome.set(outcome).is_err() {\n                return;\n            }\n            std::mem::take(&mut *waiting)\n        };",
                to: "std::mem::take(&mut *waiting)\n        };\n        if self.outcome.set(outcome).is_err() {\n            return;\n        }",
            },
            Weakened {
                name: "without_the_second_look",
                from: "if decided_by.completion.outcome.get().is_some() {",
                to: "if false {",
            },
            Weakened { name: "with_threads_that_are_not_counted", from: "waiting.threads += 1;", to: "" },
        ],
    },
    Model {
        name: "notification_queue",
        files: &[
            "crates/client/src/notification_queue.rs",
            "crates/client/src/wake_callback.rs",
            "crates/client/src/blocking.rs",
        ],
        tool: Tool::Shuttle,
        edits: &[
            ("notification_queue", "use crate::blocking;", "use super::blocking;"),
            (
                "notification_queue",
                "use crate::panics::contained;",
                "use crate::neighbours::panics::contained;",
            ),
            (
                "notification_queue",
                "use crate::wake_callback::WakeCallback;",
                "use super::wake_callback::WakeCallback;",
            ),
        ],
        weakened: &[
            Weakened { name: "without_a_wake_up", from: "self.shared.filled.notify_waiters();", to: "" },
            Weakened {
                name: "with_a_late_waiter",
                from: "let mut filled = std::pin::pin!(self.shared.filled.notified());\n            filled.as_mut().enable();\n            if let Some(item) = self.try_next() {\n                return item;\n            }",
                to: "if let Some(item) = self.try_next() {\n                return item;\n            }\n            let filled = self.shared.filled.notified();",
            },
        ],
    },
    Model {
        name: "exclusive",
        files: &["crates/capi/src/handles/exclusive.rs"],
        tool: Tool::Shuttle,
        edits: &[
            (
                "exclusive",
                "use crate::handles::slot_table::InUse;",
                "use crate::neighbours::exclusive::InUse;",
            ),
            (
                "exclusive",
                "use std::thread::{self, ThreadId};",
                "use crate::under_shuttle::thread::{self, ThreadId};",
            ),
        ],
        weakened: &[
            Weakened {
                name: "with_one_look_for_the_other_call",
                from: "while let Some(other) = *user {",
                to: "if let Some(other) = *user {",
            },
            Weakened { name: "without_a_wake_up", from: "self.0.unused.notify_one();", to: "" },
        ],
    },
];

const SLOT_TABLE: &[&str] =
    &["crates/capi/src/handles/slot_table.rs", "crates/capi/src/handles/use_marks.rs"];
type Edit = (&'static str, &'static str, &'static str);
const IMPORT_OF_MARKS: Edit = ("slot_table", "use crate::handles::use_marks;", "use super::use_marks;");
const FEW_SLOTS: Edit = ("slot_table", "const INDEX_BITS: u32 = 20;", "const INDEX_BITS: u32 = 2;");
const SMALL_CHUNKS: Edit =
    ("slot_table", "const CHUNK_SLOTS: usize = 1024;", "const CHUNK_SLOTS: usize = 2;");
/// A second use of a thread is counted.
const ONE_MARK: Edit = ("use_marks", "const MARKS: usize = 8;", "const MARKS: usize = 1;");
const NO_SYSTEM_CALL: Edit =
    ("use_marks", "#[cfg(target_os = \"linux\")]\nmod membarrier {", "#[cfg(any())]\nmod membarrier {");
