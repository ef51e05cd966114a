//! What the system says about processes, and what has to be done to it before anything is measured.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ottla_interop::{Failure, run, wait_until, workspace_root};
use rustix::param::clock_ticks_per_second;

/// Written and deleted before the first pass.
const TOUCHED_GIB: usize = 4;

/// A process whose CPU time stands still for so long is idle.
const IDLE_FOR: Duration = Duration::from_secs(1);
const IDLE_WITHIN: Duration = Duration::from_secs(60);

const COMPILED_WITHIN: Duration = Duration::from_secs(60);

/// User and system time of a process, all its threads, those that ended included.
pub(super) fn cpu(process: u32) -> Result<Duration, Failure> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let ticks = ticks(&stat).ok_or_else(|| Failure::new(format!("{path}: not as expected: {stat}")))?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// `PID (COMMAND) STATE ..`: user and system time are the 14th and 15th field.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident memory in MB (10^6 bytes) once the process has used no CPU for a second.
pub(super) fn idle_memory_mb(process: u32) -> Result<f64, Failure> {
    let mut last = cpu(process)?;
    let mut since = Instant::now();
    // A JVM never rests: for it, the deadline is where it is looked at.
    let _ = wait_until("an idle process", IDLE_WITHIN, || {
        let now = cpu(process).ok()?;
        // Less than 1 % of one CPU, by the coarse clock of /proc, counts as rest.
        if now.saturating_sub(last) > IDLE_FOR / 100 {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() >= IDLE_FOR).then_some(())
    });
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let kb = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
    let kb: Option<f64> = kb.and_then(|kb| kb.trim().parse().ok());
    kb.map(|kb| kb * 1024.0 / 1e6).ok_or_else(|| Failure::new(format!("{path} has no VmRSS")))
}

/// Compiles `bench/floor.c`; none without a C compiler or a processor that it is written for.
pub(super) fn floor(dir: &Path) -> Result<Option<PathBuf>, Failure> {
    if !cfg!(target_arch = "x86_64") {
        println!("floor: skipped: written for x86-64");
        return Ok(None);
    }
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        println!("floor: skipped: no C compiler `{}`", compiler.to_string_lossy());
        return Ok(None);
    }
    let program = dir.join("floor");
    let mut command = Command::new(compiler);
    command.args(["-O2", "-msse4.2", "-pthread", "-o"]).arg(&program);
    command.arg(workspace_root().join("bench/floor.c"));
    run("cc", &mut command, b"", COMPILED_WITHIN)?.succeeded()?;
    Ok(Some(program))
}

/// Writes and deletes a large file in `dir`.
///
/// A virtual machine gets its memory from the host at the first touch, which costs several times what a write to the
/// page cache does: the pages that the passes will use have to be the guest's already.
pub(super) fn touch_memory(dir: &Path) -> Result<(), Failure> {
    let path = dir.join("touched");
    let write = || {
        let block = vec![0x5a; 1 << 20];
        let mut file = File::create(&path)?;
        (0..TOUCHED_GIB << 10).try_for_each(|_| file.write_all(&block))
    };
    let written = write();
    let removed = fs::remove_file(&path);
    written.and(removed).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_command_name() {
        let stat = "77 (a ) b (c)) S 1 77 77 0 -1 4194560 1 2 3 4 120 34 0 0 20 0 5 0 1 2 3";
        assert_eq!(ticks(stat), Some(154));
        assert_eq!(ticks("77 (a) S 1"), None);
    }

    #[test]
    fn our_own_process_can_be_looked_at() {
        assert!(cpu(std::process::id()).is_ok());
    }
}
