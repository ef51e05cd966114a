//! The memory of this process.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time, because they measure their own process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Growth of this process's memory in MiB, from its creation to its peak.
pub(crate) struct Growth(u64);

impl Growth {
    pub(crate) fn start() -> Self {
        std::fs::write("/proc/self/clear_refs", "5").expect("Linux lets a process forget its peak");
        Self(status_mib("VmRSS:"))
    }

    pub(crate) fn peak(&self) -> u64 {
        status_mib("VmHWM:").saturating_sub(self.0)
    }

    #[track_caller]
    pub(crate) fn assert_at_most(&self, max_mib: u64, what: &str) {
        let grown = self.peak();
        println!("{what}: {grown} MiB more than {} MiB", self.0);
        assert!(grown <= max_mib, "{what}: {grown} MiB more than {} MiB; at most {max_mib} MiB", self.0);
    }
}

fn status_mib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says what a process takes");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a line for it");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib / 1024
}
