//! A worker's child process: writes record lines and reads result lines.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_client::RecordView;
use ottla_parallel::Failure;
use rustix::io::ioctl_fionread;

use crate::failure::sentence;
use crate::format::{Format, Shown};
use crate::output::note;

/// Maximum size of the lines without a result. They fit into the process's pipe, so that a write never waits for a
/// process that waits for us to read its results.
const UNANSWERED_BYTES_MAX: usize = 32 << 10;

/// The part of an excess line that a failure quotes.
const EXCESS_BYTES_SHOWN: usize = 80;

/// Exit codes of shells and of `env` for a program that cannot be executed or is not found.
const NO_PROGRAM: std::ops::RangeInclusive<i32> = 126..=127;

/// Time limit for a process to exit after its standard input is closed.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The command to run, and the format of its input.
#[derive(Clone, Debug)]
pub(super) struct ChildSettings {
    pub(super) command: Vec<String>,
    pub(super) json: bool,
    /// Prints the results of records, if they are printed.
    pub(super) print: Option<Print>,
}

pub(super) type Print = fn(&[u8]) -> Result<(), crate::failure::Failure>;

/// The result of a record.
#[derive(Debug)]
pub(super) enum LineResult {
    Done,
    Failed(Failure),
}

/// Starts its process when it is needed, and again after it has exited.
pub(super) struct Child {
    settings: ChildSettings,
    running: Option<Running>,
    line: Vec<u8>,
}

struct Running {
    process: process::Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// The result of a long line, which was read while the line was written.
    answered: Option<io::Result<Vec<u8>>>,
    /// `true` after the process's first result.
    has_result: bool,
    /// The size of the last line that was written; 0 before the first one.
    last_line_bytes: usize,
    /// `true` after the process has written more lines than it has received.
    has_excess: bool,
}

impl Child {
    pub(super) fn new(settings: ChildSettings) -> Self {
        Self { settings, running: None, line: Vec::new() }
    }

    /// Writes records and reads their results. If the process exits, its unfinished records have failed.
    pub(super) fn process_records<'a>(
        &mut self,
        records: impl IntoIterator<Item = RecordView<'a>>,
    ) -> Result<Vec<LineResult>, Failure> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.settings)?,
        };
        let (mut results, mut pending) = (Vec::new(), PendingLines::default());
        let mut ended = None;
        for record in records {
            self.line.clear();
            if let Err(failure) = self.render(&record) {
                pending.push_rejected(failure);
                continue;
            }
            while ended.is_none()
                && pending.bytes > 0
                && pending.bytes + self.line.len() > UNANSWERED_BYTES_MAX
            {
                ended = running.read_result(&self.settings, &mut pending, &mut results).err();
            }
            if ended.is_none() && pending.bytes == 0 {
                ended = running.check_silent().err();
            }
            if ended.is_none() {
                ended = running.write(&self.line).err();
            }
            pending.push_written(self.line.len());
        }
        while ended.is_none() && !pending.lines.is_empty() {
            ended = running.read_result(&self.settings, &mut pending, &mut results).err();
        }
        if ended.is_none() {
            ended = running.check_silent().err();
        }
        if let Some(failure) = ended.as_ref().filter(|_| running.has_excess) {
            // Any of these results may be one of another record.
            let done = results.iter_mut().filter(|result| matches!(result, LineResult::Done));
            done.for_each(|result| *result = LineResult::Failed(failure.clone()));
        }
        match ended {
            None => self.running = Some(running),
            Some(failure) => {
                drop(running);
                results.extend(pending.lines.into_iter().map(|line| match line {
                    Line::Rejected(refused) => LineResult::Failed(refused),
                    Line::Written(_) => LineResult::Failed(failure.clone()),
                }));
            }
        }
        Ok(results)
    }

    fn render(&mut self, record: &RecordView<'_>) -> Result<(), Failure> {
        if self.settings.json {
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
            return Err(Failure::undecodable("the value has more than one line: use --json"));
        }
        self.line.extend_from_slice(value);
        self.line.push(b'\n');
        Ok(())
    }
}

impl Drop for Child {
    /// A line that comes after the results of all records shows that results were not those of their records. After the end of the
    /// input it may be a summary instead.
    fn drop(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let lost = |excess| format!("{excess}; records may be committed that were not processed");
        let excess = running.excess().map(lost);
        running.end();
        if let Some(excess) = excess.or_else(|| running.last_words()) {
            note(&format!("ottla: warning: {excess}"));
        }
    }
}

/// Lines without a result yet.
#[derive(Default)]
struct PendingLines {
    lines: VecDeque<Line>,
    bytes: usize,
}

enum Line {
    Written(usize),
    /// The record was not written; its result keeps its place in the order.
    Rejected(Failure),
}

impl PendingLines {
    fn push_written(&mut self, bytes: usize) {
        self.lines.push_back(Line::Written(bytes));
        self.bytes += bytes;
    }

    fn push_rejected(&mut self, failure: Failure) {
        self.lines.push_back(Line::Rejected(failure));
    }
}

impl Running {
    fn start(settings: &ChildSettings) -> Result<Self, Failure> {
        let mut command = Command::new(&settings.command[0]);
        // A separate process group: Ctrl-C is for this process, which lets the child finish.
        command.args(&settings.command[1..]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        // No record causes this failure, so it is fatal: records must not be skipped or dead-lettered.
        let refused = |error: io::Error| {
            Failure::fatal(format!("cannot start `{}`: {}", settings.command[0], sentence(&error)))
        };
        let mut process = command.spawn().map_err(refused)?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        let from = from.ok_or_else(|| Failure::fatal("the process has no standard output"))?;
        Ok(Self {
            process,
            to,
            from: BufReader::new(from),
            answered: None,
            has_result: false,
            last_line_bytes: 0,
            has_excess: false,
        })
    }

    /// Writes a line. While a long one is written, its result is read: the process may begin to answer before it has read all.
    /// Lines before a long one have their results.
    fn write(&mut self, line: &[u8]) -> Result<(), Failure> {
        self.last_line_bytes = line.len();
        let Self { to: Some(to), from, answered, .. } = self else { return Ok(()) };
        let written = if line.len() <= UNANSWERED_BYTES_MAX {
            to.write_all(line)
        } else {
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| to.write_all(line));
                *answered = Some(read_answer(from));
                writer.join().unwrap_or_else(|_| Err(io::Error::other("the line's writer panicked")))
            })
        };
        written.map_err(|error| self.ended(&sentence(&error)))
    }

    /// Reads the result of the oldest line.
    fn read_result(
        &mut self,
        settings: &ChildSettings,
        pending: &mut PendingLines,
        results: &mut Vec<LineResult>,
    ) -> Result<(), Failure> {
        match pending.lines.pop_front() {
            None => return Ok(()),
            Some(Line::Rejected(failure)) => {
                results.push(LineResult::Failed(failure));
                return Ok(());
            }
            Some(Line::Written(bytes)) => pending.bytes -= bytes,
        }
        let read = self.answered.take().unwrap_or_else(|| read_answer(&mut self.from));
        let answer = match read {
            Ok(answer) if answer.ends_with(b"\n") => answer,
            Ok(_) => {
                pending.lines.push_front(Line::Written(0));
                return Err(self.ended("it exited without a result"));
            }
            Err(error) => {
                pending.lines.push_front(Line::Written(0));
                return Err(self.ended(&sentence(&error)));
            }
        };
        self.has_result = true;
        if let Some(reason) = failed(answer.trim_ascii_end()) {
            results.push(LineResult::Failed(Failure::new(reason)));
            return Ok(());
        }
        if let Some(print) = settings.print
            && let Err(error) = print(&answer)
        {
            // Each line has a result, or those of later lines would count for earlier ones. No record causes this failure.
            let failure = Failure::fatal(error.to_string());
            results.push(LineResult::Failed(failure.clone()));
            return Err(failure);
        }
        results.push(LineResult::Done);
        Ok(())
    }

    /// Fails if there is output although each line has its result: it would be the result of a later record. No record causes
    /// this failure.
    fn check_silent(&mut self) -> Result<(), Failure> {
        let Some(excess) = self.excess() else { return Ok(()) };
        self.has_excess = true;
        Err(Failure::fatal(excess))
    }

    /// The description of result lines that the process has written beyond those of its records: they are unread, or came before
    /// it has read the last record. A reader of JSON may leave the end of the line unread, and a long line may have its result
    /// before it is read.
    fn excess(&mut self) -> Option<String> {
        let next = self.unread_line();
        let input = self.to.as_ref().filter(|_| self.last_line_bytes <= UNANSWERED_BYTES_MAX);
        let unread_min = self.last_line_bytes.max(1) as u64;
        let has_input = input.is_some_and(|to| ioctl_fionread(to).is_ok_and(|unread| unread >= unread_min));
        if next.is_none() && !has_input {
            return None;
        }
        let quoted = next.map_or_else(String::new, |line| format!(", the next one begins with {line:?}"));
        Some(format!(
            "the program has written more result lines than it has read records{quoted}: write one line per record to standard \
             output, and everything else to standard error"
        ))
    }

    /// The description of the output that the process has written after the end of its input.
    fn last_words(&mut self) -> Option<String> {
        let line = self.unread_line()?;
        Some(format!(
            "at the end of its input the program has written a line that begins with {line:?}: if it is the result of a record and \
             no summary, records may be committed that were not processed"
        ))
    }

    /// The beginning of the next line of output, if it is there already.
    fn unread_line(&mut self) -> Option<String> {
        let unread = ioctl_fionread(self.from.get_ref()).unwrap_or(0);
        if unread == 0 && self.from.buffer().is_empty() {
            return None;
        }
        // This does not block: there are bytes.
        let bytes = self.from.fill_buf().unwrap_or_default();
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Some(String::from_utf8_lossy(line.get(..EXCESS_BYTES_SHOWN).unwrap_or(line)).into_owned())
    }

    fn ended(&mut self, what: &str) -> Failure {
        // A remaining process could answer the next line with a result that belongs to this one.
        let _ = self.process.kill();
        match self.process.wait() {
            Ok(status)
                if !self.has_result && status.code().is_some_and(|code| NO_PROGRAM.contains(&code)) =>
            {
                Failure::fatal(format!("a shell or env could not start the program ({status})"))
            }
            Ok(status) => Failure::new(format!("the process exited ({status}): {what}")),
            Err(error) => Failure::new(format!("the process exited: {what}; {}", sentence(&error))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    /// Ends the process. Gives it time to exit by itself.
    fn end(&mut self) {
        self.to = None;
        let begun = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begun.elapsed() < END_WITHIN {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A line of results, which need not be UTF-8; without its end if the process has exited.
fn read_answer(from: &mut BufReader<ChildStdout>) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    from.read_until(b'\n', &mut answer)?;
    Ok(answer)
}

/// The reason of a failed result.
fn failed(answer: &[u8]) -> Option<String> {
    if let Some(reason) = answer.strip_prefix(b"error") {
        let reason = String::from_utf8_lossy(reason);
        return Some(reason.trim_start_matches([':', ' ']).to_owned());
    }
    // An error whose text is not UTF-8 is an error, too.
    let text = answer.starts_with(b"{").then(|| String::from_utf8_lossy(answer))?;
    let object: serde_json::Value = serde_json::from_str(&text).ok()?;
    let error = object.get("error").filter(|error| !error.is_null())?;
    Some(error.as_str().map_or_else(|| error.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, print: Option<Print>) -> (Running, ChildSettings) {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let settings = ChildSettings { command, json: false, print };
        (Running::start(&settings).expect("a shell"), settings)
    }

    #[test]
    fn a_result_that_cannot_be_printed_keeps_its_place_and_is_fatal() {
        fn full(_: &[u8]) -> Result<(), crate::failure::Failure> {
            Err(crate::failure::Failure::output(&io::ErrorKind::StorageFull.into()))
        }
        let (mut running, settings) = shell("while read line; do echo ok; done", Some(full));
        let (mut pending, mut results) = (PendingLines::default(), Vec::new());
        for line in [b"1\n", b"2\n"] {
            running.write(line).expect("written");
            pending.push_written(line.len());
        }
        running.read_result(&settings, &mut pending, &mut results).expect_err("not printed");
        assert!(matches!(&results[..], [LineResult::Failed(_)]), "{results:?}");
        assert_eq!(pending.lines.len(), 1, "the second line has no result");
    }

    /// The second line was the result of the next record, which was committed unprocessed.
    #[test]
    fn a_second_line_for_a_record_is_no_result_of_the_next_one() {
        let (mut running, settings) = shell("while read line; do printf 'ok\\nextra\\n'; done", None);
        let (mut pending, mut results) = (PendingLines::default(), Vec::new());
        running.check_silent().expect("silent");
        running.write(b"1\n").expect("written");
        pending.push_written(2);
        running.read_result(&settings, &mut pending, &mut results).expect("a result");
        // The program writes both lines at once.
        let refused = running.excess().expect("one line too many");
        assert!(refused.contains("more result lines") && refused.contains("\"extra\""), "{refused}");
        running.check_silent().expect_err("fatal");
        assert!(running.has_excess);
    }

    /// A reader of JSON has the record at its closing brace. The newline after it counted as a record that the program had not
    /// read, and the command ended.
    #[test]
    fn a_program_may_answer_before_it_reads_the_end_of_the_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let go = dir.path().join("go");
        // The program answers, and then reads the end of the line with the next one.
        let wait = format!("until [ -e '{}' ]; do sleep 0.01; done", go.display());
        let after = |bytes: usize| {
            let script =
                format!("head -c {bytes} >/dev/null; echo ok; {wait}; head -c 8 >/dev/null; echo ok");
            let (running, settings) = shell(&format!("{script}; cat >/dev/null"), None);
            (running, settings, PendingLines::default(), Vec::new())
        };
        let line = b"{\"a\":1}\n";
        let (mut running, settings, mut pending, mut results) = after(line.len() - 1);
        for _ in 0..2 {
            running.write(line).expect("written");
            pending.push_written(line.len());
            running.read_result(&settings, &mut pending, &mut results).expect("a result");
            assert_eq!(running.excess(), None);
            std::fs::write(&go, "").expect("written");
        }
        std::fs::remove_file(&go).expect("removed");
        // A program that has read nothing of the line has not answered it.
        let (mut running, settings, mut pending, mut results) = after(0);
        running.write(line).expect("written");
        pending.push_written(line.len());
        running.read_result(&settings, &mut pending, &mut results).expect("a result");
        running.excess().expect("a line too many");
        std::fs::write(&go, "").expect("written");
    }

    /// The total was reported as a result line for which no record was read.
    #[test]
    fn a_line_at_the_end_of_the_input_may_be_a_summary() {
        let (mut running, settings) = shell("while read line; do echo ok; done; echo 1 record", None);
        let (mut pending, mut results) = (PendingLines::default(), Vec::new());
        running.write(b"1\n").expect("written");
        pending.push_written(2);
        running.read_result(&settings, &mut pending, &mut results).expect("a result");
        assert_eq!((running.excess(), running.last_words()), (None, None));
        running.end();
        let words = running.last_words().expect("a line");
        assert!(words.contains("\"1 record\"") && words.contains("no summary"), "{words}");
    }

    #[test]
    fn a_program_may_answer_a_long_line_while_it_reads_it() {
        let (mut running, settings) = shell("exec cat", None);
        let (mut pending, mut results) = (PendingLines::default(), Vec::new());
        let mut line = vec![b'x'; 1 << 20];
        line.push(b'\n');
        for line in [&line[..], b"short\n"] {
            running.write(line).expect("written");
            pending.push_written(line.len());
            running.read_result(&settings, &mut pending, &mut results).expect("a result");
        }
        assert!(matches!(&results[..], [LineResult::Done, LineResult::Done]), "{results:?}");
    }

    /// Such a line failed the record, which was handled, and ended the program.
    #[test]
    fn a_result_need_not_be_utf8() {
        let (mut running, settings) = shell("exec cat", None);
        let (mut pending, mut results) = (PendingLines::default(), Vec::new());
        for line in [&b"caf\xe9\n"[..], b"second\n", b"error: caf\xe9\n", b"{\"error\":\"caf\xe9\"}\n"] {
            running.write(line).expect("written");
            pending.push_written(line.len());
            running.read_result(&settings, &mut pending, &mut results).expect("a result");
        }
        let done: Vec<bool> = results.iter().map(|result| matches!(result, LineResult::Done)).collect();
        assert_eq!(done, [true, true, false, false], "{results:?}");
    }

    #[test]
    fn error_results_are_recognised() {
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
            assert_eq!(failed(answer.as_bytes()).as_deref(), expected, "{answer}");
        }
    }
}
