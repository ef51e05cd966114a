//! `rd_kafka_topic_conf_t`: what one topic has otherwise than its client.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use ottla_client::properties::{self, Kind, Scope};
use ottla_client::{Config, TopicConfig};
use zeroize::Zeroizing;

use crate::conf::{Given, NotSet, TOPIC_NAMES, pointer, refusal_texts, shown, text_for};
use crate::ffi::c_strings::{get_into, leaked_pairs, text, write_errstr};
use crate::ffi::panic::{guard, on_panic};
use crate::ffi::*;

/// A topic's configuration; `rd_kafka_topic_new` takes it over.
pub struct rd_kafka_topic_conf_t {
    settings: TopicConfig,
    given: Given,
    pub opaque: *mut c_void,
    pub partitioner: rd_kafka_partitioner_cb_t,
    pub msg_order_cmp: rd_kafka_msg_order_cmp_t,
}

// SAFETY: the pointers are the application's; threads of the library may use them (rdkafka.h,
// `rd_kafka_conf_set_opaque`).
unsafe impl Send for rd_kafka_topic_conf_t {}
// SAFETY: as above; none is read through here.
unsafe impl Sync for rd_kafka_topic_conf_t {}

impl Default for rd_kafka_topic_conf_t {
    fn default() -> Self {
        Self {
            settings: TopicConfig::default(),
            given: Given::new(),
            opaque: null_mut(),
            partitioner: None,
            msg_order_cmp: None,
        }
    }
}

impl rd_kafka_topic_conf_t {
    /// The settings of a topic that is given this configuration: librdkafka's defaults where nothing was set, whatever
    /// the client has, but for compression, which is the client's until it is set.
    pub fn settings(&self) -> TopicConfig {
        let defaults = Config::librdkafka();
        let own = self.settings.over(&defaults);
        let mut settings = self.settings.clone();
        settings.acks = Some(own.acks);
        settings.request_timeout = own.request_timeout;
        settings.delivery_timeout = Some(own.delivery_timeout);
        settings.partitioner = Some(own.partitioner);
        settings.auto_offset_reset = Some(own.auto_offset_reset);
        settings
    }

    /// Sets a property by name. As in the original, the name may begin with `topic.`.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), NotSet> {
        let name = name.strip_prefix("topic.").unwrap_or(name);
        let Some(property) = properties::find_in(Scope::Topic, name) else {
            return Err(match self.settings.set(name, "") {
                Err(hint) => NotSet::unknown(name, &hint),
                Ok(()) => NotSet::Unknown(format!("No such configuration property: \"{name}\"")),
            });
        };
        let text = text_for(property, value)?;
        let applied = if is_acks_above_one(property.name, &text) { "all" } else { &text };
        let set = self.settings.set(name, applied);
        set.map_err(|error| refusal_texts::refused(property, &text, error))?;
        self.given.insert(property.name, Zeroizing::new(text));
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let property = properties::find_in(Scope::Topic, name)?;
        if property.kind == Kind::Pointer {
            return pointer(match property.name {
                "opaque" => self.opaque.addr(),
                "partitioner_cb" => self.partitioner.map_or(0, |function| function as usize),
                "msg_order_cmp" => self.msg_order_cmp.map_or(0, |function| function as usize),
                _ => 0,
            });
        }
        shown(property, &self.given, || match (state(property), self.given.get(property.name)) {
            (State::Kept, Some(given)) => Ok(given.to_string()),
            (State::Read, Some(given)) if is_acks_above_one(property.name, given) => Ok(given.to_string()),
            _ => self.settings.get(property.name, &Config::librdkafka()),
        })
    }

    /// Returns `true` if the application has set the property.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        properties::find_in(Scope::Topic, name).is_some_and(|property| self.given.contains_key(property.name))
    }

    /// Returns `true` if the application has set `message.timeout.ms`.
    pub(crate) fn has_message_timeout(&self) -> bool {
        self.given.contains_key("delivery.timeout.ms")
    }

    /// The number of acknowledgements, if it is one that brokers refuse since 0.9 and that counts as `all`.
    pub(crate) fn acks_above_one(&self) -> Option<&str> {
        let given = self.given.get("acks")?;
        is_acks_above_one("acks", given).then_some(given.as_str())
    }

    pub(crate) fn dump(&self) -> Vec<(&'static str, String)> {
        TOPIC_NAMES.iter().filter_map(|name| Some((*name, self.get(name)?))).collect()
    }

    /// Makes these settings the defaults of all topics of a client.
    pub(crate) fn apply_to(&self, config: &mut Config) {
        for (name, value) in &self.given {
            if properties::find(name).is_some_and(|property| property.scope == Scope::Topic) {
                // It was taken before by the same table.
                let _ = config.set(name, value);
            }
        }
        *config = self.settings.over(config);
    }

    pub(crate) fn dup(&self, passes: &dyn Fn(&str) -> bool) -> Box<Self> {
        let mut copy = Box::<Self>::default();
        for (name, value) in self.given.iter().filter(|(name, _)| passes(name)) {
            // It was taken before by the same table.
            let _ = copy.set(name, Some(value));
        }
        if passes("opaque") {
            copy.opaque = self.opaque;
        }
        if passes("partitioner_cb") {
            copy.partitioner = self.partitioner;
        }
        if passes("msg_order_cmp") {
            copy.msg_order_cmp = self.msg_order_cmp;
        }
        copy
    }
}

/// Programs written for brokers before 0.9 set a number of replicas. The original passes it on, up to 1000.
fn is_acks_above_one(property: &str, value: &str) -> bool {
    property == "acks" && value.parse().is_ok_and(|acks: i32| (2..=1000).contains(&acks))
}

/// The owner of a property's value: the client, or this crate.
enum State {
    Read,
    Kept,
}

fn state(property: &properties::Property) -> State {
    match property.state {
        properties::State::Effective { .. } => State::Read,
        properties::State::Accepted { .. } | properties::State::Refused { .. } => State::Kept,
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_topic_conf_new() -> *mut rd_kafka_topic_conf_t {
    Box::<rd_kafka_topic_conf_t>::default().into_handle()
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_dup(
    conf: *const rd_kafka_topic_conf_t,
) -> *mut rd_kafka_topic_conf_t {
    let copy = rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.dup(&|_| true));
    copy.map_or(null_mut(), rd_kafka_topic_conf_t::into_handle)
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_destroy(topic_conf: *mut rd_kafka_topic_conf_t) {
    drop(rd_kafka_topic_conf_t::take(topic_conf, FUNCTION));
}

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_set(
    conf: *mut rd_kafka_topic_conf_t,
    name: *const c_char,
    value: *const c_char,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_conf_res_t {
    // SAFETY: `name` and `value` are each NULL or a C string (rdkafka.h, `rd_kafka_topic_conf_set`).
    let (name, value) = unsafe { (text(name), text(value)) };
    let set = guard(
        || Err(NotSet::Invalid("the property could not be set".into())),
        || {
            let set = name.and_then(|name| {
                rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.set(&name, value.as_deref()))
            });
            let missing = "rd_kafka_topic_conf_set without configuration or name";
            set.unwrap_or_else(|| Err(NotSet::Invalid(missing.into())))
        },
    );
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (rdkafka.h, `rd_kafka_topic_conf_set`).
    unsafe { answer(set, errstr, errstr_size) }
}

/// The outcome as C wants it.
///
/// # Safety
/// As [`write_errstr`].
pub(crate) unsafe fn answer(
    set: Result<(), NotSet>,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_conf_res_t {
    let (code, words) = match set {
        Ok(()) => return RD_KAFKA_CONF_OK,
        Err(NotSet::Unknown(words)) => (RD_KAFKA_CONF_UNKNOWN, words),
        Err(NotSet::Invalid(words)) => (RD_KAFKA_CONF_INVALID, words),
    };
    // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (the contract of this function, above).
    unsafe { write_errstr(errstr, errstr_size, &words) };
    code
}

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_get(
    conf: *const rd_kafka_topic_conf_t,
    name: *const c_char,
    dest: *mut c_char,
    dest_size: *mut usize,
) -> rd_kafka_conf_res_t {
    // SAFETY: `name` is NULL or a C string (rdkafka.h, `rd_kafka_topic_conf_get`).
    let name = unsafe { text(name) };
    let value =
        name.and_then(|name| rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.get(&name))).flatten();
    // SAFETY: `dest_size` is NULL or writable (rdkafka.h, `rd_kafka_topic_conf_get`).
    unsafe { get_into(value.as_deref(), dest, dest_size) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_dump(
    conf: *mut rd_kafka_topic_conf_t,
    cntp: *mut usize,
) -> *mut *const c_char {
    let pairs = rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.dump()).unwrap_or_default();
    // SAFETY: `cntp` is NULL or writable (rdkafka.h, `rd_kafka_topic_conf_dump`).
    unsafe { leaked_pairs(pairs, cntp) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_set_opaque(
    conf: *mut rd_kafka_topic_conf_t,
    opaque: *mut c_void,
) {
    rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.opaque = opaque);
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_set_partitioner_cb(
    conf: *mut rd_kafka_topic_conf_t,
    partitioner: rd_kafka_partitioner_cb_t,
) {
    rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.partitioner = partitioner);
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_conf_set_msg_order_cmp(
    conf: *mut rd_kafka_topic_conf_t,
    msg_order_cmp: rd_kafka_msg_order_cmp_t,
) {
    rd_kafka_topic_conf_t::with(conf, FUNCTION, |conf| conf.msg_order_cmp = msg_order_cmp);
}
