//! Faults of files: damage while the broker is down or runs, and files or disks that fail for a time.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use ottla_log::storage::mem::{Fault as DiskFault, MemStorage, OpKind};
use ottla_wire::Batches;

use super::Faults;
use crate::host::Host;
use crate::probe::{Finding, probe};

/// The longest outage of a disk.
const OUTAGE_MAX: Duration = Duration::from_millis(1500);
/// The name of a log's file with its damaged ranges.
const QUARANTINE: &str = "quarantine";

/// The position of the checksum in a batch.
const CHECKSUM_AT: usize = 17;

/// Damage to one file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Damage {
    /// A bit is inverted.
    Flip,
    /// The end is missing.
    Truncate,
    /// A sector has zeros.
    Zeros,
    /// The file is gone.
    Lose,
}

impl Faults {
    /// Damages one file of a broker that is down, and compares what a broker serves from that disk with the history.
    ///
    /// A refused start and reported errors are correct: the undamaged disk is used then. A disk that serves everything
    /// may stay in use.
    pub(super) async fn damage(&mut self, host: &mut Host, power_cut: bool) {
        let paths = host.disk().paths();
        let Some(path) = (!paths.is_empty()).then(|| paths[self.rng.usize(0..paths.len())].clone()) else {
            return;
        };
        let damaged = host.disk().fork();
        let Some(what) = self.damage_file(&damaged, &path) else { return };
        let finding = probe(host, &damaged, &path, &self.world, power_cut, self.rng.u64(..)).await;
        self.world.trace.note(format_args!("damage: {path}: {what}: {finding}"));
        match finding {
            // Leader epochs have no checksum, and the probe does not compare them: their files are not used. It does not
            // compare transactions, compacted topics and share groups either.
            Finding::Sound
                if !self.is_disk_damaged
                    && !has_epochs(&path)
                    && self.world.options.writers == 0
                    && !self.world.options.has_compacted_topic()
                    && !self.world.options.has_share_group()
                    && self.rng.bool() =>
            {
                self.is_disk_damaged = true;
                self.world.trace.note(format_args!("damage: the disk stays in use"));
                host.replace_disk(damaged);
            }
            Finding::Sound | Finding::Reported(_) => {}
            Finding::Silent(anomalies) => {
                let mut history = self.world.history.borrow_mut();
                for anomaly in anomalies {
                    history.report(anomaly);
                }
            }
        }
    }

    /// Returns the damage; `None` if the file is empty.
    fn damage_file(&mut self, disk: &MemStorage, path: &str) -> Option<String> {
        let mut bytes = disk.contents(path)?;
        let damage =
            [Damage::Flip, Damage::Flip, Damage::Truncate, Damage::Zeros, Damage::Lose][self.rng.usize(0..5)];
        if bytes.is_empty() && damage != Damage::Lose {
            return None;
        }
        match damage {
            Damage::Flip => {
                let (at, bit) = (self.rng.usize(0..bytes.len()), self.rng.u8(0..8));
                bytes[at] ^= 1 << bit;
                disk.set_contents(path, &bytes);
                Some(format!("byte {at} of {} flipped", bytes.len()))
            }
            Damage::Truncate => {
                let len = self.rng.usize(0..bytes.len());
                disk.set_contents(path, &bytes[..len]);
                Some(format!("cut at {len} of {}", bytes.len()))
            }
            Damage::Zeros => {
                let from = self.rng.usize(0..bytes.len()) / 512 * 512;
                let to = bytes.len().min(from + 512);
                bytes[from..to].fill(0);
                disk.set_contents(path, &bytes);
                Some(format!("zeros at {from} of {}", bytes.len()))
            }
            Damage::Lose => {
                disk.lose(path);
                Some("lost".into())
            }
        }
    }

    /// Lets a file or the whole disk fail for a time. Then the process is killed, or the power is cut.
    pub(super) async fn disk_outage(&mut self, host: &mut Host) -> Result<(), String> {
        let paths = host.disk().paths();
        let path = if paths.is_empty() || self.rng.bool() {
            None
        } else {
            Some(paths[self.rng.usize(0..paths.len())].clone())
        };
        let fault = [DiskFault::Io, DiskFault::NoSpace, DiskFault::ShortWrite][self.rng.usize(0..3)];
        // Reads fail for other reasons than a lack of space.
        let (reads, writes) = match fault {
            DiskFault::Io => [(true, true), (true, false), (false, true)][self.rng.usize(0..3)],
            _ => (false, true),
        };
        self.world
            .trace
            .note(format_args!("disk: {path:?} fails: {fault:?}, reads {reads}, writes {writes}"));
        host.disk().inject(move |op| {
            let is_meant = path.as_deref().is_none_or(|path| path == op.path);
            let fails = if op.kind == OpKind::Read { reads } else { writes };
            (is_meant && fails).then_some(fault)
        });
        tokio::time::sleep(self.up_to(OUTAGE_MAX)).await;
        host.disk().heal();
        host.crash(self.rng.bool()).await;
        self.start_again(host).await
    }

    /// Flips a bit of a log while the broker runs, and restores it some time later, in a broker that is down.
    pub(super) async fn bit_rot(&mut self, host: &mut Host) -> Result<(), String> {
        let logs: Vec<String> = host.disk().paths().into_iter().filter(|path| is_log(path)).collect();
        let Some(path) = (!logs.is_empty()).then(|| logs[self.rng.usize(0..logs.len())].clone()) else {
            return Ok(());
        };
        let bytes = host.disk().contents(&path).unwrap_or_default();
        let durable = host.disk().durable_len(&path);
        let batches: Vec<Range<usize>> = Batches::new(&Bytes::from(bytes.clone()))
            .map_while(Result::ok)
            .map(|(_, range)| range)
            .filter(|range| range.end <= durable)
            .collect();
        if batches.is_empty() {
            return Ok(());
        }
        let batch = batches[self.rng.usize(0..batches.len())].clone();
        // No checksum covers the bytes before it. The broker compares them with their neighbours when it reads a file
        // that another process wrote.
        let at = self.rng.usize(batch.start + CHECKSUM_AT..batch.end);
        let sound = bytes[at];
        host.disk().set_byte(&path, at, sound ^ (1 << self.rng.u8(0..8)));
        self.world.trace.note(format_args!("disk: byte {at} of {path} flips"));
        tokio::time::sleep(self.up_to(OUTAGE_MAX)).await;
        host.crash(false).await;
        host.disk().set_byte(&path, at, sound);
        // An operator who restores the file also removes the record of its damage.
        if let Some((dir, _)) = path.rsplit_once('/') {
            host.disk().lose(&format!("{dir}/{QUARANTINE}"));
        }
        self.world.trace.note(format_args!("disk: byte {at} of {path} is restored"));
        self.start_again(host).await
    }
}

/// Returns `true` for files with leader epochs: logs, and the checkpoint beside them.
fn has_epochs(path: &str) -> bool {
    is_log(path) || path.ends_with("/leader-epoch-checkpoint")
}

/// Returns `true` for the segment of a log.
fn is_log(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, suffix)| suffix == "log")
}
