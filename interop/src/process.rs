//! A child process with its output in files, a deadline for every wait, and an end with its handle.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::failure::{Failure, wait_until};

/// Time limit after SIGTERM, before SIGKILL.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Maximum number of output lines that a failure quotes, from the end.
const QUOTED_LINES: usize = 30;

/// A running child process. Dropping it stops it with SIGTERM, then SIGKILL, by its own process id.
pub struct Process {
    name: String,
    child: Child,
    exit: Option<ExitStatus>,
    scratch: TempDir,
}

impl Process {
    /// Starts `command` with an empty standard input.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self, Failure> {
        Self::spawn_with_input(name, command, b"")
    }

    /// Starts `command` with `input` on its standard input. Input and output are files, so that no pipe blocks.
    pub fn spawn_with_input(name: &str, command: &mut Command, input: &[u8]) -> Result<Self, Failure> {
        Self::start(name, command, |scratch| {
            fs::write(scratch.join("stdin"), input)?;
            Ok(File::open(scratch.join("stdin"))?.into())
        })
    }

    /// Starts `command` with a pipe to its standard input, for input that is generated while it runs.
    pub fn spawn_piped(name: &str, command: &mut Command) -> Result<(Self, ChildStdin), Failure> {
        let mut process = Self::start(name, command, |_| Ok(Stdio::piped()))?;
        let stdin = process.child.stdin.take().expect("piped on the line above");
        Ok((process, stdin))
    }

    fn start(
        name: &str,
        command: &mut Command,
        stdin: impl Fn(&Path) -> io::Result<Stdio>,
    ) -> Result<Self, Failure> {
        let mut start = || {
            let scratch = tempfile::Builder::new().prefix("ottla-interop-").tempdir()?;
            let child = command
                .stdin(stdin(scratch.path())?)
                .stdout(File::create(scratch.path().join("stdout"))?)
                .stderr(File::create(scratch.path().join("stderr"))?)
                .spawn()?;
            Ok(Self { name: name.to_owned(), child, exit: None, scratch })
        };
        start().map_err(|error: io::Error| {
            Failure::new(format!("{name}: cannot start {}: {error}", command.get_program().to_string_lossy()))
        })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> Vec<u8> {
        fs::read(self.file("stdout")).unwrap_or_default()
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> Vec<u8> {
        fs::read(self.file("stderr")).unwrap_or_default()
    }

    /// Waits for the first complete line with `pattern`, on standard output or error. Fails if the process exits
    /// first.
    pub fn wait_for_line(&mut self, pattern: &str, within: Duration) -> Result<String, Failure> {
        Ok(self.wait_for_lines(pattern, 1, within)?.swap_remove(0))
    }

    /// Waits for the first `count` complete lines with `pattern`.
    pub fn wait_for_lines(
        &mut self,
        pattern: &str,
        count: usize,
        within: Duration,
    ) -> Result<Vec<String>, Failure> {
        let outcome = wait_until(&format!("{}: a line with {pattern:?}", self.name), within, || {
            // The exit is checked before the output, so that the last lines of an exited process count.
            let ended = self.try_exit();
            let lines = self.lines_with(pattern, count);
            match ended {
                _ if lines.len() == count => Some(Ok(lines)),
                Some(status) => Some(Err(Failure::new(format!(
                    "{}: exited ({status}) before a line with {pattern:?}",
                    self.name
                )))),
                None => None,
            }
        });
        outcome.flatten().map_err(|failure| self.quoted(&failure))
    }

    /// Waits for the process to exit by itself.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let outcome = wait_until(&format!("{}: the end", self.name), within, || self.try_exit());
        outcome.map_err(|failure| self.quoted(&failure))
    }

    /// Its exit status, after it has exited.
    pub fn try_exit(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().ok().flatten();
        }
        self.exit
    }

    /// Stops it with SIGTERM, and with SIGKILL if that fails. An exited process is not an error.
    pub fn stop(&mut self) -> Result<ExitStatus, Failure> {
        self.signal(Signal::TERM);
        match self.wait(STOP_WITHIN) {
            Ok(status) => Ok(status),
            Err(failure) => {
                self.kill()?;
                Err(Failure::new(format!("the process ignored SIGTERM: {failure}")))
            }
        }
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) -> Result<ExitStatus, Failure> {
        self.signal(Signal::KILL);
        self.wait(STOP_WITHIN)
    }

    /// Sends `signal`, unless the process has exited.
    pub fn signal(&mut self, signal: Signal) {
        if self.try_exit().is_none() {
            // The process was not waited for, so the id is still its own.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Appends the end of this process's output to `failure`.
    pub fn quoted(&self, failure: &Failure) -> Failure {
        let mut text = failure.to_string();
        for (stream, bytes) in [("stdout", self.stdout()), ("stderr", self.stderr())] {
            quote(&mut text, &self.name, stream, &bytes);
        }
        Failure::new(text)
    }

    fn lines_with(&self, pattern: &str, count: usize) -> Vec<String> {
        let output = [self.stdout(), self.stderr()].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let lines =
            output.iter().flat_map(|text| text.split_inclusive('\n').filter(|line| line.ends_with('\n')));
        lines
            .filter(|line| line.contains(pattern))
            .take(count)
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn file(&self, stream: &str) -> PathBuf {
        self.scratch.path().join(stream)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.kill();
            eprintln!("{}", self.quoted(&Failure::new(format!("{} when the test failed:", self.name))));
        } else {
            let _ = self.stop();
        }
    }
}

/// The output of a command that has exited.
pub struct Output {
    /// The command's name, for messages.
    pub name: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its run time.
    pub took: Duration,
}

impl Output {
    /// Fails unless the exit code is 0.
    pub fn succeeded(self) -> Result<Self, Failure> {
        if self.status.success() { Ok(self) } else { Err(self.failure("failed")) }
    }

    /// Fails if the exit code is 0.
    pub fn failed(self) -> Result<Self, Failure> {
        if self.status.success() { Err(self.failure("should have failed")) } else { Ok(self) }
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The lines of standard output.
    pub fn lines(&self) -> Vec<String> {
        self.stdout_text().lines().map(str::to_owned).collect()
    }

    /// A failure with this text and both output streams.
    pub fn failure(&self, what: &str) -> Failure {
        let mut text = format!("{} {what} ({}, after {:.1?})", self.name, self.status, self.took);
        quote(&mut text, &self.name, "stdout", &self.stdout);
        quote(&mut text, &self.name, "stderr", &self.stderr);
        Failure::new(text)
    }
}

/// Runs `command` until it exits, with `input` on its standard input. The caller checks the exit code
/// ([`Output::succeeded`]). If it does not exit `within` the deadline, it is stopped and the call fails.
pub fn run(name: &str, command: &mut Command, input: &[u8], within: Duration) -> Result<Output, Failure> {
    let started = Instant::now();
    let mut process = Process::spawn_with_input(name, command, input)?;
    let status = process.wait(within)?;
    let (stdout, stderr) = (process.stdout(), process.stderr());
    Ok(Output { name: name.to_owned(), status, stdout, stderr, took: started.elapsed() })
}

fn quote(text: &mut String, name: &str, stream: &str, bytes: &[u8]) {
    use std::fmt::Write as _;
    let output = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = output.lines().collect();
    let from = lines.len().saturating_sub(QUOTED_LINES);
    if from > 0 {
        let _ = write!(text, "\n  {name} {stream}: ({from} lines before)");
    }
    for line in &lines[from..] {
        let _ = write!(text, "\n  {name} {stream}: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_reaches_a_command_and_its_output_comes_back() {
        let output = run("cat", &mut shell("cat; echo done >&2; exit 3"), b"a\nb\n", SOON).unwrap();
        assert_eq!(output.lines(), ["a", "b"]);
        assert_eq!(output.stderr_text(), "done\n");
        assert_eq!(output.status.code(), Some(3));
        let failure = output.succeeded().map(|_| ()).unwrap_err().to_string();
        assert!(failure.contains("cat stderr: done"), "{failure}");
    }

    #[test]
    fn a_command_past_its_deadline_is_stopped() {
        let failure =
            run("sleeper", &mut shell("echo started; exec sleep 60"), b"", Duration::from_millis(200))
                .map(|_| ())
                .unwrap_err()
                .to_string();
        assert!(failure.starts_with("sleeper: the end: not within 200ms"), "{failure}");
    }

    #[test]
    fn a_line_is_waited_for_and_its_absence_is_told() {
        let mut process = Process::spawn("talker", &mut shell("echo listening on 1; exec sleep 60")).unwrap();
        assert_eq!(process.wait_for_line("listening on", SOON).unwrap(), "listening on 1");
        assert!(process.try_exit().is_none());
        assert!(!process.stop().unwrap().success(), "ended by SIGTERM");

        let mut process = Process::spawn("short", &mut shell("echo nothing of use")).unwrap();
        let failure = process.wait_for_line("listening on", SOON).unwrap_err().to_string();
        assert!(failure.contains("short stdout: nothing of use"), "{failure}");
    }
}
