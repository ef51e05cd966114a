//! The background queue: a thread of its own calls the application with each event.
//!
//! The thread begins in C, so that its callbacks may end it by `pthread_exit`.

use std::ffi::{CStr, c_void};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::client::thread_count::Counted;
use crate::ffi::exported_from_c::called_from_c;
use crate::ffi::panic::on_panic;
use crate::ffi::{RD_KAFKA_THREAD_BACKGROUND, rd_kafka_event_t};
use crate::queue::event::Eventual;
use crate::queue::op_queue::OpQueue;

const NAME: &CStr = c"background";
/// After the client has ended, the thread handles at most this many events: sources may keep filling the queue.
const LAST_EVENTS_MAX: usize = 10_000;
/// The thread checks this often whether its client has ended.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The background queue of a client, which a thread serves from its first use on.
#[derive(Default)]
pub(crate) enum BackgroundQueue {
    #[default]
    Unstarted,
    Running(Background),
    /// The client ends: the queue gets no other thread. Callbacks that run meanwhile may still ask for it.
    Ended(Arc<OpQueue>),
}

impl BackgroundQueue {
    /// Returns the queue. Its thread starts if it has none and the client does not end.
    pub(crate) fn get_or_start(&mut self, handle: &Arc<Handle>) -> Arc<OpQueue> {
        match self {
            Self::Running(background) => background.queue.clone(),
            Self::Ended(queue) => queue.clone(),
            Self::Unstarted => {
                let background = Background::start(handle);
                let queue = background.queue.clone();
                *self = Self::Running(background);
                queue
            }
        }
    }

    /// Lets no thread start any more. Returns the one that runs; dropping it waits for its end.
    #[must_use = "the caller waits for the thread without a lock"]
    pub(crate) fn end(&mut self) -> Option<Background> {
        let queue = match self {
            Self::Running(background) => background.queue.clone(),
            Self::Ended(queue) => queue.clone(),
            Self::Unstarted => {
                let queue = OpQueue::new();
                queue.close();
                queue
            }
        };
        match std::mem::replace(self, Self::Ended(queue)) {
            Self::Running(background) => Some(background),
            Self::Unstarted | Self::Ended(_) => None,
        }
    }
}

pub(crate) struct Background {
    queue: Arc<OpQueue>,
    stop: Arc<AtomicBool>,
    thread: Option<libc::pthread_t>,
}

/// The work of the thread; its client is alive, since destroying the client waits for the thread.
struct Events {
    handle: Arc<Handle>,
    queue: Arc<OpQueue>,
    stop: Arc<AtomicBool>,
}

unsafe extern "C" {
    fn ottla_background(events: *mut c_void) -> *mut c_void;
}

impl Background {
    fn start(handle: &Arc<Handle>) -> Self {
        let (queue, stop) = (OpQueue::new(), Arc::<AtomicBool>::default());
        let events = Box::new(Events { handle: handle.clone(), queue: queue.clone(), stop: stop.clone() });
        Self { queue, stop, thread: spawn(events) }
    }
}

fn spawn(events: Box<Events>) -> Option<libc::pthread_t> {
    type Main = extern "C" fn(*mut c_void) -> *mut c_void;
    let mut thread = 0;
    let events = Box::into_raw(events);
    // SAFETY: the thread gets the box; its main function is a function of `trampoline.c` for one such argument.
    let created = unsafe {
        let main =
            std::mem::transmute::<unsafe extern "C" fn(*mut c_void) -> *mut c_void, Main>(ottla_background);
        libc::pthread_create(&raw mut thread, null(), main, events.cast())
    };
    if created != 0 {
        // SAFETY: there is no thread that has it.
        drop(unsafe { Box::from_raw(events) });
        return None;
    }
    // SAFETY: the thread was created, and is neither joined nor detached.
    unsafe { libc::pthread_setname_np(thread, c"rdk:bg".as_ptr()) };
    Some(thread)
}

called_from_c! {
    "ottla_begin_background" begin_background,
}

#[on_panic(())]
unsafe extern "C" fn begin_background(state: *mut CallbackLoop, events: *mut c_void) {
    // SAFETY: from `spawn`, which gives it to this thread alone.
    let Events { handle, queue, stop } = *unsafe { Box::from_raw(events.cast::<Events>()) };
    let events = NextEvents {
        queue,
        stop,
        last_events: 0,
        _counted: Counted::new(),
        _notice: ThreadNotice::start(&Arc::downgrade(&handle)),
    };
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    start(unsafe { &mut *state }, handle, events);
}

/// Calls the application with each event until the client ends.
struct NextEvents {
    queue: Arc<OpQueue>,
    stop: Arc<AtomicBool>,
    last_events: usize,
    _counted: Counted,
    _notice: ThreadNotice,
}

impl Task for NextEvents {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        while self.last_events < LAST_EVENTS_MAX {
            // The results of requests that ended with their client are still reported.
            let ends = self.stop.load(Ordering::Acquire);
            self.last_events += usize::from(ends);
            let wait = if ends { Duration::ZERO } else { CHECK_EVERY };
            let Some(op) = self.queue.poll(Some(wait)) else {
                if ends {
                    break;
                }
                continue;
            };
            // An application without a function for events has functions for what it wants to know.
            if handle.callbacks.background_event.is_none() {
                return Step::Op(op);
            }
            return match rd_kafka_event_t::of(handle, op) {
                Eventual::Event(event) => Step::Event(event),
                Eventual::Callback(op) => Step::Op(op),
            };
        }
        Step::Return(Returns::Number(0))
    }
}

/// Notifies interceptors of the start and the end of this thread.
struct ThreadNotice(Weak<Handle>);

impl ThreadNotice {
    fn start(handle: &Weak<Handle>) -> Self {
        if let Some(handle) = handle.upgrade()
            && let Some(interceptors) = handle.client_interceptors.get()
        {
            interceptors.on_thread_start(&handle, RD_KAFKA_THREAD_BACKGROUND, NAME);
        }
        Self(handle.clone())
    }
}

impl Drop for ThreadNotice {
    fn drop(&mut self) {
        if let Some(handle) = self.0.upgrade()
            && let Some(interceptors) = handle.client_interceptors.get()
        {
            interceptors.on_thread_exit(&handle, RD_KAFKA_THREAD_BACKGROUND, NAME);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.queue.yield_once();
        if let Some(thread) = self.thread.take() {
            // SAFETY: the thread was created by `spawn`, and is joined or detached once. A thread cannot join itself.
            unsafe {
                if libc::pthread_equal(thread, libc::pthread_self()) != 0 {
                    libc::pthread_detach(thread);
                } else {
                    libc::pthread_join(thread, std::ptr::null_mut());
                }
            }
        }
        self.queue.close();
    }
}
