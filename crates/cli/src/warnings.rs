//! Warnings about problems while a command runs: one line each on standard error, without repetition.
//!
//! The client's and the broker's log events arrive here; [`Ledger`] selects the ones to show. `-v` and `OTTLA_LOG`
//! replace this by the whole log.

mod ledger;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ottla_client::Config;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use self::ledger::{Ledger, LogEvent};
use crate::failure::Failure;
use crate::output::note;
use crate::printable::printable;

/// Interval at which slow connections are checked, while there are any.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The bootstrap addresses from the command line.
static BOOTSTRAP: OnceLock<String> = OnceLock::new();

/// A layer that prints warnings and stalls.
pub(crate) struct Warnings {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    /// Notified when a connection attempt starts.
    waiting: Condvar,
}

impl Warnings {
    /// With `doctor`, the first line points to `ottla doctor`.
    pub(crate) fn new(doctor: bool) -> Self {
        let shared = Arc::new(Shared { ledger: Mutex::new(Ledger::new(doctor)), waiting: Condvar::new() });
        let watched = shared.clone();
        // Without this thread there are no warnings about connections; nothing else depends on it.
        let _detached =
            std::thread::Builder::new().name("ottla-warnings".into()).spawn(move || watched.watch());
        Self { shared }
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut ledger = self.ledger();
        loop {
            if ledger.is_waiting() {
                drop(ledger);
                std::thread::sleep(CHECK_INTERVAL);
                ledger = self.ledger();
                let bootstrap = BOOTSTRAP.get().map_or("", String::as_str);
                ledger.due(Instant::now(), bootstrap).iter().for_each(|line| note(line));
            } else {
                ledger = self.waiting.wait(ledger).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        match metadata.target() {
            // Lines about the end of a stall.
            "ottla" => *metadata.level() <= Level::INFO,
            "ottla::broker" | "ottla::msg" => true,
            target => target.starts_with("ottla") && *metadata.level() <= Level::WARN,
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { facility, message, rest } = fields;
        let level = *event.metadata().level();
        let noted = LogEvent {
            is_warning: level <= Level::WARN,
            is_error: level <= Level::ERROR,
            facility,
            message,
            rest,
        };
        let mut ledger = self.shared.ledger();
        let line = ledger.on_event(Instant::now(), noted);
        if ledger.is_waiting() {
            self.shared.waiting.notify_one();
        }
        drop(ledger);
        if let Some(line) = line {
            note(&line);
        }
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    facility: String,
    message: String,
    rest: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Texts of peers and users must not look like lines of the log.
        let text = format!("{value:?}");
        let value = printable(&text);
        match field.name() {
            "message" => self.message = value.into_owned(),
            // The client's number is meaningless to a user.
            "client" => {}
            "error" => self.rest += &format!(": {value}"),
            name => self.rest += &format!(", {name} {value}"),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "facility" => value.clone_into(&mut self.facility),
            name => self.rest += &format!(", {name} {}", printable(value)),
        }
    }
}

/// Turns on the client's events about connections; with `records` also about retried batches.
pub(crate) fn watch(config: &mut Config, records: bool) -> Result<(), Failure> {
    // The user's own setting takes precedence; it is visible with -vv only.
    if !config.is_set("debug") || matches!(&*config.debug, "broker") {
        config.set("debug", if records { "broker,msg" } else { "broker" })?;
    }
    let _first = BOOTSTRAP.set(config.bootstrap_servers.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Collects the texts of events.
    #[derive(Clone, Default)]
    struct Collected(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Collected {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.0.lock().expect("no panic").push(fields.message + &fields.rest);
        }
    }

    /// The second line looked like one of the log.
    #[test]
    fn a_user_name_with_a_newline_is_one_line() {
        let collected = Collected::default();
        let subscriber = tracing_subscriber::registry().with(collected.clone());
        tracing::subscriber::with_default(subscriber, || {
            let error = std::io::Error::other("b\nc");
            tracing::warn!(user = "eve\nottla: forged", %error, "the login of {} failed", "a\u{1b}[2J");
        });
        let lines = collected.0.lock().expect("no panic");
        assert_eq!(*lines, ["the login of a\\x1b[2J failed, user eve\\nottla: forged: b\\nc"]);
    }
}
