//! The token of a control port: who can read its file may control the broker.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::failure::Failure;

/// Bytes of a new token: 128 bits cannot be guessed.
const TOKEN_BYTES: usize = 16;
/// The longest token file that is read.
const FILE_BYTES_MAX: u64 = 4096;

/// Writes a new token to a file that its owner alone can read. An older file is replaced.
pub(super) fn create(path: &Path) -> Result<String, Failure> {
    let mut bytes = [0; TOKEN_BYTES];
    let random = Path::new("/dev/urandom");
    let filled = fs::File::open(random).and_then(|mut source| source.read_exact(&mut bytes));
    filled.map_err(|error| Failure::file(random, &error))?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // A new file: the mode of an older one, and a link in its place, would stay.
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::file(path, &error));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{token}"));
    written.map_err(|error| Failure::file(path, &error))?;
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
