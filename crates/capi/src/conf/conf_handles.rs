//! The handles of configurations. A configuration is used by one call at a time.

use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::conf::rd_kafka_conf_t;
use crate::conf::topic_conf::rd_kafka_topic_conf_t;
use crate::handles::exclusive::{Exclusive, ExclusiveUse};
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};
use crate::handles::misuse_report::report;

static CONFS: HandleTable<Exclusive<ConfEntry>> = HandleTable::new(HandleKind::Conf);
static TOPIC_CONFS: HandleTable<Exclusive<TopicConfEntry>> = HandleTable::new(HandleKind::TopicConf);

/// A configuration by its owner.
enum ConfEntry {
    Application(Box<rd_kafka_conf_t>),
    /// `rd_kafka_conf` returned it. It can be read.
    Client(Arc<rd_kafka_conf_t>),
    /// `rd_kafka_new` is running with it.
    Taken,
}

/// A configuration of topics by its owner.
enum TopicConfEntry {
    Application(Box<rd_kafka_topic_conf_t>),
    /// The default of the configuration with this handle.
    DefaultOf(u64),
    Taken,
}

/// A configuration that a call reads.
pub(crate) struct ConfUse(ExclusiveUse<ConfEntry>);

/// A configuration of the application that a call changes.
pub(crate) struct ConfChange(ExclusiveUse<ConfEntry>);

/// The handle of a configuration that `rd_kafka_new` tries to use.
#[derive(Default)]
pub(crate) struct TakenConf(Option<u64>);

/// The handle of a configuration's default for topics. It ends with the configuration.
pub(super) struct DefaultTopicHandle(u64);

/// A client's configuration, which ends with the client.
pub(crate) struct ClientConf {
    conf: Arc<rd_kafka_conf_t>,
    handle: Option<u64>,
}

fn entry(conf: *const rd_kafka_conf_t, function: &str) -> Option<ExclusiveUse<ConfEntry>> {
    let used = ExclusiveUse::of(CONFS.find(conf, function)?);
    if used.is_none() {
        report_busy(function, "rd_kafka_conf_t", conf.addr());
    }
    used
}

fn report_busy(function: &str, kind: &str, handle: usize) {
    let problem = format!("the {kind} {handle:#x} is in use by a call of this thread");
    report(function, &problem, "do not change a configuration inside a function that it is passed to");
}

impl rd_kafka_conf_t {
    /// Gives the configuration to the application. NULL if there are too many.
    pub(crate) fn into_handle(self: Box<Self>) -> *mut Self {
        let entry = ConfEntry::Application(self);
        CONFS.insert(Arc::new(Exclusive::new(entry))).map_or(null_mut(), as_pointer)
    }

    /// Returns the configuration for reading, unless it is destroyed.
    pub(crate) fn of(conf: *const Self, function: &str) -> Option<ConfUse> {
        let entry = entry(conf, function)?;
        if matches!(*entry, ConfEntry::Taken) {
            CONFS.report_stale(conf.addr() as u64, function);
            return None;
        }
        Some(ConfUse(entry))
    }

    /// Returns the configuration for changes, unless it is destroyed or a client owns it.
    pub(crate) fn of_mut(conf: *const Self, function: &str) -> Option<ConfChange> {
        let entry = entry(conf, function)?;
        if !matches!(*entry, ConfEntry::Application(_)) {
            report_owned(function, "rd_kafka_conf_t", conf.addr());
            return None;
        }
        Some(ConfChange(entry))
    }

    /// Takes the configuration from the application. Returns `None` if the application does not own it.
    pub(crate) fn take(conf: *const Self, function: &str) -> Option<(Box<Self>, TakenConf)> {
        let mut entry = entry(conf, function)?;
        match std::mem::replace(&mut *entry, ConfEntry::Taken) {
            ConfEntry::Application(own) => Some((own, TakenConf(Some(conf.addr() as u64)))),
            other => {
                *entry = other;
                report_owned(function, "rd_kafka_conf_t", conf.addr());
                None
            }
        }
    }
}

fn report_owned(function: &str, kind: &str, handle: usize) {
    let problem = format!("the {kind} {handle:#x} belongs to the library");
    report(function, &problem, "copy it with its _dup function, and change or destroy the copy");
}

impl TakenConf {
    /// The configuration has another owner: its handle is stale from now on.
    pub(crate) fn ended(self) {
        if let Some(handle) = self.0 {
            CONFS.retire(handle);
        }
    }

    /// Returns the configuration to the application.
    pub(crate) fn give_back(self, conf: Box<rd_kafka_conf_t>) {
        let Some(handle) = self.0 else { return };
        let raw: *mut rd_kafka_conf_t = as_pointer(handle);
        if let Some(mut entry) = CONFS.find(raw, "rd_kafka_new").and_then(ExclusiveUse::of) {
            *entry = ConfEntry::Application(conf);
        }
    }
}

impl Deref for ConfUse {
    type Target = rd_kafka_conf_t;

    fn deref(&self) -> &rd_kafka_conf_t {
        match &*self.0 {
            ConfEntry::Application(conf) => conf,
            ConfEntry::Client(conf) => conf,
            ConfEntry::Taken => unreachable!("`of` returns no such entry"),
        }
    }
}

impl Deref for ConfChange {
    type Target = rd_kafka_conf_t;

    fn deref(&self) -> &rd_kafka_conf_t {
        match &*self.0 {
            ConfEntry::Application(conf) => conf,
            ConfEntry::Client(_) | ConfEntry::Taken => unreachable!("`of_mut` returns no such entry"),
        }
    }
}

impl DerefMut for ConfChange {
    fn deref_mut(&mut self) -> &mut rd_kafka_conf_t {
        match &mut *self.0 {
            ConfEntry::Application(conf) => conf,
            ConfEntry::Client(_) | ConfEntry::Taken => unreachable!("`of_mut` returns no such entry"),
        }
    }
}

impl ClientConf {
    pub(crate) fn new(conf: Box<rd_kafka_conf_t>) -> Self {
        let conf: Arc<rd_kafka_conf_t> = Arc::from(conf);
        let handle = CONFS.insert(Arc::new(Exclusive::new(ConfEntry::Client(conf.clone()))));
        Self { conf, handle }
    }

    /// C's pointer to the configuration; NULL if there are too many.
    pub(crate) fn raw(&self) -> *const rd_kafka_conf_t {
        self.handle.map_or(null_mut(), as_pointer::<rd_kafka_conf_t>).cast_const()
    }
}

impl Deref for ClientConf {
    type Target = rd_kafka_conf_t;

    fn deref(&self) -> &rd_kafka_conf_t {
        &self.conf
    }
}

impl Drop for ClientConf {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            CONFS.retire(handle);
        }
    }
}

impl rd_kafka_topic_conf_t {
    /// Gives the configuration to the application. NULL if there are too many.
    pub(crate) fn into_handle(self: Box<Self>) -> *mut Self {
        let entry = TopicConfEntry::Application(self);
        TOPIC_CONFS.insert(Arc::new(Exclusive::new(entry))).map_or(null_mut(), as_pointer)
    }

    /// Runs `call` with the configuration, unless it is destroyed.
    pub(crate) fn with<R>(conf: *const Self, function: &str, call: impl FnOnce(&mut Self) -> R) -> Option<R> {
        let mut entry = topic_entry(conf, function)?;
        let owner = match &mut *entry {
            TopicConfEntry::Application(conf) => return Some(call(conf)),
            TopicConfEntry::DefaultOf(owner) => *owner,
            TopicConfEntry::Taken => {
                TOPIC_CONFS.report_stale(conf.addr() as u64, function);
                return None;
            }
        };
        let owner: *mut rd_kafka_conf_t = as_pointer(owner);
        let mut owner = rd_kafka_conf_t::of_mut(owner, function)?;
        Some(call(owner.topic_mut()))
    }

    /// Takes the configuration from the application and ends its handle. `None` if the application does not own it.
    pub(crate) fn take(conf: *const Self, function: &str) -> Option<Box<Self>> {
        let own = Self::take_entry(conf, function)?;
        TOPIC_CONFS.retire(conf.addr() as u64);
        Some(own)
    }

    fn take_entry(conf: *const Self, function: &str) -> Option<Box<Self>> {
        let mut entry = topic_entry(conf, function)?;
        match std::mem::replace(&mut *entry, TopicConfEntry::Taken) {
            TopicConfEntry::Application(own) => Some(own),
            other => {
                *entry = other;
                report_owned(function, "rd_kafka_topic_conf_t", conf.addr());
                None
            }
        }
    }
}

fn topic_entry(conf: *const rd_kafka_topic_conf_t, function: &str) -> Option<ExclusiveUse<TopicConfEntry>> {
    let used = ExclusiveUse::of(TOPIC_CONFS.find(conf, function)?);
    if used.is_none() {
        report_busy(function, "rd_kafka_topic_conf_t", conf.addr());
    }
    used
}

impl DefaultTopicHandle {
    /// Returns a handle for the default that a configuration has.
    fn new(owner: *const rd_kafka_conf_t) -> Option<Self> {
        let entry = TopicConfEntry::DefaultOf(owner.addr() as u64);
        TOPIC_CONFS.insert(Arc::new(Exclusive::new(entry))).map(Self)
    }
}

impl Drop for DefaultTopicHandle {
    fn drop(&mut self) {
        TOPIC_CONFS.retire(self.0);
    }
}

/// Makes `topic` the default of `conf`. Its handle stays usable as long as `conf` is the application's.
pub(super) fn set_default_topic(
    conf: *const rd_kafka_conf_t,
    topic: *const rd_kafka_topic_conf_t,
    function: &str,
) {
    if topic.is_null() {
        if let Some(mut conf) = rd_kafka_conf_t::of_mut(conf, function) {
            (conf.topic, conf.topic_handle) = (None, None);
        }
        return;
    }
    let is_set = topic_entry(topic, function).is_some_and(
        |entry| matches!(*entry, TopicConfEntry::DefaultOf(owner) if owner == conf.addr() as u64),
    );
    if is_set || rd_kafka_conf_t::of_mut(conf, function).is_none() {
        return;
    }
    let Some(own) = rd_kafka_topic_conf_t::take_entry(topic, function) else { return };
    let Some(mut conf_change) = rd_kafka_conf_t::of_mut(conf, function) else { return };
    conf_change.topic = Some(own);
    conf_change.topic_handle = Some(DefaultTopicHandle(topic.addr() as u64));
    drop(conf_change);
    if let Some(mut entry) = topic_entry(topic, function) {
        *entry = TopicConfEntry::DefaultOf(conf.addr() as u64);
    }
}

/// Returns the handle of the default of `conf`; NULL if it has none.
pub(super) fn default_topic(conf: *const rd_kafka_conf_t, function: &str) -> *mut rd_kafka_topic_conf_t {
    let Some(mut change) = rd_kafka_conf_t::of_mut(conf, function) else { return null_mut() };
    if change.topic.is_none() {
        return null_mut();
    }
    if change.topic_handle.is_none() {
        change.topic_handle = DefaultTopicHandle::new(conf);
    }
    change.topic_handle.as_ref().map_or(null_mut(), |handle| as_pointer(handle.0))
}
