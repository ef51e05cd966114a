//! `ottla bench patterns --crash` and `--rebalance`: messages that are lost, repeated or handled out of order when
//! members of a group end.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ottla_client::{Client, NewTopic};
use ottla_parallel::Mode;
use serde_json::json;

use super::{Args, produce};
use crate::bench::TOPIC_WITHIN;
use crate::bench::measure::report;
use crate::bench::new_group;
use crate::connect::runtime;
use crate::failure::{Failure, sentence};

/// Messages of each measurement, and their keys.
const MESSAGES: u64 = 6_000;
const KEYS: u64 = 30;

/// Default time in microseconds that each message blocks its worker.
const BLOCK_US: u64 = 2_000;

/// Without a message for this time, those that are missing are lost. The session timeout of a killed member and a
/// rebalance are shorter.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// Interval at which the file of handled messages is read.
const READ_EVERY: Duration = Duration::from_millis(5);

/// Time limit for the orderly end of a member.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// The program whose members are measured.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Program {
    Ottla,
    /// The program of a peer, which takes the same arguments.
    Peer(PathBuf),
}

/// The end of a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// SIGKILL. The next member starts afterwards.
    Kill,
    /// In an orderly way. The next member has started before.
    Leave,
}

/// The result, of which all numbers but the first should be small.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Outcome {
    pub(super) messages: u64,
    /// Messages that no member handled.
    pub(super) lost: u64,
    /// Handled messages beyond the first time.
    pub(super) repeated: u64,
    /// Messages that were first handled after a later one of their key.
    pub(super) overtaken: u64,
}

pub(super) fn run(args: &Args, client: &Client) -> Result<(), Failure> {
    let (ending, times) = match (args.crash, args.rebalance) {
        (Some(times), _) => (Ending::Kill, times),
        (None, times) => (Ending::Leave, times.unwrap_or(1)),
    };
    for mode in args.modes() {
        let outcome = measure(args, client, mode, &Program::Ottla, ending, times)?;
        let fields = json!({
            "mode": mode.name(),
            "messages": outcome.messages,
            "lost": outcome.lost,
            "repeated": outcome.repeated,
            "overtaken": outcome.overtaken,
        });
        let how = if ending == Ending::Kill { "kills" } else { "rebalances" };
        let title = format!("{}: {times} {how}, {} messages of {KEYS} keys", mode.name(), outcome.messages);
        report(&title, fields.as_object().cloned().unwrap_or_default(), args.common.json)?;
    }
    Ok(())
}

/// Reads a new topic with a group whose member ends this number of times.
pub(super) fn measure(
    args: &Args,
    client: &Client,
    mode: Mode,
    program: &Program,
    ending: Ending,
    times: u64,
) -> Result<Outcome, Failure> {
    let topic = create_topic(args, client, mode)?;
    let result = produce(client, &topic, 0..MESSAGES, KEYS)
        .and_then(|()| follow(&Members::new(args, mode, program, &topic)?, ending, times));
    runtime()?.block_on(client.admin().delete_topics(&[&topic]))?;
    result
}

/// Creates a topic of a unique name.
pub(super) fn create_topic(args: &Args, client: &Client, mode: Mode) -> Result<String, Failure> {
    let topic = format!("{}-{}", args.common.topic, new_group(mode.name()));
    let admin = client.admin();
    runtime()?.block_on(async {
        admin.create_topics(&[NewTopic::new(&topic).partitions(args.common.partitions)]).await?;
        admin.await_topic(&topic, TOPIC_WITHIN).await
    })?;
    Ok(topic)
}

fn follow(members: &Members, ending: Ending, times: u64) -> Result<Outcome, Failure> {
    let mut member = members.start()?;
    for time in 1..=times {
        members.await_handled(&mut member, MESSAGES * time / (times + 1))?;
        member = match ending {
            Ending::Kill => {
                member.kill()?;
                members.start()?
            }
            Ending::Leave => {
                let next = members.start()?;
                members.await_handled(&mut member, MESSAGES * (2 * time + 1) / (2 * (times + 1)))?;
                member.leave()?;
                next
            }
        };
    }
    members.await_handled(&mut member, MESSAGES)?;
    member.leave()?;
    members.outcome()
}

/// The members of one group, which note what they handle in one file.
pub(super) struct Members {
    folder: tempfile::TempDir,
    program: Program,
    args: Vec<String>,
}

/// A member as a process, which ends with this value.
pub(super) struct Member(Child);

impl Members {
    pub(super) fn new(args: &Args, mode: Mode, program: &Program, topic: &str) -> Result<Self, Failure> {
        let no_folder = |error: std::io::Error| {
            Failure::failed(format!("cannot create a temporary directory: {}", sentence(&error)))
        };
        let folder = tempfile::tempdir().map_err(no_folder)?;
        let block_us = args.block_us.unwrap_or(BLOCK_US).to_string();
        let (workers, file) = (args.workers.to_string(), folder.path().join("handled"));
        File::create(&file).map_err(no_folder)?;
        let file = file.display().to_string();
        let mut all: Vec<String> = ["--topic", topic, "--mode", mode.name(), "--workers", &workers]
            .into_iter()
            .chain(["--block-us", &block_us, "--member", topic, "--handled", &file])
            .map(str::to_owned)
            .collect();
        match program {
            Program::Ottla => {
                all.splice(..0, ["bench", "patterns"].map(str::to_owned));
                all.extend(args.common.connect.arguments());
                if let Some(order) = args.order {
                    all.extend(["--order".to_owned(), super::order_name(order).to_owned()]);
                }
                if let Some(wait) = args.batch_wait_ms {
                    all.extend(["--batch-wait-ms".to_owned(), wait.to_string()]);
                }
            }
            Program::Peer(_) => {
                all.extend(["--brokers".to_owned(), args.common.config()?.bootstrap_servers]);
            }
        }
        Ok(Self { folder, program: program.clone(), args: all })
    }

    /// Sets the time that each message blocks its worker.
    pub(super) fn block_us(mut self, block_us: u64) -> Self {
        if let Some(at) = self.args.iter().position(|arg| arg == "--block-us") {
            self.args[at + 1] = block_us.to_string();
        }
        self
    }

    fn handled(&self) -> PathBuf {
        self.folder.path().join("handled")
    }

    pub(super) fn start(&self) -> Result<Member, Failure> {
        let program = match &self.program {
            Program::Ottla => std::env::current_exe(),
            Program::Peer(path) => Ok(path.clone()),
        };
        let child = program.and_then(|program| {
            Command::new(program)
                .args(&self.args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        });
        child
            .map(Member)
            .map_err(|error| Failure::failed(format!("cannot start a member: {}", sentence(&error))))
    }

    /// Waits until this number of different messages is handled, or until no more arrive.
    pub(super) fn await_handled(&self, member: &mut Member, count: u64) -> Result<(), Failure> {
        let (mut known, mut moved) = (0, Instant::now());
        loop {
            let handled = Handled::read(&self.handled())?.distinct;
            if handled >= count {
                return Ok(());
            }
            if handled > known {
                (known, moved) = (handled, Instant::now());
            } else if moved.elapsed() >= LOST_AFTER {
                return Ok(());
            }
            if let Ok(Some(status)) = member.0.try_wait() {
                return Err(member.failed(status));
            }
            std::thread::park_timeout(READ_EVERY);
        }
    }

    fn outcome(&self) -> Result<Outcome, Failure> {
        let handled = Handled::read(&self.handled())?;
        Ok(Outcome {
            messages: MESSAGES,
            lost: MESSAGES.saturating_sub(handled.distinct),
            repeated: handled.all - handled.distinct,
            overtaken: handled.overtaken,
        })
    }
}

impl Member {
    fn kill(mut self) -> Result<(), Failure> {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        killed
            .map(drop)
            .map_err(|error| Failure::failed(format!("cannot kill a member: {}", sentence(&error))))
    }

    /// Ends it in an orderly way and returns its output.
    pub(super) fn leave(mut self) -> Result<String, Failure> {
        drop(self.0.stdin.take());
        let began = Instant::now();
        while began.elapsed() < STOP_WITHIN {
            match self.0.try_wait() {
                Ok(None) => std::thread::park_timeout(READ_EVERY),
                Ok(Some(status)) if status.success() => {
                    let mut text = String::new();
                    if let Some(mut output) = self.0.stdout.take() {
                        // Text that cannot be read has no numbers either, which is reported where they are needed.
                        let _ = output.read_to_string(&mut text);
                    }
                    return Ok(text);
                }
                Ok(Some(status)) => return Err(self.failed(status)),
                Err(error) => return Err(Failure::failed(format!("a member: {}", sentence(&error)))),
            }
        }
        let seconds = STOP_WITHIN.as_secs();
        Err(Failure::failed(format!("a member did not end within {seconds} s after its input was closed")))
    }
}

impl Member {
    /// A member that ended on its own, with the last line that it printed.
    fn failed(&mut self, status: ExitStatus) -> Failure {
        let mut text = String::new();
        if let Some(mut errors) = self.0.stderr.take() {
            // Without text the status remains.
            let _ = errors.read_to_string(&mut text);
        }
        Failure::failed(format!(
            "a member failed: {status}: {}",
            text.lines().last().unwrap_or("no error message")
        ))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The notes of all members, in the order of their writes.
#[derive(Debug, Default, Eq, PartialEq)]
struct Handled {
    all: u64,
    distinct: u64,
    overtaken: u64,
}

impl Handled {
    fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
        let ids = bytes.chunks_exact(8).map(|id| u64::from_le_bytes(id.try_into().unwrap_or_default()));
        Ok(Self::of(ids))
    }

    fn of(ids: impl Iterator<Item = u64>) -> Self {
        let mut handled = Self::default();
        let mut seen = vec![false; MESSAGES as usize];
        let mut highest = [None; KEYS as usize];
        for id in ids {
            handled.all += 1;
            let Some(seen) = seen.get_mut(id as usize).filter(|seen| !**seen) else { continue };
            *seen = true;
            handled.distinct += 1;
            let highest = &mut highest[(id % KEYS) as usize];
            if highest.is_some_and(|highest| highest > id) {
                handled.overtaken += 1;
            }
            *highest = (*highest).max(Some(id));
        }
        handled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_and_overtaken_messages_are_counted_per_key() {
        // 31 and 1 have the same key, 2 another one.
        let handled = Handled::of([31, 2, 1, 31, 1, 61].into_iter());
        assert_eq!(handled, Handled { all: 6, distinct: 4, overtaken: 1 });
    }
}
