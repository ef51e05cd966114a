//! GSSAPI (RFC 4752): the broker and the client prove who they are with tickets of Kerberos.
//!
//! The library may wait for the Kerberos server, and so does the command that gets tickets: both run on threads of their
//! own.

use std::time::Duration;

use tokio::sync::{Mutex, RwLock, oneshot};
use tokio::time::Instant;

use super::{SaslChannel, SaslExchange};
use crate::config::Config;
use crate::error::Error;
use crate::security::gssapi::{Dialogue, KerberosContext, Library};
use crate::security::kerberos;

/// The pause after a failed command if `sasl.kerberos.min.time.before.relogin` is 0.
const COMMAND_RETRY: Duration = Duration::from_secs(10);

/// The cache of tickets, which all clients of a process share: `kinit` replaces it while no login reads it.
static TICKET_CACHE: RwLock<()> = RwLock::const_new(());

/// The Kerberos names of a client and its brokers, and the command that keeps the ticket fresh.
pub(super) struct KerberosLogin {
    service_name: String,
    principal: String,
    /// `sasl.kerberos.kinit.cmd` with the values of properties.
    command: Option<String>,
    interval: Duration,
    /// Locked while the command runs: connections that need a ticket at the same time share a run.
    renewal: Mutex<Renewal>,
}

/// The runs of the command.
#[derive(Default)]
struct Renewal {
    /// The time and the outcome of the last run.
    last: Option<(Instant, Result<(), String>)>,
    /// `true` after the first success: the ticket may be valid although a later run fails.
    has_succeeded: bool,
}

impl Renewal {
    /// The time until the next run; `None` if there is none.
    fn due_in(&self, interval: Duration, now: Instant) -> Option<Duration> {
        let Some((at, _)) = &self.last else { return Some(Duration::ZERO) };
        let pause = match interval {
            Duration::ZERO if self.has_succeeded => return None,
            Duration::ZERO => COMMAND_RETRY,
            interval => interval,
        };
        Some((*at + pause).saturating_duration_since(now))
    }

    fn on_run(&mut self, now: Instant, outcome: Result<(), String>) {
        self.has_succeeded |= outcome.is_ok();
        self.last = Some((now, outcome));
    }

    fn outcome(&self) -> Result<(), String> {
        self.last.as_ref().map_or(Ok(()), |(_, outcome)| outcome.clone())
    }
}

impl KerberosLogin {
    /// Loads the library and fills in the command, so that errors are reported at once.
    pub(super) fn new(config: &Config) -> Result<Self, Error> {
        let settings = &config.security.sasl.kerberos;
        let by_default = if config.security.sasl.mechanism.is_some() { "" } else { ", the default," };
        Library::load().map_err(|reason| {
            Error::Config(format!(
                "sasl.mechanism=GSSAPI{by_default} is Kerberos: {reason}, or set another sasl.mechanism"
            ))
        })?;
        Ok(Self {
            service_name: settings.service_name.clone(),
            principal: settings.principal.clone(),
            command: settings.command(|name| value_of(config, name))?,
            interval: settings.min_time_before_relogin,
            renewal: Mutex::default(),
        })
    }

    /// Runs the command now and then again after each interval, until it is dropped. Returns if there is no next run.
    pub(super) async fn keep_ticket_fresh(&self, on_failure: impl Fn(String)) {
        loop {
            if let Some(Err(reason)) = self.renew_if_due().await {
                on_failure(reason);
            }
            let due_in = self.renewal.lock().await.due_in(self.interval, Instant::now());
            match due_in {
                Some(pause) if self.command.is_some() => tokio::time::sleep(pause).await,
                _ => return,
            }
        }
    }

    /// Waits for the first success of the command, if there is one.
    async fn ticket(&self) -> Result<(), String> {
        self.renew_if_due().await;
        let renewal = self.renewal.lock().await;
        if renewal.has_succeeded { Ok(()) } else { renewal.outcome() }
    }

    /// Runs the command if it is time, and returns its outcome.
    async fn renew_if_due(&self) -> Option<Result<(), String>> {
        let command = self.command.clone()?;
        let mut renewal = self.renewal.lock().await;
        if !renewal.due_in(self.interval, Instant::now())?.is_zero() {
            return None;
        }
        let _alone = TICKET_CACHE.write().await;
        let outcome = aside(move |is_wanted| kerberos::run(&command, is_wanted)).await.flatten();
        renewal.on_run(Instant::now(), outcome.clone());
        Some(outcome)
    }

    /// The last failure of the command: the reason why a ticket is missing or expired.
    async fn explained(&self, reason: String) -> String {
        match self.renewal.lock().await.outcome() {
            Ok(()) => reason,
            Err(failure) => format!("{reason} ({failure})"),
        }
    }
}

pub(super) async fn prove<L: SaslChannel>(
    exchange: &mut SaslExchange<'_, L>,
    login: Option<&KerberosLogin>,
) -> Result<(), Error> {
    let login = login.ok_or_else(|| exchange.refused("the client has no Kerberos settings"))?;
    login.ticket().await.map_err(|reason| exchange.refused(&reason))?;
    let (service, principal) = (login.service_name.clone(), login.principal.clone());
    let host = exchange.line.host().to_owned();
    let target = format!("{service}/{host}");
    let mut dialogue = None;
    let mut message = bytes::Bytes::new();
    loop {
        let cache = TICKET_CACHE.read().await;
        let (service, host, principal) = (service.clone(), host.clone(), principal.clone());
        let answered = aside(move |_| {
            let mut dialogue = match dialogue {
                Some(dialogue) => dialogue,
                None => Dialogue::new(KerberosContext::new(&service, &host, &principal)?),
            };
            let answer = dialogue.answer(&message)?;
            Ok((dialogue, answer))
        });
        let answered = answered.await.flatten();
        drop(cache);
        let (next, answer) = match answered {
            Ok(answered) => answered,
            Err(reason) => {
                let reason = login.explained(reason).await;
                return Err(exchange.refused(&format!("no proof for {target}: {reason}")));
            }
        };
        if next.is_done() {
            return exchange.say_last(answer).await;
        }
        dialogue = Some(next);
        message = exchange.say(answer).await?;
    }
}

/// The value of a property in the command. Arguments of commands are visible to all users of a machine.
fn value_of(config: &Config, name: &str) -> Result<String, String> {
    let property =
        crate::config::properties::find(name).ok_or_else(|| format!("`%{{{name}}}` is not a property"))?;
    if property.secret {
        return Err(format!(
            "`%{{{name}}}` is a secret: a command would show it to other users of the machine"
        ));
    }
    config.get(name).map_err(|error| error.to_string())
}

/// Runs work that may block on a thread of its own. The work can ask whether its result is still wanted.
async fn aside<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, result) = oneshot::channel();
    let run = move || {
        let done = work(&|| !sender.is_closed());
        let _ = sender.send(done);
    };
    std::thread::Builder::new()
        .name("ottla-kerberos".into())
        .spawn(run)
        .map_err(|error| format!("no thread for Kerberos: {error}"))?;
    result.await.map_err(|_| "the thread of Kerberos ended early".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(command: &str, interval: Duration) -> KerberosLogin {
        KerberosLogin {
            service_name: "kafka".into(),
            principal: "alice".into(),
            command: Some(command.into()).filter(|command: &String| !command.is_empty()),
            interval,
            renewal: Mutex::default(),
        }
    }

    #[test]
    fn a_command_runs_at_the_start_and_after_each_interval() {
        let now = Instant::now();
        let minute = Duration::from_secs(60);
        let mut renewal = Renewal::default();
        assert_eq!(renewal.due_in(minute, now), Some(Duration::ZERO));
        renewal.on_run(now, Err("no server".into()));
        assert_eq!(renewal.due_in(minute, now + minute / 4), Some(minute * 3 / 4), "after a failure too");
        assert_eq!(renewal.due_in(Duration::ZERO, now), Some(COMMAND_RETRY), "until the first success");
        renewal.on_run(now + minute, Ok(()));
        assert_eq!(renewal.due_in(minute, now + minute * 3), Some(Duration::ZERO));
        assert_eq!(renewal.due_in(Duration::ZERO, now + minute * 3), None, "never again");
    }

    #[tokio::test]
    async fn connections_share_a_run_and_wait_for_its_success() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path().join("runs");
        let command = format!("echo run >> {}", runs.display());
        let login = login(&command, Duration::from_secs(60));
        let (one, two) = tokio::join!(login.ticket(), login.ticket());
        assert_eq!((one, two), (Ok(()), Ok(())));
        assert_eq!(std::fs::read_to_string(&runs).expect("written"), "run\n");
    }

    #[tokio::test]
    async fn a_failed_command_is_the_reason_of_each_refusal_until_it_runs_again() {
        let login = login("echo 'no key for alice' >&2; exit 1", Duration::from_millis(1));
        for _ in 0..2 {
            let error = login.ticket().await.expect_err("refused");
            assert_eq!(error, "sasl.kerberos.kinit.cmd failed (exit status: 1): no key for alice");
        }
        assert!(login.explained("the ticket expired".into()).await.ends_with("no key for alice)"));
    }

    #[tokio::test]
    async fn without_a_command_the_ticket_of_the_cache_is_used() {
        let login = login("", Duration::from_secs(60));
        login.ticket().await.expect("nothing to wait for");
        login.keep_ticket_fresh(|reason| panic!("{reason}")).await;
    }

    #[test]
    fn secrets_and_unknown_names_are_not_put_into_a_command() {
        let mut config = Config::default();
        config.set("sasl.password", "swordfish").expect("known");
        assert_eq!(value_of(&config, "sasl.kerberos.service.name").as_deref(), Ok("kafka"));
        assert!(value_of(&config, "sasl.password").expect_err("refused").contains("is a secret"));
        assert!(value_of(&config, "broker.name").expect_err("refused").contains("is not a property"));
    }
}
