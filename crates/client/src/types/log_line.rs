//! Log lines, their contexts, and the callback that receives them.

use std::fmt;
use std::sync::Arc;

macro_rules! contexts {
    ($($context:ident = $name:literal: $text:literal,)*) => {
        /// The context of a debug line: a word of the property `debug`.
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

        pub(crate) fn trace_debug(context: Context, line: &LogLine) {
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
    Feature = "feature": "The brokers' supported requests.",
    Queue = "queue": "Queues that fill.",
    Msg = "msg": "Batches of records: sent, delivered, sent again, failed.",
    Protocol = "protocol": "Each request and each answer.",
    Cgrp = "cgrp": "The consumer group.",
    Security = "security": "TLS and SASL; never a secret.",
    Fetch = "fetch": "The results of fetches.",
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
/// `Display` writes `%LEVEL|FACILITY|CLIENT| TEXT`, in librdkafka's format; the receiver adds the time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// As in syslog: 3 error, 4 warning, 6 information, 7 debugging.
    pub level: u8,
    /// The kind of event: `SEND`, `RECV`, `CONNECT`, `STALL`, ...
    pub facility: &'static str,
    /// The context of a debug line; `None` for lines that are always on.
    pub context: Option<Context>,
    /// The client's name, as in its statistics.
    pub client: Arc<str>,
    /// The message.
    pub text: String,
}

impl LogLine {
    /// Creates a line that is always on, for a program that adds its own to those of a client.
    pub fn new(level: u8, facility: &'static str, client: &str, text: String) -> Self {
        Self { level, facility, context: None, client: client.into(), text }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}|{}|{}| {}", self.level, self.facility, self.client, self.text)
    }
}

/// A function that receives the log lines: [`Config::log_callback`](crate::Config::log_callback).
///
/// The engine's thread calls it, so a slow function delays all work of the client.
#[derive(Clone)]
pub struct LogCallback(pub(crate) Arc<dyn Fn(&LogLine) + Send + Sync>);

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
