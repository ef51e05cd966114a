//! Archives of trees: tar with gzip, and the `ar` that a Debian package is. The same tree gives the same bytes.

use std::io::Write;

use flate2::{Compression, GzBuilder};
use ottla_interop::Failure;
use tar::{Builder, EntryType, Header, HeaderMode};

use super::tree::{Kind, Tree};

/// A tar of the tree in which every entry has the time `epoch_s`. Each path begins with `prefix`.
pub(crate) fn tar(tree: &Tree, prefix: &str, epoch_s: u64) -> Result<Vec<u8>, Failure> {
    let mut builder = Builder::new(Vec::new());
    builder.mode(HeaderMode::Deterministic);
    for (path, entry) in tree.entries() {
        let mut header = Header::new_gnu();
        header.set_mtime(epoch_s);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.into());
        header.set_gid(entry.owner.into());
        header.set_size(0);
        let name = format!("{prefix}{path}");
        let appended = match &entry.kind {
            Kind::Dir => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, format!("{name}/"), std::io::empty())
            }
            Kind::File(contents) => {
                header.set_size(contents.len() as u64);
                builder.append_data(&mut header, &name, contents.as_slice())
            }
            Kind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, &name, target)
            }
        };
        appended.map_err(|error| Failure::new(format!("tar: {name}: {error}")))?;
    }
    builder.into_inner().map_err(|error| Failure::new(format!("tar: {error}")))
}

/// Compressed, without a name or a time in the header.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    compressed.map_err(|error| Failure::new(format!("gzip: {error}")))
}

/// The archive format of Debian packages: a header of 60 bytes before each file, and every file at an even place.
pub(crate) fn ar(files: &[(&str, &[u8])], epoch_s: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, contents) in files {
        let header =
            format!("{name:<16}{epoch_s:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", contents.len());
        archive.extend(header.as_bytes());
        archive.extend(*contents);
        if contents.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_tree_gives_the_same_bytes_in_any_order_of_adding() {
        let archive = |paths: &[&str]| {
            let mut tree = Tree::default();
            for path in paths {
                tree.file(path, *path);
            }
            gzip(&tar(&tree, "x-1/", 1_700_000_000).unwrap()).unwrap()
        };
        assert_eq!(archive(&["a/b", "c"]), archive(&["c", "a/b"]));
        assert_ne!(archive(&["a/b", "c"]), archive(&["a/b", "d"]));
    }

    #[test]
    fn a_tar_has_the_modes_owners_and_targets_of_the_tree() {
        let mut tree = Tree::default();
        tree.dir("data", 0o700, 65532);
        tree.program("bin/ottla", "binary");
        tree.link("lib/librdkafka.so", "librdkafka.so.1");
        let bytes = tar(&tree, "", 17).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let seen: Vec<(String, u32, u64, u64)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap())
            })
            .collect();
        assert!(seen.contains(&("data/".to_owned(), 0o700, 65532, 17)), "{seen:?}");
        assert!(seen.contains(&("bin/ottla".to_owned(), 0o755, 0, 17)), "{seen:?}");
        assert!(seen.iter().any(|(path, ..)| path == "lib/librdkafka.so"), "{seen:?}");
    }

    #[test]
    fn every_file_of_an_ar_is_at_an_even_place() {
        let archive = ar(&[("a", b"x"), ("b", b"yz")], 1);
        assert_eq!(archive.len(), 8 + 60 + 2 + 60 + 2);
        assert_eq!(&archive[8..24], b"a               ");
        assert_eq!(&archive[70..71], b"b");
    }
}
