//! Directories of a log in an input: its files, each with any bytes.

use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::mem::MemStorage;
use ottla_wire::crc::crc32c;

use crate::input::{Input, push_part};
use crate::wire::repair_checksums;

/// The files that an input may contain, by number.
const FILES: [&str; 12] = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000003.log",
    "synced",
    "recovery-point",
    "clean-shutdown",
    "log-start-offset",
    "quarantine",
    "leader-epoch-checkpoint",
    "00000000000000000003.snapshot",
    "00000000000000000003.index",
];

/// The files of a log.
pub(crate) struct Image {
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Image {
    /// Reads a byte of choices, and a number and a part for each file. The checksums are put right unless the first bit is
    /// set.
    pub(crate) fn read(input: &[u8]) -> Self {
        let mut input = Input::new(input);
        let choices = input.byte();
        let mut files = Vec::new();
        while !input.is_empty() {
            let name = FILES[usize::from(input.byte()) % FILES.len()];
            let mut bytes = input.part().to_vec();
            if choices & 1 == 0 {
                repair(name, &mut bytes);
            }
            files.push((name, bytes));
        }
        Self { files }
    }

    /// A disk with the files in `dir`.
    pub(crate) fn disk(&self, dir: &str) -> MemStorage {
        let disk = MemStorage::new();
        disk.create_dir(dir).expect("a disk in memory");
        for (name, bytes) in &self.files {
            disk.set_contents(&format!("{dir}/{name}"), bytes);
        }
        disk
    }

    /// Returns `true` if a file has these bytes somewhere.
    pub(crate) fn contains(&self, part: &[u8]) -> bool {
        self.files.iter().any(|(_, bytes)| bytes.windows(part.len()).any(|window| window == part))
    }
}

fn repair(name: &str, bytes: &mut [u8]) {
    if name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == "log") {
        repair_checksums(bytes);
    } else if name == "synced" {
        repair_slots(bytes);
    } else if name == "leader-epoch-checkpoint" || name.ends_with("index") {
        // No checksum.
    } else {
        repair_checkpoint(bytes);
    }
}

/// Version, checksum of the rest, rest: checkpoints and snapshots of producers.
pub(crate) fn repair_checkpoint(bytes: &mut [u8]) {
    if let Some((head, body)) = bytes.split_first_chunk_mut::<6>() {
        head[2..].copy_from_slice(&crc32c(body).to_be_bytes());
    }
}

/// The slots of a `synced` file. Their checksums cover the version too.
pub(crate) fn repair_slots(bytes: &mut [u8]) {
    for slot in bytes.chunks_mut(512) {
        let Some(slot) = slot.first_chunk_mut::<30>() else { continue };
        let crc = crc32c(&[&slot[..2], &slot[6..]].concat());
        slot[2..6].copy_from_slice(&crc.to_be_bytes());
    }
}

pub(crate) fn storage(disk: &MemStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

/// All files of a disk.
pub(crate) fn contents(disk: &MemStorage) -> Vec<(String, Option<Vec<u8>>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.contents(&path))).collect()
}

/// An input with the files of a disk.
pub(crate) fn seed_of(disk: &MemStorage) -> Vec<u8> {
    let mut seed = vec![0];
    for path in disk.paths() {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let (Some(number), Some(bytes)) =
            (FILES.iter().position(|file| *file == name), disk.contents(&path))
        {
            seed.push(number as u8);
            push_part(&mut seed, &bytes);
        }
    }
    seed
}
