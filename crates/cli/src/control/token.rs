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

/// Writes a new token to a file that its owner alone can read. The file of an older token is replaced: a reader finds that token or
/// the new one. Any other file is kept.
pub(super) fn create(path: &Path) -> Result<String, Failure> {
    check_replaceable(path)?;
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

/// Refuses to replace a file that has no token of an earlier start: a mistyped name would destroy it, and a rename replaces even
/// `/dev/stdout`.
fn check_replaceable(path: &Path) -> Result<(), Failure> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| Failure::file(path, &error))?,
    };
    if found.is_file() && found.len() <= FILE_BYTES_MAX && read(path).is_ok_and(|text| is_token(&text)) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "--control-token {}: the file exists and has no token of `ottla broker`: it is not replaced; use another name, or remove it",
        path.display()
    )))
}

/// Returns `true` for a token, and for the empty file that `mktemp` makes.
fn is_token(text: &str) -> bool {
    text.is_empty() || text.len() == 2 * TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
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

    /// A file that was named by mistake had a token afterwards.
    #[test]
    fn a_file_without_a_token_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notes");
        fs::write(&path, "of a user\n").expect("written");
        let refused = create(&path).expect_err("a file of a user").to_string();
        assert!(refused.contains("notes") && refused.contains("not replaced"), "{refused}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "of a user\n");
        // A rename would replace the link, as it would `/dev/stdout`.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        create(&link).expect_err("a link");
        fs::write(&path, "").expect("written");
        let first = create(&path).expect("an empty file");
        assert_ne!(create(&path).expect("the file of a token"), first);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 2, "no part stays");
    }
}
