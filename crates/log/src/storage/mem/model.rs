//! The bytes on a disk, the durable ones among them, and the effect of a power cut on the others.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

/// Large enough to make growing cheap, small enough that a file of any size is never copied as a whole.
const PAGE_BYTES: usize = 64 * 1024;
/// The number of bytes that a disk writes in one piece.
const SECTOR_BYTES: usize = 512;

#[derive(Default)]
pub(super) struct Names {
    pub(super) live: Tree,
    pub(super) durable: Tree,
    /// Changes of `live` that `durable` does not know, in order.
    pub(super) pending: Vec<NameOp>,
}

#[derive(Clone, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, Arc<Mutex<Inode>>>,
    pub(super) dirs: BTreeSet<String>,
}

#[derive(Clone)]
pub(super) enum NameOp {
    Create(String, Arc<Mutex<Inode>>),
    CreateDir(String),
    Rename(String, String),
    Remove(String),
    RemoveDir(String),
}

impl NameOp {
    pub(super) fn parent(&self) -> &str {
        match self {
            Self::Create(path, _)
            | Self::CreateDir(path)
            | Self::Rename(path, _)
            | Self::Remove(path)
            | Self::RemoveDir(path) => parent(path),
        }
    }
}

impl Tree {
    pub(super) fn apply(&mut self, op: &NameOp) {
        match op {
            NameOp::Create(path, inode) => {
                self.files.insert(path.clone(), inode.clone());
            }
            NameOp::CreateDir(path) => {
                self.dirs.insert(path.clone());
            }
            NameOp::Rename(from, to) => {
                if let Some(inode) = self.files.remove(from) {
                    self.files.insert(to.clone(), inode);
                }
            }
            NameOp::Remove(path) => {
                self.files.remove(path);
            }
            NameOp::RemoveDir(path) => {
                self.dirs.remove(path);
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Inode {
    pub(super) live: Pages,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<DataOp>,
}

pub(super) enum DataOp {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

pub(super) fn apply_data(bytes: &mut Vec<u8>, op: &DataOp, part: usize) {
    match op {
        DataOp::Write(offset, data) => {
            let data = &data[..part.min(data.len())];
            let from = *offset as usize;
            if bytes.len() < from + data.len() {
                bytes.resize(from + data.len(), 0);
            }
            bytes[from..from + data.len()].copy_from_slice(data);
        }
        DataOp::SetLen(len) => bytes.resize(*len as usize, 0),
    }
}

impl Inode {
    /// Returns the bytes that a power cut leaves.
    pub(super) fn after_crash(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        match rng.u8(0..4) {
            0 => {}
            1 => self.pending.iter().for_each(|op| apply_data(&mut bytes, op, usize::MAX)),
            2 => {
                let whole = rng.usize(0..=self.pending.len());
                self.pending[..whole].iter().for_each(|op| apply_data(&mut bytes, op, usize::MAX));
                if let Some(op @ DataOp::Write(_, data)) = self.pending.get(whole) {
                    apply_data(&mut bytes, op, rng.usize(0..=data.len()));
                }
            }
            _ => {
                let all = self.live.to_vec();
                let len = if rng.bool() { all.len() } else { bytes.len() };
                bytes.resize(len, 0);
                for (sector, new) in bytes.chunks_mut(SECTOR_BYTES).zip(all.chunks(SECTOR_BYTES)) {
                    if rng.bool() {
                        let n = sector.len().min(new.len());
                        sector[..n].copy_from_slice(&new[..n]);
                    }
                }
            }
        }
        bytes
    }
}

pub(super) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..at])
}

/// A growable run of bytes in pages. A clone shares its pages until one of both writes to them.
#[derive(Clone, Default)]
pub(super) struct Pages {
    pages: Vec<Arc<Vec<u8>>>,
    pub(super) len: usize,
}

impl Pages {
    pub(super) fn write(&mut self, mut bytes: &[u8], offset: usize) {
        if offset > self.len {
            self.set_len(offset);
        }
        let mut at = offset;
        while !bytes.is_empty() {
            if at / PAGE_BYTES == self.pages.len() {
                self.pages.push(Arc::default());
            }
            let page = Arc::make_mut(&mut self.pages[at / PAGE_BYTES]);
            let from = at % PAGE_BYTES;
            let n = bytes.len().min(PAGE_BYTES - from);
            let over = n.min(page.len() - from);
            page[from..from + over].copy_from_slice(&bytes[..over]);
            page.extend_from_slice(&bytes[over..n]);
            bytes = &bytes[n..];
            at += n;
        }
        self.len = self.len.max(at);
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: usize) -> io::Result<()> {
        if offset.checked_add(buf.len()).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done;
            let from = at % PAGE_BYTES;
            let n = (buf.len() - done).min(PAGE_BYTES - from);
            buf[done..done + n].copy_from_slice(&self.pages[at / PAGE_BYTES][from..from + n]);
            done += n;
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.pages.resize_with(len.div_ceil(PAGE_BYTES), Arc::default);
        let last = self.pages.len().saturating_sub(1);
        for (number, page) in self.pages.iter_mut().enumerate().skip((self.len.min(len)) / PAGE_BYTES) {
            let bytes = if number == last { len - last * PAGE_BYTES } else { PAGE_BYTES };
            if page.len() != bytes {
                Arc::make_mut(page).resize(bytes, 0);
            }
        }
        self.len = len;
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.pages.iter().flat_map(|page| page.iter().copied()).collect()
    }
}

impl From<&[u8]> for Pages {
    fn from(bytes: &[u8]) -> Self {
        let mut pages = Self::default();
        pages.write(bytes, 0);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_behave_like_one_run_of_bytes() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut pages, mut model) = (Pages::default(), Vec::new());
        for _ in 0..200 {
            let at = rng.usize(0..300_000);
            if rng.u8(0..4) == 0 {
                pages.set_len(at);
                model.resize(at, 0);
            } else {
                let bytes = vec![rng.u8(..); rng.usize(0..100_000)];
                pages.write(&bytes, at);
                apply_data(&mut model, &DataOp::Write(at as u64, bytes), usize::MAX);
                if model.len() < at {
                    model.resize(at, 0);
                }
            }
            assert!(pages.to_vec() == model && pages.len == model.len());
        }
        let copy = pages.clone();
        pages.write(b"later", 0);
        assert!(copy.to_vec() == model, "a copy does not change");
        let mut buf = vec![0; 70_000];
        pages.set_len(100_000);
        pages.read(&mut buf, 30_000).expect("inside");
        assert!(pages.read(&mut buf, 30_001).is_err());
    }
}
