//! The background queue: a thread of its own calls the application with each event.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ffi::{RD_KAFKA_THREAD_BACKGROUND, rd_kafka_event_t};
use crate::handle::Handle;
use crate::queue::Queue;
use crate::threads::Counted;

const NAME: &CStr = c"background";
/// Of what lies there when the client goes, so much is still told: sources may go on filling the queue.
const LAST_EVENTS_MAX: usize = 10_000;

pub(crate) struct Background {
    queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(handle: &Arc<Handle>) -> Self {
        let (queue, stop) = (Queue::new(), Arc::<AtomicBool>::default());
        let weak = Arc::downgrade(handle);
        let run = {
            let (queue, stop) = (queue.clone(), stop.clone());
            move || {
                let _counted = Counted::new();
                let _told = Told::start(&weak);
                let mut last = 0;
                while last < LAST_EVENTS_MAX {
                    // That requests ended with their client, for one.
                    let ends = stop.load(Ordering::Acquire);
                    last += usize::from(ends);
                    let wait = if ends { Duration::ZERO } else { Duration::from_secs(1) };
                    let Some(op) = queue.poll(Some(wait)) else {
                        if ends {
                            return;
                        }
                        continue;
                    };
                    let Some(handle) = weak.upgrade() else { return };
                    let Some(function) = handle.callbacks.background_event else { return };
                    if let Some(event) = rd_kafka_event_t::of(&handle, op) {
                        // SAFETY: the application's function, in the background thread; the event is its own from now on.
                        unsafe { function(handle.as_raw(), Box::into_raw(event), handle.callbacks.opaque) };
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("rdk:bg".into()).spawn(run).ok();
        Self { queue, stop, thread }
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

/// Tells interceptors that this thread begins, and that it ends.
struct Told(Weak<Handle>);

impl Told {
    fn start(handle: &Weak<Handle>) -> Self {
        if let Some(handle) = handle.upgrade()
            && let Some(hooks) = handle.hooking.get()
        {
            hooks.on_thread_start(&handle, RD_KAFKA_THREAD_BACKGROUND, NAME);
        }
        Self(handle.clone())
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(handle) = self.0.upgrade()
            && let Some(hooks) = handle.hooking.get()
        {
            hooks.on_thread_exit(&handle, RD_KAFKA_THREAD_BACKGROUND, NAME);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.queue.yield_once();
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
        self.queue.close();
    }
}
