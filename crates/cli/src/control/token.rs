//! The token of a control port: who can read its file may control the broker.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Bytes of a new token: 128 bits cannot be guessed.
const TOKEN_BYTES: usize = 16;
/// The longest token file that is read.
const FILE_BYTES_MAX: u64 = 4096;

/// Writes a new token to a file that its owner alone can read. An older file is replaced: a reader finds its token or the new one.
pub(super) fn create(path: &Path) -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_BYTES];
    let random = Path::new("/dev/urandom");
    let filled = fs::File::open(random).and_then(|mut source| source.read_exact(&mut bytes));
    filled.map_err(|error| Failure::file(random, &error))?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // A new file: the mode of an older one, and a link in its place, would stay.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::file(&part, &error));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&part);
    let written = file.and_then(|mut file| writeln!(file, "{token}"));
    let renamed = written.and_then(|()| fs::rename(&part, path));
    renamed.map_err(|error| Failure::file(path, &error))?;
    Ok(token)
}

/// Reads a token.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let file = || {
        let mut text = String::new();
        fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = file().map_err(|error: std::io::Error| Failure::file(path, &error))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// The file was created empty and written afterwards: a client that read it in between had an empty token.
    #[test]
    fn a_reader_never_finds_a_part_of_a_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    if let Ok(token) = read(&path) {
                        assert_eq!(token.len(), 2 * TOKEN_BYTES, "{token}");
                    }
                }
            });
            let created = (0..1000).try_for_each(|_| create(&path).map(drop));
            is_done.store(true, Ordering::Relaxed);
            created.expect("written");
        });
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "the part is renamed");
    }
}
