//! `rd_kafka_topic_t`: a topic of a client, by name, with its own configuration.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Deref;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ottla_client::{Acks, ChoosePartition, Partitioner, TopicConfig, TopicProducer};

use crate::client::handle::{Handle, LOG_ERR};
use crate::errors::error_object::set_last_error_and_errno;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, Reserved, as_pointer};
use crate::handles::slot_table::InUse;
use crate::queue::op::Opaque;

/// The longest name of a topic that librdkafka takes.
pub(crate) const TOPIC_NAME_BYTES_MAX: usize = 512;

/// A reference to a topic. The last one ends the topic's handle.
pub(crate) struct Topic {
    /// The value of C's `rd_kafka_topic_t *`; 0 if there are too many topics.
    id: u64,
    state: Arc<TopicState>,
}

/// A topic. Its handle and messages share it, and it keeps the client's memory.
pub(crate) struct TopicState {
    id: u64,
    pub(crate) name: Arc<str>,
    c_name: CString,
    pub(crate) opaque: Opaque,
    /// The client that owns the topic; `None` for the topics of a processor.
    pub(crate) handle: Option<Arc<Handle>>,
    pub(crate) producer: OnceLock<TopicProducer>,
    settings: Option<TopicConfig>,
    handed_out: Mutex<HandedOut>,
    owner: Weak<Topic>,
}

/// The number of handles that the application has to destroy, and a reference while there are some.
#[derive(Default)]
struct HandedOut {
    count: u32,
    topic: Option<Arc<Topic>>,
}

static TOPICS: HandleTable<TopicState> = HandleTable::new(HandleKind::Topic);

impl Drop for Topic {
    fn drop(&mut self) {
        TOPICS.retire(self.id);
    }
}

impl Deref for Topic {
    type Target = TopicState;

    #[inline]
    fn deref(&self) -> &TopicState {
        &self.state
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
        let reserved = TOPICS.reserve();
        let id = reserved.as_ref().map_or(0, Reserved::handle);
        let topic = Arc::new_cyclic(|owner| Self {
            id,
            state: Arc::new(TopicState {
                id,
                name: name.into(),
                c_name: c_strings::c_string(name),
                opaque,
                handle,
                producer: OnceLock::new(),
                settings,
                handed_out: Mutex::default(),
                owner: owner.clone(),
            }),
        });
        if let Some(reserved) = reserved {
            reserved.publish(topic.state.clone());
        }
        topic
    }

    /// Returns a handle that the application must destroy.
    fn handed_out(self: &Arc<Self>) -> *mut rd_kafka_topic_t {
        let mut handed_out = self.state.lock_handed_out();
        handed_out.count += 1;
        handed_out.topic.get_or_insert_with(|| self.clone());
        self.raw()
    }

    /// Returns the topic of C's pointer. `function` is the name for the report about a destroyed topic.
    #[inline]
    pub(crate) fn of(topic: *const rd_kafka_topic_t, function: &str) -> Option<InUse<TopicState>> {
        TOPICS.find(topic, function)
    }

    /// Returns the topic with an additional reference.
    pub(crate) fn shared(topic: *const rd_kafka_topic_t, function: &str) -> Option<Arc<Self>> {
        Self::of(topic, function)?.owner.upgrade()
    }
}

impl TopicState {
    /// Returns C's pointer to the topic.
    #[inline]
    pub(crate) fn raw(&self) -> *mut rd_kafka_topic_t {
        as_pointer(self.id)
    }

    fn lock_handed_out(&self) -> MutexGuard<'_, HandedOut> {
        self.handed_out.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(crate) struct TopicRegistry {
    topics: TopicsByName,
    /// The client has ended: a topic, which keeps the client's memory, is not added any more.
    is_ended: bool,
}

type TopicsByName = BTreeMap<Arc<str>, Arc<Topic>>;

impl TopicRegistry {
    pub(crate) fn get(&mut self, handle: &Arc<Handle>, name: &str) -> Arc<Topic> {
        if let Some(topic) = self.topics.get(name) {
            return topic.clone();
        }
        let topic = match handle.default_topic() {
            Some(settings) => make(handle, name, settings),
            None => Topic::with(Some(handle.clone()), name, None, Opaque::default()),
        };
        self.add(topic)
    }

    /// Returns the topic of this name, which is `made` if there was none.
    fn add(&mut self, made: Arc<Topic>) -> Arc<Topic> {
        if self.is_ended {
            return made;
        }
        self.topics.entry(made.name.clone()).or_insert(made).clone()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Topic>> {
        self.topics.get(name).cloned()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.topics.contains_key(name)
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.topics.keys().cloned().collect()
    }

    /// Gives up the topics, which the caller drops without the lock. Topics that are made from now on belong to their calls.
    #[must_use = "the topics may be the last references to other objects"]
    pub(crate) fn end(&mut self) -> TopicsByName {
        self.is_ended = true;
        std::mem::take(&mut self.topics)
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
) -> ChoosePartition {
    Arc::new(move |choice| {
        let rkt = topic.get().and_then(Weak::upgrade)?;
        let (key, key_len) = choice.key.map_or((null(), 0), |key| (key.as_ptr().cast(), key.len()));
        let message = choice.tag.get() as u64 as usize as *mut c_void;
        let opaque = opaque;
        // SAFETY: the application's function, with what it was promised; any thread may call it.
        let chosen =
            unsafe { function(rkt.raw(), key, key_len, choice.partitions as i32, opaque.0, message) };
        u32::try_from(chosen).ok()
    })
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_new(
    rk: *mut rd_kafka_t,
    topic: *const c_char,
    conf: *mut rd_kafka_topic_conf_t,
) -> *mut rd_kafka_topic_t {
    let refuse = || {
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        null_mut()
    };
    // Taken in any case: the application must not use it again.
    let own = if conf.is_null() { None } else { rd_kafka_topic_conf_t::take(conf, FUNCTION) };
    let (Some(handle), false) = (Handle::shared(rk, FUNCTION), topic.is_null()) else { return refuse() };
    // SAFETY: `topic` is a C string (rdkafka.h, `rd_kafka_topic_new`).
    let name = unsafe { CStr::from_ptr(topic) }.to_string_lossy();
    // As in the original, the brokers refuse illegal names, also the empty one.
    if name.len() > TOPIC_NAME_BYTES_MAX || (own.is_none() && !conf.is_null()) {
        return refuse();
    }
    let known = handle.topics().find(&name);
    let is_new = known.is_none();
    let topic = match (known, own) {
        // It keeps its own configuration.
        (Some(known), _) => known,
        (None, None) => handle.topics().get(&handle, &name),
        (None, Some(conf)) => {
            if handle.producer().is_some()
                && let Some(reason) = contradiction(&handle, &conf)
            {
                let text = format!("Incompatible configuration settings for topic \"{name}\": {reason}");
                handle.log(LOG_ERR, c"TOPICCONF", &text);
                return refuse();
            }
            let made = make(&handle, &name, &conf);
            handle.topics().add(made)
        }
    };
    // A producer looks the topic up now, not at the first record, so that brokers create it.
    let _ = topic.producer();
    // A consumer does so for a new topic, as in the original: its functions then know which partitions are missing.
    if is_new
        && handle.consumer_state().is_some()
        && let Some(client) = handle.client()
    {
        client.request_topic(&name);
    }
    topic.handed_out()
}

/// Returns why the settings of a topic do not suit its producer. Programs search the log for the texts, which are librdkafka's.
fn contradiction(handle: &Handle, conf: &rd_kafka_topic_conf_t) -> Option<&'static str> {
    let (client, topic) = (&handle.config, conf.settings());
    let transaction = client.transactional_id.is_some().then_some(client.transaction_timeout);
    // 0 is no limit. A transactional producer limits the topics that have no timeout of their own.
    let is_unlimited = conf.get("message.timeout.ms").is_some_and(|ms| ms == "0");
    let own = topic.delivery_timeout.filter(|_| !is_unlimited);
    let timeout = if conf.has_message_timeout() { own } else { transaction.or(own) };
    let is_longer = |limit: Duration| timeout.is_some_and(|timeout| timeout > limit);
    let is_unordered = conf.get("queuing.strategy").is_some_and(|order| order != "fifo");
    if client.enable_idempotence && topic.acks.is_some_and(|acks| acks != Acks::All) {
        Some("`acks` must be set to `all` when `enable.idempotence` is true")
    } else if client.enable_idempotence && is_unordered {
        Some("`queuing.strategy` must be set to `fifo` when `enable.idempotence` is true")
    } else if transaction.is_some_and(is_longer) {
        Some("`message.timeout.ms` must be set <= `transaction.timeout.ms`")
    } else if timeout.is_some() && client.linger.is_some_and(|linger| !is_longer(linger)) {
        Some("`message.timeout.ms` must be greater than `linger.ms`")
    } else {
        None
    }
}

/// Returns a topic with its own settings.
fn make(handle: &Arc<Handle>, name: &str, conf: &rd_kafka_topic_conf_t) -> Arc<Topic> {
    handle.warn_of_acks(conf);
    let mut settings = conf.settings();
    if handle.config.transactional_id.is_some() && !conf.has_message_timeout() {
        // As the original: otherwise a commit waits for records longer than the transaction lasts.
        settings.delivery_timeout = Some(handle.config.transaction_timeout);
    }
    let slot = Arc::new(OnceLock::new());
    if let Some(function) = conf.partitioner {
        let choose = partitioner(slot.clone(), function, Opaque(conf.opaque));
        // As the original, which asks the function about records without a key only if they may change partition at once.
        let is_sticky = handle.config.sticky_partitioning_linger != Some(Duration::ZERO);
        let of_choice = if is_sticky { Partitioner::CustomForKeys } else { Partitioner::Custom };
        settings.partitioner = Some(of_choice(choose));
    }
    let topic = Topic::with(Some(handle.clone()), name, Some(settings), Opaque(conf.opaque));
    let _ = slot.set(Arc::downgrade(&topic));
    topic
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_destroy(rkt: *mut rd_kafka_topic_t) {
    let Some(topic) = Topic::of(rkt, FUNCTION) else { return };
    let last = {
        let mut handed_out = topic.lock_handed_out();
        let Some(left) = handed_out.count.checked_sub(1) else {
            TOPICS.report_stale(topic.id, FUNCTION);
            return;
        };
        handed_out.count = left;
        if left == 0 { handed_out.topic.take() } else { None }
    };
    drop(last);
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_name(rkt: *const rd_kafka_topic_t) -> *const c_char {
    Topic::of(rkt, FUNCTION).map_or(null(), |topic| topic.c_name.as_ptr())
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_opaque(rkt: *const rd_kafka_topic_t) -> *mut c_void {
    Topic::of(rkt, FUNCTION).map_or(null_mut(), |topic| topic.opaque.0)
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_available(
    rkt: *const rd_kafka_topic_t,
    partition: i32,
) -> c_int {
    let topic = Topic::of(rkt, FUNCTION);
    let producer = topic.as_deref().and_then(TopicState::producer);
    producer.is_some_and(|producer| u32::try_from(partition).is_ok_and(|at| producer.is_available(at))).into()
}
