//! Runs cargo and others with a deadline, passing their output on while reading it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How a command ended, and what it said.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    /// Standard output and error, line by line as they came.
    pub(crate) lines: Vec<String>,
}

/// A `cargo` of the same toolchain, in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args).current_dir(ottla_interop::workspace_root());
    cargo
}

/// Runs `command` with its output passed on. Past the deadline it is ended, with every process below it.
pub(crate) fn run(command: &mut Command, within: Duration) -> Result<Done, String> {
    run_to(command, within, io::stdout(), io::stderr())
}

/// [`run`], without passing the output on.
pub(crate) fn run_quietly(command: &mut Command, within: Duration) -> Result<Done, String> {
    run_to(command, within, io::sink(), io::sink())
}

fn run_to(
    command: &mut Command,
    within: Duration,
    out: impl Write + Send + 'static,
    err: impl Write + Send + 'static,
) -> Result<Done, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name} does not start: {error}"))?;
    let (sender, lines) = mpsc::channel();
    let stdout = pass_on(child.stdout.take().expect("piped above"), out, sender.clone());
    let stderr = pass_on(child.stderr.take().expect("piped above"), err, sender);

    let deadline = Instant::now() + within;
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => seen.push(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                end_with_descendants(child.id());
                let _ = child.wait();
                return Err(format!("{name} was ended: not done within {within:?}"));
            }
        }
    }
    stdout.join().expect("passing output on does not panic");
    stderr.join().expect("passing output on does not panic");
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    Ok(Done { status, lines: seen })
}

fn pass_on(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    sender: mpsc::Sender<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let _ = to.write_all(&line);
            let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    })
}

/// Ends `root` and all processes that descend from it, each by its own id.
pub(crate) fn end_with_descendants(root: u32) {
    let parents = parents();
    let mut ids = vec![root];
    let mut next = 0;
    while let Some(&id) = ids.get(next) {
        ids.extend(parents.iter().filter(|&(_, &parent)| parent == id).map(|(&child, _)| child));
        next += 1;
    }
    for id in ids {
        if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Each running process with its parent, as far as `/proc` lists it.
fn parents() -> BTreeMap<u32, u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // `PID (COMMAND) STATE PARENT ..`; the command may contain spaces and parentheses.
        let after_command = stat.rsplit(')').next().unwrap_or_default();
        if let Some(parent) = after_command.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) {
            parents.insert(id, parent);
        }
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_and_the_deadline_ends_children_too() {
        let done =
            run(Command::new("sh").args(["-c", "echo a; echo b >&2"]), Duration::from_secs(10)).unwrap();
        assert!(done.status.success());
        assert_eq!(done.lines.len(), 2);

        // The inner sleep holds the pipes: had it been left alive, the run would not come back.
        let started = Instant::now();
        let late = run(Command::new("sh").args(["-c", "sleep 60; true"]), Duration::from_millis(200));
        assert!(late.is_err_and(|error| error.contains("not done within")));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
