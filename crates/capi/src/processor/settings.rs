//! The settings of a processor, by name. A setting without a value keeps the processor's own default.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_client::Config;
use ottla_parallel::{Builder, Error, GiveUp, Mode, Order, Processor, Retry};

use crate::ffi::c_strings::{text, write_errstr};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};
use crate::processor::handler_call::{Handler, ottla_processor_batch_handler_t, ottla_processor_handler_t};
use crate::queue::op::Opaque;

/// The handle of settings.
#[repr(C)]
pub struct ottla_processor_settings_t {
    _private: [u8; 0],
}

static SETTINGS: HandleTable<Mutex<Settings>> = HandleTable::new(HandleKind::ProcessorSettings);

/// The type of a setting's value.
#[derive(Clone, Copy)]
enum Takes {
    /// The minimum and the maximum.
    Number(i64, i64),
    Words(&'static [&'static str]),
    Text,
}

/// A time of at most one day; longer times are mistakes.
const MS: Takes = Takes::Number(0, 86_400_000);
/// A limit for data in memory.
const COUNT: Takes = Takes::Number(1, i64::MAX);

const TABLE: &[(&str, Takes)] = &[
    ("mode", Takes::Words(&["sync", "batch", "multi-async", "multi-batch"])),
    ("topics", Takes::Text),
    ("order", Takes::Words(&["none", "partition", "key"])),
    // A larger number of threads is a mistake.
    ("workers", Takes::Number(1, 10_000)),
    ("queue", COUNT),
    ("batch", COUNT),
    ("batch.wait.ms", MS),
    ("records.in.flight", COUNT),
    ("bytes.in.flight", COUNT),
    // Without a time a commit would follow each record.
    ("commit.interval.ms", Takes::Number(1, 86_400_000)),
    ("drain.ms", MS),
    ("retries", Takes::Number(-1, u32::MAX as i64 - 1)),
    ("retry.delay.ms", MS),
    ("retry.delay.max.ms", MS),
    ("retry.holds", Takes::Words(&["false", "true"])),
    ("on.failure", Takes::Words(&["stop", "dead-letter", "skip"])),
    ("dead.letter.topic", Takes::Text),
    ("breaker.failures", Takes::Number(0, u32::MAX as i64)),
    ("breaker.pause.ms", MS),
    ("breaker.pause.max.ms", MS),
    ("transactional.id", Takes::Text),
    ("transaction.ms", MS),
];

/// A method of the builder.
type Set<T> = fn(Builder, T) -> Builder;

/// The settings so far.
#[derive(Clone, Default)]
pub(super) struct Settings {
    /// Numbers; a word is stored as its index in the table.
    numbers: BTreeMap<&'static str, i64>,
    texts: BTreeMap<&'static str, String>,
    each: Option<Handler>,
    batch: Option<Handler>,
}

impl Settings {
    /// Returns a copy of the settings.
    pub(super) fn find(settings: *mut ottla_processor_settings_t, function: &str) -> Option<Self> {
        change(settings, function, |settings| settings.clone())
    }

    pub(super) fn forget(settings: *mut ottla_processor_settings_t) -> bool {
        SETTINGS.retire(settings.addr() as u64)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), (rd_kafka_conf_res_t, String)> {
        let Some((name, takes)) = TABLE.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = TABLE.iter().map(|(name, _)| *name).collect();
            let text = format!("a processor has no setting \"{name}\": it has {}", known.join(", "));
            return Err((RD_KAFKA_CONF_UNKNOWN, text));
        };
        let refuse = |takes: &str| {
            Err((
                RD_KAFKA_CONF_INVALID,
                format!("the processor's \"{name}\" is \"{value}\": it takes {takes}"),
            ))
        };
        match takes {
            Takes::Text => {
                self.texts.insert(name, value.to_owned());
            }
            Takes::Words(words) => {
                let Some(place) = words.iter().position(|word| *word == value) else {
                    return refuse(&words.join(", "));
                };
                self.numbers.insert(name, place as i64);
            }
            Takes::Number(from, to) => {
                let Some(number) = value.trim().parse().ok().filter(|number| (from..=to).contains(&number))
                else {
                    return refuse(&format!("a whole number from {from} to {to}"));
                };
                self.numbers.insert(name, number);
            }
        }
        Ok(())
    }

    fn mode(&self) -> Mode {
        self.number("mode").map_or(Mode::MultiAsync, |place| Mode::ALL[place])
    }

    /// Returns the handler that the mode calls.
    pub(super) fn handler(&self) -> Result<Handler, Error> {
        let (handler, function) = match self.mode() {
            Mode::Sync | Mode::MultiAsync => (self.each, "ottla_processor_settings_set_handler()"),
            Mode::Batch | Mode::MultiBatch => (self.batch, "ottla_processor_settings_set_batch_handler()"),
        };
        let missing = || Error::Config(format!("mode {} needs {function}", self.mode().name()));
        handler.ok_or_else(missing)
    }

    /// Returns the builder of a processor with these settings, on a client with this configuration.
    pub(super) fn builder(&self, config: Config) -> Result<Builder, Error> {
        let topics = self.text("topics").split(',').map(str::trim).filter(|topic| !topic.is_empty());
        let mut builder = Processor::builder(config, self.mode()).topics(topics);
        if let Some(place) = self.number("order") {
            builder = builder.order([Order::None, Order::Partition, Order::Key][place]);
        }
        let counts: [(&str, Set<usize>); 5] = [
            ("workers", Builder::workers),
            ("queue", Builder::queue),
            ("batch", Builder::batch),
            ("records.in.flight", Builder::records_in_flight),
            ("bytes.in.flight", Builder::bytes_in_flight),
        ];
        for (name, set) in counts {
            if let Some(count) = self.number(name) {
                builder = set(builder, count);
            }
        }
        let times: [(&str, Set<Duration>); 4] = [
            ("batch.wait.ms", Builder::batch_wait),
            ("commit.interval.ms", Builder::commit_interval),
            ("drain.ms", Builder::drain),
            ("transaction.ms", Builder::transaction),
        ];
        for (name, set) in times {
            if let Some(time) = self.ms(name) {
                builder = set(builder, time);
            }
        }
        builder = builder.retry(self.retry()).give_up(self.give_up()?);
        if let Some(failures) = self.number("breaker.failures").filter(|failures| *failures > 0) {
            let pause = self.ms("breaker.pause.ms").unwrap_or(Duration::from_secs(10));
            builder = builder.circuit_breaker(failures as u32, pause);
            if let Some(pause_max) = self.ms("breaker.pause.max.ms") {
                builder = builder.circuit_breaker_pause_max(pause_max);
            }
        }
        let id = self.text("transactional.id");
        Ok(if id.is_empty() { builder } else { builder.exactly_once(id) })
    }

    fn retry(&self) -> Retry {
        let mut retry = match self.numbers.get("retries") {
            Some(-1) => Retry::forever(),
            Some(times) => Retry::times(*times as u32),
            None => Retry::default(),
        };
        if let Some(delay) = self.ms("retry.delay.ms") {
            retry = retry.delay(delay);
        }
        if let Some(delay) = self.ms("retry.delay.max.ms") {
            retry = retry.delay_max(delay);
        }
        if self.number("retry.holds") == Some(1) { retry.holding() } else { retry }
    }

    fn give_up(&self) -> Result<GiveUp, Error> {
        let topic = self.text("dead.letter.topic");
        let refuse = |text: &str| Err(Error::Config(text.into()));
        match (self.number("on.failure"), topic) {
            (Some(1), "") => refuse("on.failure is dead-letter, and dead.letter.topic names no topic"),
            (Some(1), topic) => Ok(GiveUp::DeadLetter(topic.to_owned())),
            (_, topic) if !topic.is_empty() => {
                refuse("dead.letter.topic names a topic, and on.failure is not dead-letter")
            }
            (Some(2), _) => Ok(GiveUp::Skip),
            (_, _) => Ok(GiveUp::Stop),
        }
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).and_then(|number| usize::try_from(*number).ok())
    }

    fn ms(&self, name: &str) -> Option<Duration> {
        self.number(name).map(|ms| Duration::from_millis(ms as u64))
    }

    fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_settings_new() -> *mut ottla_processor_settings_t {
    SETTINGS.insert(Arc::default()).map_or(null_mut(), as_pointer)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_settings_destroy(
    settings: *mut ottla_processor_settings_t,
) -> rd_kafka_resp_err_t {
    let known = change(settings, FUNCTION, |_| {});
    found(known.filter(|()| Settings::forget(settings)))
}

#[on_panic(RD_KAFKA_CONF_INVALID)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_settings_set(
    settings: *mut ottla_processor_settings_t,
    name: *const c_char,
    value: *const c_char,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_conf_res_t {
    // SAFETY: `name` and `value` are each NULL or a C string (ottla.h, `ottla_processor_settings_set`).
    let (name, value) = unsafe { (text(name), text(value)) };
    let (name, value) = (name.unwrap_or_default(), value.unwrap_or_default());
    let missing = || Err((RD_KAFKA_CONF_INVALID, "no such settings".to_owned()));
    let set = change(settings, FUNCTION, |settings| settings.set(&name, &value));
    match set.unwrap_or_else(missing) {
        Ok(()) => RD_KAFKA_CONF_OK,
        Err((result, text)) => {
            // SAFETY: `errstr` is NULL or a buffer of `errstr_size` bytes (ottla.h, `ottla_processor_settings_set`).
            unsafe { write_errstr(errstr, errstr_size, &text) };
            result
        }
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_settings_set_handler(
    settings: *mut ottla_processor_settings_t,
    handler: ottla_processor_handler_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let each = handler.map(|function| Handler::Each(function, Opaque(opaque)));
    found(change(settings, FUNCTION, |it| it.each = each))
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn ottla_processor_settings_set_batch_handler(
    settings: *mut ottla_processor_settings_t,
    handler: ottla_processor_batch_handler_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let batch = handler.map(|function| Handler::Batch(function, Opaque(opaque)));
    found(change(settings, FUNCTION, |it| it.batch = batch))
}

fn change<R>(
    settings: *mut ottla_processor_settings_t,
    function: &str,
    change: impl FnOnce(&mut Settings) -> R,
) -> Option<R> {
    let settings = SETTINGS.find(settings, function)?;
    let mut settings = settings.lock().unwrap_or_else(PoisonError::into_inner);
    Some(change(&mut settings))
}

fn found<T>(thing: Option<T>) -> rd_kafka_resp_err_t {
    thing.map_or(RD_KAFKA_RESP_ERR__INVALID_ARG, |_| RD_KAFKA_RESP_ERR_NO_ERROR)
}
