//! Warnings about the configuration of a new client, with the texts of the original: programs and their users search for them.

use std::sync::Arc;

use ottla_client::LogLine;
use ottla_client::properties::{Property, Role as UserRole, Scope, find_in};

use crate::client::handle::{Handle, LOG_WARNING};
use crate::client::role::Role;
use crate::conf::{GLOBAL_NAMES, TOPIC_NAMES, rd_kafka_conf_t};
use crate::ffi::*;
use crate::queue::op::Op;

/// The level of a notice in log lines, as in syslog.
const LOG_NOTICE: u8 = 5;

/// The time by which a fetch must be shorter than the timeout of a request.
const FETCH_MARGIN_MS: i64 = 1000;

impl Handle {
    /// Logs the warnings. A list of servers without a server is an error, too.
    pub(super) fn warn_of_conf(self: &Arc<Self>, role: Role) {
        let name = self.name.to_string_lossy();
        let warn = |level, text| {
            self.logs.take_from_application(self, LogLine::new(level, "CONFWARN", &name, text));
        };
        for text in warnings(role, self) {
            warn(LOG_WARNING, text);
        }
        let servers = &self.config.bootstrap_servers;
        if servers.split(',').any(|server| !server.trim().is_empty()) {
            return;
        }
        let text = "No `bootstrap.servers` configured: client will not be able to connect to Kafka cluster";
        warn(LOG_NOTICE, text.to_owned());
        if !servers.is_empty() && self.wants_errors() {
            let code = RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
            self.main.push(Op::Error { code, text: c"No brokers configured".into(), fatal: false });
        }
    }
}

fn warnings(role: Role, handle: &Handle) -> Vec<String> {
    let conf = handle.conf();
    let mut warnings = ignored(role, conf);
    let ms = |name| conf.get(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let (backoff, max) = (ms("retry.backoff.ms"), ms("retry.backoff.max.ms"));
    if backoff > max {
        warnings.push(format!(
            "Configuration `retry.backoff.ms` with value {backoff} is greater than configuration `retry.backoff.max.ms` \
             with value {max}. A static backoff with value `retry.backoff.max.ms` will be applied."
        ));
    }
    let (wait, timeout) = (ms("fetch.wait.max.ms"), ms("socket.timeout.ms"));
    if role == Role::Consumer && wait + FETCH_MARGIN_MS > timeout {
        warnings.push(format!(
            "Configuration property `fetch.wait.max.ms` ({wait}) should be set lower than `socket.timeout.ms` ({timeout}) \
             by at least {FETCH_MARGIN_MS}ms to avoid blocking and timing out sub-sequent requests"
        ));
    }
    let mechanism = conf.get("sasl.mechanisms").unwrap_or_default();
    if conf.is_given("sasl.mechanisms") && !handle.config.security.protocol.is_sasl() {
        warnings.push(format!(
            "Configuration property `sasl.mechanism` set to `{mechanism}` but `security.protocol` is not configured for \
             SASL: recommend setting `security.protocol` to SASL_SSL or SASL_PLAINTEXT"
        ));
    }
    if conf.is_given("sasl.username") && mechanism != "PLAIN" && !mechanism.starts_with("SCRAM") {
        let text = "Configuration property `sasl.username` only applies when `sasl.mechanism` is set to PLAIN or SCRAM-SHA-..";
        warnings.push(text.to_owned());
    }
    warnings
}

/// The properties that have no effect on clients of this kind.
fn ignored(role: Role, conf: &rd_kafka_conf_t) -> Vec<String> {
    let (own, other, of) = match role {
        Role::Producer => ("producer", "consumer", UserRole::Consumer),
        Role::Consumer | Role::ShareConsumer => ("consumer", "producer", UserRole::Producer),
    };
    // In librdkafka, every client has a rack.
    let is_ignored = |property: &Property| property.role == of && property.name != "client.rack";
    let of_client = GLOBAL_NAMES
        .iter()
        .filter(|name| find_in(Scope::Global, name).is_some_and(is_ignored) && conf.is_given(name));
    let of_topics = TOPIC_NAMES.iter().filter(|name| {
        find_in(Scope::Topic, name).is_some_and(is_ignored)
            && conf.default_topic().is_some_and(|topic| topic.is_given(name))
    });
    let text = |name: &&str| {
        format!(
            "Configuration property {name} is a {other} property and will be ignored by this {own} instance"
        )
    };
    of_client.chain(of_topics).map(text).collect()
}
