//! Kerberos settings, and the command that gets a ticket.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;

/// The name of the property that [`Kerberos::kinit_command`] holds.
const COMMAND: &str = "sasl.kerberos.kinit.cmd";
/// The end of `kinit` without a server: MIT's library asks each server several times, for about 30 s in all.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// The time between two looks at the command: short against `kinit`, which takes about 10 ms.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The part of the command's errors that is read; the rest is discarded.
const ERRORS_BYTES_MAX: usize = 4096;

/// The settings of `sasl.mechanism=GSSAPI`.
#[derive(Clone, Debug)]
pub struct Kerberos {
    /// `sasl.kerberos.service.name`: the first part of the brokers' principal, `kafka` by default.
    pub service_name: String,
    /// `sasl.kerberos.principal`: this client's name, `kafkaclient` by default.
    pub principal: String,
    /// `sasl.kerberos.keytab`: the file with the principal's key, for the command.
    pub keytab: String,
    /// `sasl.kerberos.kinit.cmd`: the shell command that gets or renews the ticket. `%{NAME}` is replaced by the value of
    /// the property `NAME`. If empty, the client uses the ticket that it finds.
    pub kinit_command: String,
    /// `sasl.kerberos.min.time.before.relogin`: the time between two runs of the command. If zero, it runs only until
    /// it has succeeded once.
    pub min_time_before_relogin: Duration,
}

impl Default for Kerberos {
    fn default() -> Self {
        Self {
            service_name: "kafka".into(),
            principal: "kafkaclient".into(),
            keytab: String::new(),
            kinit_command: KINIT.into(),
            min_time_before_relogin: Duration::from_secs(60),
        }
    }
}

/// librdkafka's default command.
pub(crate) const KINIT: &str = r#"kinit -R -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal} || kinit -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}"#;

impl Kerberos {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.service_name.is_empty() {
            return Err(Error::Config("sasl.mechanism=GSSAPI needs sasl.kerberos.service.name".into()));
        }
        Ok(())
    }

    /// The command with the values of properties, which `value_of` returns; `None` if it is empty.
    pub(crate) fn command(
        &self,
        value_of: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Option<String>, Error> {
        if self.kinit_command.is_empty() {
            return Ok(None);
        }
        let filled = fill(&self.kinit_command, value_of);
        filled.map(Some).map_err(|reason| Error::Config(format!("{COMMAND}: {reason}")))
    }
}

/// Replaces each `%{NAME}`. A `%` without a brace is an ordinary character.
fn fill(template: &str, value_of: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("%{") {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("`%{{{after}` has no closing brace"))?;
        filled.push_str(before);
        filled.push_str(&value_of(name)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Runs a shell command to its end, and returns the last line of its errors if it fails. Blocks.
///
/// The command and all that it has started are killed after [`ENDS_WITHIN`], or when `is_wanted` returns `false`.
pub(crate) fn run(command: &str, is_wanted: impl Fn() -> bool) -> Result<(), String> {
    run_within(command, is_wanted, ENDS_WITHIN).map_err(|reason| format!("{COMMAND} {reason}"))
}

fn run_within(command: &str, is_wanted: impl Fn() -> bool, within: Duration) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // A group of its own, which can be killed as a whole.
    let mut child = shell.process_group(0).spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let mut errors = ErrorLines::of(child.stderr.take());
    let ended = wait(&mut child, &mut errors, is_wanted, within);
    let status = match ended {
        Ok(Some(status)) => status,
        Ok(None) => {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
            return Err(format!("did not end within {} s", within.as_secs()));
        }
        Err(error) => return Err(format!("cannot be waited for: {error}")),
    };
    if status.success() {
        return Ok(());
    }
    match errors.last() {
        Some(line) => Err(format!("failed ({status}): {line}")),
        None => Err(format!("failed ({status})")),
    }
}

/// Returns the exit status, or `None` if the command runs too long or is not wanted any more.
fn wait(
    child: &mut Child,
    errors: &mut ErrorLines,
    is_wanted: impl Fn() -> bool,
    within: Duration,
) -> io::Result<Option<ExitStatus>> {
    let mut waited = Duration::ZERO;
    loop {
        let ended = child.try_wait()?;
        errors.read();
        if ended.is_some() || waited >= within || !is_wanted() {
            return Ok(ended);
        }
        #[allow(clippy::disallowed_methods, reason = "the thread of the command has nothing else to do")]
        std::thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}

/// The beginning of a command's errors.
struct ErrorLines {
    pipe: Option<ChildStderr>,
    text: Vec<u8>,
}

impl ErrorLines {
    fn of(pipe: Option<ChildStderr>) -> Self {
        // A process that the command leaves behind keeps the pipe open: its end is not waited for.
        let pipe = pipe.filter(|pipe| rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK).is_ok());
        Self { pipe, text: Vec::new() }
    }

    fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let room = ERRORS_BYTES_MAX - self.text.len();
            self.text.extend_from_slice(&buffer[..count.min(room)]);
        }
    }

    fn last(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.text);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(name: &str) -> Result<String, String> {
        match name {
            "sasl.kerberos.principal" => Ok("alice@EXAMPLE".into()),
            "sasl.kerberos.keytab" => Ok("/etc/my keys".into()),
            _ => Err(format!("unknown property `{name}`")),
        }
    }

    #[test]
    fn a_kinit_command_gets_the_values_of_properties() {
        let of = |command: &str| {
            Kerberos { kinit_command: command.into(), ..Kerberos::default() }.command(value_of)
        };
        let whole = Kerberos::default().command(value_of).expect("valid").expect("a command");
        assert_eq!(
            whole,
            r#"kinit -R -t "/etc/my keys" -k alice@EXAMPLE || kinit -t "/etc/my keys" -k alice@EXAMPLE"#
        );
        assert_eq!(of("date +%H{}%").expect("valid").as_deref(), Some("date +%H{}%"));
        assert_eq!(of("").expect("valid"), None, "no command");
        for (command, part) in [
            ("kinit %{sasl.kerberos.", "sasl.kerberos.kinit.cmd: `%{sasl.kerberos.` has no closing brace"),
            ("kinit %{broker.name}", "sasl.kerberos.kinit.cmd: unknown property `broker.name`"),
        ] {
            let error = of(command).expect_err("refused").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_command_that_fails_is_reported_with_its_last_line() {
        assert_eq!(run("true", || true), Ok(()));
        let error = run("echo first >&2; echo; echo 'no such key' >&2; exit 3", || true).expect_err("failed");
        assert_eq!(error, "sasl.kerberos.kinit.cmd failed (exit status: 3): no such key");
        let missing = run("ottla-has-no-such-command", || true).expect_err("failed");
        assert!(missing.contains("not found"), "{missing}");
        let long = run("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1", || true).expect_err("failed");
        assert!(long.len() < 2 * ERRORS_BYTES_MAX, "{}", long.len());
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let error =
            run_within("sleep 600 & sleep 600", || true, Duration::from_millis(50)).expect_err("killed");
        assert!(error.contains("did not end within"), "{error}");
        run("sleep 600", || false).expect_err("not wanted any more");
    }
}
