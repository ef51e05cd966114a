//! CPU and memory of processes, and the preparation of the machine before a measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_interop::{Failure, run, wait_until, workspace_root};
use rustix::param::clock_ticks_per_second;

/// How much of the memory kept in files is given back at a time, and how much of it before it is needed.
const TOUCHED_BYTES: u64 = 8 << 20;
const TOUCHED_AHEAD: u64 = 96 << 20;
/// At 500 MB/s the log grows by 2 MB in the time.
const LOOK_EVERY: Duration = Duration::from_millis(4);

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
pub(super) fn ticks(stat: &str) -> Option<u64> {
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

/// Memory that the guest has, kept in files until the page cache needs it.
///
/// A virtual machine gets its memory from the host at the first touch, which costs five to ten times a write to the page
/// cache. It gives memory back that has been free for a second. A broker's writes would be charged with either. So files
/// are written beforehand, and deleted one by one, shortly before the log has grown as much.
pub(super) struct Touched {
    files: Vec<PathBuf>,
}

impl Touched {
    /// Writes `bytes` to files in `dir`.
    pub(super) fn new(dir: &Path, bytes: u64) -> Result<Self, Failure> {
        let block = vec![0x5a; TOUCHED_BYTES as usize];
        let write = |n: u64| {
            let path = dir.join(format!("touched-{n}"));
            fs::write(&path, &block).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            Ok(path)
        };
        let files: Result<Vec<PathBuf>, Failure> = (0..bytes.div_ceil(TOUCHED_BYTES)).map(write).collect();
        Ok(Self { files: files? })
    }

    /// Runs `work`, and meanwhile deletes the files as the logs below `data` grow.
    pub(super) fn during<T>(self, data: &Path, work: impl FnOnce() -> T) -> T {
        let done = AtomicBool::new(false);
        // Before the thread starts: what `work` writes until then is growth, too.
        let before = log_bytes(data);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut files = self.files.iter();
                let mut deleted = 0;
                while !done.load(Ordering::Acquire) {
                    let grown = log_bytes(data).saturating_sub(before);
                    while deleted < grown + TOUCHED_AHEAD
                        && let Some(file) = files.next()
                    {
                        let _ = fs::remove_file(file);
                        deleted += TOUCHED_BYTES;
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                files.for_each(|file| drop(fs::remove_file(file)));
            });
            let _done = SetOnDrop(&done);
            work()
        })
    }
}

/// Sets the flag also if the work panics: the thread that waits for it would never end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Bytes in the segments of all partitions below `dir`.
pub(super) fn log_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => log_bytes(&entry.path()),
        Ok(meta) if entry.path().extension().is_some_and(|extension| extension == "log") => meta.len(),
        _ => 0,
    };
    entries.map(size).sum()
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
    fn touched_files_go_as_the_log_grows_and_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data/orders-0");
        fs::create_dir_all(&data).unwrap();
        let touched = Touched::new(dir.path(), 10 * TOUCHED_BYTES).unwrap();
        let last = dir.path().join("touched-9");
        touched.during(&dir.path().join("data"), || {
            assert!(last.exists(), "nothing has grown");
            fs::File::create(data.join("0.log")).unwrap().set_len(4 * TOUCHED_BYTES).unwrap();
            wait_until("all given back", IDLE_WITHIN, || (!last.exists()).then_some(())).unwrap();
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the data are left");
    }

    /// The thread waited for the end of work that had panicked, and the test program never ended.
    #[test]
    fn work_that_panics_ends_the_thread_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let touched = Touched::new(dir.path(), TOUCHED_BYTES).unwrap();
        let work = || touched.during(dir.path(), || panic!("the work"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn our_own_process_can_be_looked_at() {
        assert!(cpu(std::process::id()).is_ok());
    }
}
