//! A file tree to ship, in memory. Its bytes depend on its contents only: order, owners, modes and times are fixed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ottla_interop::Failure;

/// Directories, files and symbolic links by their path, without a slash at either end. A directory comes before its
/// contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    /// The number of its user and of its group.
    pub(crate) owner: u32,
}

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dir,
    File(Vec<u8>),
    /// The target of a symbolic link.
    Link(String),
}

const ROOT_USER: u32 = 0;

impl Tree {
    /// Adds a file that everyone may read.
    pub(crate) fn file(&mut self, path: &str, contents: impl Into<Vec<u8>>) {
        self.add(path, Kind::File(contents.into()), 0o644, ROOT_USER);
    }

    /// Adds a file that everyone may run.
    pub(crate) fn program(&mut self, path: &str, contents: impl Into<Vec<u8>>) {
        self.add(path, Kind::File(contents.into()), 0o755, ROOT_USER);
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.add(path, Kind::Link(target.to_owned()), 0o777, ROOT_USER);
    }

    /// Adds a directory of its own mode and owner.
    pub(crate) fn dir(&mut self, path: &str, mode: u32, owner: u32) {
        self.add(path, Kind::Dir, mode, owner);
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The files with their contents.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries().filter_map(|(path, entry)| match &entry.kind {
            Kind::File(contents) => Some((path, contents.as_slice())),
            Kind::Dir | Kind::Link(_) => None,
        })
    }

    fn add(&mut self, path: &str, kind: Kind, mode: u32, owner: u32) {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        for parent in parents {
            let dir = || Entry { kind: Kind::Dir, mode: 0o755, owner: ROOT_USER };
            self.entries.entry(parent.to_owned()).or_insert_with(dir);
        }
        self.entries.insert(path.to_owned(), Entry { kind, mode, owner });
    }
}

/// The contents of a file of the machine, with its name in the error.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Writes a file, with its name in the error.
pub(crate) fn write(path: &PathBuf, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    fs::write(path, contents).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_before_its_contents() {
        let mut tree = Tree::default();
        tree.program("usr/bin/ottla", "binary");
        tree.file("etc/ottla/server.properties", "");
        let paths: Vec<&str> = tree.entries().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            ["etc", "etc/ottla", "etc/ottla/server.properties", "usr", "usr/bin", "usr/bin/ottla"]
        );
    }

    #[test]
    fn a_directory_keeps_its_mode_when_files_are_added_to_it() {
        let mut tree = Tree::default();
        tree.dir("var/lib/ottla", 0o700, 65532);
        tree.file("var/lib/ottla/a", "");
        let (_, entry) = tree.entries().find(|(path, _)| *path == "var/lib/ottla").unwrap();
        assert_eq!((entry.mode, entry.owner), (0o700, 65532));
    }
}
