//! Log lines: what the property `debug` asks for, and what nobody needs to ask for.
//!
//! A line goes to the callback if there is one, to the queue if `log.queue` is on, and to `tracing` otherwise. Whether
//! a context is on is one look at a number; no text is made for one that is off.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::config::Config;
use crate::notices::Notices;

/// Lines that wait in the queue of `log.queue`; older ones are lost.
const QUEUED_LINES_MAX: usize = 10_000;

/// The severities of syslog that are used here.
pub(crate) const ERROR: u8 = 3;
pub(crate) const WARNING: u8 = 4;
pub(crate) const INFO: u8 = 6;
const DEBUG: u8 = 7;

macro_rules! contexts {
    ($($context:ident = $name:literal: $text:literal,)*) => {
        /// What a line for debugging is about: the words of the property `debug`.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[non_exhaustive]
        pub enum Context {
            $(#[doc = $text] $context,)*
        }

        impl Context {
            /// Every context.
            pub const ALL: &[Self] = &[$(Self::$context),*];

            /// Its word in the property `debug`; its lines have the `tracing` target `ottla::WORD`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$context => $name,)*
                }
            }
        }

        fn trace_debug(context: Context, line: &LogLine) {
            let LogLine { facility, client, text, .. } = line;
            match context {
                $(Context::$context => tracing::debug!(target: concat!("ottla::", $name), %client, facility, "{text}"),)*
            }
        }
    };
}

contexts! {
    Generic = "generic": "The client as such: made, ended.",
    Broker = "broker": "Connections: made, failed, lost.",
    Topic = "topic": "Topics: what is known of their partitions.",
    Metadata = "metadata": "Metadata: asked for, come, failed.",
    Feature = "feature": "What brokers can do.",
    Queue = "queue": "Queues that fill.",
    Msg = "msg": "Batches of records: sent, delivered, sent again, failed.",
    Protocol = "protocol": "Each request and each answer.",
    Cgrp = "cgrp": "The consumer group.",
    Security = "security": "TLS and SASL; never a secret.",
    Fetch = "fetch": "What fetches bring.",
    Interceptor = "interceptor": "Interceptors.",
    Plugin = "plugin": "Plugins.",
    Consumer = "consumer": "The consumer.",
    Admin = "admin": "The admin client.",
    Eos = "eos": "Producer ids and transactions.",
    Mock = "mock": "Mock clusters.",
    Assignor = "assignor": "Partition assignment.",
    Conf = "conf": "The configuration, secrets hidden.",
    Telemetry = "telemetry": "Metrics for the broker.",
}

/// One line of the log.
///
/// `Display` gives `%LEVEL|FACILITY|CLIENT| TEXT`, as librdkafka's own printer does; the time is the receiver's to add.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// As in syslog: 3 error, 4 warning, 6 information, 7 debugging.
    pub level: u8,
    /// What kind of event it is: `SEND`, `RECV`, `CONNECT`, `STALL`, ...
    pub facility: &'static str,
    /// The context that asked for it; `None` for lines that nobody asked for.
    pub context: Option<Context>,
    /// The client's name, as in its statistics.
    pub client: Arc<str>,
    /// What happened.
    pub text: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}|{}|{}| {}", self.level, self.facility, self.client, self.text)
    }
}

/// A function that takes log lines: [`Config::log_callback`].
///
/// It is called in the engine's thread: what takes long in it delays everything.
#[derive(Clone)]
pub struct LogCallback(Arc<dyn Fn(&LogLine) + Send + Sync>);

impl LogCallback {
    /// Wraps the function.
    pub fn new(call: impl Fn(&LogLine) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }
}

impl fmt::Debug for LogCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogCallback")
    }
}

/// Where one client's lines go, and which.
#[derive(Debug)]
pub(crate) struct Log {
    /// A bit for each context that `debug` names.
    contexts: u32,
    /// The same, while the level lets such lines through.
    on: AtomicU32,
    level: AtomicU8,
    client: Arc<str>,
    sink: Sink,
    pub(crate) queue: Notices<LogLine>,
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
        // As librdkafka does: asking for debugging lines asks for their level.
        let level = if contexts != 0 && !config.is_set("log_level") { DEBUG } else { config.log_level };
        let sink = match &config.log_callback {
            Some(callback) => Sink::Callback(callback.clone()),
            None if config.log_queue => Sink::Queue,
            None => Sink::Tracing,
        };
        let (on, queue) = (AtomicU32::new(0), Notices::keeping(QUEUED_LINES_MAX));
        let log = Self { contexts, on, level: AtomicU8::new(level), client, sink, queue };
        log.set_level(level);
        log
    }

    /// Lines less serious than this are not given from now on; of those for debugging, what `debug` names.
    pub(crate) fn set_level(&self, level: u8) {
        self.level.store(level, Ordering::Relaxed);
        self.on.store(if level < DEBUG { 0 } else { self.contexts }, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_on(&self, context: Context) -> bool {
        self.on.load(Ordering::Relaxed) & bit(context) != 0
    }

    /// Gives a line for debugging; its text is made only if the context is on.
    #[inline]
    pub(crate) fn debug(&self, context: Context, facility: &'static str, text: impl FnOnce() -> String) {
        if self.is_on(context) {
            self.give(DEBUG, facility, Some(context), text());
        }
    }

    /// Gives a line of this severity, if `log_level` lets it through.
    pub(crate) fn say(&self, level: u8, facility: &'static str, text: String) {
        if level <= self.level.load(Ordering::Relaxed) {
            self.give(level, facility, None, text);
        }
    }

    fn give(&self, level: u8, facility: &'static str, context: Option<Context>, text: String) {
        let line = LogLine { level, facility, context, client: self.client.clone(), text };
        match (&self.sink, context) {
            (Sink::Callback(callback), _) => (callback.0)(&line),
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

/// The contexts that the property names; its words were checked when it was set.
fn contexts_of(debug: &str) -> u32 {
    debug.split(',').map(str::trim).fold(0, |on, word| {
        let named = Context::ALL.iter().filter(|context| word == "all" || context.name() == word);
        named.fold(on, |on, context| on | bit(*context))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
