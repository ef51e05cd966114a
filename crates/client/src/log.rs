//! The log: lines of the contexts in the property `debug`, and lines that are always on.
//!
//! A line goes to the callback if there is one, to the queue if `log.queue` is on, and to `tracing` otherwise. The
//! check for an enabled context is one atomic load, and disabled contexts format no text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::config::Config;
use crate::notification_queue::NotificationQueue;
use crate::panics::contained;
use crate::types::log_line::trace_debug;
pub use crate::types::log_line::{Context, LogCallback, LogLine};

/// Lines that wait in the queue of `log.queue`; older ones are lost.
const QUEUED_LINES_MAX: usize = 10_000;

/// The syslog severities in use.
pub(crate) const ERROR: u8 = 3;
pub(crate) const WARNING: u8 = 4;
pub(crate) const INFO: u8 = 6;
const DEBUG: u8 = 7;

/// The log settings and destination of one client.
#[derive(Debug)]
pub(crate) struct Log {
    /// A bit for each context that `debug` names.
    contexts: u32,
    /// The enabled contexts, at the current level.
    on: AtomicU32,
    level: AtomicU8,
    client: Arc<str>,
    sink: Sink,
    pub(crate) queue: NotificationQueue<LogLine>,
}

#[derive(Debug)]
enum Sink {
    Callback(LogCallback),
    Queue,
    Tracing,
}

impl Log {
    pub(crate) fn new(config: &Config, client: Arc<str>) -> Self {
        let contexts = contexts_of(&config.debug);
        // As in librdkafka, `debug` raises the level to that of debug lines.
        let level = if contexts != 0 && !config.is_set("log_level") { DEBUG } else { config.log_level };
        let sink = match &config.log_callback {
            Some(callback) => Sink::Callback(callback.clone()),
            None if config.log_queue => Sink::Queue,
            None => Sink::Tracing,
        };
        let (on, queue) = (AtomicU32::new(0), NotificationQueue::keeping(QUEUED_LINES_MAX));
        let log = Self { contexts, on, level: AtomicU8::new(level), client, sink, queue };
        log.set_level(level);
        log
    }

    /// Sets the lowest severity that is logged; debug lines must also belong to a context of `debug`.
    pub(crate) fn set_level(&self, level: u8) {
        self.level.store(level, Ordering::Relaxed);
        self.on.store(if level < DEBUG { 0 } else { self.contexts }, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_on(&self, context: Context) -> bool {
        self.on.load(Ordering::Relaxed) & bit(context) != 0
    }

    /// Logs a debug line; its text is formatted only if the context is enabled.
    #[inline]
    pub(crate) fn debug(&self, context: Context, facility: &'static str, text: impl FnOnce() -> String) {
        if self.is_on(context) {
            self.give(DEBUG, facility, Some(context), text());
        }
    }

    /// Logs a debug line of the client as such if any context is enabled.
    pub(crate) fn debug_in_any(&self, facility: &'static str, text: impl FnOnce() -> String) {
        if self.on.load(Ordering::Relaxed) != 0 {
            self.give(DEBUG, facility, Some(Context::Generic), text());
        }
    }

    /// Logs a line of this severity, if `log_level` permits it.
    pub(crate) fn say(&self, level: u8, facility: &'static str, text: String) {
        if level <= self.level.load(Ordering::Relaxed) {
            self.give(level, facility, None, text);
        }
    }

    fn give(&self, level: u8, facility: &'static str, context: Option<Context>, text: String) {
        let line = LogLine { level, facility, context, client: self.client.clone(), text };
        match (&self.sink, context) {
            // A panic loses the line: the task that logs it continues.
            (Sink::Callback(callback), _) => {
                let _ = contained(|| (callback.0)(&line));
            }
            (Sink::Queue, _) => self.queue.push(line),
            (Sink::Tracing, Some(context)) => trace_debug(context, &line),
            (Sink::Tracing, None) => {
                let LogLine { client, text, .. } = &line;
                match level {
                    0..=ERROR => tracing::error!(target: "ottla", %client, facility, "{text}"),
                    WARNING => tracing::warn!(target: "ottla", %client, facility, "{text}"),
                    _ => tracing::info!(target: "ottla", %client, facility, "{text}"),
                }
            }
        }
    }
}

const fn bit(context: Context) -> u32 {
    1 << context as u32
}

/// The contexts that the property names; its words were validated when it was set.
fn contexts_of(debug: &str) -> u32 {
    debug.split(',').map(str::trim).fold(0, |on, word| {
        let named = Context::ALL.iter().filter(|context| word == "all" || context.name() == word);
        named.fold(on, |on, context| on | bit(*context))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The panic ended the task that logged the line, and with it the client.
    #[test]
    fn a_panic_of_the_callback_loses_only_its_line() {
        let mut config = Config::new("localhost");
        let heard = Arc::<AtomicU32>::default();
        let counter = heard.clone();
        config.log_callback = Some(LogCallback::new(move |line: &LogLine| {
            counter.fetch_add(1, Ordering::Relaxed);
            assert_ne!(line.text, "stuck", "a line that the callback does not expect");
        }));
        let log = Log::new(&config, "c#1".into());
        log.say(WARNING, "STALL", "stuck".into());
        log.say(WARNING, "STALL", "over".into());
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn only_what_is_asked_for_is_put_into_words() {
        let mut config = Config::new("localhost");
        config.set("debug", "msg, protocol").expect("two contexts");
        config.set("log.queue", "true").expect("a flag");
        let log = Log::new(&config, "c#1".into());
        log.debug(Context::Fetch, "FETCH", || unreachable!("fetch is off"));
        log.debug(Context::Msg, "MSGSET", || "hello".into());
        assert_eq!(log.queue.try_next().expect("a line").to_string(), "%7|MSGSET|c#1| hello");
        config.set("log_level", "6").expect("a level");
        let log = Log::new(&config, "c#1".into());
        assert!(!log.is_on(Context::Msg), "an explicit level holds");
        log.set_level(DEBUG);
        assert!(log.is_on(Context::Msg) && !log.is_on(Context::Fetch), "what was asked for");
        log.set_level(WARNING);
        log.say(WARNING, "STALL", "stuck".into());
        log.say(DEBUG, "NO", "not let through".into());
        assert_eq!(log.queue.len(), 1);
        assert_eq!(contexts_of("all").count_ones() as usize, Context::ALL.len());
        assert_eq!(contexts_of(""), 0);
    }
}
