//! A worker's child process: lines in, answers out.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_client::RecordView;
use ottla_parallel::Failure;

use crate::failure::sentence;
use crate::format::{Format, Shown};
use crate::output::print;

/// Lines that a process has not answered together take no more than this: they fit into its pipe, so that writing them does
/// not wait for a process that waits for us to read its answers.
const UNANSWERED_BYTES_MAX: usize = 32 << 10;

/// The exit codes of shells and of `env` for a program that they cannot execute or do not find.
const NO_PROGRAM: std::ops::RangeInclusive<i32> = 126..=127;

/// How long a process may take to end when its standard input has.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What is run, and how it is spoken to.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    pub(super) command: Vec<String>,
    pub(super) json: bool,
    pub(super) print: bool,
}

/// What became of a record.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Failed(Failure),
}

/// Runs its process when there is something to do, and again after it has ended.
pub(super) struct Child {
    feed: Feed,
    running: Option<Running>,
    line: Vec<u8>,
}

struct Running {
    process: process::Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// Whether this process has answered a record.
    answered: bool,
}

impl Child {
    pub(super) fn new(feed: Feed) -> Self {
        Self { feed, running: None, line: Vec::new() }
    }

    /// Feeds records and collects their answers. A process that ends leaves what it has not answered failed.
    pub(super) fn feed<'a>(
        &mut self,
        records: impl IntoIterator<Item = RecordView<'a>>,
    ) -> Result<Vec<Answer>, Failure> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.feed)?,
        };
        let (mut answers, mut asked) = (Vec::new(), Asked::default());
        let mut ended = None;
        for record in records {
            self.line.clear();
            if let Err(failure) = self.render(&record) {
                asked.refuse(failure);
                continue;
            }
            while ended.is_none() && asked.bytes > 0 && asked.bytes + self.line.len() > UNANSWERED_BYTES_MAX {
                ended = running.answer(&self.feed, &mut asked, &mut answers).err();
            }
            if ended.is_none() {
                ended = running.write(&self.line).err();
            }
            asked.ask(self.line.len());
        }
        while ended.is_none() && !asked.lines.is_empty() {
            ended = running.answer(&self.feed, &mut asked, &mut answers).err();
        }
        match ended {
            None => self.running = Some(running),
            Some(failure) => {
                drop(running);
                answers.extend(asked.lines.into_iter().map(|line| match line {
                    Line::Refused(refused) => Answer::Failed(refused),
                    Line::Asked(_) => Answer::Failed(failure.clone()),
                }));
            }
        }
        Ok(answers)
    }

    fn render(&mut self, record: &RecordView<'_>) -> Result<(), Failure> {
        if self.feed.json {
            let its = record.record();
            let shown = Shown {
                topic: record.topic(),
                partition: record.partition(),
                offset: its.offset,
                timestamp_ms: its.timestamp,
                key: its.key,
                value: its.value,
                headers: its.headers,
            };
            Format::Json.render(&shown, &mut self.line);
            return Ok(());
        }
        let value = record.value().unwrap_or_default();
        if value.contains(&b'\n') {
            return Err(Failure::undecodable("the value has more than one line: --json takes any"));
        }
        self.line.extend_from_slice(value);
        self.line.push(b'\n');
        Ok(())
    }
}

/// What was asked and not answered.
#[derive(Default)]
struct Asked {
    lines: VecDeque<Line>,
    bytes: usize,
}

enum Line {
    Asked(usize),
    /// It was not asked, but its answer has its place.
    Refused(Failure),
}

impl Asked {
    fn ask(&mut self, bytes: usize) {
        self.lines.push_back(Line::Asked(bytes));
        self.bytes += bytes;
    }

    fn refuse(&mut self, failure: Failure) {
        self.lines.push_back(Line::Refused(failure));
    }
}

impl Running {
    fn start(feed: &Feed) -> Result<Self, Failure> {
        let mut command = Command::new(&feed.command[0]);
        // A group of its own: Ctrl-C is for us, who lets it finish what it has.
        command.args(&feed.command[1..]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        // No record is to blame for a program that does not start: it must not be skipped or become a dead letter.
        let refused = |error: std::io::Error| {
            Failure::fatal(format!("`{}` does not start: {}", feed.command[0], sentence(&error)))
        };
        let mut process = command.spawn().map_err(refused)?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        let from = from.ok_or_else(|| Failure::fatal("the process has no standard output"))?;
        Ok(Self { process, to, from: BufReader::new(from), answered: false })
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Failure> {
        let written = self.to.as_mut().map(|to| to.write_all(line));
        written.unwrap_or(Ok(())).map_err(|error| self.ended(&sentence(&error)))
    }

    /// Reads the answer to the oldest line.
    fn answer(&mut self, feed: &Feed, asked: &mut Asked, answers: &mut Vec<Answer>) -> Result<(), Failure> {
        match asked.lines.pop_front() {
            None => return Ok(()),
            Some(Line::Refused(failure)) => {
                answers.push(Answer::Failed(failure));
                return Ok(());
            }
            Some(Line::Asked(bytes)) => asked.bytes -= bytes,
        }
        let mut answer = String::new();
        match self.from.read_line(&mut answer) {
            Ok(1..) if answer.ends_with('\n') => {}
            Ok(_) => {
                asked.lines.push_front(Line::Asked(0));
                return Err(self.ended("it ended without an answer"));
            }
            Err(error) => {
                asked.lines.push_front(Line::Asked(0));
                return Err(self.ended(&sentence(&error)));
            }
        }
        self.answered = true;
        if let Some(reason) = failed(answer.trim_end()) {
            answers.push(Answer::Failed(Failure::new(reason)));
            return Ok(());
        }
        if feed.print {
            print(&answer).map_err(|error| Failure::new(error.to_string()))?;
        }
        answers.push(Answer::Done);
        Ok(())
    }

    fn ended(&mut self, what: &str) -> Failure {
        // Whatever is left of it could answer the next line with what belongs to this one.
        let _ = self.process.kill();
        match self.process.wait() {
            Ok(status) if !self.answered && status.code().is_some_and(|code| NO_PROGRAM.contains(&code)) => {
                Failure::fatal(format!(
                    "the process did not start its program ({status}), as a shell or env reports it"
                ))
            }
            Ok(status) => Failure::new(format!("the process is gone ({status}): {what}")),
            Err(error) => Failure::new(format!("the process is gone: {what}; {}", sentence(&error))),
        }
    }
}

impl Drop for Running {
    /// It may finish by itself, for a while.
    fn drop(&mut self) {
        self.to = None;
        let begun = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begun.elapsed() < END_WITHIN {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What an answer says went wrong, if it does.
fn failed(answer: &str) -> Option<String> {
    if let Some(reason) = answer.strip_prefix("error") {
        return Some(reason.trim_start_matches([':', ' ']).to_owned());
    }
    let object =
        answer.starts_with('{').then(|| serde_json::from_str::<serde_json::Value>(answer).ok())??;
    let error = object.get("error").filter(|error| !error.is_null())?;
    Some(error.as_str().map_or_else(|| error.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_error_if_it_says_so() {
        for (answer, expected) in [
            ("ok", None),
            ("", None),
            ("error: no such order", Some("no such order")),
            ("error", Some("")),
            ("{\"error\":\"busy\"}", Some("busy")),
            ("{\"error\":null,\"id\":3}", None),
            ("{\"error\":{\"code\":3}}", Some("{\"code\":3}")),
            ("{not json", None),
        ] {
            assert_eq!(failed(answer).as_deref(), expected, "{answer}");
        }
    }
}
