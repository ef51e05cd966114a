//! Passwords from the terminal and from files.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use ottla_client::Secret;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};

use crate::failure::Failure;

/// The bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads a line from the terminal without showing it. The error of a process without a terminal says what to do instead.
pub(crate) fn ask(question: &str, without_terminal: &str) -> Result<Secret, Failure> {
    let path = Path::new("/dev/tty");
    let failed = |error: std::io::Error| match error.raw_os_error() {
        Some(_) => {
            Failure::usage(format!("there is no terminal to ask for the password: {without_terminal}"))
        }
        None => Failure::file(path, &error),
    };
    let mut terminal = File::options().read(true).write(true).open(path).map_err(failed)?;
    let shown = tcgetattr(&terminal).map_err(|error| failed(error.into()))?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL);
    // Ctrl-C ends the line instead of this process, which would leave the terminal without echo.
    let interrupt = shown.special_codes[SpecialCodeIndex::VINTR];
    hidden.local_modes.remove(LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VEOL] = interrupt;
    tcsetattr(&terminal, OptionalActions::Flush, &hidden).map_err(|error| failed(error.into()))?;
    let asked = terminal.write_all(question.as_bytes());
    let mut reader = BufReader::new(&terminal);
    // The terminal passes a line on when it is complete, or at Ctrl-C.
    let line = asked.and_then(|()| reader.fill_buf().map(<[u8]>::to_vec));
    tcsetattr(&terminal, OptionalActions::Flush, &shown).map_err(|error| failed(error.into()))?;
    let line = line.map_err(failed)?;
    if line.ends_with(&[interrupt]) {
        return Err(Failure::failed("cancelled"));
    }
    let line = String::from_utf8(line).map_err(|_| Failure::usage("the password is not UTF-8"))?;
    Ok(Secret::new(line.trim_end_matches(['\r', '\n'])))
}

/// Reads the first line of a file. A file without a password in it is refused: a login with a part of another file would fail without
/// the reason.
pub(crate) fn read_file(path: &Path) -> Result<Secret, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    let refused = |what: &str| Failure::usage(format!("{}: {what}", path.display()));
    let mut line = Vec::new();
    // A password is short: what is larger is another file.
    let mut reader = BufReader::new(File::open(path).map_err(failed)?.take(FILE_BYTES_MAX));
    reader.read_until(b'\n', &mut line).map_err(failed)?;
    if line.len() as u64 == FILE_BYTES_MAX {
        return Err(refused("the first line has 65536 bytes or more: it is no password"));
    }
    let line =
        String::from_utf8(line).map_err(|_| refused("the first line is not UTF-8: it is no password"))?;
    match line.trim_end_matches(['\r', '\n']) {
        "" => Err(refused("the first line is empty: there is no password")),
        password => Ok(Secret::new(password)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a larger file, a part was the password, and the login with an empty file was refused by the broker.
    #[test]
    fn a_file_has_a_password_in_its_first_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).expect("written");
            read_file(file.path())
        };
        for bytes in [&b"secret"[..], b"secret\n", b"secret\r\nignored\xff\n"] {
            assert_eq!(read(bytes).expect("a password").expose(), "secret");
        }
        let long = vec![b'x'; 70_000];
        for (bytes, reason) in
            [(&b""[..], "empty"), (b"\nsecret\n", "empty"), (b"\xff\n", "UTF-8"), (&long[..], "65536")]
        {
            let refused = read(bytes).expect_err("no password");
            assert_eq!(refused.exit_code(), 2);
            assert!(refused.to_string().contains(reason), "{refused}");
        }
    }
}
