//! `rd_kafka_topic_t`: a topic of a client, by name, with its own configuration.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ottla_client::{Partitioner, TopicConfig, TopicProducer};

use crate::client::destroyed_handles::DestroyedHandles;
use crate::client::handle::Handle;
use crate::errors::error_object::set_last_error;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::Opaque;

/// A topic. The application's handles and messages share it, and they keep the client's memory.
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    c_name: CString,
    pub(crate) opaque: Opaque,
    /// The client that owns the topic; `None` for the topics of a processor.
    pub(crate) handle: Option<Arc<Handle>>,
    pub(crate) producer: OnceLock<TopicProducer>,
    settings: Option<TopicConfig>,
    /// Number of handles that the application has to destroy.
    handed_out: AtomicU32,
    gone: AtomicBool,
}

/// The memory of destroyed topics, so that a late use is an error.
static DESTROYED_HANDLES: DestroyedHandles<Weak<Topic>> = DestroyedHandles::new();

impl Drop for Topic {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

impl Topic {
    /// Returns a topic that has only a name, for the messages of a processor.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        Self::with(None, name, None, Opaque::default())
    }

    fn with(
        handle: Option<Arc<Handle>>,
        name: &str,
        settings: Option<TopicConfig>,
        opaque: Opaque,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            c_name: c_strings::c_string(name),
            opaque,
            handle,
            producer: OnceLock::new(),
            settings,
            handed_out: AtomicU32::new(0),
            gone: AtomicBool::new(false),
        })
    }

    /// Returns C's pointer to the topic without an additional reference.
    pub(crate) fn as_raw(self: &Arc<Self>) -> *mut rd_kafka_topic_t {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// Returns a handle that the application must destroy.
    fn handed_out(self: Arc<Self>) -> *mut rd_kafka_topic_t {
        self.handed_out.fetch_add(1, Ordering::Relaxed);
        Arc::into_raw(self).cast_mut().cast()
    }

    /// # Safety
    /// `topic` is NULL, a handle that is not yet destroyed, or one of the last destroyed handles.
    #[inline]
    pub(crate) unsafe fn of<'a>(topic: *const rd_kafka_topic_t) -> Option<&'a Self> {
        let topic: *const Self = topic.cast();
        if topic.is_null() {
            return None;
        }
        // SAFETY: the memory is there; what is destroyed has still its mark, and nothing else is looked at (the
        // contract of this function, above).
        let gone = unsafe { (*topic).gone.load(Ordering::Relaxed) };
        // SAFETY: it lives.
        (!gone).then(|| unsafe { &*topic })
    }

    /// Returns the topic with an additional reference.
    ///
    /// # Safety
    /// The contract of [`Topic::of`] applies.
    pub(crate) unsafe fn shared(topic: *const rd_kafka_topic_t) -> Option<Arc<Self>> {
        // SAFETY: it came from an Arc that lives.
        unsafe {
            let topic: *const Self = Self::of(topic)?;
            Arc::increment_strong_count(topic);
            Some(Arc::from_raw(topic))
        }
    }

    /// Returns the topic with its client; `None` for the topic of a processor.
    pub(crate) fn with_handle(&self) -> Option<(&Self, &Arc<Handle>)> {
        Some((self, self.handle.as_ref()?))
    }

    /// The topic's own configuration.
    pub(crate) fn settings(&self) -> Option<&TopicConfig> {
        self.settings.as_ref()
    }

    /// The client's producer for this topic.
    #[inline]
    pub(crate) fn producer(&self) -> Option<&TopicProducer> {
        if let Some(producer) = self.producer.get() {
            return Some(producer);
        }
        let producer = self.handle.as_ref()?.producer()?;
        let made = match &self.settings {
            // If the application has sent to the topic by name before, the client's settings apply.
            Some(settings) => {
                producer.topic_with(&self.name, settings).unwrap_or_else(|_| producer.topic(&self.name))
            }
            None => producer.topic(&self.name),
        };
        Some(self.producer.get_or_init(|| made))
    }
}

/// The topics of a client by name, one for each name.
#[derive(Default)]
pub(crate) struct TopicRegistry(BTreeMap<Arc<str>, Arc<Topic>>);

impl TopicRegistry {
    pub(crate) fn get(&mut self, handle: &Arc<Handle>, name: &str) -> Arc<Topic> {
        if let Some(topic) = self.0.get(name) {
            return topic.clone();
        }
        let topic = match handle.default_topic() {
            Some(settings) => make(handle, name, settings),
            None => Topic::with(Some(handle.clone()), name, None, Opaque::default()),
        };
        self.0.insert(topic.name.clone(), topic.clone());
        topic
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.0.keys().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// An adapter through which the client calls the application's partitioner.
pub(crate) fn partitioner(
    topic: Arc<OnceLock<Weak<Topic>>>,
    function: unsafe extern "C" fn(
        *const rd_kafka_topic_t,
        *const c_void,
        usize,
        i32,
        *mut c_void,
        *mut c_void,
    ) -> i32,
    opaque: Opaque,
) -> Partitioner {
    Partitioner::Custom(Arc::new(move |choice| {
        let rkt = topic.get().and_then(Weak::upgrade)?;
        let (key, key_len) = choice.key.map_or((null(), 0), |key| (key.as_ptr().cast(), key.len()));
        let message = choice.tag.get() as u64 as usize as *mut c_void;
        let opaque = opaque;
        // SAFETY: the application's function, with what it was promised; any thread may call it.
        let chosen =
            unsafe { function(rkt.as_raw(), key, key_len, choice.partitions as i32, opaque.0, message) };
        u32::try_from(chosen).ok()
    }))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_new(
    rk: *mut rd_kafka_t,
    topic: *const c_char,
    conf: *mut rd_kafka_topic_conf_t,
) -> *mut rd_kafka_topic_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `topic` is NULL or a C string
    // (rdkafka.h, `rd_kafka_topic_new`).
    let (Some(handle), false) = (unsafe { Handle::shared(rk) }, topic.is_null()) else {
        set_last_error(RD_KAFKA_RESP_ERR__INVALID_ARG);
        return null_mut();
    };
    // SAFETY: `topic` is a C string (rdkafka.h, `rd_kafka_topic_new`).
    let name = unsafe { CStr::from_ptr(topic) }.to_string_lossy();
    if name.is_empty() || name.len() > 512 {
        crate::errors::error_object::set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        return null_mut();
    }
    let mut topics = handle.topics();
    if conf.is_null() {
        return topics.get(&handle, &name).handed_out();
    }
    // SAFETY: the function takes it over.
    let conf = unsafe { Box::from_raw(conf) };
    let made = make(&handle, &name, &conf);
    topics.0.insert(made.name.clone(), made.clone());
    made.handed_out()
}

/// Returns a topic with its own settings.
fn make(handle: &Arc<Handle>, name: &str, conf: &rd_kafka_topic_conf_t) -> Arc<Topic> {
    let mut settings = conf.settings();
    let slot = Arc::new(OnceLock::new());
    if let Some(function) = conf.partitioner {
        settings.partitioner = Some(partitioner(slot.clone(), function, Opaque(conf.opaque)));
    }
    let topic = Topic::with(Some(handle.clone()), name, Some(settings), Opaque(conf.opaque));
    let _ = slot.set(Arc::downgrade(&topic));
    topic
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_destroy(rkt: *mut rd_kafka_topic_t) {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_destroy`).
    let Some(topic) = (unsafe { Topic::of(rkt) }) else { return };
    let left = |count: u32| count.checked_sub(1);
    if topic.handed_out.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
        return;
    }
    // SAFETY: the pointer is from `Arc::into_raw`, and the counter above shows that one of its references is left.
    let topic = unsafe { Arc::from_raw(std::ptr::from_ref(topic)) };
    DESTROYED_HANDLES.keep(Arc::downgrade(&topic));
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_name(rkt: *const rd_kafka_topic_t) -> *const c_char {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_name`).
    unsafe { Topic::of(rkt) }.map_or(null(), |topic| topic.c_name.as_ptr())
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_opaque(rkt: *const rd_kafka_topic_t) -> *mut c_void {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_opaque`).
    unsafe { Topic::of(rkt) }.map_or(null_mut(), |topic| topic.opaque.0)
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_available(
    rkt: *const rd_kafka_topic_t,
    partition: i32,
) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_partition_available`).
    let topic = unsafe { Topic::of(rkt) };
    let producer = topic.and_then(Topic::producer);
    producer.is_some_and(|producer| u32::try_from(partition).is_ok_and(|at| producer.is_available(at))).into()
}
