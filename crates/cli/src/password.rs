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

/// Reads the first line of a file.
pub(crate) fn read_file(path: &Path) -> Result<Secret, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    let mut line = String::new();
    // A password is short: what is larger is probably another file.
    let mut reader = BufReader::new(File::open(path).map_err(failed)?.take(FILE_BYTES_MAX));
    reader.read_line(&mut line).map_err(failed)?;
    Ok(Secret::new(line.trim_end_matches(['\r', '\n'])))
}
