//! Damage to a disk in memory, for tests and simulations: none of it calls the hook, and all of it is durable.

use std::sync::atomic::Ordering;

use super::{MemStorage, lock};

impl MemStorage {
    /// Loses a file. Open handles can still read it.
    pub fn lose(&self, path: &str) {
        let mut names = lock(&self.disk.names);
        names.live.files.remove(path);
        names.durable.files.remove(path);
    }

    /// Changes one byte of a file, in the page cache and on the disk. Unsynced writes of other bytes stay unsynced.
    pub fn set_byte(&self, path: &str, at: usize, byte: u8) {
        let inode = lock(&self.disk.names).live.files.get(path).cloned();
        let Some(inode) = inode else { return };
        let mut inode = lock(&inode);
        if at < inode.live.len {
            inode.live.write(&[byte], at);
        }
        if let Some(durable) = inode.durable.get_mut(at) {
            *durable = byte;
        }
    }

    /// Returns the number of durable bytes of a file; 0 if there is no such file.
    pub fn durable_len(&self, path: &str) -> usize {
        let inode = lock(&self.disk.names).live.files.get(path).cloned();
        inode.map_or(0, |inode| lock(&inode).durable.len())
    }

    /// From now on syncs succeed without an effect, as on a disk with a volatile cache.
    pub fn ignore_syncs(&self) {
        self.disk.syncs_ignored.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Open, Storage};
    use super::*;

    #[test]
    fn damage_is_durable_and_ignored_syncs_are_not() {
        let disk = MemStorage::forgetful();
        let file = disk.open("f", Open::Create).expect("created");
        disk.sync_dir("").expect("synced");
        file.write_at(b"abc", 0).expect("written");
        file.sync_data().expect("synced");
        disk.ignore_syncs();
        file.write_at(b"def", 3).expect("written");
        file.sync_data().expect("ignored");
        assert_eq!(disk.durable_len("f"), 3);
        disk.set_byte("f", 1, b'X');
        let mut torn = 0;
        for seed in 0..20 {
            let copy = disk.contents("f").expect("there");
            assert_eq!(copy, b"aXcdef");
            let disk = MemStorage::forgetful();
            disk.set_contents("f", b"aXc");
            let file = disk.open("f", Open::Existing).expect("there");
            disk.ignore_syncs();
            file.write_at(b"def", 3).expect("written");
            file.sync_data().expect("ignored");
            disk.crash(&mut fastrand::Rng::with_seed(seed));
            torn += usize::from(disk.contents("f").expect("durable") == b"aXc");
        }
        assert!(torn > 0, "an ignored sync keeps nothing");
        disk.lose("f");
        assert!(disk.open("f", Open::Existing).is_err());
    }
}
