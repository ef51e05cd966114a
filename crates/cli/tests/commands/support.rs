//! Runs the binary: every wait has a deadline, and no process outlives its test.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Timeout of each command and each wait; only a defect exhausts it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A broker in memory with the topic `orders`, which has `partitions` partitions.
pub(crate) fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().topic("orders", partitions).spawn().expect("a broker in memory")
}

/// A command that runs, with its output in files: no pipe can fill up and block.
pub(crate) struct Running {
    child: Child,
    scratch: TempDir,
}

/// The exit status and the output of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary under test; `OTTLA_BIN` names another one.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("OTTLA_BIN").map_or_else(|| env!("CARGO_BIN_EXE_ottla").into(), PathBuf::from)
}

/// Returns the command with these arguments, without the environment variables of the tests.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env_remove("OTTLA_BROKERS").env_remove("OTTLA_LOG");
    command
}

/// Runs `ottla` with these arguments to its end.
pub(crate) fn ottla(args: &[&str], stdin: &str) -> Ended {
    Running::start(&mut command(args), stdin).wait()
}

/// The same at this broker.
pub(crate) fn at(broker: &BrokerThread, args: &[&str], stdin: &str) -> Ended {
    // The arguments are inserted before `--`, which precedes the arguments of another program.
    let end = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    let servers = broker.bootstrap_servers();
    ottla(&[&args[..end], &["--brokers", &servers], &args[end..]].concat(), stdin)
}

/// Writes these lines to `orders`.
pub(crate) fn fill(broker: &BrokerThread, lines: &str) {
    at(broker, &["produce", "orders"], lines).succeeded();
}

impl Running {
    pub(crate) fn start(command: &mut Command, stdin: &str) -> Self {
        let mut input = tempfile::tempfile().expect("a file");
        input.write_all(stdin.as_bytes()).and_then(|()| input.rewind()).expect("written");
        Self::start_with_stdin(command, input)
    }

    /// Starts the command with this file as input.
    pub(crate) fn start_with_stdin(command: &mut Command, stdin: impl Into<Stdio>) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = |name: &str| File::create(scratch.path().join(name)).expect("a file");
        let child = command
            .stdin(stdin)
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("the binary starts");
        // The command keeps what it was given.
        command.stdin(Stdio::null());
        Self { child, scratch }
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts the command with pipes as input and output. Unread output stays in the pipe.
    pub(crate) fn start_with_pipes(command: &mut Command) -> (Self, ChildStdin, ChildStdout) {
        let scratch = tempfile::tempdir().expect("a directory");
        let stderr = File::create(scratch.path().join("stderr")).expect("a file");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the binary starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        (Self { child, scratch }, stdin, stdout)
    }

    pub(crate) fn stdout(&self) -> String {
        self.output("stdout")
    }

    pub(crate) fn stderr(&self) -> String {
        self.output("stderr")
    }

    fn output(&self, name: &str) -> String {
        let bytes = fs::read(self.scratch.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It has not been waited for, so the id is still its own.
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits until this is so; the output is quoted when it is not in time.
    pub(crate) fn until(&mut self, what: &str, within: Duration, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + within;
        while !is_so(self) {
            let late = Instant::now() >= deadline;
            assert!(!late, "not {what} within {within:?}: {}{}", self.stdout(), self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let mut status = None;
        self.until("ended", PATIENCE, |it| {
            status = it.child.try_wait().expect("a child");
            status.is_some()
        });
        Ended { status: status.expect("ended"), stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// The exit code is this one, and standard error has these words.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in {self:?}");
        }
        self
    }
}
